//! Frames for those who are not forwarded.

/// A SETTINGS frame without settings (RFC 9113 §6.5): a whole server preface.
pub const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// GOAWAY: 8 bytes, type 7, stream 0 (RFC 9113 §6.8). What follows is the last stream and the code.
const GOAWAY: [u8; 9] = [0, 0, 8, 7, 0, 0, 0, 0, 0];
/// HEADERS: 5 bytes, type 1, END_STREAM and END_HEADERS (RFC 9113 §6.2). What follows is the stream.
const HEADERS: [u8; 5] = [0, 0, 5, 1, 0x5];
/// `:status` as a literal without indexing, name 8 of the static table, 3 bytes plain (RFC 7541 §6.2.2).
const STATUS: [u8; 2] = [0x08, 0x03];

/// A whole connection from the server's side: SETTINGS, a response to `stream` with `status` and no body, and GOAWAY without
/// error. Send it, then close once the client has closed or after a moment.
///
/// `status` is put into the range 100 to 999, the reserved bit of `stream` is cleared.
#[must_use]
pub fn answer(stream: u32, status: u16) -> [u8; 40] {
    let stream = (stream & 0x7FFF_FFFF).to_be_bytes();
    let status = status.clamp(100, 999);
    let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
    let parts: [&[u8]; 8] = [
        &EMPTY_SETTINGS,
        &HEADERS,
        &stream,
        &STATUS,
        &[digit(100), digit(10), digit(1)],
        &GOAWAY,
        &stream,
        &[0; 4],
    ];
    join(&parts)
}

/// SETTINGS and GOAWAY with an error code; no stream was served.
pub(super) fn refusal(code: u32) -> [u8; 26] {
    join(&[&EMPTY_SETTINGS, &GOAWAY, &[0; 4], &code.to_be_bytes()])
}

fn join<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
    out
}
