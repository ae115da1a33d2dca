//! Who may come to a server: `users` in the file, a users file, `id` and `secret` lists in options and flags. The same id in
//! several of them is one user: flags win over the users file, and that over the configuration file.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};

use super::Check;
use crate::{
    checked::{Id, Limits, Secret, User},
    options::USER,
    problem::Problem,
    section::Section,
    source::{Place, Source},
    tree::{Node, Value},
    yaml,
};

impl Check<'_> {
    /// All users. `file` and `flags` are the two sources of `options`, which keep their own id and secret lists.
    pub(super) fn users(
        &mut self,
        top: &Section,
        file: &Section,
        flags: &Section,
        defaults: &Limits,
        load_balance: bool,
    ) -> HashMap<Id, User> {
        let mut drafts = Drafts::new();
        let inline = file
            .node("users")
            .filter(|node| matches!(node.value, Value::Map(_)));
        for node in [top.node("users"), inline].into_iter().flatten() {
            self.named_users(node, &mut drafts);
        }
        let mut secrets = HashMap::new();
        self.pairs(file, &mut secrets);
        let path = flags.node("users").or(file.node("users"));
        if let Some(node) = path.filter(|node| !matches!(node.value, Value::Map(_))) {
            let mut from_file = Drafts::new();
            self.users_file(node, &mut from_file);
            for (id, section) in from_file {
                if section.has("secret") || section.has("secretFile") {
                    secrets.remove(&id);
                }
                let section = match drafts.remove(&id) {
                    Some(below) => merge(below, section),
                    None => section,
                };
                drafts.insert(id, section);
            }
        }
        self.pairs(flags, &mut secrets);
        let mut users = HashMap::new();
        for (id, section) in drafts {
            let limits = self.user_limits(&section, defaults);
            let load_balance = section
                .boolean("loadBalance", &mut self.findings)
                .unwrap_or(load_balance);
            let own = self.secret(&section);
            match secrets.remove(&id).or(own) {
                Some(secret) => {
                    users.insert(
                        id,
                        User {
                            secret,
                            limits,
                            load_balance,
                        },
                    );
                }
                None if section.has("secret") || section.has("secretFile") => {}
                None => {
                    let problem =
                        Problem::new(&section.place, format!("the user `{id}` has no secret"));
                    self.findings
                        .problem(problem.help("give it `secret: TEXT` or `secret: {file: PATH}`"));
                }
            }
        }
        for (id, secret) in secrets {
            users.insert(
                id,
                User {
                    secret,
                    limits: defaults.clone(),
                    load_balance,
                },
            );
        }
        users
    }

    fn named_users(&mut self, node: &Node, drafts: &mut Drafts) {
        let entries = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => return,
            _ => {
                let problem = Problem::new(
                    &node.place,
                    format!("users are a mapping of ids, not {}", node.kind()),
                );
                self.findings
                    .problem(problem.help("write `ID: {secret: TEXT}` below it"));
                return;
            }
        };
        for (key, value) in entries {
            let id = match Id::new(&key.text) {
                Ok(id) => id,
                Err(error) => {
                    self.findings.problem(Problem::new(
                        &key.place,
                        format!("the id `{}` {error}", key.text),
                    ));
                    continue;
                }
            };
            let mut section = Section::read(&USER, value, &mut self.findings);
            section.place = key.place.clone();
            // Top-level `users` and a mapping in `options.users` of one file may both name an id.
            let merged = match drafts.remove(&id) {
                Some(below) => merge(below, section),
                None => section,
            };
            drafts.insert(id, merged);
        }
    }

    fn users_file(&mut self, node: &Node, drafts: &mut Drafts) {
        let Value::Text(written) = &node.value else {
            let problem = Problem::new(
                &node.place,
                format!(
                    "`users` is the path of a file or a mapping, not {}",
                    node.kind()
                ),
            );
            self.findings.problem(problem);
            return;
        };
        let path = node.place.resolve(written);
        match self.surroundings.read(&path) {
            Err(error) => {
                let name = match node.interpolated {
                    true => String::new(),
                    false => format!(" {}", path.display()),
                };
                let message = format!("the users file{name} cannot be read: {error}");
                self.findings.problem(Problem::new(&node.place, message));
            }
            Ok(file) => {
                let source = Source::file(&path, &file.text);
                let surroundings = self.surroundings;
                if let Some(tree) = yaml::parse(
                    &source,
                    &file.text,
                    &|name| surroundings.env(name),
                    &mut self.findings,
                ) {
                    if file.world_readable && holds_secret(&tree) {
                        self.findings
                            .warn(Some(&Place::whole(&source)), WORLD_READABLE);
                    }
                    self.named_users(&tree, drafts);
                }
            }
        }
    }

    /// The lists `id` and `secret` (or `secretFile`), which belong together by position.
    fn pairs(&mut self, options: &Section, secrets: &mut HashMap<Id, Secret>) {
        let ids = options.nodes("id");
        let texts = options.nodes("secret");
        let files = options.nodes("secretFile");
        if !texts.is_empty() && !files.is_empty() {
            let place = options.place_of("secretFile");
            self.findings.problem(
                Problem::new(place, "`secret` and `secretFile` are both given")
                    .help("keep one of them"),
            );
            return;
        }
        let given = texts.len() + files.len();
        if ids.len() != given {
            let place = ids
                .first()
                .or(texts.first())
                .or(files.first())
                .map_or(&options.place, |node| &node.place);
            let message = format!("there are {} of `id` and {given} of `secret`", ids.len());
            self.findings.problem(
                Problem::new(place, message).help("each id needs the secret at the same position"),
            );
            return;
        }
        let parsed = options.all("id", &mut self.findings, |text| Ok(Id::new(text)?));
        if parsed.len() != ids.len() {
            return;
        }
        let mut seen: HashMap<Id, Secret> = HashMap::new();
        for (at, id) in parsed.into_iter().enumerate() {
            let secret = match texts.get(at) {
                Some(node) => self.secret_value(node, "secret"),
                None => files.get(at).and_then(|node| self.secret_file(node)),
            };
            match (seen.entry(id), secret) {
                (Entry::Occupied(entry), _) => {
                    let message = format!("the id `{}` is given twice", entry.key());
                    self.findings.problem(Problem::new(&ids[at].place, message));
                }
                (Entry::Vacant(entry), Some(secret)) => {
                    entry.insert(secret);
                }
                (Entry::Vacant(_), None) => {}
            }
        }
        secrets.extend(seen);
    }
}

pub(crate) const WORLD_READABLE: &str =
    "the file holds a secret and every user of this machine can read it (chmod o-r)";

/// A user as written so far.
type Drafts = BTreeMap<Id, Section>;

/// The user of a source that counts more, over the same user of one that counts less.
fn merge(mut below: Section, over: Section) -> Section {
    if over.has("secret") || over.has("secretFile") {
        below.remove("secret");
        below.remove("secretFile");
    }
    below.overlay(over)
}

/// A secret stands in the text itself.
pub(crate) fn holds_secret(node: &Node) -> bool {
    match &node.value {
        Value::Map(entries) => entries.iter().any(|(key, value)| {
            let written = match &value.value {
                Value::Text(text) => !text.is_empty(),
                Value::List(items) => items
                    .iter()
                    .any(|item| matches!(item.value, Value::Text(_))),
                _ => false,
            };
            let named = matches!(&value.value, Value::Map(users) if users.iter().any(|(_, user)| matches!(user.value, Value::Text(_))));
            (matches!(key.text.as_str(), "secret" | "apiPassword" | "password" | "signingKey") && written)
                || (key.text == "passwords" && named)
                || holds_secret(value)
        }),
        Value::List(items) => items.iter().any(holds_secret),
        Value::Text(_) | Value::Null => false,
    }
}
