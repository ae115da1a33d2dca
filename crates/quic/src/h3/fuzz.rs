//! What must hold for any input to the parsers of HTTP/3: functions for fuzzing (feature `fuzz`), no part of what the crate promises.
//!
//! They panic when something does not hold. Input comes from `testing/fuzz`, new or from its corpus.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a check ends where something does not hold"
)]

use bytes::Bytes;
use http::{HeaderMap, header};

use super::{
    Code, datagram,
    frame::{Frame, Frames, MOST_SETTINGS, Role},
    link::{LONGEST, decoder_says},
    message::{self, Protocol},
    qpack::{self, Limits, Unusable, huffman},
    varint,
};

/// Frames: the first byte chooses the stream's kind, the limits and the portions; however the rest is cut, it means the same.
pub fn frames(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else {
        return;
    };
    let role = [Role::Request, Role::Response, Role::Control, Role::Control][usize::from(how >> 6)];
    let most = if how & 0x20 == 0 { 64 << 10 } else { 10 };
    let whole = read(role, most, bytes, bytes.len().max(1));
    assert_eq!(whole, read(role, most, bytes, 1), "byte by byte");
    let step = usize::from(how & 0x1f) + 1;
    assert_eq!(whole, read(role, most, bytes, step), "in steps of {step}");
    let mut within = 0;
    for byte in bytes {
        if decoder_says(*byte, &mut within).is_err() {
            break;
        }
        assert!(within <= LONGEST);
    }
}

/// What a stream says, pieces of bodies put together, and how it ends.
fn read(role: Role, most: usize, bytes: &[u8], step: usize) -> (Vec<Frame>, Result<bool, Code>) {
    let mut frames = Frames::new(role, most);
    let (mut seen, mut body): (Vec<Frame>, Vec<u8>) = (Vec::new(), Vec::new());
    let settle = |seen: &mut Vec<Frame>, body: &mut Vec<u8>| {
        if !body.is_empty() {
            seen.push(Frame::Data(std::mem::take(body).into()));
        }
    };
    for portion in bytes.chunks(step) {
        frames.push(Bytes::copy_from_slice(portion));
        loop {
            assert!(
                frames.held() <= most.max(MOST_SETTINGS),
                "more is kept than is allowed"
            );
            match frames.next() {
                Ok(Some(Frame::Data(data))) => {
                    assert_ne!(role, Role::Control);
                    body.extend_from_slice(&data);
                }
                Ok(Some(frame)) => {
                    settle(&mut seen, &mut body);
                    seen.push(frame);
                }
                Ok(None) => break,
                Err(code) => {
                    settle(&mut seen, &mut body);
                    return (seen, Err(code));
                }
            }
        }
    }
    settle(&mut seen, &mut body);
    (seen, Ok(frames.may_end()))
}

/// Field sections: what is read is within the limits, and what is written of it is read as the same; requests, responses and trailers too.
pub fn section(data: &[u8]) {
    let Some((&how, block)) = data.split_first() else {
        return;
    };
    let limits = Limits {
        size: if how & 1 == 0 { 4096 } else { 100 },
        count: if how & 2 == 0 { 100 } else { 3 },
    };
    let fields = match fields(block, limits) {
        Ok(fields) => fields,
        Err(unusable) => {
            assert!(message::request(block, limits).is_err(), "{unusable:?}");
            assert!(message::response(block, limits).is_err(), "{unusable:?}");
            return;
        }
    };
    assert!(fields.len() <= limits.count);
    let size: usize = fields
        .iter()
        .map(|(name, value)| name.len() + value.len() + 32)
        .sum();
    assert!(size <= limits.size);
    if let Some(names) = fields
        .iter()
        .map(|(name, _)| std::str::from_utf8(name).ok())
        .collect::<Option<Vec<_>>>()
    {
        let mut again = Vec::new();
        qpack::begin(&mut again);
        for (name, (_, value)) in names.iter().zip(&fields) {
            qpack::field(&mut again, name, value);
        }
        assert_eq!(self::fields(&again, limits).as_ref(), Ok(&fields));
    }
    messages(block, limits);
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn fields(block: &[u8], limits: Limits) -> Result<Fields, Unusable> {
    let mut fields = Vec::new();
    qpack::decode(block, limits, |name, value| {
        fields.push((name.to_vec(), value.to_vec()));
        Ok::<(), Unusable>(())
    })?;
    Ok(fields)
}

fn messages(block: &[u8], limits: Limits) {
    let wide = Limits {
        size: 1 << 20,
        count: 1000,
    };
    if let Ok(request) = message::request(block, limits) {
        let mut written = Vec::new();
        message::write_request(&mut written, &request);
        let again = message::request(&written, wide).expect("what is written is a request");
        assert_eq!(request.method(), again.method());
        assert_eq!(request.uri(), again.uri());
        assert_eq!(
            request.extensions().get::<Protocol>(),
            again.extensions().get::<Protocol>()
        );
        assert_eq!(without_host(request.headers()), *again.headers());
        let _ = message::content_length(request.headers());
        assert!(message::response(block, limits).is_err());
        assert!(message::trailers(block, limits).is_err());
    }
    if let Ok(response) = message::response(block, limits) {
        let mut written = Vec::new();
        message::write_response(&mut written, &response, &message::Added::default());
        let again = message::response(&written, wide).expect("what is written is a response");
        assert_eq!(response.status(), again.status());
        assert_eq!(without_host(response.headers()), *again.headers());
        assert!(message::trailers(block, limits).is_err());
    }
    if let Ok(trailers) = message::trailers(block, limits) {
        let mut written = Vec::new();
        message::write_trailers(&mut written, &trailers);
        let again = message::trailers(&written, wide).expect("what is written is trailers");
        assert_eq!(without_host(&trailers), again);
    }
}

/// It is said by `:authority`.
fn without_host(fields: &HeaderMap) -> HeaderMap {
    let mut fields = fields.clone();
    fields.remove(header::HOST);
    fields
}

/// Huffman codes: the same as bit by bit, and never longer than the shortest code allows.
pub fn huffman(data: &[u8]) {
    let mut fast = Vec::new();
    let good = huffman::decode(data, &mut fast).is_some();
    assert!(fast.len() <= data.len() * 8 / 5);
    let slow = huffman::bit_by_bit(data);
    assert_eq!(good.then_some(fast), slow);
}

/// Datagrams: a number and a payload, or none.
pub fn datagrams(data: &[u8]) {
    let Some((quarter, payload)) = datagram::parse(Bytes::copy_from_slice(data)) else {
        let known = varint::read(data).is_some_and(|(value, _)| value <= varint::MAX / 4);
        return assert!(!known);
    };
    assert!(data.ends_with(&payload));
    let mut again = Vec::new();
    varint::write(&mut again, quarter);
    assert!(again.len() + payload.len() <= data.len());
    again.extend_from_slice(&payload);
    assert_eq!(datagram::parse(again.into()), Some((quarter, payload)));
}
