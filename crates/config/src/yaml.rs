//! YAML text to a [`Node`] tree. serde-saphyr parses, bounds the work (depth, nodes, alias expansion) and refuses duplicate
//! keys; this file keeps places and the text of every scalar as it was written, and fills in the environment.

use std::{fmt, sync::Arc};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned, UserMessageFormatter, options::NonFiniteFloatPolicy};

use crate::{
    interpolate::interpolate,
    problem::{Findings, Problem},
    source::{Place, Source, names_a_secret},
    tree::{Key, Node, Value},
};

/// Largest file, in bytes (`docs/configuration.md`).
pub(crate) const MAX_BYTES: usize = 10 << 20;

/// Parses one document. `None` when it does not parse; the problem is in `findings`.
pub(crate) fn parse(
    source: &Arc<Source>,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
    findings: &mut Findings,
) -> Option<Node> {
    // A byte order mark is not part of the text and would shift every column of the first line.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_BYTES {
        findings.problem(Problem::new(
            &Place::whole(source),
            format!("the file is larger than {} MiB", MAX_BYTES >> 20),
        ));
        return None;
    }
    match serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, limits()) {
        Ok(raw) => Some(
            Builder {
                source,
                text,
                env,
                findings,
            }
            .node(raw, false),
        ),
        Err(error) => {
            let location = error.location().unwrap_or(Location::UNKNOWN);
            let place = Place::at(source, location.line(), location.column(), 1);
            let message = error.render_with_formatter(&UserMessageFormatter);
            // The place is printed in front; the parser's own copy of it is dropped.
            let message = message
                .split(" at line ")
                .next()
                .unwrap_or("the text does not parse")
                .trim();
            findings.problem(
                Problem::new(&place, format!("not valid YAML: {message}"))
                    .help_if(yaml_help(message)),
            );
            None
        }
    }
}

fn yaml_help(message: &str) -> Option<&'static str> {
    if message.contains("mapping values are not allowed") {
        Some("a value that holds `: ` needs quotes; or a line is indented too far")
    } else if message.contains("duplicate mapping key") {
        Some("each key may be given once; values of a list go into one list")
    } else if message.contains("did not find expected ',' or '}'") {
        Some("inside `{ }` and `[ ]`, quote values that hold `${`, `: ` or a comma")
    } else if message.contains("tab") {
        Some("indent with spaces")
    } else {
        None
    }
}

// A configuration is small. The limits stop documents made to eat time or memory long before either is felt.
fn limits() -> serde_saphyr::Options {
    serde_saphyr::options! {
        with_snippet: false,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_nodes: 250_000,
            max_events: 600_000,
            max_aliases: 10_000,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 8,
        },
    }
}

struct Builder<'a> {
    source: &'a Arc<Source>,
    text: &'a str,
    env: &'a dyn Fn(&str) -> Option<String>,
    findings: &'a mut Findings,
}

impl Builder<'_> {
    fn node(&mut self, raw: Spanned<Raw>, secret: bool) -> Node {
        let place = self.place(&raw.defined);
        let mut interpolated = false;
        let value = match raw.value {
            Raw::Null => Value::Null,
            Raw::List(items) => Value::List(
                items
                    .into_iter()
                    .map(|item| self.node(item, secret))
                    .collect(),
            ),
            Raw::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .filter_map(|(key, value)| self.entry(key, value))
                    .collect(),
            ),
            Raw::Text(text) => Value::Text(self.fill_in(text, &place, secret, &mut interpolated)),
            Raw::Other(parsed) => Value::Text(self.as_written(&raw.defined, parsed)),
        };
        Node {
            place,
            value,
            interpolated: interpolated || secret,
        }
    }

    fn entry(&mut self, key: Spanned<Raw>, value: Spanned<Raw>) -> Option<(Key, Node)> {
        let place = self.place(&key.defined);
        let text = match key.value {
            Raw::Text(text) => text,
            Raw::Other(parsed) => self.as_written(&key.defined, parsed),
            Raw::Null | Raw::List(_) | Raw::Map(_) => {
                self.findings
                    .problem(Problem::new(&place, "a key must be a name"));
                return None;
            }
        };
        let secret = names_a_secret(&text);
        Some((Key { text, place }, self.node(value, secret)))
    }

    fn fill_in(
        &mut self,
        text: String,
        place: &Place,
        secret: bool,
        interpolated: &mut bool,
    ) -> String {
        match interpolate(&text, self.env) {
            Ok(filled) => {
                *interpolated = filled.used_environment;
                filled.text
            }
            Err(error) => {
                // What stands between the braces of a secret may be a piece of it.
                let error = if secret { error.without_text() } else { error };
                self.findings
                    .problem(Problem::new(place, error.to_string()).help(error.help()));
                text
            }
        }
    }

    fn place(&self, location: &Location) -> Place {
        Place::at(
            self.source,
            location.line(),
            location.column(),
            location.span().len(),
        )
    }

    /// A scalar that YAML reads as a number or a boolean is one plain word, so its span is its text.
    fn as_written(&self, location: &Location, parsed: String) -> String {
        let span = location.span();
        let range = span
            .byte_offset()
            .zip(span.byte_len())
            .and_then(|(at, len)| {
                let at = usize::try_from(at).ok()?;
                Some(at..at.checked_add(usize::try_from(len).ok()?)?)
            });
        match range.and_then(|range| self.text.get(range)) {
            Some(written) if !written.is_empty() && !written.starts_with(['"', '\'']) => {
                written.trim().into()
            }
            _ => parsed,
        }
    }
}

/// What the parser hands over. `Other` is what YAML takes for a number or boolean.
enum Raw {
    Null,
    Text(String),
    Other(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

macro_rules! other {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E>(self, value: $type) -> Result<Raw, E> {
            Ok(Raw::Other(value.to_string()))
        }
    )*};
}

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    other!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64);

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Raw::Map(map))
    }
}
