//! Answers' heads and bodies.

use h1::{Asked, BodyError, Decoder, Framing, Limits, Piece, ResponseError, ResponseHead};
use rand::{Rng, SeedableRng, rngs::StdRng};

fn framing(method: &str, upgrade: bool, answer: &str) -> Result<(Framing, bool), ResponseError> {
    let mut head = ResponseHead::default();
    let length = head.parse(
        answer.as_bytes(),
        Asked::new(method.as_bytes(), upgrade),
        &Limits::default(),
    )?;
    assert_eq!(length, Some(answer.len()), "{answer:?}");
    let view = head.view(answer.as_bytes());
    Ok((view.framing(), view.keep_alive()))
}

#[test]
fn an_answer_is_framed_by_its_request() {
    let long = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(framing("GET", false, long), Ok((Framing::Length(5), true)));
    assert_eq!(framing("HEAD", false, long), Ok((Framing::None, true)));
    assert_eq!(framing("CONNECT", false, long), Ok((Framing::None, true)));
    assert_eq!(
        framing("GET", false, "HTTP/1.1 304 \r\nContent-Length: 5\r\n\r\n"),
        Ok((Framing::None, true))
    );
    assert_eq!(
        framing("GET", false, "HTTP/1.1 204\r\n\r\n"),
        Ok((Framing::None, true))
    );
    assert_eq!(
        framing("GET", false, "HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n"),
        Ok((Framing::None, false))
    );
    assert_eq!(
        framing("GET", false, "HTTP/1.1 200 OK\r\n\r\n"),
        Ok((Framing::UntilClose, false))
    );
    assert_eq!(
        framing(
            "GET",
            false,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
        ),
        Ok((Framing::Chunked, true))
    );
    assert_eq!(
        framing("GET", false, "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n"),
        Ok((Framing::Length(1), false))
    );
    assert_eq!(
        framing(
            "GET",
            true,
            "HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
        ),
        Ok((Framing::None, true))
    );
}

#[test]
fn answers_that_can_be_read_in_two_ways_are_refused() {
    use ResponseError as E;
    let cases = [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            E::BothLengths,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            E::ContentLength,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5,5\r\n\r\n",
            E::ContentLength,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            E::Coding,
        ),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            E::Coding,
        ),
        ("HTTP/1.1 101 Go\r\n\r\n", E::UnaskedUpgrade),
        ("HTTP/1.1 99 X\r\n\r\n", E::StatusLine),
        ("HTTP/1.1 600 X\r\n\r\n", E::StatusLine),
        ("HTTP/1.1 2000 X\r\n\r\n", E::StatusLine),
        ("HTTP/1.1  200 X\r\n\r\n", E::StatusLine),
        ("HTTP/2.0 200 X\r\n\r\n", E::Version),
        ("ICY 200 OK\r\n\r\n", E::StatusLine),
        ("HTTP/1.1 200 O\0K\r\n\r\n", E::StatusLine),
        ("SSH-2.0-x", E::StatusLine),
    ];
    for (answer, expected) in cases {
        let mut head = ResponseHead::default();
        let found = head.parse(
            answer.as_bytes(),
            Asked::new(b"GET", false),
            &Limits::default(),
        );
        assert_eq!(found, Err(expected), "{answer:?}");
    }
}

/// Data, and what would be written anew with canonical pieces passed as they are.
fn decode(framing: Framing, mut input: &[u8]) -> Result<(Vec<u8>, bool, usize), BodyError> {
    let mut decoder = Decoder::new(framing);
    let whole = input.len();
    let mut data = Vec::new();
    while let Some(piece) = decoder.next(input)? {
        if let Piece::Data(range) = &piece {
            data.extend_from_slice(&input[range.clone()]);
        }
        assert_eq!(piece.range().start, 0);
        input = &input[piece.range().end..];
    }
    Ok((data, decoder.is_done(), whole - input.len()))
}

#[test]
fn chunks_are_followed_to_their_end() {
    let body = b"5\r\nhello\r\nA;x=1\r\n0123456789\r\n0\r\nX: 1\r\nContent-Length: 3\r\n\r\nGET /";
    assert_eq!(
        decode(Framing::Chunked, body),
        Ok((b"hello0123456789".to_vec(), true, body.len() - 5))
    );
    let mut decoder = Decoder::new(Framing::Chunked);
    let mut canonical = Vec::new();
    let mut allowed = Vec::new();
    let mut rest = &body[..];
    while let Some(piece) = decoder.next(rest).expect("valid") {
        match piece {
            Piece::ChunkHeader {
                canonical: is,
                size,
                ..
            } => canonical.push((size, is)),
            Piece::Trailer { allowed: is, .. } => allowed.push(is),
            _ => {}
        }
        rest = &rest[piece.range().end..];
    }
    assert_eq!(canonical, [(5, true), (10, false), (0, true)]);
    assert_eq!(allowed, [true, false]);
}

#[test]
fn bad_chunks_are_refused() {
    use BodyError as E;
    let cases: [(&[u8], E); 14] = [
        (b"\r\n", E::ChunkSize),
        (b"g\r\n", E::ChunkSize),
        (b"0x5\r\n", E::ChunkSize),
        (b" 5\r\n", E::ChunkSize),
        (b"5 \r\n", E::ChunkSize),
        (b"5\nhello\n", E::ChunkSize),
        (b"-5\r\n", E::ChunkSize),
        (b"1000000000000000\r\n", E::ChunkSize),
        (b"5;a\nhello\r\n", E::ChunkExtension),
        (b"5;a\rb\r\nhello", E::ChunkExtension),
        (b"5;\0\r\nhello", E::ChunkExtension),
        (b"5\r\nhelloo\r\n", E::ChunkEnd),
        (b"5\r\nhello\n", E::ChunkEnd),
        (b"5\r\nhello0\r\n", E::ChunkEnd),
    ];
    for (body, expected) in cases {
        assert_eq!(
            decode(Framing::Chunked, body).err(),
            Some(expected),
            "{:?}",
            String::from_utf8_lossy(body)
        );
    }
    for trailer in ["A\r\n\r\n", "A : b\r\n\r\n", " a: b\r\n\r\n", "a: b\n\r\n"] {
        let body = format!("0\r\n{trailer}");
        assert!(
            matches!(
                decode(Framing::Chunked, body.as_bytes()),
                Err(E::Trailer(_))
            ),
            "{trailer:?}"
        );
    }
}

#[test]
fn what_is_no_data_is_bounded() {
    let many = "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n".repeat(1000);
    assert_eq!(
        decode(Framing::Chunked, many.as_bytes()).err(),
        Some(BodyError::ChunkExtension)
    );
    let endless = format!("1;{}", "a".repeat(5000));
    assert_eq!(
        decode(Framing::Chunked, endless.as_bytes()).err(),
        Some(BodyError::ChunkExtension)
    );
    let trailers = format!("0\r\n{}", "a: bbbbbbbbbbbbbbbb\r\n".repeat(2000));
    assert!(matches!(
        decode(Framing::Chunked, trailers.as_bytes()),
        Err(BodyError::Trailer(_))
    ));
    let endless = format!("0\r\n{}", "a".repeat(5000));
    assert!(matches!(
        decode(Framing::Chunked, endless.as_bytes()),
        Err(BodyError::Trailer(_))
    ));
}

#[test]
fn a_body_arrives_the_same_in_any_pieces() {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..200 {
        let mut body = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..random.random_range(0..6) {
            let data: Vec<u8> = (0..random.random_range(1..100))
                .map(|_| random.random())
                .collect();
            let extension = if random.random() { ";a=b" } else { "" };
            body.extend_from_slice(format!("{:x}{extension}\r\n", data.len()).as_bytes());
            body.extend_from_slice(&data);
            body.extend_from_slice(b"\r\n");
            expected.extend_from_slice(&data);
        }
        body.extend_from_slice(b"0\r\nT: v\r\n\r\n");
        let mut decoder = Decoder::new(Framing::Chunked);
        let (mut start, mut end, mut data) = (0, 0, Vec::new());
        while !decoder.is_done() {
            end = (end + random.random_range(1..30)).min(body.len());
            while let Some(piece) = decoder.next(&body[start..end]).expect("valid") {
                if let Piece::Data(range) = &piece {
                    data.extend_from_slice(&body[start..][range.clone()]);
                }
                start += piece.range().end;
            }
        }
        assert_eq!((start, &data), (body.len(), &expected));
    }
}
