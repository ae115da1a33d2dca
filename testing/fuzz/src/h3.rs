//! Fuzz checks of HTTP/3 in crate `quic`: the parsers are its own, and so are the checks (`quic::h3::fuzz`); they are named here for the targets.

/// Frames of a stream, however they are cut.
pub fn check_frames(data: &[u8]) {
    quic::h3::fuzz::frames(data);
}

/// Field sections (QPACK), and the messages they make.
pub fn check_section(data: &[u8]) {
    quic::h3::fuzz::section(data);
}

/// Huffman codes.
pub fn check_huffman(data: &[u8]) {
    quic::h3::fuzz::huffman(data);
}

/// Datagrams of requests.
pub fn check_datagram(data: &[u8]) {
    quic::h3::fuzz::datagrams(data);
}
