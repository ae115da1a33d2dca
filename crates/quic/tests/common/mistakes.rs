//! Mistakes that a peer can make in HTTP/3, and what they must lead to.
#![allow(dead_code, reason = "one test file uses it")]

use quic::h3::Code;

/// A mistake: the clause, what is wrong, the bytes, what they lead to.
pub(crate) type Case = (&'static str, &'static str, &'static [u8], Code);

/// Streams of one direction, beginning with their kind. Either end refuses these.
#[rustfmt::skip]
pub(crate) const STREAMS: &[Case] = &[
    ("9114 §6.2.1", "DATA before SETTINGS", b"\x00\x00\x00\x04\x00", Code::MISSING_SETTINGS),
    ("9114 §6.2.1", "HEADERS before SETTINGS", b"\x00\x01\x00\x04\x00", Code::MISSING_SETTINGS),
    ("9114 §6.2.1", "GOAWAY before SETTINGS", b"\x00\x07\x01\x00", Code::MISSING_SETTINGS),
    ("9114 §6.2.1", "MAX_PUSH_ID before SETTINGS", b"\x00\x0d\x01\x00", Code::MISSING_SETTINGS),
    ("9114 §6.2.1", "an unknown frame before SETTINGS", b"\x00\x21\x01x\x04\x00", Code::MISSING_SETTINGS),
    ("9114 §7.2.1", "DATA", b"\x00\x04\x00\x00\x01x", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.2", "HEADERS", b"\x00\x04\x00\x01\x01x", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.5", "PUSH_PROMISE", b"\x00\x04\x00\x05\x01\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.3", "CANCEL_PUSH of no push", b"\x00\x04\x00\x03\x01\x00", Code::ID_ERROR),
    ("9114 §7.1", "CANCEL_PUSH that is too long", b"\x00\x04\x00\x03\x02\x00\x00", Code::FRAME_ERROR),
    ("9114 §7.1", "CANCEL_PUSH that is too short", b"\x00\x04\x00\x03\x01\x40", Code::FRAME_ERROR),
    ("9114 §7.1", "CANCEL_PUSH of nothing", b"\x00\x04\x00\x03\x00", Code::FRAME_ERROR),
    ("9114 §7.2.4", "SETTINGS twice", b"\x00\x04\x00\x04\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.4", "a setting twice", b"\x00\x04\x04\x06\x10\x06\x10", Code::SETTINGS_ERROR),
    ("9114 §7.2.4.1", "setting 0 of HTTP/2", b"\x00\x04\x02\x00\x01", Code::SETTINGS_ERROR),
    ("9114 §7.2.4.1", "setting 2 of HTTP/2", b"\x00\x04\x02\x02\x01", Code::SETTINGS_ERROR),
    ("9114 §7.2.4.1", "setting 3 of HTTP/2", b"\x00\x04\x02\x03\x01", Code::SETTINGS_ERROR),
    ("9114 §7.2.4.1", "setting 4 of HTTP/2", b"\x00\x04\x02\x04\x01", Code::SETTINGS_ERROR),
    ("9114 §7.2.4.1", "setting 5 of HTTP/2", b"\x00\x04\x02\x05\x01", Code::SETTINGS_ERROR),
    ("9114 §7.1", "SETTINGS with half a setting", b"\x00\x04\x01\x06", Code::FRAME_ERROR),
    ("9114 §10.5", "SETTINGS of a megabyte", b"\x00\x04\x80\x10\x00\x00", Code::FRAME_ERROR),
    ("9220 §3", "ENABLE_CONNECT_PROTOCOL of 2", b"\x00\x04\x02\x08\x02", Code::SETTINGS_ERROR),
    ("9297 §2.1.1", "H3_DATAGRAM of 2", b"\x00\x04\x02\x33\x02", Code::SETTINGS_ERROR),
    ("9114 §7.1", "GOAWAY that is too long", b"\x00\x04\x00\x07\x02\x00\x00", Code::FRAME_ERROR),
    ("9114 §7.1", "GOAWAY of nothing", b"\x00\x04\x00\x07\x00", Code::FRAME_ERROR),
    ("9114 §5.2", "GOAWAY that grows", b"\x00\x04\x00\x07\x01\x00\x07\x01\x04", Code::ID_ERROR),
    ("9114 §7.2.8", "PRIORITY of HTTP/2", b"\x00\x04\x00\x02\x01x", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.8", "PING of HTTP/2", b"\x00\x04\x00\x06\x01x", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.8", "WINDOW_UPDATE of HTTP/2", b"\x00\x04\x00\x08\x01x", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.8", "CONTINUATION of HTTP/2", b"\x00\x04\x00\x09\x01x", Code::FRAME_UNEXPECTED),
    ("9204 §4.3.1", "a capacity that was not allowed", b"\x02\x21", Code::ENCODER_STREAM_ERROR),
    ("9204 §4.3.1", "a capacity of 2^62", b"\x02\x3f\xff\xff\xff\xff\xff\xff\xff\xff\x7f", Code::ENCODER_STREAM_ERROR),
    ("9204 §4.3.2", "an insertion with a name of the table", b"\x02\xc0\x01x", Code::ENCODER_STREAM_ERROR),
    ("9204 §4.3.3", "an insertion with its name", b"\x02\x41x\x01y", Code::ENCODER_STREAM_ERROR),
    ("9204 §4.3.4", "a duplicate", b"\x02\x00", Code::ENCODER_STREAM_ERROR),
    ("9204 §4.4.1", "an acknowledgement of nothing", b"\x03\x80", Code::DECODER_STREAM_ERROR),
    ("9204 §4.4.3", "an increment of 0", b"\x03\x00", Code::DECODER_STREAM_ERROR),
    ("9204 §4.4.3", "an increment beyond what was inserted", b"\x03\x01", Code::DECODER_STREAM_ERROR),
    ("9204 §4.1.1", "a number without an end", b"\x03\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Code::DECODER_STREAM_ERROR),
];

/// The same, of clients.
#[rustfmt::skip]
pub(crate) const OF_CLIENTS: &[Case] = &[
    ("9114 §6.2.2", "a push", b"\x01\x00", Code::STREAM_CREATION_ERROR),
    ("9114 §7.2.7", "MAX_PUSH_ID that shrinks", b"\x00\x04\x00\x0d\x01\x05\x0d\x01\x04", Code::ID_ERROR),
    ("9114 §7.1", "MAX_PUSH_ID that is too long", b"\x00\x04\x00\x0d\x02\x05\x05", Code::FRAME_ERROR),
];

/// The same, of servers.
#[rustfmt::skip]
pub(crate) const OF_SERVERS: &[Case] = &[
    ("9114 §4.6", "a push that was not allowed", b"\x01\x00", Code::ID_ERROR),
    ("9114 §7.2.7", "MAX_PUSH_ID", b"\x00\x04\x00\x0d\x01\x05", Code::FRAME_UNEXPECTED),
    ("9114 §5.2", "GOAWAY of a server's stream", b"\x00\x04\x00\x07\x01\x01", Code::ID_ERROR),
    ("9114 §5.2", "GOAWAY of one direction's stream", b"\x00\x04\x00\x07\x01\x02", Code::ID_ERROR),
];

/// A stream for a request, from its beginning to its end; the connection ends.
#[rustfmt::skip]
pub(crate) const EXCHANGES: &[Case] = &[
    ("9114 §4.1", "DATA before HEADERS", b"\x00\x01x", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.3", "CANCEL_PUSH", b"\x03\x01\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.4", "SETTINGS", b"\x04\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.6", "GOAWAY", b"\x07\x01\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.7", "MAX_PUSH_ID", b"\x0d\x01\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.8", "PRIORITY of HTTP/2", b"\x02\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.8", "PING of HTTP/2", b"\x06\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.8", "WINDOW_UPDATE of HTTP/2", b"\x08\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.8", "CONTINUATION of HTTP/2", b"\x09\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.1", "an end within HEADERS", b"\x01\x05\x00", Code::FRAME_ERROR),
    ("9114 §7.1", "an end within a length", b"\x01\x40", Code::FRAME_ERROR),
    ("9114 §7.1", "an end within a type", b"\x40", Code::FRAME_ERROR),
    ("9114 §7.1", "an end within an unknown frame", b"\x21\x05\x00", Code::FRAME_ERROR),
    ("9114 §10.5", "HEADERS of 2^60 bytes", b"\x01\xd0\x00\x00\x00\x00\x00\x00\x00", Code::EXCESSIVE_LOAD),
    ("9204 §2.2", "nothing in HEADERS", b"\x01\x00", Code::DECOMPRESSION_FAILED),
    ("9204 §4.5.1", "half a prefix", b"\x01\x01\x00", Code::DECOMPRESSION_FAILED),
    ("9204 §4.5.1.1", "insertions that are required", b"\x01\x03\x02\x00\x80", Code::DECOMPRESSION_FAILED),
    ("9204 §4.5.1.2", "a negative base", b"\x01\x04\x00\x80\xd1\xd7", Code::DECOMPRESSION_FAILED),
    ("9204 §4.1.1", "a number of more than 62 bits", b"\x01\x0d\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", Code::DECOMPRESSION_FAILED),
    ("9204 §3.1", "no such index", b"\x01\x04\x00\x00\xff\x24", Code::DECOMPRESSION_FAILED),
    ("9204 §3.1", "no such name", b"\x01\x06\x00\x00\x5f\x54\x01x", Code::DECOMPRESSION_FAILED),
    ("9204 §4.5.2", "an index of the dynamic table", b"\x01\x03\x00\x00\x80", Code::DECOMPRESSION_FAILED),
    ("9204 §4.5.3", "an index behind the base", b"\x01\x03\x00\x00\x10", Code::DECOMPRESSION_FAILED),
    ("9204 §4.5.4", "a name of the dynamic table", b"\x01\x05\x00\x00\x40\x01x", Code::DECOMPRESSION_FAILED),
    ("9204 §4.5.5", "a name behind the base", b"\x01\x05\x00\x00\x00\x01x", Code::DECOMPRESSION_FAILED),
    ("9204 §4.1.2", "a string that is cut", b"\x01\x04\x00\x00\x51\x7f", Code::DECOMPRESSION_FAILED),
    ("7541 §5.2", "Huffman filled up with noughts", b"\x01\x05\x00\x00\x51\x81\x00", Code::DECOMPRESSION_FAILED),
    ("7541 §5.2", "Huffman filled up with a byte", b"\x01\x06\x00\x00\x51\x82\x1f\xff", Code::DECOMPRESSION_FAILED),
    ("7541 §5.2", "Huffman with its end within", b"\x01\x08\x00\x00\x51\x84\xff\xff\xff\xff", Code::DECOMPRESSION_FAILED),
];

/// What clients must not send behind a POST.
#[rustfmt::skip]
pub(crate) const BEHIND_POST: &[Case] = &[
    ("9114 §4.1", "HEADERS behind trailers", b"\x01\x02\x00\x00\x01\x02\x00\x00", Code::FRAME_UNEXPECTED),
    ("9114 §4.1", "DATA behind trailers", b"\x01\x02\x00\x00\x00\x01x", Code::FRAME_UNEXPECTED),
    ("9114 §7.2.5", "PUSH_PROMISE", b"\x05\x01\x00", Code::FRAME_UNEXPECTED),
    ("9114 §7.1", "an end within DATA", b"\x00\x05abc", Code::FRAME_ERROR),
];

/// Heads of requests (without the frame and the prefix) that are malformed: `H3_MESSAGE_ERROR` on the stream (RFC 9114 §4.1.2).
#[rustfmt::skip]
pub(crate) const REQUESTS: &[(&str, &str, &[u8])] = &[
    ("§4.3.1", "nothing at all", b""),
    ("§4.3.1", "no method", b"\xd7\x50\x01a\xc1"),
    ("§4.3.1", "no scheme", b"\xd1\x50\x01a\xc1"),
    ("§4.3.1", "no path", b"\xd1\xd7\x50\x01a"),
    ("§4.3.1", "an empty path", b"\xd1\xd7\x50\x01a\x51\x00"),
    ("§4.3.1", "a path that does not begin", b"\xd1\xd7\x50\x01a\x51\x01x"),
    ("§4.3.1", "no authority", b"\xd1\xd7\xc1"),
    ("§4.3.1", "an empty authority", b"\xd1\xd7\x50\x00\xc1"),
    ("§4.3.1", "a password in the authority", b"\xd1\xd7\x50\x05u:p@a\xc1"),
    ("§4.3.1", "another host", b"\xd1\xd7\x50\x01a\xc1\x24host\x01b"),
    ("§4.3", "a method twice", b"\xd1\xd1\xd7\x50\x01a\xc1"),
    ("§4.3", "a path twice", b"\xd1\xd7\x50\x01a\xc1\xc1"),
    ("§4.3", "a response's", b"\xd1\xd7\x50\x01a\xc1\xd9"),
    ("§4.3", "one that is not known", b"\xd1\xd7\x50\x01a\xc1\x22:x\x011"),
    ("§4.3", "behind a field", b"\xd1\xd7\x50\x01a\x21x\x011\xc1"),
    ("§4.2", "a name in upper case", b"\xd1\xd7\x50\x01a\xc1\x21X\x011"),
    ("§4.2", "a name with a space", b"\xd1\xd7\x50\x01a\xc1\x23x y\x011"),
    ("§4.2", "no name", b"\xd1\xd7\x50\x01a\xc1\x20\x011"),
    ("§4.2", "connection", b"\xd1\xd7\x50\x01a\xc1\x27\x03connection\x05close"),
    ("§4.2", "transfer-encoding", b"\xd1\xd7\x50\x01a\xc1\x27\x0atransfer-encoding\x07chunked"),
    ("§4.2", "upgrade", b"\xd1\xd7\x50\x01a\xc1\x27\x00upgrade\x01x"),
    ("§4.2", "keep-alive", b"\xd1\xd7\x50\x01a\xc1\x27\x03keep-alive\x011"),
    ("§4.2", "te that is not trailers", b"\xd1\xd7\x50\x01a\xc1\x22te\x04gzip"),
    ("§10.3", "a line's end in a value", b"\xd1\xd7\x50\x01a\xc1\x21x\x03a\x0ab"),
    ("§10.3", "a nought in a value", b"\xd1\xd7\x50\x01a\xc1\x21x\x03a\x00b"),
    ("§4.1.2", "a length that is none", b"\xd4\xd7\x50\x01a\xc1\x54\x02+1"),
    ("§4.1.2", "two lengths", b"\xd4\xd7\x50\x01a\xc1\x54\x011\x54\x012"),
    ("§4.4", "CONNECT with a path", b"\xcf\x50\x03a:1\xc1"),
    ("§4.4", "CONNECT with a scheme", b"\xcf\xd7\x50\x03a:1"),
    ("§4.4", "CONNECT to nobody", b"\xcf"),
    ("9220 §3", "a protocol for a GET", b"\xd1\xd7\x50\x01a\xc1\x27\x02:protocol\x01x"),
];

/// Heads of responses that are malformed, in the same way.
#[rustfmt::skip]
pub(crate) const RESPONSES: &[(&str, &str, &[u8])] = &[
    ("§4.3.2", "nothing at all", b""),
    ("§4.3.2", "no status", b"\x21x\x011"),
    ("§4.3", "a status twice", b"\xd9\xd9"),
    ("§4.3", "a request's", b"\xd9\xc1"),
    ("§4.3.2", "a status that is none", b"\x5f\x09\x03abc"),
    ("§4.5", "101", b"\x5f\x09\x03101"),
    ("§4.2", "a name in upper case", b"\xd9\x21X\x011"),
    ("§4.2", "connection", b"\xd9\x27\x03connection\x05close"),
    ("§4.1.2", "a length that is none", b"\xd9\x54\x02+1"),
];
