//! What the upstream is told: forwarding fields, edits, rewrites, redirects, and which file a path names.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{net::SocketAddr, path::Path};

use route::{
    BuildError, ClientIpSource, FileError, Files, Forwarding, HeaderEdits, Headers, PathRewrite,
    Redirect, RequestView, Respond, Scheme, Template, Values, VisitorView,
};

struct Fields<'a>(&'a [(&'a str, &'a str)]);

impl Headers for Fields<'_> {
    fn nth(&self, name: &str, n: usize) -> Option<&[u8]> {
        self.0
            .iter()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .nth(n)
            .map(|(_, value)| value.as_bytes())
    }
}

fn trusting(networks: &[&str]) -> Forwarding {
    let trusted = networks.iter().map(|net| net.parse().unwrap()).collect();
    Forwarding {
        trusted,
        forwarded: true,
        ..Forwarding::default()
    }
}

fn written(
    forwarding: &Forwarding,
    peer: &str,
    headers: &[(&str, &str)],
) -> Vec<(&'static str, String)> {
    let headers = Fields(headers);
    let view = VisitorView {
        peer: peer.parse().unwrap(),
        scheme: Scheme::Https,
        authority: b"example.com:8443",
        headers: &headers,
    };
    let visitor = forwarding.visitor(&view);
    let (mut value, mut fields) = (Vec::new(), Vec::new());
    forwarding.write(&view, &visitor, &mut value, |name, value| {
        fields.push((name, String::from_utf8(value.to_vec()).unwrap()));
    });
    fields
}

const CLAIMS: [(&str, &str); 6] = [
    ("X-Forwarded-For", "203.0.113.9, 192.0.2.5"),
    ("X-Forwarded-Proto", "http"),
    ("X-Forwarded-Host", "public.test"),
    ("X-Real-IP", "203.0.113.9"),
    ("Forwarded", "for=203.0.113.9"),
    ("x-forwarded-for", "10.0.0.7"),
];

#[test]
fn what_a_stranger_claims_is_replaced() {
    let fields = written(&trusting(&["10.0.0.0/8"]), "192.0.2.1:4711", &CLAIMS);
    let expected = [
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "example.com:8443"),
        ("x-real-ip", "192.0.2.1"),
        (
            "forwarded",
            "for=192.0.2.1;host=\"example.com:8443\";proto=https",
        ),
    ];
    assert_eq!(
        fields,
        expected.map(|(name, value)| (name, value.to_owned()))
    );
}

#[test]
fn what_a_trusted_proxy_says_is_continued() {
    let fields = written(
        &trusting(&["10.0.0.0/8", "192.0.2.5/32"]),
        "[::ffff:10.0.0.1]:4711",
        &CLAIMS,
    );
    let expected = [
        (
            "x-forwarded-for",
            "203.0.113.9, 192.0.2.5, 10.0.0.7, 10.0.0.1",
        ),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "public.test"),
        ("x-real-ip", "203.0.113.9"),
        (
            "forwarded",
            "for=203.0.113.9, for=10.0.0.1;host=\"example.com:8443\";proto=https",
        ),
    ];
    assert_eq!(
        fields,
        expected.map(|(name, value)| (name, value.to_owned()))
    );
    let v6 = written(&trusting(&[]), "[2001:db8::1]:1", &[]);
    assert!(v6.contains(&(
        "forwarded",
        "for=\"[2001:db8::1]\";host=\"example.com:8443\";proto=https".into()
    )));
}

#[test]
fn the_visitor_is_the_last_one_that_is_not_trusted() {
    let find = |source, headers: &[(&str, &str)]| {
        let forwarding = Forwarding {
            client_ip: source,
            ..trusting(&["10.0.0.0/8"])
        };
        let headers = Fields(headers);
        let view = VisitorView {
            peer: "10.0.0.1:99".parse().unwrap(),
            scheme: Scheme::Http,
            authority: b"h",
            headers: &headers,
        };
        forwarding.visitor(&view).addr.to_string()
    };
    let xff = ClientIpSource::XForwardedFor;
    for (value, expected) in [
        ("192.0.2.1", "192.0.2.1:0"),
        ("198.51.100.1, 192.0.2.1, 10.2.2.2", "192.0.2.1:0"),
        ("192.0.2.1:4711", "192.0.2.1:4711"),
        ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ("2001:db8::1", "[2001:db8::1]:0"),
        ("10.3.3.3, 10.2.2.2", "10.3.3.3:0"),
        ("192.0.2.1, unknown, 10.2.2.2", "10.2.2.2:0"),
        ("192.0.2.1, , 10.2.2.2", "10.2.2.2:0"),
        ("nonsense", "10.0.0.1:99"),
        ("", "10.0.0.1:99"),
    ] {
        assert_eq!(
            find(xff, &[("x-forwarded-for", value)]),
            expected,
            "{value}"
        );
    }
    assert_eq!(
        find(
            xff,
            &[("forwarded", "for=192.0.2.1"), ("x-real-ip", "192.0.2.1")]
        ),
        "10.0.0.1:99"
    );
    let forwarded = [(
        "forwarded",
        "for=192.0.2.1;proto=http, proto=https; FOR=\"[2001:db8::7]:80\"",
    )];
    assert_eq!(
        find(ClientIpSource::Forwarded, &forwarded),
        "[2001:db8::7]:80"
    );
    assert_eq!(
        find(
            ClientIpSource::Forwarded,
            &[("forwarded", "for=192.0.2.1, for=_hidden")]
        ),
        "10.0.0.1:99"
    );
    assert_eq!(find(ClientIpSource::XRealIp, &CLAIMS), "203.0.113.9:0");
}

#[test]
fn claims_are_not_copied_even_where_a_field_is_not_written() {
    let forwarding = Forwarding {
        x_real_ip: false,
        ..trusting(&["10.0.0.0/8"])
    };
    let visitor = |peer: &str| {
        let view = VisitorView {
            peer: peer.parse().unwrap(),
            scheme: Scheme::Http,
            authority: b"h",
            headers: &Fields(&[]),
        };
        forwarding.visitor(&view)
    };
    let (stranger, proxy) = (visitor("192.0.2.1:1"), visitor("10.0.0.1:1"));
    assert!(
        forwarding.replaces(b"X-Real-IP", &stranger) && !forwarding.replaces(b"X-Real-IP", &proxy)
    );
    assert!(forwarding.replaces(b"X-Forwarded-For", &proxy));
    assert!(
        forwarding.replaces(b"X-Forwarded-Port", &stranger)
            && !forwarding.replaces(b"X-Forwarded-Port", &proxy)
    );
    assert!(!forwarding.replaces(b"X-Other", &stranger));
}

fn expand(template: &str) -> String {
    let mut request = RequestView::new(
        Scheme::Https,
        b"Example.com",
        b"GET",
        b"/a b/\xff",
        &route::NoHeaders,
    );
    (request.port, request.query) = (Some(8443), Some(b"x=1\n".as_slice()));
    let values = Values {
        request,
        client: "[::ffff:192.0.2.1]:4711".parse::<SocketAddr>().unwrap(),
    };
    let mut out = Vec::new();
    Template::new(template).unwrap().write(&values, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn placeholders_are_filled_and_cannot_break_a_field() {
    assert_eq!(
        expand("https://{host}{uri}"),
        "https://Example.com/a%20b/%FF?x=1%0A"
    );
    assert_eq!(
        expand("{scheme}://{authority}:{port} {method} {path} {query}"),
        "https://Example.com:8443:8443 GET /a%20b/%FF x=1%0A"
    );
    assert_eq!(
        expand("{clientIp} {clientPort} {{x}} $1"),
        "192.0.2.1 4711 {x} $1"
    );
    assert_eq!(expand(""), "");
    assert_eq!(
        Template::new("{nope}"),
        Err(BuildError::Placeholder("nope".into()))
    );
    for text in ["{", "}", "a{host", "{{}"] {
        assert_eq!(Template::new(text), Err(BuildError::Brace), "{text}");
    }
    assert_eq!(Template::new("a\r\nb"), Err(BuildError::HeaderValue));
}

#[test]
fn edits_leave_framing_alone() {
    let edits = HeaderEdits::new([("X-A", "1")], [("Link", "2")], ["Server"]).unwrap();
    assert!(edits.removes(b"x-a") && edits.removes(b"SERVER") && !edits.removes(b"link"));
    let names: Vec<&str> = edits.writes().map(|edit| &*edit.name).collect();
    assert_eq!(names, ["x-a", "link"]);
    for name in [
        "Content-Length",
        "Transfer-Encoding",
        "connection",
        "Host",
        "Upgrade",
        "TE",
    ] {
        assert_eq!(
            HeaderEdits::new([(name, "x")], [], []).err(),
            Some(BuildError::ForbiddenHeader),
            "{name}"
        );
        assert_eq!(
            HeaderEdits::new([], [], [name]).err(),
            Some(BuildError::ForbiddenHeader),
            "{name}"
        );
    }
    assert_eq!(
        HeaderEdits::new([("a b", "x")], [], []).err(),
        Some(BuildError::HeaderName)
    );
    assert_eq!(
        HeaderEdits::new([("a", "x\ny")], [], []).err(),
        Some(BuildError::HeaderValue)
    );
    assert_eq!(
        HeaderEdits::new(vec![("a", "x"); 65], [], []).err(),
        Some(BuildError::TooMany(64))
    );
}

#[test]
fn rewritten_paths_begin_with_one_slash() {
    let rewrite = |rewrite: &PathRewrite, path: &str| {
        let mut out = b"GET ".to_vec();
        rewrite.write(path.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    };
    let strip = PathRewrite::prefix("/api", "/").unwrap();
    for (path, expected) in [
        ("/api", "/"),
        ("/api/x", "/x"),
        ("/api//evil", "/evil"),
        ("/other", "/other"),
        ("/api/a%2Fb", "/a%2Fb"),
    ] {
        assert_eq!(rewrite(&strip, path), format!("GET {expected}"), "{path}");
    }
    let replace = PathRewrite::prefix("/api/", "/v2").unwrap();
    assert_eq!(rewrite(&replace, "/api/x"), "GET /v2/x");
    let regex = PathRewrite::regex("^/user/([0-9]+)(.*)$", "/u$2/${1}").unwrap();
    assert_eq!(rewrite(&regex, "/user/12/mail"), "GET /u/mail/12");
    assert_eq!(rewrite(&regex, "/user/x"), "GET /user/x");
    assert_eq!(
        rewrite(&PathRewrite::regex("^/x", "").unwrap(), "/x/y"),
        "GET /y"
    );
    assert_eq!(
        rewrite(&PathRewrite::regex("^/x", "").unwrap(), "/x//y"),
        "GET /y"
    );
    assert_eq!(
        rewrite(&PathRewrite::regex("^/x", "").unwrap(), "/x"),
        "GET /"
    );
    assert!(PathRewrite::prefix("api", "/").is_err() && PathRewrite::regex("(", "/").is_err());
}

#[test]
fn redirects_do_not_lead_to_other_sites() {
    let location = |template: &str, path: &str| {
        let request = RequestView::new(
            Scheme::Http,
            b"a.test",
            b"GET",
            path.as_bytes(),
            &route::NoHeaders,
        );
        let mut out = Vec::new();
        let client = "192.0.2.1:1".parse().unwrap();
        Redirect::new(308, template)
            .unwrap()
            .write_location(&Values { request, client }, &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(location("https://{host}{uri}", "/x"), "https://a.test/x");
    assert_eq!(location("{uri}", "//evil.test/x"), "/evil.test/x");
    assert_eq!(location("{path}", "/\\evil.test"), "/evil.test");
    assert_eq!(location("{path}/", "/x"), "/x/");
    assert_eq!(Redirect::new(200, "/").err(), Some(BuildError::Status));
    assert_eq!(Respond::new(99, "", b"").err(), Some(BuildError::Status));
    assert_eq!(Respond::new(204, "", b"x").err(), Some(BuildError::Status));
}

#[test]
fn paths_name_files_below_the_folder_only() {
    let files = Files {
        strip: Some(b"/static"[..].into()),
        ..Files::new("/srv/www")
    };
    for (path, expected) in [
        ("/static/a/b.css", "/srv/www/a/b.css"),
        ("/static/a%20b", "/srv/www/a b"),
        ("/static", "/srv/www"),
        ("/static/", "/srv/www/"),
        ("/static//x/./y", "/srv/www/x/y"),
    ] {
        assert_eq!(
            files.resolve(path.as_bytes()).as_deref(),
            Ok(Path::new(expected)),
            "{path}"
        );
    }
    for path in [
        "/static/../x",
        "/static/%2e%2e/x",
        "/static/a%2F..%2Fb",
        "/static/a%5cb",
        "/static/a%00",
        "/static/%ff",
        "/static/%4",
    ] {
        assert_eq!(
            files.resolve(path.as_bytes()),
            Err(FileError::Bad),
            "{path}"
        );
    }
    for path in [
        "/static/.git/config",
        "/static/a/.htpasswd",
        "/static/%2egit",
        "/other/x",
    ] {
        assert_eq!(
            files.resolve(path.as_bytes()),
            Err(FileError::Hidden),
            "{path}"
        );
    }
    let open = Files {
        hidden: true,
        ..Files::new("/srv/www")
    };
    assert_eq!(
        open.resolve(b"/.well-known/x").as_deref(),
        Ok(Path::new("/srv/www/.well-known/x"))
    );
}
