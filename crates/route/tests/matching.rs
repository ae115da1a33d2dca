//! Which route a request takes, and which requests take none.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Rule, routes, rule, seeded};
use rand::Rng;
use route::{
    BadPath, BuildError, HeaderCondition, HeaderTest, Headers, HostPattern, NoHeaders, PathPattern,
    RequestView, Scheme, Scratch, StreamRoutes, UpstreamId,
};

fn find(rules: Vec<Rule>, host: &str, path: &str) -> Result<Option<String>, BadPath> {
    let routes = routes(rules);
    let request = RequestView::new(
        Scheme::Http,
        host.as_bytes(),
        b"GET",
        path.as_bytes(),
        &NoHeaders,
    );
    let found = routes.match_request(&request, &mut Scratch::default())?;
    Ok(found.map(|route| route.name.to_string()))
}

#[test]
fn the_most_specific_host_wins_wherever_it_stands() {
    let rules = || {
        vec![
            rule("any", "*", "*"),
            rule("wild", "*.example.com", "*"),
            rule("deep", "*.b.example.com", "*"),
            rule("exact", "a.example.com", "*"),
            rule("v6", "[2001:DB8:0::1]", "*"),
            rule("port", "a.example.com:8080", "*"),
        ]
    };
    for (host, expected) in [
        ("a.example.com", "exact"),
        ("A.Example.COM.", "exact"),
        ("x.example.com", "wild"),
        ("x.y.example.com", "wild"),
        ("x.b.example.com", "deep"),
        ("b.example.com", "wild"),
        ("example.com", "any"),
        (".example.com", "any"),
        ("notexample.com", "any"),
        ("[2001:db8::1]", "v6"),
        ("", "any"),
        (&"x".repeat(300), "any"),
    ] {
        assert_eq!(
            find(rules(), host, "/").unwrap().as_deref(),
            Some(expected),
            "{host}"
        );
    }
    let routes = routes(rules());
    let mut request = RequestView::new(Scheme::Http, b"a.example.com", b"GET", b"/", &NoHeaders);
    request.port = Some(8080);
    let found = routes
        .match_request(&request, &mut Scratch::default())
        .unwrap();
    assert_eq!(found.map(|route| &*route.name), Some("port"));
}

#[test]
fn exact_paths_come_before_expressions_and_these_before_the_longest_prefix() {
    let rules = || {
        vec![
            rule("all", "*", "*"),
            rule("api", "*", "/api"),
            rule("v1", "*", "/api/v1"),
            rule("slash", "*", "/dir/"),
            rule("digits", "*", "~^/api/[0-9]+$"),
            rule("exact", "*", "=/api/7"),
        ]
    };
    for (path, expected) in [
        ("/api", "api"),
        ("/api/", "api"),
        ("/api/x", "api"),
        ("/apix", "all"),
        ("/api/v1", "v1"),
        ("/api/v1/x", "v1"),
        ("/api/v10", "api"),
        ("/api/8", "digits"),
        ("/api/7", "exact"),
        ("/dir", "all"),
        ("/dir/", "slash"),
        ("/dir/x", "slash"),
        ("*", "all"),
        ("", "all"),
    ] {
        assert_eq!(
            find(rules(), "h", path).unwrap().as_deref(),
            Some(expected),
            "{path}"
        );
    }
}

#[test]
fn a_rule_that_does_not_fit_is_passed_over_to_less_specific_hosts() {
    let rules = vec![rule("all", "*", "/"), rule("app", "a.test", "/app")];
    assert_eq!(
        find(rules, "a.test", "/other").unwrap().as_deref(),
        Some("all")
    );
    assert_eq!(
        find(vec![rule("app", "a.test", "/app")], "b.test", "/app").unwrap(),
        None
    );
}

#[test]
fn methods_and_fields_narrow_a_rule_and_rank_it_higher() {
    let mut post = rule("post", "*", "/");
    post.0.methods = vec![route::Method::new("POST").unwrap()];
    let mut beta = rule("beta", "*", "/");
    beta.0.headers = vec![
        HeaderCondition::new("X-Beta", HeaderTest::Equals(b"yes"[..].into())).unwrap(),
        HeaderCondition::new("x-old", HeaderTest::Absent).unwrap(),
    ];
    let mut agent = rule("agent", "*", "/");
    agent.0.headers = vec![HeaderCondition::regex("user-agent", "(?i)^curl/").unwrap()];
    let mut secure = rule("secure", "*", "/");
    secure.0.scheme = Some(Scheme::Https);
    let mut second = rule("second", "*", "/");
    second.0.listeners = vec![1, 2];
    let routes = routes(vec![
        rule("plain", "*", "/"),
        secure,
        agent,
        second,
        beta,
        post,
    ]);
    let name = |scheme, listener, method: &str, headers: &[(&str, &[u8])]| {
        let headers: &dyn Headers = &Fields(headers);
        let mut request = RequestView::new(scheme, b"h", method.as_bytes(), b"/x", headers);
        request.listener = listener;
        let found = routes
            .match_request(&request, &mut Scratch::default())
            .unwrap();
        found.map(|route| route.name.to_string()).unwrap()
    };
    let http = Scheme::Http;
    assert_eq!(name(http, 0, "GET", &[]), "plain");
    assert_eq!(name(Scheme::Https, 0, "GET", &[]), "secure");
    assert_eq!(name(Scheme::Https, 2, "GET", &[]), "second");
    assert_eq!(name(http, 0, "POST", &[("x-beta", b"yes")]), "post");
    assert_eq!(
        name(http, 0, "post", &[("X-BETA", b"no"), ("x-beta", b"yes")]),
        "beta"
    );
    assert_eq!(
        name(http, 0, "GET", &[("x-beta", b"yes"), ("X-Old", b"")]),
        "plain"
    );
    assert_eq!(name(http, 0, "GET", &[("User-Agent", b"Curl/8")]), "agent");
}

struct Fields<'a>(&'a [(&'a str, &'a [u8])]);

impl Headers for Fields<'_> {
    fn nth(&self, name: &str, n: usize) -> Option<&[u8]> {
        self.0.nth(name, n)
    }
}

#[test]
fn a_path_whose_readings_take_different_routes_is_refused() {
    let rules = || {
        vec![
            rule("all", "*", "/"),
            rule("admin", "*", "/admin"),
            rule("exact", "*", "=/a/b"),
        ]
    };
    for path in [
        "/public/../admin",
        "/admin/../public",
        "/public/%2e%2e/admin",
        "/public/.%2E/admin/x",
        "/admin/%2e%2e/public",
        "//admin",
        "/./admin",
        "/%61dmin",
        "/%61%64%6d%69%6E/x",
        "/x/..;/admin",
        "/x/..;a=b/admin",
        "/admin;x=1",
        "/admin%3bx",
        "/admin%2Fx",
        "/x%2f..%2fadmin",
        "/x\\..\\admin",
        "/x%5c..%5cadmin",
        "/\\admin",
        "/a%2fb",
        "/a//b",
        "/a/./b",
        "/a/x/../b",
    ] {
        assert_eq!(find(rules(), "h", path), Err(BadPath::Ambiguous), "{path}");
    }
}

#[test]
fn a_path_whose_readings_agree_passes_as_it_is() {
    let rules = || vec![rule("all", "*", "/"), rule("admin", "*", "/admin")];
    for (path, expected) in [
        ("/files/a%20b.txt", "all"),
        ("/projects/group%2Fname/issues", "all"),
        ("/admin/group%2Fname;v=1", "admin"),
        ("/admin//x/../y", "admin"),
        ("/x;/y", "all"),
        ("/...", "all"),
        ("/.well-known/acme-challenge/x", "all"),
        ("/a/..b", "all"),
        ("/%E2%82%AC", "all"),
        ("/x/../y", "all"),
    ] {
        assert_eq!(
            find(rules(), "h", path).unwrap().as_deref(),
            Some(expected),
            "{path}"
        );
    }
}

#[test]
fn paths_that_no_origin_should_see_are_refused() {
    for (path, why) in [
        ("x", BadPath::NoSlash),
        ("http://h/", BadPath::NoSlash),
        ("/%", BadPath::BadEncoding),
        ("/%4", BadPath::BadEncoding),
        ("/%zz", BadPath::BadEncoding),
        ("/%+1", BadPath::BadEncoding),
        ("/a%00b", BadPath::Nul),
        ("/a\0b", BadPath::Nul),
        ("/..", BadPath::AboveRoot),
        ("/a/../../b", BadPath::AboveRoot),
        ("/%2e%2e/b", BadPath::AboveRoot),
        ("/..;/b", BadPath::AboveRoot),
        ("/..%2fb", BadPath::AboveRoot),
    ] {
        assert_eq!(
            find(vec![rule("all", "*", "*")], "h", path),
            Err(why),
            "{path}"
        );
    }
}

#[test]
fn patterns_that_mean_nothing_are_refused() {
    for host in [
        "",
        "a b",
        "a..b",
        "*a.test",
        "a.*.test",
        "x:",
        "x:0",
        "x:70000",
        "[::1",
        "[1.2.3.4]",
        "a/b",
        "*.",
    ] {
        assert_eq!(HostPattern::new(host), Err(BuildError::Host), "{host}");
    }
    for host in [
        "*",
        "*:8080",
        "a",
        "a_b.test",
        "A.TEST.",
        "::1",
        "[::1]:80",
        "127.0.0.1",
        ".a.test",
    ] {
        assert!(HostPattern::new(host).is_ok(), "{host}");
    }
    for path in ["", "a", "/a b", "/a?b", "/a#b", "/ä"] {
        assert_eq!(
            PathPattern::prefix(path).err(),
            Some(BuildError::Path),
            "{path}"
        );
    }
    for path in ["//", "/a/../b", "/%61", "/a/.", "/%"] {
        assert_eq!(
            PathPattern::exact(path).err(),
            Some(BuildError::PathNotNormal),
            "{path}"
        );
    }
    match PathPattern::regex("^/a(b") {
        Err(BuildError::Regex { reason, at }) => {
            assert_eq!((reason.as_str(), at), ("unclosed group", Some(3)))
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        PathPattern::regex("a{1000}{1000}{1000}"),
        Err(BuildError::Regex { .. })
    ));
}

#[test]
fn streams_go_by_listener_and_server_name() {
    let host = |text: &str| HostPattern::new(text).unwrap();
    let routes = StreamRoutes::new([
        (1, HostPattern::default(), UpstreamId(9)),
        (0, host("*.test"), UpstreamId(1)),
        (0, host("a.test"), UpstreamId(2)),
        (0, host("*.b.test"), UpstreamId(3)),
    ]);
    for (listener, name, expected) in [
        (0, Some("A.test"), Some(2)),
        (0, Some("x.test"), Some(1)),
        (0, Some("x.b.test"), Some(3)),
        (0, Some("test"), None),
        (0, None, None),
        (1, None, Some(9)),
        (1, Some("a.test"), Some(9)),
        (2, Some("a.test"), None),
    ] {
        let found = routes.find(listener, name.map(str::as_bytes));
        assert_eq!(found, expected.map(UpstreamId), "{listener} {name:?}");
    }
}

/// The documented order, without tables: smaller is better.
fn documented_rank(
    host: &str,
    path: &str,
    method: bool,
    n: usize,
) -> (u8, i64, u8, i64, bool, usize) {
    let (host_kind, host_len) = match host {
        "*" => (2, 0),
        wild if wild.starts_with('*') => (1, -(wild.len() as i64)),
        _ => (0, 0),
    };
    let (path_kind, path_len) = match path.as_bytes() {
        b"*" => (3, 0),
        [b'=', ..] => (0, 0),
        [b'~', ..] => (1, 0),
        _ => (2, -(path.len() as i64)),
    };
    (host_kind, host_len, path_kind, path_len, !method, n)
}

fn documented_fit(host: &str, path: &str, asked_host: &str, asked_path: &str) -> bool {
    let host = match host.strip_prefix('*') {
        Some("") => true,
        Some(below) => asked_host.ends_with(below) && asked_host.len() > below.len(),
        None => host == asked_host,
    };
    let path = match path.split_at(1) {
        ("*", "") => true,
        ("=", exact) => exact == asked_path,
        // The only expression of the test.
        ("~", _) => asked_path.ends_with("/b"),
        _ => {
            asked_path == path
                || asked_path.starts_with(&format!("{path}/"))
                || (path.ends_with('/') && asked_path.starts_with(path))
        }
    };
    host && path
}

#[test]
fn the_documented_order_decides_whatever_the_rules() {
    const HOSTS: [&str; 6] = [
        "*",
        "a.test",
        "b.a.test",
        "*.test",
        "*.a.test",
        "*.b.a.test",
    ];
    const PATHS: [&str; 8] = ["*", "/", "/a", "/a/", "/a/b", "=/a/b", "=/a", "~/b$"];
    seeded(300, |random| {
        let pick = |random: &mut rand::rngs::StdRng, from: &[&'static str]| {
            from[random.random_range(0..from.len())]
        };
        let drawn: Vec<_> = (0..random.random_range(1..12))
            .map(|_| {
                (
                    pick(random, &HOSTS),
                    pick(random, &PATHS),
                    random.random_bool(0.3),
                )
            })
            .collect();
        let rules = drawn.iter().enumerate().map(|(n, (host, path, post))| {
            let mut rule = rule(&n.to_string(), host, path);
            if *post {
                rule.0.methods = vec![route::Method::new("POST").unwrap()];
            }
            rule
        });
        let routes = routes(rules.collect());
        let mut scratch = Scratch::default();
        for host in [
            "a.test",
            "b.a.test",
            "c.b.a.test",
            "c.test",
            "test",
            "other",
        ] {
            for path in ["/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/c/b"] {
                for method in ["GET", "POST"] {
                    let request = RequestView::new(
                        Scheme::Http,
                        host.as_bytes(),
                        method.as_bytes(),
                        path.as_bytes(),
                        &NoHeaders,
                    );
                    let found = routes.match_request(&request, &mut scratch).unwrap();
                    let expected = (0..drawn.len())
                        .filter(|n| {
                            let (rule_host, rule_path, post) = drawn[*n];
                            (!post || method == "POST")
                                && documented_fit(rule_host, rule_path, host, path)
                        })
                        .min_by_key(|n| documented_rank(drawn[*n].0, drawn[*n].1, drawn[*n].2, *n));
                    let found = found.map(|route| route.id.0 as usize);
                    assert_eq!(found, expected, "{method} {host}{path} of {drawn:?}");
                }
            }
        }
    });
}

#[test]
fn a_claim_says_whether_a_rule_names_the_host_on_that_listener() {
    use route::Claim;
    let routes = |any: bool| {
        let mut rules = vec![
            rule("exact", "a.example.com", "/only"),
            rule("wild", "*.wild.com", "*"),
        ];
        rules[0].0.listeners = vec![1];
        if any {
            rules.push(rule("any", "*", "*"));
        }
        common::routes(rules)
    };
    let claim =
        |any, listener, host: &str| routes(any).claim(listener, Scheme::Http, host.as_bytes());
    assert_eq!(claim(true, 1, "A.example.com."), Claim::Named);
    assert_eq!(claim(true, 0, "a.example.com"), Claim::Any);
    assert_eq!(claim(false, 0, "a.example.com"), Claim::Nothing);
    assert_eq!(claim(false, 0, "x.y.wild.com"), Claim::Named);
    assert_eq!(claim(false, 0, "wild.com"), Claim::Nothing);
    assert_eq!(claim(true, 0, ""), Claim::Any);
}
