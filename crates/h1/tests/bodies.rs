//! Bodies: where they end, what of them is data, and what is passed on.

mod common;

use common::{body, decode, for_seeds};
use h1::{
    BodyDecoder, BodyEncoder, BodyError, FieldError, Framing, Limits, RelayError, RequestBody,
    RequestLine, RequestWriter, Trailers, Upstream, WriteError,
};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};

fn chunked() -> RequestBody {
    body(Framing::Chunked, &Limits::default())
}

fn writer(framing: Framing) -> RequestWriter {
    let line = RequestLine::new(b"POST", b"/", b"", framing).expect("a good line");
    Upstream::new(&Limits::default())
        .send(&line, (), &mut Vec::new())
        .finish()
        .body
}

/// Data and error, which must be the same for single bytes.
fn outcome(text: &[u8], limits: &Limits) -> Result<(Vec<u8>, bool, usize), BodyError> {
    let mut whole = body(Framing::Chunked, limits);
    let at_once = decode(whole.decoder(), text);
    let mut single = body(Framing::Chunked, limits);
    let (mut data, mut consumed, mut error) = (Vec::new(), 0, None);
    for byte in text {
        match decode(single.decoder(), std::slice::from_ref(byte)) {
            Ok((more, n)) => {
                data.extend_from_slice(&more);
                consumed += n;
            }
            Err(found) => error = error.or(Some(found)),
        }
    }
    let text = String::from_utf8_lossy(text);
    match at_once {
        Ok(found) => assert_eq!(
            (Some(found), None),
            (Some((data.clone(), consumed)), error),
            "{text:?}"
        ),
        Err(found) => assert_eq!(Some(found), error, "{text:?}"),
    }
    match error {
        None => Ok((data, single.is_complete(), consumed)),
        Some(error) => Err(error),
    }
}

#[test]
fn chunks_are_followed_to_their_end() {
    let text = b"5\r\nhello\r\n00A;x=1;y;z=\"a\\\"\r;b\"\r\n";
    assert_eq!(
        outcome(text, &Limits::default()).err(),
        Some(BodyError::ChunkExtension)
    );
    let text = b"5\r\nhello\r\n00A;x=1;y; z = \"a\\\";b\"\r\n0123456789\r\n0\r\nX: 1\r\nContent-Length: 3\r\nY:\t2 \r\n\r\nGET /";
    let found = outcome(text, &Limits::default());
    assert_eq!(
        found,
        Ok((b"hello0123456789".to_vec(), true, text.len() - 5))
    );
    let mut body = chunked();
    decode(body.decoder(), text).expect("good");
    let trailers: Vec<_> = body.decoder().trailers().iter().collect();
    assert_eq!(trailers, [(&b"X"[..], &b"1"[..]), (b"Y", b"2")]);
}

#[test]
fn bad_chunks_are_refused() {
    use BodyError as E;
    let cases: [(&str, E); 24] = [
        ("\r\n", E::ChunkSize),
        ("g\r\n", E::ChunkSize),
        ("0x5\r\n", E::ChunkSize),
        (" 5\r\n", E::ChunkSize),
        ("5 \r\n", E::ChunkSize),
        ("5 ;a\r\n", E::ChunkSize),
        ("5\nhello\n", E::ChunkSize),
        ("5\rX", E::ChunkSize),
        ("-5\r\n", E::ChunkSize),
        ("+5\r\n", E::ChunkSize),
        ("5_0\r\n", E::ChunkSize),
        ("1000000000000000\r\n", E::ChunkSize),
        ("0000000000000005\r\n", E::ChunkSize),
        ("5;\r\n", E::ChunkExtension),
        ("5;a\nhello\r\n", E::ChunkExtension),
        ("5;a\rb\r\nhello", E::ChunkSize),
        ("5;\0\r\nhello", E::ChunkExtension),
        ("5;a=\r\nhello", E::ChunkExtension),
        ("5;a=\"b\r\nhello", E::ChunkExtension),
        ("5;a b\r\nhello", E::ChunkExtension),
        ("5\r\nhelloo\r\n", E::ChunkEnd),
        ("5\r\nhello\n", E::ChunkEnd),
        ("5\r\nhello\rX", E::ChunkEnd),
        ("5\r\nhello0\r\n", E::ChunkEnd),
    ];
    for (text, expected) in cases {
        assert_eq!(
            outcome(text.as_bytes(), &Limits::default()).err(),
            Some(expected),
            "{text:?}"
        );
    }
    for (trailer, expected) in [
        ("A\r\n\r\n", FieldError::NoField),
        (": b\r\n\r\n", FieldError::NoField),
        ("A : b\r\n\r\n", FieldError::SpaceInName),
        (" a: b\r\n\r\n", FieldError::Folded),
        ("a: b\n\r\n", FieldError::BareLf),
        ("a: b\r\n\n", FieldError::BareLf),
        ("a: b\rc\r\n\r\n", FieldError::BareCr),
        ("a: \0\r\n\r\n", FieldError::Value),
        ("\u{e4}: b\r\n\r\n", FieldError::Name),
    ] {
        let text = format!("0\r\n{trailer}");
        let found = outcome(text.as_bytes(), &Limits::default()).err();
        assert_eq!(found, Some(E::Trailer(expected)), "{trailer:?}");
    }
}

#[test]
fn what_is_no_data_is_bounded() {
    let limits = Limits {
        chunk_extension: 8,
        chunk_extensions: 20,
        trailers: 30,
        ..Limits::default()
    };
    let extensions = |each: usize, count: usize| {
        let chunk = format!("1;{}\r\nx\r\n", "a".repeat(each - 1));
        outcome(chunk.repeat(count).as_bytes(), &limits).is_ok()
    };
    assert!(extensions(8, 1) && !extensions(9, 1));
    assert!(extensions(5, 4) && !extensions(5, 5));
    let trailers = |each: usize, count: usize| {
        let line = format!("a:{}\r\n", "b".repeat(each - 4));
        let found = outcome(
            format!("0\r\n{}\r\n", line.repeat(count)).as_bytes(),
            &limits,
        );
        assert!(matches!(
            found,
            Ok(_) | Err(BodyError::Trailer(FieldError::TooLong))
        ));
        found.is_ok()
    };
    assert!(trailers(30, 1) && !trailers(31, 1));
    assert!(trailers(10, 3) && !trailers(10, 4));
    let endless = format!("0\r\n{}", "a".repeat(40));
    assert!(outcome(endless.as_bytes(), &limits).is_err());
}

#[test]
fn a_body_has_the_length_that_is_allowed() {
    let mut length = body(Framing::Length(5), &Limits::default());
    assert_eq!(length.set_limit(5), Ok(()));
    assert_eq!(length.set_limit(4), Err(BodyError::TooLarge));
    assert_eq!(
        length.decoder().decode(b"x"),
        Err(BodyError::TooLarge),
        "and stays so"
    );
    assert_eq!(BodyError::TooLarge.status(), 413);
    for (limit, good) in [(5, true), (4, false)] {
        let mut chunked = chunked();
        assert_eq!(chunked.set_limit(limit), Ok(()));
        let found = decode(chunked.decoder(), b"2\r\nab\r\n3\r\n");
        assert_eq!(found.is_ok(), good, "a chunk counts when it is announced");
    }
}

#[test]
fn an_end_of_the_connection_completes_nothing_that_has_an_end_of_its_own() {
    for (framing, sent) in [
        (Framing::Length(3), &b"ab"[..]),
        (Framing::Chunked, b""),
        (Framing::Chunked, b"1"),
        (Framing::Chunked, b"1\r\na"),
        (Framing::Chunked, b"1\r\na\r\n"),
        (Framing::Chunked, b"0\r\n"),
        (Framing::Chunked, b"0\r\nX: y\r\n"),
    ] {
        let mut body = body(framing, &Limits::default());
        decode(body.decoder(), sent).expect("good so far");
        assert_eq!(
            body.decoder().end_of_input(),
            Err(BodyError::Truncated),
            "{sent:?}"
        );
        assert!(!body.is_complete());
    }
    for (framing, sent) in [
        (Framing::None, &b""[..]),
        (Framing::Length(1), b"a"),
        (Framing::Chunked, b"0\r\n\r\n"),
    ] {
        let mut body = body(framing, &Limits::default());
        decode(body.decoder(), sent).expect("good");
        assert_eq!(body.decoder().end_of_input(), Ok(()));
    }
}

#[test]
fn late_fields_of_framing_routing_and_authentication_are_dropped() {
    let names = [
        "Content-Length",
        "content_length",
        "Transfer-Encoding",
        "Host",
        "Connection",
        "Authorization",
        "Cookie",
        "Set-Cookie",
        "X-Forwarded-For",
        "TE",
        "Trailer",
        "Expect",
        "Content-Type",
        "Content-Encoding",
        "Content-Range",
        "Cache-Control",
        "Upgrade",
        "Keep-Alive",
        "WWW-Authenticate",
        "Range",
        "Location",
        "Max-Forwards",
    ];
    for name in names {
        let mut body = chunked();
        let text = format!("0\r\nA: 1\r\n{name}: x\r\nB: 2\r\n\r\n");
        decode(body.decoder(), text.as_bytes()).expect("good");
        let kept: Vec<_> = body
            .decoder()
            .trailers()
            .iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(kept, [b"A", b"B"], "{name}");
    }
}

/// All that comes out when `input` comes in pieces of random size.
fn relayed(
    from: &mut BodyDecoder,
    to: &mut BodyEncoder,
    input: &[u8],
    rng: &mut StdRng,
) -> Result<(Vec<u8>, usize), RelayError> {
    let mut out = Vec::new();
    let (mut start, mut end, mut done) = (0, 0, false);
    let longest = *[1, 3, 20, 5000].choose(rng).expect("some");
    while end < input.len() && !done {
        end = input.len().min(end + rng.random_range(1..=longest));
        if rng.random() {
            let moved = to.relay_into(from, &input[start..end], &mut out)?;
            start += moved.consumed;
            done = moved.end;
            continue;
        }
        while start < end && !done {
            let step = to.relay(from, &input[start..end])?;
            out.extend_from_slice(step.prefix.as_bytes());
            out.extend_from_slice(&input[start..][step.data]);
            out.extend_from_slice(step.suffix.as_bytes());
            start += step.consumed;
            done = step.end;
        }
        if done {
            to.finish(from.trailers(), &mut out)?;
        }
    }
    Ok((out, start))
}

fn random_chunks(rng: &mut StdRng) -> (Vec<u8>, Vec<u8>) {
    let (mut text, mut data) = (Vec::new(), Vec::new());
    for _ in 0..rng.random_range(0..6) {
        let chunk: Vec<u8> = (0..rng.random_range(1..200))
            .map(|_| rng.random())
            .collect();
        let zeros = ["", "", "", "00"].choose(rng).expect("some");
        let extension = ["", "", "", ";a=b"].choose(rng).expect("some");
        text.extend_from_slice(format!("{zeros}{:x}{extension}\r\n", chunk.len()).as_bytes());
        text.extend_from_slice(&chunk);
        text.extend_from_slice(b"\r\n");
        data.extend_from_slice(&chunk);
    }
    let trailers = ["", "", "T: v\r\n", "Host: x\r\nU: w\r\n"]
        .choose(rng)
        .expect("some");
    text.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    (text, data)
}

#[test]
fn chunks_in_any_pieces_come_out_as_the_same_data_and_trailers() {
    for_seeds(5000, |rng| {
        let (text, data) = random_chunks(rng);
        let whole = [&text[..], b"NEXT"].concat();
        let (mut from, mut to) = (chunked(), writer(Framing::Chunked));
        let (out, consumed) = relayed(from.decoder(), to.encoder(), &whole, rng).expect("good");
        assert_eq!(consumed, text.len());
        assert!(to.encoder().is_complete());
        assert!(
            !out.contains(&b';') || data.contains(&b';'),
            "no extension passes"
        );
        let mut again = chunked();
        assert_eq!(decode(again.decoder(), &out), Ok((data, out.len())));
        assert!(again.is_complete());
        assert!(
            again
                .decoder()
                .trailers()
                .iter()
                .eq(from.decoder().trailers().iter())
        );
    });
}

#[test]
fn plain_chunks_pass_in_one_piece() {
    let text = b"5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n";
    let (mut from, mut to) = (chunked(), writer(Framing::Chunked));
    let step = to.encoder().relay(from.decoder(), text).expect("good");
    assert_eq!(
        (step.prefix.as_bytes(), step.suffix.as_bytes()),
        (&b""[..], &b""[..])
    );
    assert_eq!(
        (step.data, step.consumed, step.end),
        (0..text.len() - 5, text.len(), true)
    );
    let mut out = Vec::new();
    to.encoder()
        .finish(from.decoder().trailers(), &mut out)
        .expect("complete");
    assert_eq!(out, b"0\r\n\r\n");
}

#[test]
fn a_body_may_change_its_framing_on_the_way() {
    for_seeds(2000, |rng| {
        let data: Vec<u8> = (0..rng.random_range(0..300))
            .map(|_| rng.random())
            .collect();
        let length = Framing::Length(data.len() as u64);
        let (mut from, mut to) = (body(length, &Limits::default()), writer(Framing::Chunked));
        let (out, _) = relayed(from.decoder(), to.encoder(), &data, rng).expect("good");
        if !data.is_empty() {
            let mut again = chunked();
            assert_eq!(decode(again.decoder(), &out), Ok((data.clone(), out.len())));
            assert!(again.is_complete());
        }
        let (text, data) = random_chunks(rng);
        let (mut from, mut to) = (chunked(), writer(Framing::Length(data.len() as u64)));
        let (out, _) = relayed(from.decoder(), to.encoder(), &text, rng).expect("good");
        assert_eq!(out, data);
    });
}

#[test]
fn a_body_of_another_length_than_announced_is_an_error() {
    let none = Trailers::NONE;
    let mut out = Vec::new();
    let mut three = writer(Framing::Length(3));
    assert_eq!(three.encoder().data(4).err(), Some(WriteError::TooMuchBody));
    assert!(three.encoder().data(2).is_ok());
    assert_eq!(
        three.encoder().finish(none, &mut out),
        Err(WriteError::TooLittleBody)
    );
    assert_eq!(three.encoder().data(2).err(), Some(WriteError::TooMuchBody));
    assert!(three.encoder().data(1).is_ok());
    assert_eq!(three.encoder().finish(none, &mut out), Ok(()));
    let mut empty = writer(Framing::None);
    assert!(empty.encoder().is_complete());
    assert_eq!(empty.encoder().data(1).err(), Some(WriteError::TooMuchBody));
    let (mut from, mut to) = (chunked(), writer(Framing::Chunked));
    to.encoder()
        .relay(from.decoder(), b"5\r\nhel")
        .expect("good so far");
    assert_eq!(
        to.encoder().finish(none, &mut out),
        Err(WriteError::TooLittleBody)
    );
    assert_eq!(
        to.encoder().data(1).err(),
        Some(WriteError::TooMuchBody),
        "within another's chunk"
    );
    assert!(out.is_empty(), "nothing was written");
}

#[test]
fn own_data_is_put_into_chunks() {
    let mut to = writer(Framing::Chunked);
    let mut out = Vec::new();
    for data in [&b"0123456789abcdef"[..], b"", b"x"] {
        let (before, behind) = to.encoder().data(data.len()).expect("good");
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(data);
        out.extend_from_slice(behind.as_bytes());
    }
    to.encoder()
        .finish(Trailers::NONE, &mut out)
        .expect("complete");
    assert_eq!(out, b"10\r\n0123456789abcdef\r\n1\r\nx\r\n0\r\n\r\n");
    to.encoder()
        .finish(Trailers::NONE, &mut out)
        .expect("again is no error");
}
