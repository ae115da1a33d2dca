//! The words of `framing.yml` that stand for others: `{t}`, `{v}`, `{G}`, `{P}` and `{N*text}`.

/// What a case puts in their places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a> {
    pub(crate) target: &'a str,
    pub(crate) value: Option<&'a str>,
}

impl Words<'_> {
    /// The text with all of them put in; braces that are none of them stay.
    pub(crate) fn expand(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            out.push_str(&rest[..at]);
            let inside = &rest[at + 1..];
            rest = match self.word(inside, &mut out) {
                Some(length) => &inside[length..],
                None => {
                    out.push('{');
                    inside
                }
            };
        }
        out + rest
    }

    /// Puts the word in that begins here, behind its brace; how long it is, with the other brace.
    fn word(self, inside: &str, out: &mut String) -> Option<usize> {
        let target = self.target;
        if inside.starts_with("t}") {
            out.push_str(target);
            return Some(2);
        }
        if inside.starts_with("v}") {
            let within = Words {
                value: None,
                ..self
            };
            out.push_str(&within.expand(self.value?));
            return Some(2);
        }
        for (letter, method) in [("G}", "GET"), ("P}", "POST")] {
            if inside.starts_with(letter) {
                out.push_str(&format!("{method} {target} HTTP/1.1\r\nHost: zoo.test\r\n"));
                return Some(2);
            }
        }
        let (times, text) = inside.split_once('*')?;
        let times: usize = times.parse().ok()?;
        let length = closing(text)?;
        out.push_str(&self.expand(&text[..length]).repeat(times));
        Some(inside.len() - text.len() + length + 1)
    }
}

/// Where the brace is that closes one before the text.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' if open == 0 => return Some(at),
            b'}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// Characters up to U+00FF as the bytes of that number.
///
/// # Panics
/// At any other: the corpus says what bytes it means.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let byte = |c: char| u8::try_from(u32::from(c)).expect("a character of Latin-1");
    text.chars().map(byte).collect()
}

#[test]
fn words_of_the_corpus_are_put_in() {
    let words = Words {
        target: "/x",
        value: Some("{2*a}"),
    };
    assert_eq!(words.expand("{t}{v}{3*{2*b}-}{x"), "/xaabb-bb-bb-{x");
    assert_eq!(
        words.expand("{G}\r\n"),
        "GET /x HTTP/1.1\r\nHost: zoo.test\r\n\r\n"
    );
    assert_eq!(bytes("a\u{ff}"), b"a\xff");
}
