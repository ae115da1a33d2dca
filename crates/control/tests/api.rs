//! The API as its users meet it: over HTTP, in front of a real server and a real client.

mod common;

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{Read, Write},
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use common::{Answer, SECRET, api, client, connect, get, request, server, until};
use config::{ApiListener, Certificate};
use control::{Api, Source};
use net::tls::{TlsClientOptions, TlsConnector, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Types by family and values by series, of a text that obeys the format 0.0.4 in every line.
fn parse_metrics(text: &str) -> (HashMap<String, String>, HashMap<String, f64>) {
    assert!(text.ends_with('\n'));
    let (mut types, mut helped, mut series) = (HashMap::new(), HashSet::new(), HashMap::new());
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(help.len() > 5 && help.trim() == help, "{line}");
            assert!(helped.insert(name.to_owned()), "helped twice: {line}");
            family = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(
                name == family && ["counter", "gauge"].contains(&kind),
                "{line}"
            );
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(
                types.insert(name.to_owned(), kind.to_owned()).is_none(),
                "typed twice: {line}"
            );
        } else {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            let value: f64 = value.parse().expect("a number");
            assert!(value.is_finite() && value >= 0.0, "{line}");
            let (bare, labels) = name.split_once('{').unwrap_or((name, "}"));
            assert!(
                bare == family && types.contains_key(bare),
                "outside its family: {line}"
            );
            let fits = |c: char| c.is_ascii_lowercase() || c == '_';
            let begins = bare.starts_with(fits);
            let bare_fits = |c: char| fits(c) || c.is_ascii_digit();
            assert!(
                begins && bare.chars().all(bare_fits) && labels.ends_with('}'),
                "{line}"
            );
            for label in labels
                .trim_end_matches('}')
                .split(',')
                .filter(|text| !text.is_empty())
            {
                let (label, value) = label.split_once('=').expect("a label's value");
                assert!(label.chars().all(fits), "{line}");
                assert!(
                    value.len() >= 2 && value.starts_with('"') && value.ends_with('"'),
                    "{line}"
                );
            }
            assert!(
                series.insert(name.to_owned(), value).is_none(),
                "twice: {line}"
            );
        }
    }
    assert_eq!(types.len(), helped.len());
    (types, series)
}

fn json(address: SocketAddr) -> serde_json::Value {
    let answer = get(address, "/status");
    assert!(answer.head.contains("content-type: application/json"));
    serde_json::from_str(&answer.body).expect("JSON")
}

#[test]
fn metrics_are_valid_and_count_a_visit() {
    let (server, client) = visited();
    let answer = get(server.api.address(), "/metrics");
    assert!(
        answer
            .head
            .contains("content-type: text/plain; version=0.0.4")
    );
    let (types, series) = parse_metrics(&answer.body);
    for name in [
        "gt_uptime_seconds",
        "gt_visitors_open",
        "gt_denied_total",
        "gt_sessions_open",
        "process_open_fds",
    ] {
        assert!(types.contains_key(name), "{name}");
    }
    assert_eq!(
        series[&format!("gt_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"))],
        1.0
    );
    assert_eq!(series["gt_links_open"], 1.0);
    assert_eq!(series["gt_session_links{client=\"web\"}"], 1.0);
    assert_eq!(series["gt_client_streams_total{client=\"web\"}"], 1.0);
    assert!(series["gt_client_bytes_total{client=\"web\",direction=\"sent\"}"] > 500.0);
    let service = series
        .iter()
        .find(|(name, _)| name.starts_with("gt_service_visitors_total{client=\"web\",service="));
    assert_eq!(service.map(|(_, value)| *value), Some(1.0));
    assert!(series["process_resident_memory_bytes"] > 1e6 && series["process_open_fds"] > 5.0);
    assert!(series.contains_key("process_cpu_seconds_total"));

    let (_, series) = parse_metrics(&get(client.api.address(), "/metrics").body);
    assert_eq!(
        (series["gt_links_open"], series["gt_visits_total"]),
        (1.0, 1.0)
    );
    assert_eq!(series["gt_visits_failed_total"], 0.0);
    assert!(
        series
            .iter()
            .any(|(name, value)| name.starts_with("gt_service_up{service=") && *value == 1.0)
    );
}

#[test]
fn status_has_its_fields_and_the_page_its_tables() {
    let (server, client) = visited();
    let status = json(server.api.address());
    assert_eq!(
        (&status["role"], &status["stopping"]),
        (&"server".into(), &false.into())
    );
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["uptime_seconds"].as_f64() > Some(0.0));
    assert_eq!(status["listeners"][0]["option"], "addr");
    assert_eq!(
        status["listeners"][0]["address"],
        server.address.to_string()
    );
    assert_eq!(status["metrics"]["links_open"], 1);
    assert_eq!(status["clients"][0]["id"], "web");
    assert_eq!(status["clients"][0]["streams_total"], 1);
    assert!(status["clients"][0]["sent_bytes"].as_u64() > Some(500));
    assert!(
        status["clients"][0]["received_bytes"].is_u64()
            && status["clients"][0]["streams_open"].is_u64()
    );
    let session = &status["sessions"][0];
    assert_eq!(
        (&session["client"], &session["links"]),
        (&"web".into(), &1.into())
    );
    let service = &session["services"][0];
    assert_eq!(
        (&service["kind"], &service["visitors_total"]),
        (&"http".into(), &1.into())
    );
    assert!(service["name"].is_string() && service["endpoints"][0].is_string());
    assert!(service["received_bytes"].is_u64() && service["sent_bytes"].is_u64());

    let status = json(client.api.address());
    assert_eq!(
        (&status["role"], &status["links"]),
        (&"client".into(), &1.into())
    );
    assert_eq!(status["server"], format!("tcp://{}", server.address));
    assert_eq!(
        (&status["visits_total"], &status["visits_failed_total"]),
        (&1.into(), &0.into())
    );
    let service = &status["services"][0];
    assert_eq!(
        (&service["local"], &service["problem"]),
        (&"builtin:demo".into(), &().into())
    );
    assert!(service["name"].is_string() && service["endpoints"][0].is_string());

    let page = get(server.api.address(), "/");
    assert!(
        page.head.contains("content-type: text/html")
            && page.head.contains("cache-control: no-store")
    );
    assert!(
        page.body.contains("<h2>Clients</h2>") && page.body.contains("<td>web<td>1"),
        "{}",
        page.body
    );
    assert!(get(client.api.address(), "/").body.contains("builtin:demo"));
}

#[test]
fn no_answer_holds_a_secret_or_the_address_of_a_visitor() {
    let (server, client) = visited();
    let mut visitor = connect(server.address);
    let address = visitor.local_addr().expect("an address").to_string();
    visitor
        .write_all(b"GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n")
        .expect("sent");
    visitor.read_exact(&mut [0; 15]).expect("an answer");
    for api in [server.api.address(), client.api.address()] {
        for path in ["/", "/status", "/metrics"] {
            let answer = get(api, path);
            assert!(
                !answer.body.contains(SECRET) && !answer.body.contains(&address),
                "{path}: {}",
                answer.body
            );
        }
    }
}

#[test]
fn health_follows_links_and_stopping() {
    let server = server();
    assert_eq!(get(server.api.address(), "/health").status, 200);
    let client = client(server.address);
    for path in ["/health", "/healthz", "/livez"] {
        let answer = until(client.api.address(), path, |answer| answer.status == 200);
        assert_eq!(answer.body, "ok\n");
    }
    server.server.stop(Duration::ZERO);
    let answer = get(server.api.address(), "/health");
    assert_eq!((answer.status, answer.body.as_str()), (503, "stopping\n"));
    let answer = until(client.api.address(), "/health", |answer| {
        answer.status == 503
    });
    assert_eq!(answer.body, "no link to a server\n");
    client.client.stop(Duration::ZERO);
    assert_eq!(get(client.api.address(), "/health").body, "stopping\n");
}

#[test]
fn what_does_not_exist_is_refused_in_clear_words() {
    let server = server();
    let api = server.api.address();
    let missing = get(api, "/secrets");
    assert!(missing.status == 404 && missing.body.contains("/metrics"));
    for path in ["/", "/health", "/metrics", "/status"] {
        let refused = request(api, "POST", path, "localhost");
        assert!(
            refused.status == 405 && refused.head.contains("allow: get, head"),
            "{refused:?}"
        );
        let (head, full) = (request(api, "HEAD", path, "localhost"), get(api, path));
        assert_eq!(
            (head.status, head.body.as_str()),
            (full.status, ""),
            "{path}"
        );
        assert!(
            head.head.contains("content-length: ") && full.status == 200,
            "{head:?}"
        );
    }
    let mut stream = connect(api);
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    // It may be refused, or cut off, before all of it has been sent.
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"),
        "{answer:?}"
    );
}

#[test]
fn connections_are_bounded_in_number_and_in_silence() {
    let server = server();
    let began = Instant::now();
    let mut silent: Vec<_> = (0..64).map(|_| connect(server.api.address())).collect();
    // The first is known to be served only when it has been answered.
    silent[63]
        .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("sent");
    silent[63].read_exact(&mut [0; 15]).expect("an answer");
    let mut late = connect(server.api.address());
    late.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("sent");
    late.set_read_timeout(Some(Duration::from_millis(300)))
        .expect("a time limit");
    assert!(
        late.read(&mut [0]).is_err(),
        "the 65th connection was served"
    );
    drop(silent.pop());
    late.set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a time limit");
    let mut answer = Vec::new();
    late.read_to_end(&mut answer)
        .expect("an answer when there is a place");
    assert_eq!(Answer::parse(&answer).body, "ok\n");
    // Silence of 10 s ends a connection; whether with or without a word is not promised.
    let _ = silent[0].read_to_end(&mut Vec::new()).expect("an end");
    let waited = began.elapsed();
    assert!(
        waited > Duration::from_secs(9) && waited < Duration::from_secs(18),
        "{waited:?}"
    );
}

#[test]
fn with_a_certificate_it_speaks_https_only() {
    let server = server();
    let folder = folder("tls");
    let certificate = certificate(&folder);
    let observer = server.server.observer();
    let api = api(Source::Server(observer), Some(certificate.clone())).expect("an API");
    let plain = get(api.address(), "/health");
    assert!(
        plain.status == 400 && plain.body.contains("https://"),
        "{plain:?}"
    );
    let connector = TlsConnector::new(&TlsClientOptions {
        trust: Trust::OnlyFile(certificate.cert_file),
        ..TlsClientOptions::default()
    });
    let connector = connector.expect("a connector");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let answer = runtime.block_on(async {
        let tcp = net::connect_tcp(&[api.address()], None)
            .await
            .expect("connected");
        let mut tls = connector
            .connect(tcp, "localhost")
            .await
            .expect("a handshake");
        tls.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await
            .expect("sent");
        let mut answer = Vec::new();
        tls.read_to_end(&mut answer).await.expect("an answer");
        Answer::parse(&answer)
    });
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"));
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn what_cannot_start_names_the_option() {
    let server = server();
    let source = || Source::Server(server.server.observer());
    let taken = ApiListener::new(server.address);
    let error = Api::start(&taken, source())
        .expect_err("a taken address")
        .to_string();
    assert!(
        error.contains("apiAddr") && error.contains(&server.address.to_string()),
        "{error}"
    );
    let missing = Certificate {
        cert_file: "/nonexistent/chain.pem".into(),
        key_file: "/nonexistent/key.pem".into(),
    };
    let error = api(source(), Some(missing))
        .expect_err("no such file")
        .to_string();
    assert!(
        error.contains("apiCertFile") && error.contains("/nonexistent/chain.pem"),
        "{error}"
    );
}

/// A server and a client whose demo page one visitor has read to the end.
fn visited() -> (common::Server, common::Client) {
    let server = server();
    let client = client(server.address);
    until(client.api.address(), "/metrics", |answer| {
        answer
            .body
            .lines()
            .any(|line| line.starts_with("gt_service_up{") && line.ends_with(" 1"))
    });
    let page = request(server.address, "GET", "/", "web.example.com");
    assert!(
        page.status == 200 && page.body.contains("gt works"),
        "{page:?}"
    );
    until(server.api.address(), "/metrics", |answer| {
        answer.body.contains("\ngt_streams_open 0\n")
    });
    (server, client)
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gt-api-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
}

fn certificate(folder: &std::path::Path) -> Certificate {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let files = Certificate {
        cert_file: folder.join("chain.pem"),
        key_file: folder.join("key.pem"),
    };
    fs::write(&files.cert_file, made.cert.pem()).expect("written");
    fs::write(&files.key_file, made.signing_key.serialize_pem()).expect("written");
    files
}

#[test]
fn a_name_of_a_stranger_is_refused_on_every_path() {
    let server = server();
    for path in ["/", "/metrics", "/status", "/health", "/nothing"] {
        let answer = request(server.api.address(), "GET", path, "evil.example.com");
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.body.contains("apiHosts"), "{}", answer.body);
        let itself = server.api.address().to_string();
        let answer = request(server.api.address(), "GET", path, &itself);
        assert_ne!(answer.status, 403, "{path}");
    }
    let listener = ApiListener {
        hosts: vec![config::HostName::new("gt.example.com").expect("a name")],
        ..ApiListener::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    let api = Api::start(&listener, Source::Server(server.server.observer())).expect("an API");
    let answer = request(api.address(), "GET", "/health", "GT.example.com:1234");
    assert_eq!(answer.status, 200);
}

#[test]
fn a_password_is_needed_on_every_path_and_wrong_ones_take_time() {
    let server = server();
    let listener = ApiListener {
        password: config::Secret::new("open sesame").ok(),
        ..ApiListener::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    let api = Api::start(&listener, Source::Server(server.server.observer())).expect("an API");
    let ask = |path: &str, credentials: &str| {
        let mut stream = connect(api.address());
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\n{credentials}Connection: close\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).expect("sent");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer");
        Answer::parse(&bytes)
    };
    for path in ["/", "/metrics", "/status", "/health", "/nothing"] {
        let answer = ask(path, "");
        assert_eq!(answer.status, 401, "{path}");
        assert!(
            answer.head.contains("www-authenticate: basic realm"),
            "{}",
            answer.head
        );
        assert!(answer.body.contains("apiPassword"), "{}", answer.body);
    }
    let began = Instant::now();
    let answer = ask("/metrics", "Authorization: Bearer sesame\r\n");
    assert_eq!(answer.status, 401);
    assert!(
        began.elapsed() >= Duration::from_millis(900),
        "{:?}",
        began.elapsed()
    );
    assert!(!answer.body.contains("gt_"), "{}", answer.body);
    // "monitoring:open sesame"
    let basic = "Authorization: Basic bW9uaXRvcmluZzpvcGVuIHNlc2FtZQ==\r\n";
    assert_eq!(ask("/metrics", basic).status, 200);
    assert_eq!(
        ask("/health", "Authorization: Bearer open sesame\r\n").status,
        200
    );
}
