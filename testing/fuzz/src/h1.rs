//! Fuzz checks of crate `h1`: no input panics, no split changes an answer, limits hold, and what is written reads back as the same message.
//!
//! The first byte of an input chooses how the rest is split and which limits hold.

use h1::{
    Answer, BodyDecoder, Framing, Limits, RequestHead, RequestLine, ResponseHead, Upstream, Visitor,
};

/// How the rest of an input is to be read.
struct How {
    step: usize,
    limits: Limits,
}

impl How {
    fn of(byte: u8) -> Self {
        let limits = if byte & 0x20 == 0 {
            Limits::default()
        } else {
            Limits {
                head: 120,
                fields: 3,
                target: 20,
                chunk_extension: 5,
                chunk_extensions: 12,
                trailers: 30,
                drain: 20,
                ..Limits::default()
            }
        };
        Self {
            step: usize::from(byte & 0x1F) + 1,
            limits,
        }
    }

    /// The answer to the whole, which steps must get too, and asking again.
    fn however_split<E: PartialEq + std::fmt::Debug>(
        &self,
        bytes: &[u8],
        mut parse: impl FnMut(bool, &[u8]) -> Result<Option<usize>, E>,
    ) -> Option<usize> {
        let whole = parse(true, bytes);
        assert_eq!(whole, parse(false, bytes), "asked again");
        for step in [1, self.step] {
            let (mut n, mut first, mut answer) = (0, true, Ok(None));
            while n < bytes.len() && answer == Ok(None) {
                n = bytes.len().min(n + step);
                answer = parse(first, &bytes[..n]);
                first = false;
            }
            assert_eq!(whole, answer, "in steps of {step}");
        }
        let len = whole.ok().flatten()?;
        assert!(len <= self.limits.head && bytes[..len].ends_with(b"\r\n\r\n"));
        Some(len)
    }
}

/// What bounds a head that was written anew: framing and connection take a few fields more than the limits let in.
fn rewritten() -> Limits {
    let read = Limits::default();
    Limits {
        head: read.head + 256,
        fields: read.fields + 4,
        ..read
    }
}

/// A request: read in pieces, written anew, read again; then its body.
pub fn check_request(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else {
        return;
    };
    let how = How::of(how);
    let mut head = RequestHead::default();
    let parsed = how.however_split(bytes, |clear, bytes| {
        if clear {
            head.clear();
        }
        head.parse(bytes, &how.limits)
    });
    let Some(len) = parsed else {
        return;
    };
    head.clear();
    assert_eq!(head.parse(bytes, &how.limits), Ok(Some(len)));
    let request = head.view(bytes).expect("a whole head");
    assert!(request.fields().len() <= how.limits.fields);
    assert_ne!(request.framing(), Framing::UntilClose);
    let (mut body, responder) = Visitor::new(&how.limits).begin(request);
    let mut out = Vec::new();
    let line = RequestLine::of(request);
    let mut writer = Upstream::new(&how.limits).send(&line, responder, &mut out);
    writer.copy(request.fields(), |_| true);
    let mut sent = writer.finish();
    if !request.authority().is_empty() {
        let mut again = RequestHead::default();
        assert_eq!(again.parse(&out, &rewritten()), Ok(Some(out.len())));
        let second = again.view(&out).expect("a whole head");
        assert_eq!(request.method(), second.method());
        assert_eq!(request.target(), second.target());
        assert_eq!(request.authority(), second.authority());
        assert_eq!(request.framing(), second.framing());
        assert!(
            request
                .fields()
                .end_to_end()
                .eq(second.fields().end_to_end())
        );
    }
    let head_len = out.len();
    let moved = sent
        .body
        .encoder()
        .relay_into(body.decoder(), &bytes[len..], &mut out);
    if let Ok(moved) = moved
        && moved.end
    {
        assert!(sent.body.encoder().is_complete() && body.is_complete());
        same_body(request.framing(), &bytes[len..], &out[head_len..]);
    }
    drop(sent.awaiting.abandon());
}

/// An answer to one of four requests.
pub fn check_response(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else {
        return;
    };
    let method: &[u8] = [&b"GET"[..], b"HEAD", b"POST", b"OPTIONS"][usize::from(how >> 6)];
    let how = How::of(how);
    let mut head = ResponseHead::default();
    let parsed = how.however_split(bytes, |clear, bytes| {
        if clear {
            head.clear();
        }
        head.parse(bytes, &how.limits)
    });
    let Some(len) = parsed else {
        return;
    };
    head.clear();
    assert_eq!(head.parse(bytes, &how.limits), Ok(Some(len)));
    let response = head.view(bytes).expect("a whole head");
    let asked = [method, b" / HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    let mut request_head = RequestHead::default();
    assert_eq!(
        request_head.parse(&asked, &how.limits),
        Ok(Some(asked.len()))
    );
    let request = request_head.view(&asked).expect("a whole head");
    let (body, responder) = Visitor::new(&how.limits).begin(request);
    let upstream = Upstream::new(&how.limits);
    let sent = upstream
        .send(&RequestLine::of(request), responder, &mut Vec::new())
        .finish();
    let (mut from, responder) = match sent.awaiting.answer(response) {
        Ok(Answer::Final { body, payload }) => (body, payload),
        Ok(Answer::Interim(_)) => return assert!(response.is_interim()),
        Ok(Answer::Tunnel { .. }) => panic!("nobody asked for it"),
        Err(_) => return,
    };
    let mut out = Vec::new();
    let mut writer = responder
        .forward(&body, response, &mut out)
        .expect("a good answer");
    writer.copy(response.fields(), |_| true);
    let mut writer = writer.finish();
    let mut again = ResponseHead::default();
    assert_eq!(again.parse(&out, &rewritten()), Ok(Some(out.len())));
    let second = again.view(&out).expect("a whole head");
    assert_eq!(
        (response.status(), response.reason()),
        (second.status(), second.reason())
    );
    assert!(
        response
            .fields()
            .end_to_end()
            .eq(second.fields().end_to_end())
    );
    let head_len = out.len();
    let framing = from.decoder().framing();
    let moved = writer
        .encoder()
        .relay_into(from.decoder(), &bytes[len..], &mut out);
    if let Ok(moved) = moved
        && moved.end
    {
        assert!(writer.encoder().is_complete());
        same_body(framing, &bytes[len..], &out[head_len..]);
        let leftover = bytes.len() - len - moved.consumed;
        assert!(leftover == 0 || from.finish(sent.body, leftover).is_none());
    }
}

/// A body in chunks: in steps, as a whole, and relayed in steps.
pub fn check_body(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else {
        return;
    };
    let how = How::of(how);
    let asked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut head = RequestHead::default();
    assert_eq!(head.parse(asked, &how.limits), Ok(Some(asked.len())));
    let request = head.view(asked).expect("a whole head");
    let begin = || Visitor::new(&how.limits).begin(request);
    let read = |step: usize| {
        let (mut body, _responder) = begin();
        let mut found = Read::default();
        for piece in bytes.chunks(step) {
            if !found.go_on(body.decoder(), piece) {
                break;
            }
        }
        found.complete = body.is_complete();
        found
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(whole, read(1));
    assert_eq!(whole, read(how.step));
    let (mut body, responder) = begin();
    let mut sent = Upstream::new(&how.limits)
        .send(&RequestLine::of(request), responder, &mut Vec::new())
        .finish();
    let mut out = Vec::new();
    for piece in bytes.chunks(how.step) {
        match sent
            .body
            .encoder()
            .relay_into(body.decoder(), piece, &mut out)
        {
            Ok(moved) if !moved.end => assert_eq!(moved.consumed, piece.len()),
            _ => break,
        }
    }
    assert_eq!(body.is_complete(), whole.complete);
    let mut second = Read::default();
    let (mut again, _responder) = Visitor::new(&Limits::default()).begin(request);
    let good = second.go_on(again.decoder(), &out);
    assert!(good || whole.failed || whole.complete);
    assert!(whole.data.starts_with(&second.data) && (whole.failed || whole.data == second.data));
    assert_eq!(again.is_complete(), whole.complete);
    assert!(
        body.decoder()
            .trailers()
            .iter()
            .eq(again.decoder().trailers().iter())
    );
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    data: Vec<u8>,
    consumed: usize,
    failed: bool,
    complete: bool,
}

impl Read {
    /// Reads a piece; whether more may follow.
    fn go_on(&mut self, decoder: &mut BodyDecoder, piece: &[u8]) -> bool {
        let mut at = 0;
        while at < piece.len() {
            match decoder.decode(&piece[at..]) {
                Ok(step) => {
                    self.data.extend_from_slice(&piece[at..][step.data]);
                    at += step.consumed;
                    self.consumed += step.consumed;
                    if step.end {
                        return false;
                    }
                }
                Err(error) => {
                    assert_eq!(decoder.decode(b"x"), Err(error), "an error stays");
                    self.failed = true;
                    // How much was taken before depends on the pieces.
                    self.consumed = 0;
                    return false;
                }
            }
        }
        true
    }
}

/// Whether a body and what was made of it carry the same data.
fn same_body(framing: Framing, input: &[u8], output: &[u8]) {
    match framing {
        Framing::None => assert!(output.is_empty()),
        Framing::Length(length) => {
            let length = usize::try_from(length).expect("it was all there");
            assert_eq!(&input[..length], output);
        }
        Framing::Chunked => check_body(&[&[0], output].concat()),
        Framing::UntilClose => unreachable!("it has no end of its own"),
    }
}
