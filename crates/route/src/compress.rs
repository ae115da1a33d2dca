//! Whether an answer is compressed on its way to the visitor, and how (RFC 9110 §8.4, §12.5.3).

use crate::{BuildError, Headers, request::is_token, request::values};

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Brotli,
    /// gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// All of them, the one that is preferred first: zstd costs least for what it saves.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// As it stands in `Content-Encoding`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The coding of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|coding| coding.as_str() == name)
    }

    fn is_called(self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.as_str().as_bytes())
            // RFC 9110 §8.4.1.3.
            || (self == Self::Gzip && name.eq_ignore_ascii_case(b"x-gzip"))
    }
}

/// What a route compresses.
#[derive(Debug, Clone)]
pub struct Compress {
    codings: Box<[Coding]>,
    /// In lower case; one that ends with `/` stands for all that begin with it.
    types: Box<[Box<str>]>,
    min_length: u64,
}

impl Compress {
    /// Types that are compressed when nobody says which.
    pub const TYPES: [&str; 13] = [
        "text/*",
        "application/json",
        "application/ld+json",
        "application/problem+json",
        "application/javascript",
        "application/manifest+json",
        "application/xml",
        "application/xhtml+xml",
        "application/atom+xml",
        "application/rss+xml",
        "application/wasm",
        "image/svg+xml",
        "font/ttf",
    ];
    /// Answers that are known to be shorter, in bytes, gain nothing.
    pub const MIN_LENGTH: u64 = 1024;
    /// Most types.
    pub const MAX_TYPES: usize = 64;

    /// The codings that are offered, the preferred one first; types as `TYPE/SUBTYPE` or `TYPE/*`; bytes that an answer of known length must have.
    ///
    /// # Errors
    /// [`BuildError::HeaderValue`] for a type that is none, [`BuildError::TooMany`].
    pub fn new<'a>(
        codings: &[Coding],
        types: impl IntoIterator<Item = &'a str>,
        min_length: u64,
    ) -> Result<Self, BuildError> {
        let types: Result<Vec<Box<str>>, _> = types
            .into_iter()
            .take(Self::MAX_TYPES + 1)
            .map(media_type)
            .collect();
        let types = types?;
        if types.len() > Self::MAX_TYPES {
            return Err(BuildError::TooMany(Self::MAX_TYPES));
        }
        Ok(Self {
            codings: codings.into(),
            types: types.into(),
            min_length: min_length.max(1),
        })
    }

    /// What is done with an answer.
    pub fn decide(&self, answer: &AnswerView<'_>) -> Compression {
        if !self.is_fit(answer) {
            return Compression::Untouched;
        }
        match preferred(&self.codings, answer.request) {
            Some(coding) => Compression::With(coding),
            None => Compression::Varies,
        }
    }

    fn is_fit(&self, view: &AnswerView<'_>) -> bool {
        let (request, answer) = (view.request, view.answer);
        // A part of a whole cannot be compressed (RFC 9110 §14.4 counts the bytes of the representation).
        let whole = !matches!(view.status, 0..200 | 204 | 206 | 304)
            && answer.nth("content-range", 0).is_none();
        let plain = values(answer, "content-encoding")
            .all(|value| value.is_empty() || value.eq_ignore_ascii_case(b"identity"));
        let long = view.length.is_none_or(|length| length >= self.min_length);
        whole && plain && long && self.lists(answer) && !forbids(request) && !forbids(answer)
    }

    fn lists(&self, answer: &dyn Headers) -> bool {
        let Some(value) = answer.nth("content-type", 0) else {
            return false;
        };
        let found = value
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        self.types.iter().any(|wanted| {
            let wanted = wanted.as_bytes();
            match wanted.ends_with(b"/") {
                true => found
                    .get(..wanted.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(wanted)),
                false => found.eq_ignore_ascii_case(wanted),
            }
        })
    }
}

impl Default for Compress {
    /// All codings, [`Compress::TYPES`] and [`Compress::MIN_LENGTH`].
    fn default() -> Self {
        let types = Self::TYPES.map(|name| match name.strip_suffix('*') {
            Some(start) => start.into(),
            None => name.into(),
        });
        Self {
            codings: Coding::ALL.into(),
            types: types.into(),
            min_length: Self::MIN_LENGTH,
        }
    }
}

/// An answer and what it answers.
#[derive(Clone, Copy)]
pub struct AnswerView<'a> {
    /// The fields of the request.
    pub request: &'a dyn Headers,
    /// The fields of the answer.
    pub answer: &'a dyn Headers,
    /// The status.
    pub status: u16,
    /// The length of its body, or of the one that GET would get, where it is known.
    pub length: Option<u64>,
}

/// What is done with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// It passes as it is.
    Untouched,
    /// It passes as it is, but another visitor would have got it compressed: `Vary` says so.
    Varies,
    /// It is compressed.
    With(Coding),
}

/// `no-transform` (RFC 9111 §5.2.1.6, §5.2.2.6).
fn forbids(headers: &dyn Headers) -> bool {
    values(headers, "cache-control")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}

/// The coding with the highest weight of those that are offered; the first of them where weights are equal. `None` where the visitor
/// wants none, or rather none.
fn preferred(offered: &[Coding], request: &dyn Headers) -> Option<Coding> {
    let mut weights = [None; 3];
    let (mut any, mut identity) = (None, None);
    for element in
        values(request, "accept-encoding").flat_map(|value| value.split(|byte| *byte == b','))
    {
        let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let weight = weight_of(parts);
        if name == b"*" {
            any = any.max(Some(weight));
        } else if name.eq_ignore_ascii_case(b"identity") {
            identity = identity.max(Some(weight));
        } else if let Some(n) = offered.iter().position(|coding| coding.is_called(name))
            && let Some(known) = weights.get_mut(n)
        {
            *known = (*known).max(Some(weight));
        }
    }
    let mut best = None;
    for (coding, weight) in offered.iter().zip(weights) {
        let weight = weight.or(any).unwrap_or(0);
        if weight > best.map_or(0, |(_, weight)| weight) {
            best = Some((*coding, weight));
        }
    }
    best.filter(|(_, weight)| identity.is_none_or(|identity| identity <= *weight))
        .map(|(coding, _)| coding)
}

/// Thousandths. What is no weight counts as none at all: the visitor gets what everybody understands.
fn weight_of<'a>(mut parameters: impl Iterator<Item = &'a [u8]>) -> u16 {
    let Some(text) = parameters.find_map(|parameter| {
        parameter
            .strip_prefix(b"q=")
            .or(parameter.strip_prefix(b"Q="))
    }) else {
        return 1000;
    };
    let (whole, fraction) = match text {
        [whole] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return 0,
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let thousandths = [100, 10, 1]
        .iter()
        .zip(fraction)
        .map(|(value, digit)| value * u16::from(digit - b'0'))
        .sum();
    match whole {
        b'0' => thousandths,
        b'1' if thousandths == 0 => 1000,
        _ => 0,
    }
}

/// `TYPE/SUBTYPE` as it is, `TYPE/*` as `TYPE/`, in lower case.
fn media_type(text: &str) -> Result<Box<str>, BuildError> {
    let good = |part: &str| !part.is_empty() && part.len() <= 64 && part.bytes().all(is_token);
    match text.split_once('/') {
        Some((main, "*")) if good(main) && main != "*" => {
            Ok(format!("{}/", main.to_ascii_lowercase()).into())
        }
        Some((main, sub)) if good(main) && good(sub) && !sub.contains('*') => {
            Ok(text.to_ascii_lowercase().into())
        }
        _ => Err(BuildError::HeaderValue),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(accept: &[&str], answer: &[(&str, &[u8])]) -> Compression {
        let request: Vec<(&str, &[u8])> = accept
            .iter()
            .map(|value| ("accept-encoding", value.as_bytes()))
            .collect();
        Compress::default().decide(&AnswerView {
            request: &Pairs(&request),
            answer: &Pairs(answer),
            status: 200,
            length: None,
        })
    }

    struct Pairs<'a>(&'a [(&'a str, &'a [u8])]);

    impl Headers for Pairs<'_> {
        fn nth(&self, name: &str, n: usize) -> Option<&[u8]> {
            self.0.nth(name, n)
        }
    }

    const TEXT: &[(&str, &[u8])] = &[("content-type", b"text/html; charset=utf-8")];

    #[test]
    fn weights_decide_and_then_the_order_that_is_offered() {
        use Coding::{Brotli, Gzip, Zstd};
        for (accept, expected) in [
            (&["gzip, deflate, br, zstd"][..], Some(Zstd)),
            (&["gzip, br"], Some(Brotli)),
            (&["gzip;q=1.0, br;q=0.5"], Some(Gzip)),
            (&["gzip;q=0.001"], Some(Gzip)),
            (&["X-GZIP"], Some(Gzip)),
            (&["gzip", "br"], Some(Brotli)),
            (&["*"], Some(Zstd)),
            (&["zstd;q=0, *;q=0.5"], Some(Brotli)),
            (&["gzip;q=0"], None),
            (&["gzip;q=0, *"], Some(Zstd)),
            (&["*;q=0"], None),
            (&["identity"], None),
            (&["identity, gzip;q=0.5"], None),
            (&["identity;q=0.5, gzip"], Some(Gzip)),
            (&["identity;q=0, gzip;q=0.2"], Some(Gzip)),
            (&[""], None),
            (&[], None),
            (&["gzip;q=2"], None),
            (&["gzip;q=0.1234"], None),
            (&["gzip;q=-1"], None),
            (&["gzip;q=1.001"], None),
            (&["compress, gzip ; q=0.3"], Some(Gzip)),
        ] {
            let expected = expected.map_or(Compression::Varies, Compression::With);
            assert_eq!(decide(accept, TEXT), expected, "{accept:?}");
        }
    }

    #[test]
    fn what_is_compressed_or_may_not_be_changed_passes_as_it_is() {
        let text = TEXT[0];
        for answer in [
            &[text, ("content-encoding", b"gzip")][..],
            &[text, ("content-range", b"bytes 0-1/2")],
            &[text, ("cache-control", b"public, no-transform")],
            &[("content-type", b"image/png")],
            &[("content-type", b"text")],
            &[],
        ] {
            assert_eq!(decide(&["gzip"], answer), Compression::Untouched);
        }
        let json: &[(&str, &[u8])] = &[
            ("content-type", b"Application/JSON"),
            ("content-encoding", b"identity"),
        ];
        assert_eq!(decide(&["gzip"], json), Compression::With(Coding::Gzip));
    }

    #[test]
    fn parts_answers_without_a_body_and_short_ones_pass_as_they_are() {
        let request: &[(&str, &[u8])] = &[("accept-encoding", b"br")];
        for (status, length, expected) in [
            (200, Some(1024), true),
            (404, None, true),
            (200, Some(1023), false),
            (204, None, false),
            (206, Some(5000), false),
            (304, None, false),
            (101, None, false),
        ] {
            let found = Compress::default().decide(&AnswerView {
                request: &Pairs(request),
                answer: &Pairs(TEXT),
                status,
                length,
            });
            assert_eq!(
                found != Compression::Untouched,
                expected,
                "{status} {length:?}"
            );
        }
    }

    #[test]
    fn types_are_checked() {
        for bad in ["", "text", "*/*", "text/", "/html", "text/h*", "a b/c"] {
            assert!(Compress::new(&Coding::ALL, [bad], 1).is_err(), "{bad}");
        }
        assert!(Compress::new(&Coding::ALL, ["Text/*", "image/x-icon"], 1).is_ok());
    }
}
