//! Fuzz checks of crate `route`: what visitors write (hosts, paths, forwarding fields, credentials, cookies) and what a configuration
//! holds (patterns, templates, hashes). Nothing panics, nothing that is written breaks a header field, and no route is taken that
//! one reading of the path would not take.

use std::time::Duration;

use route::{
    Action, AuthTable, BasicAuth, ClientIpSource, Files, Forwarding, Headers, HostPattern, Match,
    PasswordHash, PathPattern, PathRewrite, Redirect, RequestView, Respond, Route, Routes, Scheme,
    Scratch, Template, Values, VisitorView, cookie,
};

/// Runs one input; panics on a finding. The input is lines: host, path, field values, and texts of a configuration.
pub fn check(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut next = || lines.next().unwrap_or_default();
    let (host, path, field) = (next(), next(), next());
    let text = String::from_utf8_lossy(next()).into_owned();
    routing(host, path, &text);
    forwarding(host, field);
    let fields = Every(field);
    let _ = cookie(&fields, "a");
    credentials(&fields, &text);
    written(host, path, &text);
    files(path);
}

/// The same value for every name.
struct Every<'a>(&'a [u8]);

impl Headers for Every<'_> {
    fn nth(&self, _: &str, n: usize) -> Option<&[u8]> {
        (n == 0).then_some(self.0)
    }
}

fn routing(host: &[u8], path: &[u8], text: &str) {
    let route = |name: &str| Route::new(name, Action::Respond(Respond::text(200, name)));
    let mut rules = vec![(Match::default(), route("all"))];
    let patterns = [
        PathPattern::prefix("/admin"),
        PathPattern::exact("/a/b"),
        PathPattern::prefix(text),
        PathPattern::regex(text),
    ];
    for path in patterns.into_iter().flatten() {
        rules.push((
            Match {
                path,
                ..Match::default()
            },
            route("path"),
        ));
    }
    if let Ok(host) = HostPattern::new(text) {
        rules.push((
            Match {
                host,
                ..Match::default()
            },
            route("host"),
        ));
    }
    let Ok(routes) = Routes::new(rules) else {
        return;
    };
    let mut scratch = Scratch::default();
    let fields = Every(b"x");
    let request = RequestView::new(Scheme::Https, host, b"GET", path, &fields);
    let Ok(found) = routes.match_request(&request, &mut scratch) else {
        return;
    };
    // A rule for every request is there, so one is always found.
    let found = found.map(|route| route.id);
    assert!(found.is_some());
    // What most origins make of it takes the same route.
    let read = RequestView {
        path: &plainly(path),
        ..request
    };
    if path.first() == Some(&b'/') {
        let again = routes
            .match_request(&read, &mut scratch)
            .map(|route| route.map(|route| route.id));
        assert!(
            again.is_err() || again == Ok(found),
            "another route for {:?}",
            String::from_utf8_lossy(path)
        );
    }
}

/// Dot segments and double slashes resolved, letters and dots decoded: written apart from what it tests.
fn plainly(path: &[u8]) -> Vec<u8> {
    let mut text = path.to_vec();
    for (code, byte) in [("%2e", b'.'), ("%2E", b'.'), ("%61", b'a')] {
        while let Some(at) = text.windows(3).position(|part| part == code.as_bytes()) {
            text.splice(at..at + 3, [byte]);
        }
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let segments: Vec<&[u8]> = text.split(|byte| *byte == b'/').skip(1).collect();
    for (n, segment) in segments.iter().enumerate() {
        let last = n + 1 == segments.len();
        match *segment {
            b".." => drop(kept.pop()),
            b"." | b"" => {}
            name => {
                kept.push(name);
                if last {
                    return [b"/".as_slice(), &kept.join(b"/".as_slice())].concat();
                }
            }
        }
    }
    let mut path = [b"/".as_slice(), &kept.join(b"/".as_slice())].concat();
    if path.len() > 1 {
        path.push(b'/');
    }
    path
}

fn forwarding(host: &[u8], field: &[u8]) {
    let fields = Every(field);
    for client_ip in [
        ClientIpSource::XForwardedFor,
        ClientIpSource::Forwarded,
        ClientIpSource::XRealIp,
    ] {
        let forwarding = Forwarding {
            trusted: ["10.0.0.0/8".parse(), "::1/128".parse()]
                .into_iter()
                .flatten()
                .collect(),
            client_ip,
            forwarded: true,
            ..Forwarding::default()
        };
        for peer in ["10.0.0.1:1", "192.0.2.1:1", "[::1]:1"] {
            let Ok(peer) = peer.parse() else { return };
            let view = VisitorView {
                peer,
                scheme: Scheme::Http,
                authority: host,
                headers: &fields,
            };
            let visitor = forwarding.visitor(&view);
            assert!(
                visitor.via_trusted || visitor.addr == peer,
                "a stranger was believed"
            );
            let mut value = Vec::new();
            let mut count = 0;
            forwarding.write(&view, &visitor, &mut value, |_, _| count += 1);
            assert_eq!(count, 5);
        }
    }
}

fn credentials(fields: &dyn Headers, text: &str) {
    let Ok(hash) = PasswordHash::new(text) else {
        return;
    };
    let Ok(auth) = BasicAuth::new(text, [("ann".to_owned(), hash)]) else {
        return;
    };
    assert!(!auth.challenge().contains(|c: char| c.is_control()));
    let _ = auth.check(&AuthTable::new(&[7; 32]), Duration::ZERO, fields);
}

fn written(host: &[u8], path: &[u8], text: &str) {
    let fields = Every(b"");
    let request = RequestView::new(Scheme::Http, host, b"GET", path, &fields);
    let Ok(client) = "192.0.2.1:1".parse() else {
        return;
    };
    let values = Values { request, client };
    let mut out = Vec::new();
    if let Ok(template) = Template::new(text) {
        template.write(&values, &mut out);
        assert!(!out.contains(&b'\n') && !out.contains(&b'\r') && !out.contains(&0));
    }
    for template in ["{uri}", "{path}x"] {
        out.clear();
        if let Ok(redirect) = Redirect::new(302, template) {
            redirect.write_location(&values, &mut out);
            assert!(
                out.first() == Some(&b'/') && !matches!(out.get(1), Some(b'/' | b'\\')),
                "to another site"
            );
        }
    }
    for rewrite in [
        PathRewrite::prefix("/a", "/"),
        PathRewrite::regex(text, "$1/x"),
    ]
    .into_iter()
    .flatten()
    {
        out.clear();
        rewrite.write(path, &mut out);
        let slash = out.first() == Some(&b'/') && !matches!(out.get(1), Some(b'/' | b'\\'));
        assert!(slash || matches!(path, b"*" | b""));
    }
}

fn files(path: &[u8]) {
    if let Ok(file) = Files::new("/srv/www").resolve(path) {
        assert!(file.starts_with("/srv/www"));
        assert!(
            file.components()
                .all(|part| part != std::path::Component::ParentDir),
            "{}",
            file.display()
        );
    }
}
