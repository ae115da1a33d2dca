//! What goes where. A route of the file with several hosts and paths is as many rules that share everything else.

use std::{fmt::Write, sync::Arc};

use route::{
    Action, Coding, Compress, HeaderCondition, HeaderEdits, HostPattern, IpRules, Match, Method,
    PathPattern, PathRewrite, RateLimit, Route, Routes, Scheme, ToUpstream,
};

use super::{Check, Draft, values};
use crate::{
    checked::{FieldChanges, ListenerProtocol},
    options::{COMPRESS, EDITS, RATE_LIMIT},
    problem::{Problem, nearest},
    section::Section,
    value::{self, ValueError},
};

impl Check<'_> {
    /// One of `routes`.
    pub(super) fn route(&mut self, entry: &Section, draft: &mut Draft) {
        let Some(listeners) = self.route_listeners(entry, draft) else {
            return;
        };
        let stream = |id: &u16| !draft.listeners[usize::from(*id)].protocol.is_http();
        if listeners.iter().any(stream) {
            if listeners.iter().all(stream) {
                self.stream_route(entry, &listeners, draft);
            } else {
                let problem = Problem::new(
                    entry.place_of("listener"),
                    "the route names listeners of requests and of streams",
                );
                self.findings.problem(
                    problem.help("make one route for http and https, and one for tcp and tls"),
                );
            }
            return;
        }
        let hosts = self.hosts(entry);
        let paths: Vec<PathPattern> = match entry.has("path") {
            true => entry.all("path", &mut self.findings, values::path_pattern),
            false => vec![PathPattern::default()],
        };
        let basis = Match {
            listeners,
            scheme: match entry.choice("scheme", &mut self.findings) {
                Some("http") => Some(Scheme::Http),
                Some(_) => Some(Scheme::Https),
                None => None,
            },
            methods: entry.all("method", &mut self.findings, |text| Ok(Method::new(text)?)),
            headers: self.header_conditions(entry),
            ..Match::default()
        };
        let conditions = conditions(entry, &basis);
        let Some(action) = self.action(entry, draft) else {
            return;
        };
        let route = self.route_itself(entry, action, draft);
        if draft.rules.len() + hosts.len() * paths.len() > Routes::MAX {
            self.findings.problem(Problem::new(
                &entry.place,
                format!("there are more than {} routes", Routes::MAX),
            ));
            return;
        }
        for host in &hosts {
            for path in &paths {
                let rule = Match {
                    host: host.0.clone(),
                    path: path.clone(),
                    ..basis.clone()
                };
                let route = self.route_at(entry, &route, &host.1, path);
                draft.rules.push((rule, route));
                draft.written.push((
                    entry.place.clone(),
                    format!("{:?} {path} {conditions}", host.0),
                ));
            }
        }
    }

    /// The listeners of a route; `None` when one does not exist.
    fn route_listeners(&mut self, entry: &Section, draft: &Draft) -> Option<Vec<u16>> {
        let names = entry.all("listener", &mut self.findings, |text| Ok(text.to_owned()));
        let mut found = Vec::new();
        for (name, node) in names.iter().zip(entry.nodes("listener")) {
            match draft
                .listeners
                .iter()
                .position(|listener| *listener.name == **name)
            {
                Some(n) => found.push(n as u16),
                None => {
                    let problem =
                        Problem::new(&node.place, format!("there is no listener `{name}`"));
                    let known = draft.listeners.iter().map(|listener| &*listener.name);
                    self.findings.problem(match nearest(name, known) {
                        Some(near) => problem.help(format!("did you mean `{near}`?")),
                        None => problem.help("a listener without `name` is called by its address"),
                    });
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        (found.len() == names.len() || names.is_empty()).then_some(found)
    }

    /// Hosts and how they were written.
    fn hosts(&mut self, entry: &Section) -> Vec<(HostPattern, String)> {
        if !entry.has("host") {
            return vec![(HostPattern::default(), String::new())];
        }
        entry.all("host", &mut self.findings, |text| {
            Ok((HostPattern::new(text)?, text.to_owned()))
        })
    }

    fn header_conditions(&mut self, entry: &Section) -> Vec<HeaderCondition> {
        let fields = entry.fields("headers", &mut self.findings);
        let parsed = fields
            .into_iter()
            .map(|(name, place, text)| (place, values::header_condition(&name, &text)));
        parsed
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(|(place, result)| self.good(&place, "the condition", result))
            .collect()
    }

    fn stream_route(&mut self, entry: &Section, listeners: &[u16], draft: &mut Draft) {
        for name in entry
            .names()
            .filter(|name| !["listener", "host", "to", "name"].contains(name))
        {
            let problem = Problem::new(
                entry.place_of(name),
                format!("`{name}` is for requests; tcp and tls listeners have none"),
            );
            self.findings
                .problem(problem.help("a route of streams has `listener`, `host` and `to`"));
        }
        let tcp = listeners.iter().any(|id| {
            matches!(
                draft.listeners[usize::from(*id)].protocol,
                ListenerProtocol::Tcp
            )
        });
        if tcp && entry.has("host") {
            let problem = Problem::new(entry.place_of("host"), "a TCP connection names no host");
            self.findings
                .problem(problem.help("take it out, or use `protocol: tls`"));
        }
        let hosts = self.hosts(entry);
        if !entry.has("to") {
            self.findings
                .problem(Problem::new(&entry.place, "a route of streams needs `to`"));
        }
        if let Some(to) = self.target(entry, draft) {
            for id in listeners {
                draft
                    .streams
                    .extend(hosts.iter().map(|(host, _)| (*id, host.clone(), to)));
            }
        }
    }

    /// All that the rules of one entry share.
    fn route_itself(&mut self, entry: &Section, action: Action, draft: &Draft) -> Route {
        let name = self.text(entry, "name").unwrap_or_default();
        let mut route = Route::new(&name, action);
        route.access.ip = IpRules {
            allow: self.networks(entry, "allow"),
            deny: self.networks(entry, "deny"),
        };
        route.access.rate = self.rate_limit(entry);
        route.access.auth = self.basic_auth(entry);
        route.request_headers = self.edits(entry, "requestHeaders");
        route.response_headers = self.edits(entry, "responseHeaders");
        route.limits = self.limits_of(entry, draft.limits);
        route.timeouts = self.timeouts_of(entry, draft.timeouts);
        route.log = entry
            .boolean("accessLog", &mut self.findings)
            .unwrap_or(true);
        route.compress = self.compress(entry);
        route
    }

    /// What depends on the rule's own host and path: the name, and what is done with the prefix.
    fn route_at(
        &mut self,
        entry: &Section,
        route: &Route,
        host: &str,
        path: &PathPattern,
    ) -> Route {
        let mut route = route.clone();
        if route.name.is_empty() {
            let host = if host.is_empty() { "*" } else { host };
            let path = if path.is_any() {
                String::new()
            } else {
                path.to_string()
            };
            route.name = format!("{host}{path}").into();
        }
        let strip = entry
            .boolean("stripPrefix", &mut self.findings)
            .unwrap_or(false);
        let new_prefix = entry
            .node("rewrite")
            .and_then(|node| node.get("prefix"))
            .and_then(|node| match &node.value {
                crate::tree::Value::Text(text) => Some((text.clone(), node.place.clone())),
                _ => None,
            });
        if strip && entry.has("rewrite") {
            let problem = Problem::new(
                entry.place_of("rewrite"),
                "`stripPrefix` and `rewrite` are both given",
            );
            self.findings.problem(problem.help("keep one of them"));
            return route;
        }
        let (with, place) = match (strip, new_prefix) {
            (true, _) => ("/".to_owned(), entry.place_of("stripPrefix").clone()),
            (false, Some(given)) => given,
            (false, None) => return route,
        };
        let Some(prefix) = path
            .literal()
            .and_then(|path| std::str::from_utf8(path).ok())
        else {
            let problem = Problem::new(
                &place,
                "there is no prefix to change: the route's path is no prefix",
            );
            self.findings
                .problem(problem.help("give `path: /PREFIX`, or use `rewrite: {regex: …, to: …}`"));
            return route;
        };
        match &mut route.action {
            Action::Upstream(to) => {
                let rewrite = PathRewrite::prefix(prefix, &with).map_err(Into::into);
                to.rewrite = self.good(&place, "the new prefix", rewrite);
            }
            Action::Files(files) => files.strip = Some(prefix.as_bytes().into()),
            _ => self
                .findings
                .warn(Some(&place), "`stripPrefix` does nothing here"),
        }
        route
    }

    fn edits(&mut self, entry: &Section, name: &'static str) -> HeaderEdits {
        let changes = self.field_changes(entry, name);
        // What is wrong with them was reported.
        edits_of(&changes).unwrap_or_default()
    }

    /// The changes as they were written, which make edits if nothing was reported.
    pub(in crate::check) fn field_changes(
        &mut self,
        entry: &Section,
        name: &'static str,
    ) -> FieldChanges {
        let Some(node) = entry.node(name) else {
            return FieldChanges::default();
        };
        let before = self.findings.problems();
        let section = Section::read(&EDITS, node, &mut self.findings);
        let set = section.fields("set", &mut self.findings);
        let add = section.fields("add", &mut self.findings);
        let remove = section.all("remove", &mut self.findings, value::header_name);
        // One by one, so that each mistake is shown at its place.
        for (name, place, text) in set.iter().chain(&add) {
            let result = route::HeaderEdit::new(name, text).map_err(Into::into);
            self.good(place, &format!("the field `{name}`"), result);
        }
        let pairs = |fields: &[(String, crate::source::Place, String)]| -> Vec<(String, String)> {
            fields
                .iter()
                .map(|(name, _, text)| (name.clone(), text.clone()))
                .collect()
        };
        let changes = FieldChanges {
            set: pairs(&set),
            add: pairs(&add),
            remove,
        };
        if let Err(error) = edits_of(&changes)
            && self.findings.problems() == before
        {
            let place = section.place_of("remove");
            let problem = Problem::new(place, format!("`{name}` {error}"));
            self.findings.problem(problem);
        }
        changes
    }

    fn compress(&mut self, entry: &Section) -> Option<Arc<Compress>> {
        let section = Section::read_short(&COMPRESS, entry.node("compress")?, &mut self.findings);
        let findings = &mut self.findings;
        let on = section.boolean("on", findings).unwrap_or(true);
        let mut codings = section.all("codings", findings, |text| {
            Coding::named(&text.to_ascii_lowercase())
                .ok_or_else(|| ValueError::NotChoice("zstd, br, gzip".into()))
        });
        if codings.is_empty() {
            codings = Coding::ALL.to_vec();
        }
        let length = section.one("minLength", findings, value::size);
        let types = section.all("types", findings, |text| Ok(text.to_owned()));
        let types: Vec<&str> = match types.is_empty() {
            true => Compress::TYPES.to_vec(),
            false => types.iter().map(String::as_str).collect(),
        };
        let length = length.unwrap_or(Compress::MIN_LENGTH);
        let rules = Compress::new(&codings, types, length).map_err(Into::into);
        let rules = self.good(section.place_of("types"), "what is given as types", rules)?;
        on.then(|| Arc::new(rules))
    }

    fn rate_limit(&mut self, entry: &Section) -> Option<RateLimit> {
        let section = Section::read(&RATE_LIMIT, entry.node("rateLimit")?, &mut self.findings);
        let findings = &mut self.findings;
        let key = section
            .one("key", findings, values::rate_key)
            .unwrap_or(route::RateKey::Ip);
        let per = section
            .duration("per", findings)
            .unwrap_or(std::time::Duration::from_secs(1));
        let requests: Option<u32> = section.count("requests", findings);
        let burst = section.count("burst", findings);
        let keys = section
            .count("keys", findings)
            .unwrap_or(route::RateTable::DEFAULT_CAPACITY);
        if !section.has("requests") {
            findings.problem(
                Problem::new(&section.place, "a rate limit needs `requests`")
                    .help("write `rateLimit: {requests: 10, per: 1s}`"),
            );
        }
        let requests = requests?;
        Some(RateLimit::new(key, requests, per, burst.unwrap_or(requests)).with_keys(keys))
    }

    /// Reports an error of a value that no option parser saw.
    pub(in crate::check) fn good<T>(
        &mut self,
        place: &crate::source::Place,
        subject: &str,
        result: Result<T, ValueError>,
    ) -> Option<T> {
        result
            .map_err(|error| {
                let problem =
                    Problem::new(place, format!("{subject} {error}")).help_if(error.help());
                self.findings.problem(problem);
            })
            .ok()
    }

    /// The route of the quick form.
    pub(super) fn quick_route(&mut self, options: &Section, draft: &mut Draft) {
        if let Some(to) = self.quick_upstream(options, draft) {
            let mut route = Route::new("to", Action::Upstream(ToUpstream::new(to)));
            (route.limits, route.timeouts) = (draft.limits, draft.timeouts);
            draft.rules.push((Match::default(), route));
            draft.written.push((
                options.place_of("to").clone(),
                format!("{:?} * []", HostPattern::default()),
            ));
        }
    }
}

fn edits_of(changes: &FieldChanges) -> Result<HeaderEdits, route::BuildError> {
    HeaderEdits::new(
        borrowed(&changes.set),
        borrowed(&changes.add),
        changes.remove.iter().map(String::as_str),
    )
}

fn borrowed(pairs: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    pairs
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
}

/// The conditions but for host and path, in an order of their own.
fn conditions(entry: &Section, basis: &Match) -> String {
    let mut methods: Vec<_> = basis.methods.iter().map(Method::as_bytes).collect();
    methods.sort_unstable();
    let mut headers: Vec<String> = basis
        .headers
        .iter()
        .map(|condition| format!("{condition:?}"))
        .collect();
    headers.sort_unstable();
    let mut text = String::new();
    if !basis.listeners.is_empty()
        || basis.scheme.is_some()
        || !methods.is_empty()
        || entry.has("headers")
    {
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "{:?} {:?} {methods:?} {headers:?}",
            basis.listeners, basis.scheme
        );
    } else {
        text.push_str("[]");
    }
    text
}
