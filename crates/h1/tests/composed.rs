//! A request that is put together is the one that would have been read: the same answer to what is wrong, the same view of what is right.

mod common;

use std::cell::{Cell, RefCell};

use common::for_seeds;
use h1::{Limits, RequestError, RequestHead};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// All that can be asked of a head.
fn seen(head: &RequestHead, bytes: &[u8]) -> String {
    let request = head.view(bytes).expect("a whole head");
    let fields: Vec<_> = request.fields().all().collect();
    let kept: Vec<_> = request.fields().end_to_end().collect();
    format!(
        "{:?}",
        (
            (request.method(), request.raw_target(), request.target()),
            (request.path(), request.query(), request.authority()),
            (request.host(), request.port(), request.version()),
            (request.framing(), request.keep_alive(), request.upgrade()),
            (request.expects_continue(), request.accepts_trailers()),
            (fields, kept, request.len(), request.says_https()),
        )
    )
}

fn parsed(
    method: &[u8],
    target: &[u8],
    fields: &Fields,
    limits: &Limits,
) -> Result<String, RequestError> {
    let mut text = [method, b" ", target, b" HTTP/1.1\r\n"].concat();
    for (name, value) in fields {
        text.extend_from_slice(&[&name[..], b": ", &value[..], b"\r\n"].concat());
    }
    text.extend_from_slice(b"\r\n");
    let mut head = RequestHead::default();
    head.parse(&text, limits)?.expect("all of it is there");
    Ok(seen(&head, &text))
}

fn composed(
    head: &mut RequestHead,
    method: &[u8],
    target: &[u8],
    fields: &Fields,
    limits: &Limits,
) -> Result<String, RequestError> {
    let mut text = b"of the last request".to_vec();
    let mut composer = head.compose(method, target, limits, &mut text)?;
    for (name, value) in fields {
        composer.field(name, value)?;
    }
    let length = composer.finish()?;
    assert_eq!(length, text.len());
    Ok(seen(head, &text))
}

/// Mostly good, sometimes not; what is wrong with it is what a field or a target can have that came by another version of HTTP.
fn request(rng: &mut StdRng) -> (Vec<u8>, Vec<u8>, Fields) {
    let methods: [&[u8]; 7] = [
        b"GET",
        b"POST",
        b"HEAD",
        b"OPTIONS",
        b"CONNECT",
        b"TRACE",
        b"a-much-longer-method-than-there-is",
    ];
    let targets: [&[u8]; 10] = [
        b"/",
        b"/a/b?c=d&e",
        b"/%20?",
        b"*",
        b"http://a.example/x",
        b"a.example:80",
        b"/\xff",
        b"/#f",
        b"nothing",
        b"/a/rather/long/target/that/goes/on",
    ];
    let hosts: [&[u8]; 6] = [
        b"a.example",
        b"a.example:80",
        b"[::1]:8080",
        b"b.example",
        b"",
        b"user@host",
    ];
    let names: [&[u8]; 14] = [
        b"accept",
        b"cookie",
        b"x-real-ip",
        b"x_forwarded_for",
        b"te",
        b"Content-Length",
        b"transfer-encoding",
        b"expect",
        b"connection",
        b"upgrade",
        b"keep-alive",
        b"host",
        b"bad name",
        b"",
    ];
    let values: [&[u8]; 16] = [
        b"x",
        b" x\t",
        b"",
        b"a\tb",
        b"\x80\xff",
        b"trailers",
        b"0",
        b"12",
        b"012",
        b"chunked",
        b"100-continue",
        b"close, x-real-ip",
        b"upgrade",
        b"websocket",
        b"nul\0",
        b"cr\rx",
    ];
    let method = choice(rng, &methods, 4);
    let target = choice(rng, &targets, 3);
    let mut fields = Fields::new();
    if rng.random_ratio(19, 20) {
        fields.push((b"host".to_vec(), choice(rng, &hosts, 3)));
    }
    for _ in 0..rng.random_range(0..8) {
        // A length and its number, a coding and its name: else hardly any of them would be good.
        let pairs: [(&[u8], &[u8]); 5] = [
            (b"content-length", b"12"),
            (b"transfer-encoding", b"chunked"),
            (b"expect", b"100-continue"),
            (b"connection", b"close, x-real-ip"),
            (b"upgrade", b"websocket"),
        ];
        if rng.random_ratio(1, 5) {
            let (name, value) = pairs.choose(rng).expect("some");
            fields.push((name.to_vec(), value.to_vec()));
        } else {
            fields.push((choice(rng, &names, 5), choice(rng, &values, 6)));
        }
    }
    (method, target, fields)
}

/// One of the first `good`, and seldom any.
fn choice(rng: &mut StdRng, words: &[&[u8]], good: usize) -> Vec<u8> {
    let words = if rng.random_ratio(19, 20) {
        &words[..good]
    } else {
        words
    };
    words.choose(rng).expect("some").to_vec()
}

#[test]
fn a_composed_head_is_the_one_that_would_have_been_read() {
    let (good, bad) = (Cell::new(0), Cell::new(0));
    let head = RefCell::new(RequestHead::default());
    for_seeds(4000, |rng| {
        let limits = Limits {
            head: *[16 << 10, 16 << 10, 40, 90].choose(rng).expect("some"),
            fields: *[100, 100, 3].choose(rng).expect("some"),
            target: *[8 << 10, 20].choose(rng).expect("some"),
            ..Limits::default()
        };
        let (method, target, fields) = request(rng);
        let expected = parsed(&method, &target, &fields, &limits);
        let found = composed(&mut head.borrow_mut(), &method, &target, &fields, &limits);
        match (&expected, &found) {
            (Ok(expected), Ok(found)) => {
                good.set(good.get() + 1);
                assert_eq!(expected, found);
            }
            // A head with several mistakes, one of them its length, may be told of another: what is refused is the same.
            (Err(_), Err(_)) => bad.set(bad.get() + 1),
            _ => panic!("read: {expected:?}\ncomposed: {found:?}"),
        }
        if limits.head > 1024 && expected.is_err() && only_mistake(&fields) {
            assert_eq!(
                expected.map_err(RequestError::status),
                found.map_err(RequestError::status)
            );
        }
    });
    let (good, bad) = (good.get(), bad.get());
    let whole = good + bad == 4000;
    assert!(
        !whole || good > 1000 && bad > 1000,
        "{good} good, {bad} bad"
    );
}

/// No byte that a parser stumbles on before it has seen the rest: the answer is then one to the head as a whole.
fn only_mistake(fields: &Fields) -> bool {
    fields.iter().all(|(name, value)| {
        !name.is_empty()
            && !name.contains(&b' ')
            && !value.iter().any(|byte| matches!(byte, 0 | b'\r'))
    })
}

#[test]
fn a_head_that_was_not_finished_is_none() {
    let limits = Limits::default();
    let (mut head, mut text) = (RequestHead::default(), Vec::new());
    let mut composer = head
        .compose(b"GET", b"/", &limits, &mut text)
        .expect("a request");
    composer.field(b"host", b"a.example").expect("a field");
    drop(composer);
    assert!(head.view(&text).is_none());
}

#[test]
fn a_head_as_long_as_its_limit_is_taken_and_a_longer_one_is_not() {
    let whole = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".len();
    let compose = |head: usize| {
        let limits = Limits {
            head,
            ..Limits::default()
        };
        let (mut head, mut text) = (RequestHead::default(), Vec::new());
        let mut composer = head.compose(b"GET", b"/", &limits, &mut text)?;
        composer.field(b"host", b"a")?;
        composer.finish()
    };
    assert_eq!(compose(whole), Ok(whole));
    assert_eq!(compose(whole - 1).map_err(RequestError::status), Err(431));
}
