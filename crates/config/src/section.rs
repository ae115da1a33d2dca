//! A mapping read with its option table: unknown keys are reported, values are found by name and turned into what the
//! table says. Where flags and a file give the same option, the section holds the flag's.

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU64, time::Duration};

use crate::{
    options::{
        CLIENT, CLIENT_OPTIONS, Kind, LISTENER, Opt, PROXY, PROXY_FILE, PROXY_OPTIONS, ROUTE,
        SERVER, SERVER_OPTIONS, SERVICE, Status, Table, UPSTREAM,
    },
    problem::{Findings, Problem, nearest},
    source::Place,
    tree::{Node, Value},
    value::{self, ValueError},
};

#[derive(Clone)]
pub(crate) struct Section {
    table: &'static Table,
    /// Where the mapping begins.
    pub(crate) place: Place,
    values: BTreeMap<&'static str, Node>,
}

impl Section {
    pub(crate) fn empty(table: &'static Table, place: &Place) -> Self {
        Self {
            table,
            place: place.clone(),
            values: BTreeMap::new(),
        }
    }

    /// Reads `node`, which should be a mapping.
    pub(crate) fn read(table: &'static Table, node: &Node, findings: &mut Findings) -> Self {
        let mut section = Self::empty(table, &node.place);
        match &node.value {
            Value::Null => {}
            Value::Map(entries) => {
                for (key, value) in entries {
                    match table.find(&key.text) {
                        None => findings.problem(unknown_key(table, &key.text, &key.place)),
                        Some(_) if value.is_null() => {}
                        Some(option) => {
                            section.put(option, &key.text, &key.place, value.clone(), findings)
                        }
                    }
                }
            }
            _ => findings.problem(
                Problem::new(
                    &node.place,
                    format!("`{}` must be a mapping, not {}", table.name, node.kind()),
                )
                .help("write `key: value` lines below it"),
            ),
        }
        section
    }

    /// As [`Self::read`], but a text stands for the first key alone (`Kind::Short`).
    pub(crate) fn read_short(table: &'static Table, node: &Node, findings: &mut Findings) -> Self {
        let mut section = Self::empty(table, &node.place);
        match (&node.value, table.options.first()) {
            (Value::Text(_), Some(first)) => {
                section.put(first, first.name, &node.place, node.clone(), findings);
                section
            }
            _ => Self::read(table, node, findings),
        }
    }

    fn put(
        &mut self,
        option: &'static Opt,
        typed: &str,
        place: &Place,
        value: Node,
        findings: &mut Findings,
    ) {
        match option.status {
            Status::Built => {
                self.values.insert(option.name, value);
            }
            Status::Ignored => {
                if !value.is_off() {
                    findings.warn(
                        Some(place),
                        format!("`{typed}` is not in this build and is ignored"),
                    );
                }
            }
        }
    }

    /// Values of `over` replace those of the same name.
    pub(crate) fn overlay(mut self, over: Self) -> Self {
        self.values.extend(over.values);
        self
    }

    pub(crate) fn remove(&mut self, name: &'static str) {
        self.values.remove(name);
    }

    pub(crate) fn node(&self, name: &'static str) -> Option<&Node> {
        debug_assert!(
            self.table.find(name).is_some(),
            "{name} is not in the table {}",
            self.table.name
        );
        self.values.get(name)
    }

    pub(crate) fn has(&self, name: &'static str) -> bool {
        self.node(name).is_some()
    }

    /// It is given as `false`, `0` or the empty text: as if it were absent.
    pub(crate) fn is_off(&self, name: &'static str) -> bool {
        self.node(name).is_some_and(Node::is_off)
    }

    /// Where `name` is given, else where the section begins.
    pub(crate) fn place_of(&self, name: &'static str) -> &Place {
        self.node(name).map_or(&self.place, |node| &node.place)
    }

    /// The values of a list option; one value stands for a list of one.
    pub(crate) fn nodes(&self, name: &'static str) -> Vec<&Node> {
        match self.node(name) {
            None => Vec::new(),
            Some(Node {
                value: Value::List(items),
                ..
            }) => items.iter().collect(),
            Some(node) => vec![node],
        }
    }

    /// One value, parsed by `parse`.
    pub(crate) fn one<T>(
        &self,
        name: &'static str,
        findings: &mut Findings,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        self.node(name)
            .and_then(|node| scalar(name, node, self.is_secret(name), findings, parse))
    }

    /// All values of a list option, each parsed by `parse`. Those that do not parse are reported and left out.
    pub(crate) fn all<T>(
        &self,
        name: &'static str,
        findings: &mut Findings,
        parse: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Vec<T> {
        let secret = self.is_secret(name);
        self.nodes(name)
            .into_iter()
            .filter_map(|node| scalar(name, node, secret, findings, &parse))
            .collect()
    }

    pub(crate) fn boolean(&self, name: &'static str, findings: &mut Findings) -> Option<bool> {
        self.one(name, findings, value::boolean)
    }

    /// A number within the table's bounds, which fit `T` (the tests of the tables see to it).
    pub(crate) fn count<T: TryFrom<u64>>(
        &self,
        name: &'static str,
        findings: &mut Findings,
    ) -> Option<T> {
        let (min, max) = match self.kind(name) {
            Kind::Count { min, max } => (min, max),
            _ => (0, u64::MAX),
        };
        let too_large = || ValueError::OutOfBounds(format!("{min} to {max} are allowed"));
        self.one(name, findings, |text| {
            T::try_from(value::count(text, min, max)?).map_err(|_| too_large())
        })
    }

    /// A time within the table's bounds.
    pub(crate) fn duration(&self, name: &'static str, findings: &mut Findings) -> Option<Duration> {
        let (zero, min, max) = match self.kind(name) {
            Kind::Duration { zero, min, max } => (zero, min, max),
            _ => (true, 0, u64::MAX),
        };
        self.one(name, findings, |text| {
            let time = value::duration(text)?;
            let within = (u128::from(min)..=u128::from(max)).contains(&time.as_millis());
            if within || (zero && time.is_zero()) {
                return Ok(time);
            }
            let or_zero = if zero { ", or 0," } else { "" };
            let (min, max) = (show_milliseconds(min), show_milliseconds(max));
            Err(ValueError::OutOfBounds(format!(
                "{min} to {max}{or_zero} are allowed"
            )))
        })
    }

    pub(crate) fn speed(
        &self,
        name: &'static str,
        findings: &mut Findings,
    ) -> Option<Option<NonZeroU64>> {
        self.one(name, findings, value::speed)
    }

    /// An address to listen on; `None` also for the empty text, which switches a listener off.
    pub(crate) fn listen(&self, name: &'static str, findings: &mut Findings) -> Option<SocketAddr> {
        let default_ip = match self.kind(name) {
            Kind::Listen { loopback: true } => std::net::Ipv4Addr::LOCALHOST,
            _ => std::net::Ipv4Addr::UNSPECIFIED,
        };
        self.one(name, findings, |text| {
            value::listen_address(text, default_ip)
        })
        .flatten()
    }

    /// One of the table's words.
    pub(crate) fn choice(
        &self,
        name: &'static str,
        findings: &mut Findings,
    ) -> Option<&'static str> {
        let words = match self.kind(name) {
            Kind::Choice(words) => words,
            _ => &[],
        };
        self.one(name, findings, |text| {
            let lower = text.to_ascii_lowercase();
            words
                .iter()
                .copied()
                .find(|word| *word == lower)
                .ok_or_else(|| ValueError::NotChoice(words.join(", ")))
        })
    }

    pub(crate) fn kind(&self, name: &str) -> Kind {
        self.table
            .find(name)
            .map_or(Kind::Any, |option| option.kind)
    }

    /// The entries of a mapping of field names to texts: name, place of the value, value.
    pub(crate) fn fields(
        &self,
        name: &'static str,
        findings: &mut Findings,
    ) -> Vec<(String, Place, String)> {
        let Some(node) = self.node(name) else {
            return Vec::new();
        };
        let Value::Map(entries) = &node.value else {
            let message = format!("`{name}` is a mapping of field names, not {}", node.kind());
            findings.problem(
                Problem::new(&node.place, message).help("write `NAME: VALUE` lines below it"),
            );
            return Vec::new();
        };
        let field = |(key, value): &(crate::tree::Key, Node)| {
            let name = key_as_field(key, findings)?;
            let text = scalar(
                &key.text,
                value,
                false,
                findings,
                |text| Ok(text.to_owned()),
            )?;
            Some((name, value.place.clone(), text))
        };
        entries.iter().filter_map(field).collect()
    }

    /// The names that are given.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.values.keys().copied()
    }

    fn is_secret(&self, name: &str) -> bool {
        matches!(self.kind(name), Kind::Secret)
    }
}

fn key_as_field(key: &crate::tree::Key, findings: &mut Findings) -> Option<String> {
    let parsed = value::header_name(&key.text);
    parsed
        .map_err(|error| {
            let problem = Problem::new(&key.place, format!("`{}` {error}", key.text));
            findings.problem(problem.help_if(error.help()));
        })
        .ok()
}

fn scalar<T>(
    name: &str,
    node: &Node,
    secret: bool,
    findings: &mut Findings,
    parse: impl FnOnce(&str) -> Result<T, ValueError>,
) -> Option<T> {
    let Value::Text(text) = &node.value else {
        findings.problem(Problem::new(
            &node.place,
            format!("`{name}` takes a single value, not {}", node.kind()),
        ));
        return None;
    };
    match parse(text) {
        Ok(value) => Some(value),
        Err(error) => {
            // What stands before an @ may be a password.
            let userinfo = text.contains("://") && text.contains('@');
            let subject = if secret || userinfo || node.interpolated || text.chars().count() > 80 {
                format!("the value of `{name}`")
            } else if text.is_empty() {
                format!("the empty value of `{name}`")
            } else {
                format!("the value `{text}` of `{name}`")
            };
            findings.problem(
                Problem::new(&node.place, format!("{subject} {error}")).help_if(error.help()),
            );
            None
        }
    }
}

/// What is wrong with a key that `table` does not have.
pub(crate) fn unknown_key(table: &'static Table, name: &str, place: &Place) -> Problem {
    let problem = Problem::new(place, format!("unknown key `{name}` in {}", table.name));
    let names = table
        .options
        .iter()
        .map(|option| option.name)
        .filter(|name| !name.ends_with('*'));
    let elsewhere = || {
        let relay = [&SERVER, &SERVER_OPTIONS, &CLIENT, &CLIENT_OPTIONS, &SERVICE];
        let proxy = [
            &PROXY,
            &ROUTE,
            &UPSTREAM,
            &LISTENER,
            &PROXY_FILE,
            &PROXY_OPTIONS,
        ];
        // What belongs together comes first.
        let (near, far): (&[_], &[_]) = match relay.iter().any(|other| std::ptr::eq(*other, table))
        {
            true => (&relay, &proxy),
            false => (&proxy, &relay),
        };
        near.iter()
            .chain(far)
            .copied()
            .find(|other| !std::ptr::eq(*other, table) && other.find(name).is_some())
    };
    match (nearest(name, names), elsewhere()) {
        (Some(near), _) => problem.help(format!("did you mean `{near}`?")),
        (None, Some(other)) => problem.help(format!("`{name}` is a key of {}", describe(other))),
        (None, None) => problem,
    }
}

fn describe(table: &'static Table) -> &'static str {
    if std::ptr::eq(table, &SERVER_OPTIONS) {
        "`options:` of a server"
    } else if std::ptr::eq(table, &CLIENT_OPTIONS) {
        "`options:` of a client"
    } else if std::ptr::eq(table, &SERVICE) {
        "one of the `services:` of a client"
    } else if std::ptr::eq(table, &SERVER) {
        "the top level of a server's file"
    } else if std::ptr::eq(table, &PROXY) {
        "`proxy:`"
    } else if std::ptr::eq(table, &ROUTE) {
        "one of the `routes:` of a proxy"
    } else if std::ptr::eq(table, &UPSTREAM) {
        "one of the `upstreams:` of a proxy"
    } else if std::ptr::eq(table, &LISTENER) {
        "one of the `listeners:` of a proxy"
    } else if std::ptr::eq(table, &PROXY_OPTIONS) {
        "`options:` of a proxy"
    } else if std::ptr::eq(table, &PROXY_FILE) {
        "the top level of a proxy's file"
    } else {
        "the top level of a client's file"
    }
}

/// Milliseconds as one would write them.
pub(crate) fn show_milliseconds(ms: u64) -> String {
    match ms {
        ms if ms % 86_400_000 == 0 && ms > 0 => format!("{}d", ms / 86_400_000),
        ms if ms % 3_600_000 == 0 && ms > 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 && ms > 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}
