//! Flags of `gt server`, `gt client` and `gt proxy`: `-name value`, `-name=value`, and the same with two dashes. The names are those of
//! the option tables; on a client, the flags after each `-local` belong to that service. The result is made of the same nodes
//! as a file, so that one checker does for both.

use std::{fmt, path::PathBuf};

use crate::{
    load::Role,
    options::{CLIENT_OPTIONS, Kind, Opt, PROXY_OPTIONS, SERVER_OPTIONS, SERVICE, Status, Table},
    problem::{Errors, Findings, Problem, nearest},
    section::Section,
    source::{Place, Source},
    tree::{Key, Node, Value},
};

/// A parsed command line of one role.
#[derive(Clone)]
pub struct CommandLine {
    /// Server, client or proxy.
    pub role: Role,
    /// `-c`, `-config`: a file or a folder.
    pub config: Option<PathBuf>,
    /// `-s`, `-signal`: reload, restart or stop.
    pub signal: Option<String>,
    /// `-h`, `-help` was given: nothing else matters.
    pub help: bool,
    place: Place,
    options: Vec<Given>,
    services: Vec<Vec<Given>>,
}

#[derive(Clone)]
struct Given {
    option: &'static Opt,
    typed: String,
    node: Node,
}

impl fmt::Debug for CommandLine {
    /// The names of the flags: their values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = self.options.iter().chain(self.services.iter().flatten());
        let names: Vec<_> = given.map(|given| given.option.name).collect();
        f.debug_struct("CommandLine")
            .field("role", &self.role)
            .field("config", &self.config)
            .field("flags", &names)
            .finish_non_exhaustive()
    }
}

impl CommandLine {
    /// Reads the arguments after `gt server`, `gt client` or `gt proxy`.
    ///
    /// # Errors
    /// [`Errors`] with every flag that is unknown, out of place or without its value.
    pub fn parse(role: Role, args: impl IntoIterator<Item = String>) -> Result<Self, Errors> {
        let source = Source::command_line();
        let mut line = Self {
            role,
            config: None,
            signal: None,
            help: false,
            place: Place::whole(&source),
            options: Vec::new(),
            services: Vec::new(),
        };
        let mut findings = Findings::default();
        let mut args = args.into_iter().peekable();
        while let Some(arg) = args.next() {
            let Some((typed, inline)) = split_flag(&arg) else {
                findings.problem(stray(&Place::whole(&source), &arg));
                continue;
            };
            let place = Place::flag(&source, &typed);
            let name = typed.trim_start_matches('-');
            if matches!(name, "h" | "help") && inline.is_none() {
                line.help = true;
                continue;
            }
            let option = line.find(name);
            let takes_value = !matches!(
                option,
                Some((
                    Opt {
                        kind: Kind::Bool,
                        ..
                    },
                    _
                ))
            );
            let known = option.is_some() || GENERAL.contains(&name);
            let value = match inline {
                Some(value) => Some(value),
                None if !takes_value => Some("true".into()),
                // The value of an unknown flag is taken as well: it would only be reported again.
                None if !known => args.next_if(|next| !next.starts_with('-')),
                None => {
                    args.next_if(|next| split_flag(next).is_none_or(|(next, _)| !line.knows(&next)))
                }
            };
            match (option, value) {
                (None, _) if !known => findings.problem(line.unknown(name, &place)),
                (_, None) => {
                    findings.problem(Problem::new(&place, format!("`{typed}` needs a value")))
                }
                (None, Some(value)) if matches!(name, "c" | "config") => {
                    line.config = Some(value.into())
                }
                (None, Some(value)) => line.signal = Some(value),
                (Some((option, of_service)), Some(value)) => {
                    line.add(option, of_service, typed, place, value, &mut findings)
                }
            }
        }
        findings.finish()?;
        Ok(line)
    }

    /// No flags at all.
    pub fn empty(role: Role) -> Self {
        let place = Place::whole(&Source::command_line());
        Self {
            role,
            config: None,
            signal: None,
            help: false,
            place,
            options: Vec::new(),
            services: Vec::new(),
        }
    }

    /// A flag other than `-c` and `-s` was given.
    pub fn has_options(&self) -> bool {
        !self.options.is_empty() || !self.services.is_empty()
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The flags that are options of the role.
    pub(crate) fn options(&self, findings: &mut Findings) -> Section {
        let node = Node {
            place: self.place.clone(),
            value: Value::Map(entries(&self.options)),
            interpolated: false,
        };
        Section::read(table(self.role), &node, findings)
    }

    /// One mapping for each `-local` and the flags after it.
    pub(crate) fn services(&self) -> Vec<Node> {
        let mapping = |flags: &Vec<Given>| Node {
            place: flags
                .first()
                .map_or(&self.place, |given| &given.node.place)
                .clone(),
            value: Value::Map(entries(flags)),
            interpolated: false,
        };
        self.services.iter().map(mapping).collect()
    }

    /// The option of that name, and whether it belongs to a service.
    fn find(&self, name: &str) -> Option<(&'static Opt, bool)> {
        let of_role = table(self.role).find(name).map(|option| (option, false));
        let of_service = || SERVICE.find(name).map(|option| (option, true));
        match self.role {
            Role::Server | Role::Proxy => of_role,
            Role::Client => of_role.or_else(of_service),
        }
    }

    fn knows(&self, typed: &str) -> bool {
        let name = typed.trim_start_matches('-');
        GENERAL.contains(&name) || matches!(name, "h" | "help") || self.find(name).is_some()
    }

    fn add(
        &mut self,
        option: &'static Opt,
        of_service: bool,
        typed: String,
        place: Place,
        value: String,
        findings: &mut Findings,
    ) {
        let in_files_only = matches!(option.kind, Kind::Section(_) | Kind::Named(_));
        if in_files_only && option.status == Status::Built {
            findings.problem(
                Problem::new(&place, format!("`{typed}` can be given in a file only"))
                    .help("use -c FILE"),
            );
            return;
        }
        let given = Given {
            option,
            typed,
            node: Node::text(place, value),
        };
        match (of_service, option.name, self.services.last_mut()) {
            (false, ..) => self.options.push(given),
            (true, "local", _) => self.services.push(vec![given]),
            (true, _, Some(service)) => service.push(given),
            (true, name, None) => {
                let problem = Problem::new(
                    &given.node.place,
                    format!("`{name}` stands before any `-local`"),
                );
                findings.problem(problem.help("flags of a service follow its -local"));
            }
        }
    }

    fn unknown(&self, name: &str, place: &Place) -> Problem {
        let tables = match self.role {
            Role::Server => vec![&SERVER_OPTIONS],
            Role::Client => vec![&CLIENT_OPTIONS, &SERVICE],
            Role::Proxy => vec![&PROXY_OPTIONS],
        };
        let names = tables
            .iter()
            .flat_map(|table| table.options)
            .map(|option| option.name)
            .chain(GENERAL);
        let problem = Problem::new(place, format!("unknown flag of gt {}", self.role));
        let all: [(_, &[&Table]); 3] = [
            (Role::Server, &[&SERVER_OPTIONS]),
            (Role::Client, &[&CLIENT_OPTIONS, &SERVICE]),
            (Role::Proxy, &[&PROXY_OPTIONS]),
        ];
        let other = all.into_iter().find(|(role, tables)| {
            *role != self.role && tables.iter().any(|table| table.find(name).is_some())
        });
        match (
            nearest(name, names.filter(|name| !name.ends_with('*'))),
            other,
        ) {
            (Some(near), _) => problem.help(format!("did you mean -{near}?")),
            (None, Some((role, _))) => problem.help(format!("it is a flag of gt {role}")),
            (None, None) => problem.help(format!("gt {} --help lists the flags", self.role)),
        }
    }
}

/// Flags of both roles that are no options.
const GENERAL: [&str; 4] = ["c", "config", "s", "signal"];

fn table(role: Role) -> &'static Table {
    match role {
        Role::Server => &SERVER_OPTIONS,
        Role::Client => &CLIENT_OPTIONS,
        Role::Proxy => &PROXY_OPTIONS,
    }
}

/// `-name`, `--name`, `-name=value`: the flag as typed, and the value after `=`. A lone or numeric `-1` is no flag.
fn split_flag(arg: &str) -> Option<(String, Option<String>)> {
    let name = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    Some(match arg.split_once('=') {
        Some((flag, value)) => (flag.into(), Some(value.into())),
        None => (arg.into(), None),
    })
}

fn stray(place: &Place, arg: &str) -> Problem {
    match arg {
        "true" | "false" => Problem::new(place, format!("`{arg}` belongs to no flag"))
            .help(format!("write -flag={arg}")),
        // What stands alone may be a secret that lost its flag, so it is not repeated.
        _ => Problem::new(place, "a value belongs to no flag")
            .help("write -flag value, and quote values that hold spaces"),
    }
}

/// Flags as the entries of a mapping: of a list option all values count, of the others the last.
fn entries(given: &[Given]) -> Vec<(Key, Node)> {
    let mut entries: Vec<(Key, Node)> = Vec::new();
    for Given {
        option,
        typed,
        node,
    } in given
    {
        let name = typed.trim_start_matches('-');
        match entries.iter_mut().find(|(key, _)| key.text == name) {
            None => {
                let value = if option.list {
                    Value::List(vec![node.clone()])
                } else {
                    node.value.clone()
                };
                let key = Key {
                    text: name.into(),
                    place: node.place.clone(),
                };
                entries.push((
                    key,
                    Node {
                        value,
                        ..node.clone()
                    },
                ));
            }
            Some((
                _,
                Node {
                    value: Value::List(items),
                    ..
                },
            )) => items.push(node.clone()),
            Some((_, last)) => *last = node.clone(),
        }
    }
    entries
}
