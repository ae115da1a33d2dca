//! Users of a route: from the file itself, and from a file as `htpasswd -B` makes it.

use std::sync::Arc;

use route::{BasicAuth, PasswordHash};

use super::Check;
use crate::{
    checked::VisitorAuth, options::BASIC_AUTH, problem::Problem, section::Section, tree::Value,
};

impl Check<'_> {
    pub(super) fn basic_auth(&mut self, entry: &Section) -> Option<Arc<BasicAuth>> {
        let place = entry.place_of("basicAuth").clone();
        let VisitorAuth {
            realm,
            users,
            user_header,
        } = self.visitor_auth(entry)?;
        let auth = self.good(
            &place,
            "what is given as users",
            BasicAuth::new(&realm, users).map_err(Into::into),
        )?;
        match user_header {
            Some(name) => {
                let auth = auth.with_user_header(&name).map_err(Into::into);
                self.good(&place, "the value of `userHeader`", auth)
                    .map(Arc::new)
            }
            None => Some(Arc::new(auth)),
        }
    }

    /// Who may come, as it was written.
    pub(in crate::check) fn visitor_auth(&mut self, entry: &Section) -> Option<VisitorAuth> {
        let section = Section::read(&BASIC_AUTH, entry.node("basicAuth")?, &mut self.findings);
        let before = self.findings.problems();
        let realm = self.text(&section, "realm").unwrap_or_else(|| "gt".into());
        let mut users = self.passwords(&section);
        users.extend(self.password_file(&section));
        let header = section.one("userHeader", &mut self.findings, crate::value::header_name);
        if self.findings.problems() > before {
            return None;
        }
        if users.is_empty() {
            let problem = Problem::new(&section.place, "`basicAuth` has no users");
            self.findings
                .problem(problem.help("give `passwords: {NAME: HASH}` or `usersFile`"));
            return None;
        }
        Some(VisitorAuth {
            realm,
            users,
            user_header: header,
        })
    }

    fn passwords(&mut self, section: &Section) -> Vec<(String, PasswordHash)> {
        let Some(node) = section.node("passwords") else {
            return Vec::new();
        };
        let Value::Map(entries) = &node.value else {
            let problem = Problem::new(
                &node.place,
                format!("passwords are a mapping of names, not {}", node.kind()),
            );
            self.findings
                .problem(problem.help("write `NAME: HASH` lines below it"));
            return Vec::new();
        };
        let mut users = Vec::new();
        for (key, value) in entries {
            let Some(secret) = self.secret_value(value, "usersFile") else {
                continue;
            };
            let hash = PasswordHash::new(secret.expose()).map_err(Into::into);
            if let Some(hash) = self.good(&value.place, "the password", hash) {
                users.push((key.text.clone(), hash));
            }
        }
        users
    }

    fn password_file(&mut self, section: &Section) -> Vec<(String, PasswordHash)> {
        let Some(path) = self.readable(section, "usersFile") else {
            return Vec::new();
        };
        let place = section.place_of("usersFile");
        // What cannot be read was reported.
        let Ok(file) = self.surroundings.read(&path) else {
            return Vec::new();
        };
        if file.world_readable {
            self.findings.warn(
                Some(place),
                "every user of this machine can read the password file",
            );
        }
        let mut users = Vec::new();
        let lines = file.text.lines().map(str::trim).enumerate();
        for (n, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            // Nothing of the line is repeated: it may be a password.
            let parsed = line
                .split_once(':')
                .map(|(name, hash)| (name, PasswordHash::new(hash)));
            match parsed {
                Some((name, Ok(hash))) => users.push((name.to_owned(), hash)),
                Some((_, Err(error))) => {
                    let problem = Problem::new(
                        place,
                        format!(
                            "in line {} of the file, what stands after the name {error}",
                            n + 1
                        ),
                    );
                    self.findings.problem(problem);
                }
                None => {
                    let problem = Problem::new(
                        place,
                        format!("line {} of the file is not NAME:HASH", n + 1),
                    );
                    self.findings.problem(problem);
                }
            }
        }
        users
    }
}
