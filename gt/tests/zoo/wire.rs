//! A visitor who sends bytes as they are: HTTP/1 as a case has it, HTTP/2 in frames whose fields no library would let pass.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// An HTTP/2 request, whatever it says.
#[derive(Clone, Debug)]
pub(crate) struct H2Request {
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) trailers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A sound request that ends the connection.
pub(crate) fn end_request(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: zoo.test\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Sends all of it; what comes back until the other side ends the connection. If it waits for more instead, it is told that nothing follows.
pub(crate) fn exchange(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(to);
    // A proxy that has refused does not read on: that it cannot be written is no finding.
    let _ = stream.write_all(bytes);
    let mut back = Vec::new();
    if read_on(&mut stream, &mut back, QUIET) {
        let _ = stream.shutdown(Shutdown::Write);
        read_on(&mut stream, &mut back, LAST);
    }
    back
}

/// Sends an HTTP/2 request on a connection of its own, and reads until its stream or the connection has ended.
pub(crate) fn exchange_h2(to: SocketAddr, request: &H2Request) {
    let mut stream = connect(to);
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut out, SETTINGS, 0, 0, &[]);
    let more = request.data.is_some() || !request.trailers.is_empty();
    fields(&mut out, &request.fields, !more);
    if let Some(data) = &request.data {
        let ends = request.trailers.is_empty();
        frame(&mut out, DATA, u8::from(ends) * END_STREAM, 1, data);
    }
    if !request.trailers.is_empty() {
        fields(&mut out, &request.trailers, true);
    }
    let _ = stream.write_all(&out);
    let _ = stream.set_read_timeout(Some(LAST));
    let _ = read_h2(&mut stream);
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(5)).expect("connected");
    stream.set_write_timeout(Some(LAST)).expect("set");
    stream.set_nodelay(true).expect("set");
    stream
}

/// Reads until the end (false) or until nothing came for so long (true).
fn read_on(stream: &mut TcpStream, back: &mut Vec<u8>, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    let mut piece = [0; 16 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return true;
        }
        match stream.read(&mut piece) {
            Ok(0) => return false,
            Ok(n) => back.extend_from_slice(&piece[..n]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                return true;
            }
            Err(_) => return false,
        }
    }
}

/// Until stream 1 has ended, one way or another.
fn read_h2(stream: &mut TcpStream) -> io::Result<()> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload)?;
        let (kind, flags, of_stream) = (head[3], head[4], head[8] == 1);
        match kind {
            SETTINGS if flags & ACK == 0 => {
                let mut ack = Vec::new();
                frame(&mut ack, SETTINGS, ACK, 0, &[]);
                stream.write_all(&ack)?;
            }
            RST_STREAM | GOAWAY => return Ok(()),
            DATA | HEADERS if of_stream && flags & END_STREAM != 0 => return Ok(()),
            _ => {}
        }
    }
}

/// A block of literal fields without indexing (RFC 7541 §6.2.2), in as many frames as it needs.
fn fields(out: &mut Vec<u8>, fields: &[(Vec<u8>, Vec<u8>)], ends: bool) {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        string(&mut block, name);
        string(&mut block, value);
    }
    let mut parts = block.chunks(MOST_FRAME).peekable();
    let mut kind = HEADERS;
    while let Some(part) = parts.next() {
        let mut flags = u8::from(parts.peek().is_none()) * END_HEADERS;
        if kind == HEADERS && ends {
            flags |= END_STREAM;
        }
        frame(out, kind, flags, 1, part);
        kind = CONTINUATION;
    }
}

/// RFC 7541 §5.1 and §5.2, without Huffman.
fn string(out: &mut Vec<u8>, text: &[u8]) {
    let Some(mut left) = text.len().checked_sub(127) else {
        out.push(u8::try_from(text.len()).unwrap_or_default());
        return out.extend_from_slice(text);
    };
    out.push(127);
    while left >= 128 {
        out.push((left % 128) as u8 | 128);
        left /= 128;
    }
    out.push(left as u8);
    out.extend_from_slice(text);
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
    out.extend_from_slice(payload);
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const MOST_FRAME: usize = 16 << 10;
/// Nothing for so long: the other side waits.
const QUIET: Duration = Duration::from_millis(700);
/// And then for so long to the end.
const LAST: Duration = Duration::from_secs(3);
