//! What answers a route's requests.

use route::{
    Action, Files, HostField, PathRewrite, Redirect, Respond, ServiceName, Template, ToUpstream,
};

use super::{Check, Draft, values};
use crate::{
    checked::HostName,
    options::{FILES, REDIRECT, RESPOND, REWRITE},
    problem::Problem,
    section::Section,
    value::ValueError,
};

/// The keys of which a route has exactly one.
const ACTIONS: [&str; 5] = ["to", "redirect", "respond", "files", "service"];

impl Check<'_> {
    /// The action of a route; `None` after a mistake.
    pub(super) fn action(&mut self, entry: &Section, draft: &mut Draft) -> Option<Action> {
        let given: Vec<&'static str> = ACTIONS.into_iter().filter(|name| entry.has(name)).collect();
        let kind = match given.as_slice() {
            [one] => *one,
            [] => {
                let problem = Problem::new(&entry.place, "a route needs an action");
                self.findings.problem(
                    problem.help("give one of `to`, `redirect`, `respond`, `files`, `service`"),
                );
                return None;
            }
            [first, second, ..] => {
                let problem = Problem::new(
                    entry.place_of(second),
                    format!("`{first}` and `{second}` are both given"),
                );
                self.findings
                    .problem(problem.help("a route has one action"));
                return None;
            }
        };
        if kind != "to" {
            for name in ["hostHeader", "rewrite", "websocket", "multiplex", "retries"] {
                if entry.has(name) {
                    self.findings.warn(
                        Some(entry.place_of(name)),
                        format!("`{name}` does nothing with `{kind}`"),
                    );
                }
            }
        }
        match kind {
            "to" => self.upstream_action(entry, draft),
            "redirect" => self.redirect(entry),
            "respond" => self.respond(entry),
            "files" => self.files(entry),
            _ if !draft.in_server => {
                let problem =
                    Problem::new(entry.place_of("service"), "a relay service needs a server");
                self.findings
                    .problem(problem.help("put the `proxy` section into the server's file"));
                None
            }
            _ => {
                let name = entry.one("service", &mut self.findings, |text| {
                    Ok(HostName::new(text)?)
                })?;
                Some(Action::Service(ServiceName(name.as_str().into())))
            }
        }
    }

    fn upstream_action(&mut self, entry: &Section, draft: &mut Draft) -> Option<Action> {
        let mut to = ToUpstream::new(self.target(entry, draft)?);
        let findings = &mut self.findings;
        to.websocket = entry.boolean("websocket", findings).unwrap_or(true);
        to.multiplex = entry.boolean("multiplex", findings).unwrap_or(false);
        to.retries = entry.count("retries", findings).unwrap_or(to.retries);
        let host = entry.one("hostHeader", findings, |text| match text {
            "visitor" => Ok(HostField::Visitor),
            "server" => Ok(HostField::Server),
            "" => Err(ValueError::NotForm("visitor, server, or a text")),
            _ => Ok(HostField::Fixed(Template::new(&values::line(text)?)?)),
        });
        to.host = host.unwrap_or_default();
        if let Some(node) = entry.node("rewrite") {
            let section = Section::read(&REWRITE, node, &mut self.findings);
            if section.has("regex") {
                to.rewrite = self.rewrite_regex(&section);
            } else if section.has("to") || !section.has("prefix") {
                let problem = Problem::new(
                    &section.place,
                    "`rewrite` needs `prefix`, or `regex` and `to`",
                );
                self.findings.problem(problem);
            }
        }
        Some(Action::Upstream(to))
    }

    fn rewrite_regex(&mut self, section: &Section) -> Option<PathRewrite> {
        if section.has("prefix") {
            let problem = Problem::new(
                section.place_of("prefix"),
                "`prefix` and `regex` are both given",
            );
            self.findings.problem(problem.help("keep one of them"));
        }
        let with = section
            .one("to", &mut self.findings, values::line)
            .unwrap_or_default();
        section.one("regex", &mut self.findings, |text| {
            Ok(PathRewrite::regex(text, &with)?)
        })
    }

    fn redirect(&mut self, entry: &Section) -> Option<Action> {
        let section = Section::read_short(&REDIRECT, entry.node("redirect")?, &mut self.findings);
        let status = section.count("status", &mut self.findings).unwrap_or(308);
        if !section.has("to") {
            self.findings.problem(
                Problem::new(&section.place, "a redirect needs `to`")
                    .help("write `redirect: https://{host}{uri}`"),
            );
        }
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            let problem = Problem::new(
                section.place_of("status"),
                format!("{status} is not the status of a redirect"),
            );
            self.findings
                .problem(problem.help("use 301, 302, 303, 307 or 308"));
            return None;
        }
        section.one("to", &mut self.findings, |text| match text {
            "" => Err(ValueError::NotForm("a target")),
            _ => Ok(Action::Redirect(Redirect::new(status, text)?)),
        })
    }

    fn respond(&mut self, entry: &Section) -> Option<Action> {
        let section = Section::read(&RESPOND, entry.node("respond")?, &mut self.findings);
        let findings = &mut self.findings;
        let status = section.count("status", findings).unwrap_or(200);
        let body = section
            .one("body", findings, |text| Ok(text.to_owned()))
            .unwrap_or_default();
        let kind = section.one("contentType", findings, values::line);
        let kind = kind.unwrap_or_else(|| "text/plain; charset=utf-8".into());
        let result = Respond::new(status, &kind, body.as_bytes()).map_err(Into::into);
        self.good(&section.place, "the response", result)
            .map(Action::Respond)
    }

    fn files(&mut self, entry: &Section) -> Option<Action> {
        let section = Section::read_short(&FILES, entry.node("files")?, &mut self.findings);
        let Some(root) = self.path(&section, "root") else {
            self.findings.problem(
                Problem::new(&section.place, "`files` needs `root`")
                    .help("write `files: /srv/www`"),
            );
            return None;
        };
        let index = section.one("index", &mut self.findings, |text| {
            match text.contains('/') {
                true => Err(ValueError::NotForm("the name of a file")),
                false => values::line(text),
            }
        });
        let mut files = Files::new(root);
        files.fallback = self.path(&section, "fallback");
        files.hidden = section
            .boolean("hidden", &mut self.findings)
            .unwrap_or(false);
        if let Some(index) = index {
            files.index = index.into();
        }
        Some(Action::Files(files))
    }
}
