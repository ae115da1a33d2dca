//! What the tests share: seeds that can be replayed, pieces of random size, and whole exchanges in a few calls.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

use h1::{
    BodyDecoder, BodyError, Framing, Limits, RequestBody, RequestError, RequestHead, Responder,
    ResponseError, ResponseHead, Visitor,
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// Runs `check` with `count` seeds, or as [`testkit::seeds`] is told.
pub fn for_seeds(count: u64, check: impl Fn(&mut StdRng)) {
    for seed in testkit::seeds(count) {
        check(&mut StdRng::seed_from_u64(seed));
    }
}

/// Growing lengths up to all of it.
pub fn growing(len: usize, rng: &mut StdRng) -> Vec<usize> {
    let longest = *[1, 2, 7, 40, 2000].choose(rng).expect("some");
    let mut ends = vec![];
    let mut n = 0;
    while n < len {
        n = len.min(n + rng.random_range(1..=longest));
        ends.push(n);
    }
    ends
}

/// The answer to all bytes at once.
pub fn parse_request(bytes: &[u8]) -> Result<Option<usize>, RequestError> {
    RequestHead::default().parse(bytes, &Limits::default())
}

/// The answer to bytes that come in pieces ending at `ends`: the first that is not "more".
pub fn request_in_pieces(
    bytes: &[u8],
    ends: impl IntoIterator<Item = usize>,
    limits: &Limits,
) -> Result<Option<usize>, RequestError> {
    let mut head = RequestHead::default();
    for end in ends {
        match head.parse(&bytes[..end], limits) {
            Ok(None) => {}
            answer => return answer,
        }
    }
    Ok(None)
}

/// As [`request_in_pieces`].
pub fn response_in_pieces(
    bytes: &[u8],
    ends: impl IntoIterator<Item = usize>,
    limits: &Limits,
) -> Result<Option<usize>, ResponseError> {
    let mut head = ResponseHead::default();
    for end in ends {
        match head.parse(&bytes[..end], limits) {
            Ok(None) => {}
            answer => return answer,
        }
    }
    Ok(None)
}

/// Begins the exchange of a request that is good.
pub fn begin(text: &str, limits: &Limits) -> (RequestBody, Responder) {
    begin_on(Visitor::new(limits), text)
}

/// As [`begin`], on a connection that was used before.
pub fn begin_on(visitor: Visitor, text: &str) -> (RequestBody, Responder) {
    let mut head = RequestHead::default();
    let len = head.parse(text.as_bytes(), &Limits::default());
    assert!(matches!(len, Ok(Some(_))), "{len:?}: {text:?}");
    visitor.begin(head.view(text.as_bytes()).expect("a whole head"))
}

/// The body of a request whose framing is this.
pub fn body(framing: Framing, limits: &Limits) -> RequestBody {
    let field = match framing {
        Framing::None | Framing::UntilClose => String::new(),
        Framing::Length(length) => format!("Content-Length: {length}\r\n"),
        Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
    };
    begin(
        &format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n"),
        limits,
    )
    .0
}

/// All data of `input`, and how much of it the body took.
pub fn decode(decoder: &mut BodyDecoder, input: &[u8]) -> Result<(Vec<u8>, usize), BodyError> {
    let mut data = Vec::new();
    let mut consumed = 0;
    loop {
        let step = decoder.decode(&input[consumed..])?;
        data.extend_from_slice(&input[consumed..][step.data]);
        consumed += step.consumed;
        if step.end || consumed == input.len() {
            return Ok((data, consumed));
        }
    }
}
