//! Raw to checked: the rules that one value alone cannot show. Each function takes sections and gives a checked type, and
//! puts what is wrong into `Findings`; where a value is missing because of a mistake, a harmless one stands in so that the rest
//! can still be checked, and the result is thrown away at the end.

mod client;
mod limits;
mod proxy;
mod requests;
mod server;
mod services;
mod users;

pub(crate) use client::check_client;
pub(crate) use proxy::check_proxy;
pub(crate) use server::check_server;
pub(crate) use users::{WORLD_READABLE, holds_secret};

use std::path::PathBuf;

use crate::{
    checked::{
        ApiListener, Certificate, Content, HostName, Kcp, Log, LogFormat, LogLevel, NameError,
        Secret,
    },
    load::Surroundings,
    problem::{Findings, Problem},
    section::Section,
    source::Place,
    tree::{Node, Value},
    value::ValueError,
};

/// What a check reads from and writes to.
pub(crate) struct Check<'a> {
    pub(crate) surroundings: &'a dyn Surroundings,
    pub(crate) findings: Findings,
}

impl Check<'_> {
    fn log(&mut self, options: &Section) -> Log {
        let defaults = Log::default();
        let findings = &mut self.findings;
        let level = options.choice("logLevel", findings).map(|name| match name {
            "off" => LogLevel::Off,
            "warn" => LogLevel::Warn,
            "info" => LogLevel::Info,
            "debug" => LogLevel::Debug,
            "trace" => LogLevel::Trace,
            // GT has fatal and panic above error; nothing here ends the program.
            _ => LogLevel::Error,
        });
        Log {
            max_size: options
                .one("logFileMaxSize", findings, crate::value::size)
                .unwrap_or(defaults.max_size),
            max_count: options
                .count("logFileMaxCount", findings)
                .unwrap_or(defaults.max_count),
            level,
            format: match options.choice("logFormat", findings) {
                Some("json") => LogFormat::Json,
                _ => LogFormat::Human,
            },
            file: self.path(options, "logFile"),
        }
    }

    /// A path, joined to the folder of the file that names it. The empty text is no path.
    fn path(&mut self, section: &Section, name: &'static str) -> Option<PathBuf> {
        let text = section.one(name, &mut self.findings, |text| Ok(text.to_string()))?;
        if text.is_empty() {
            None
        } else {
            Some(section.place_of(name).resolve(&text))
        }
    }

    /// What files hold now.
    fn content<'p>(&self, paths: impl IntoIterator<Item = &'p PathBuf>) -> Content {
        let texts: Vec<String> = paths
            .into_iter()
            .map(|path| self.surroundings.read(path).map(|file| file.text))
            .map(Result::unwrap_or_default)
            .collect();
        Content::of(texts.iter().map(String::as_str))
    }

    /// A certificate and its key, which are given together or not at all.
    fn certificate(
        &mut self,
        section: &Section,
        cert: &'static str,
        key: &'static str,
    ) -> Option<Certificate> {
        match (self.path(section, cert), self.path(section, key)) {
            (Some(cert_file), Some(key_file)) => Some(Certificate {
                cert_file,
                key_file,
            }),
            (None, None) => None,
            (cert_file, _) => {
                let (given, missing) = if cert_file.is_some() {
                    (cert, key)
                } else {
                    (key, cert)
                };
                let problem = Problem::new(
                    section.place_of(given),
                    format!("`{given}` needs `{missing}`"),
                );
                self.findings
                    .problem(problem.help("a certificate and its key are given together"));
                None
            }
        }
    }

    /// The options of KCP links.
    fn kcp(&mut self, section: &Section) -> Kcp {
        let basis = Kcp::default();
        Kcp {
            mode: section
                .choice("kcpMode", &mut self.findings)
                .unwrap_or(basis.mode),
            fec: section
                .choice("kcpFEC", &mut self.findings)
                .unwrap_or(basis.fec),
            mtu: section
                .count("kcpMTU", &mut self.findings)
                .unwrap_or(basis.mtu),
        }
    }

    /// A text of 1 to 64 bytes without control characters.
    fn text(&mut self, section: &Section, name: &'static str) -> Option<String> {
        section.one(name, &mut self.findings, |text| match text {
            "" => Err(ValueError::Name(NameError::Empty)),
            text if text.len() > 64 => Err(ValueError::Name(NameError::TooLong(64))),
            text => match text.chars().find(|c| c.is_control()) {
                Some(c) => Err(ValueError::Name(NameError::BadCharacter(
                    c,
                    "all but control characters",
                ))),
                None => Ok(text.to_string()),
            },
        })
    }

    /// The secret of a section that has `secret` and `secretFile`.
    fn secret(&mut self, section: &Section) -> Option<Secret> {
        self.secret_of(section, "secret", "secretFile")
    }

    /// A secret that is given by `value`, or by the file that `file` names.
    fn secret_of(
        &mut self,
        section: &Section,
        value: &'static str,
        file: &'static str,
    ) -> Option<Secret> {
        if section.has(value) && section.has(file) {
            let message = format!("`{value}` and `{file}` are both given");
            self.findings
                .problem(Problem::new(section.place_of(file), message).help("keep one of them"));
            return None;
        }
        match (section.node(value), section.node(file)) {
            (Some(node), _) => self.secret_value(node, value),
            (None, Some(node)) => self.secret_file(node),
            (None, None) => None,
        }
    }

    /// The API, if it is to listen; `certificate` is the client's `None`.
    fn api(&mut self, options: &Section, certificate: Option<Certificate>) -> Option<ApiListener> {
        let addr = options.listen("apiAddr", &mut self.findings);
        for name in ["apiPassword", "apiPasswordFile", "apiHosts"] {
            if options.has(name) && !options.has("apiAddr") {
                let text = format!("`{name}` does nothing without `apiAddr`");
                self.findings.warn(Some(options.place_of(name)), text);
            }
        }
        let listener = ApiListener {
            password: self.secret_of(options, "apiPassword", "apiPasswordFile"),
            hosts: options.all("apiHosts", &mut self.findings, |text| {
                Ok(HostName::new(text)?)
            }),
            content: self.content(
                certificate
                    .iter()
                    .flat_map(|pair| [&pair.cert_file, &pair.key_file]),
            ),
            certificate,
            addr: addr?,
        };
        Some(listener)
    }

    /// A secret: a text, or `{file: PATH}`.
    fn secret_value(&mut self, node: &Node, option: &str) -> Option<Secret> {
        match &node.value {
            Value::Text(text) => {
                self.secret_text(&node.place, &format!("the value of `{option}`"), text)
            }
            Value::Map(entries) => match entries.as_slice() {
                [(key, file)] if key.text == "file" => self.secret_file(file),
                _ => {
                    let problem = Problem::new(
                        &node.place,
                        "a secret is a text, or a mapping with the key `file` alone",
                    );
                    self.findings.problem(
                        problem.help(format!("write `{option}: {{file: /run/secrets/gt}}`")),
                    );
                    None
                }
            },
            _ => {
                let message = format!("`{option}` takes a single value, not {}", node.kind());
                self.findings.problem(Problem::new(&node.place, message));
                None
            }
        }
    }

    fn secret_file(&mut self, node: &Node) -> Option<Secret> {
        let Value::Text(path) = &node.value else {
            self.findings.problem(Problem::new(
                &node.place,
                format!("the file of a secret is a path, not {}", node.kind()),
            ));
            return None;
        };
        match self.surroundings.read(&node.place.resolve(path)) {
            Ok(file) => {
                if file.world_readable {
                    self.findings.warn(
                        Some(&node.place),
                        "every user of this machine can read the file of the secret",
                    );
                }
                // Editors and `echo` end a file with a line end that is no part of the secret.
                self.secret_text(
                    &node.place,
                    "the text of the file",
                    file.text.trim_end_matches(['\n', '\r']),
                )
            }
            Err(error) => {
                let problem = Problem::new(
                    &node.place,
                    format!("the file of the secret cannot be read: {error}"),
                );
                self.findings.problem(problem);
                None
            }
        }
    }

    fn secret_text(&mut self, place: &Place, subject: &str, text: &str) -> Option<Secret> {
        Secret::new(text)
            .map_err(|error| {
                self.findings
                    .problem(Problem::new(place, format!("{subject} {error}")))
            })
            .ok()
    }
}
