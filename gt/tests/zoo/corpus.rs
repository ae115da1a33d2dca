//! `framing.yml`, read and taken apart into cases.

use std::{collections::BTreeMap, fs};

use serde::Deserialize;

use crate::{
    expand::{Words, bytes},
    tools::zoo,
    wire::H2Request,
};

/// One thing to send, and what must come of it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) class: String,
    /// The target of the request that follows.
    pub(crate) end: String,
    pub(crate) payload: Payload,
    pub(crate) want: Want,
    /// Refused is as good.
    pub(crate) either: bool,
    /// Whether the request that follows arrives.
    pub(crate) goes_on: bool,
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) absent: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Http1(Vec<u8>),
    Http2(H2Request),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Refused,
    Answered,
    Arrives(Vec<Meaning>),
}

/// What a program understood a request to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) length: usize,
    /// At most [`MOST_BODY`] bytes of it.
    pub(crate) body: Vec<u8>,
}

/// How much of a body is compared, besides its length.
pub(crate) const MOST_BODY: usize = 400;

impl Meaning {
    pub(crate) fn new(method: &[u8], target: &[u8], body: &[u8]) -> Self {
        Self {
            method: method.to_vec(),
            target: target.to_vec(),
            length: body.len(),
            body: body[..body.len().min(MOST_BODY)].to_vec(),
        }
    }
}

/// All cases, or the one that the environment names (GT_CASE).
///
/// # Panics
/// When the file is not what it should be.
pub(crate) fn cases() -> Vec<Case> {
    let file = zoo("framing.yml");
    let text = fs::read_to_string(&file).expect("framing.yml");
    let groups: Vec<Group> = match serde_saphyr::from_str(&text) {
        Ok(groups) => groups,
        Err(error) => panic!("{}: {error}", file.display()),
    };
    let mut cases: Vec<Case> = groups
        .iter()
        .flat_map(|group| group.cases.iter().map(|entry| (&group.class, entry)))
        .flat_map(|(class, entry)| entry.cases(class))
        .collect();
    if let Ok(only) = std::env::var("GT_CASE") {
        cases.retain(|case| case.name == only || case.name.starts_with(&format!("{only}-")));
        assert!(!cases.is_empty(), "no case is named {only}");
    }
    cases
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    class: String,
    cases: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    send: Option<String>,
    #[serde(default)]
    values: Vec<String>,
    #[serde(default)]
    h2: Vec<(String, String)>,
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    trailers: Vec<(String, String)>,
    want: Wanted,
    #[serde(default)]
    either: bool,
    #[serde(default)]
    end: End,
    #[serde(default)]
    fields: BTreeMap<String, String>,
    #[serde(default)]
    absent: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Wanted {
    Word(Word),
    Arrives(Vec<String>),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Refused,
    Answered,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum End {
    #[default]
    Open,
    Closed,
}

impl Entry {
    fn cases(&self, class: &str) -> Vec<Case> {
        if self.values.is_empty() {
            return vec![self.case(class, self.name.clone(), None)];
        }
        let numbered = self.values.iter().zip(1..);
        numbered
            .map(|(value, n)| self.case(class, format!("{}-{n}", self.name), Some(value)))
            .collect()
    }

    fn case(&self, class: &str, name: String, value: Option<&str>) -> Case {
        let target = format!("/{name}");
        let words = Words {
            target: &target,
            value,
        };
        let put = |text: &str| bytes(&words.expand(text));
        let payload = match &self.send {
            Some(send) => Payload::Http1(put(send)),
            None => {
                let pairs = |list: &[(String, String)]| {
                    let pair = |(name, value): &(String, String)| (put(name), put(value));
                    list.iter().map(pair).collect()
                };
                Payload::Http2(H2Request {
                    fields: pairs(&self.h2),
                    data: self.data.as_deref().map(put),
                    trailers: pairs(&self.trailers),
                })
            }
        };
        let want = match &self.want {
            Wanted::Word(Word::Refused) => Want::Refused,
            Wanted::Word(Word::Answered) => Want::Answered,
            Wanted::Arrives(list) => {
                Want::Arrives(list.iter().map(|text| meaning(&put(text))).collect())
            }
        };
        let goes_on = match want {
            Want::Refused => false,
            Want::Answered => true,
            Want::Arrives(_) => self.end == End::Open,
        };
        Case {
            class: class.to_owned(),
            end: format!("{target}/end"),
            payload,
            want,
            either: self.either,
            goes_on,
            fields: self
                .fields
                .iter()
                .map(|(name, value)| (name.clone(), words.expand(value)))
                .collect(),
            absent: self.absent.clone(),
            name,
        }
    }
}

/// `METHOD TARGET BODY`.
fn meaning(text: &[u8]) -> Meaning {
    let mut parts = text.splitn(3, |byte| *byte == b' ');
    let mut part = || parts.next().expect("METHOD TARGET BODY");
    Meaning::new(part(), part(), part())
}
