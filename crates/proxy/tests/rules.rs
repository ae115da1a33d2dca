//! What routes say about time, users and the log, and what holds for connections without HTTP.

mod common;

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::*;
use proxy::{AccessLogSpec, Listener, LogFormat, Options, Protocol, Proxy, Site, StreamTimes};
use route::{
    Action, BasicAuth, Files, Forwarding, HeaderEdits, HostPattern, IpSet, PasswordHash, Redirect,
    Respond, Route, StreamRoutes, Timeouts, UpstreamId,
};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn trusting(route: Route) -> Site {
    let trusted: IpSet = ["127.0.0.1/32".parse().expect("a network")]
        .into_iter()
        .collect();
    Site {
        forwarding: Forwarding {
            trusted,
            ..Forwarding::default()
        },
        ..site(route, vec![])
    }
}

/// A folder below the target directory, emptied.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rules-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder");
    path
}

fn logging(site: Site, log: AccessLogSpec) -> Proxy {
    start_with(site, Protocol::Http { http2: true }, Some(log))
}

fn start_with(site: Site, protocol: Protocol, access_log: Option<AccessLogSpec>) -> Proxy {
    Proxy::start(Options {
        workers: Some(1),
        listeners: vec![Listener {
            address: "127.0.0.1:0".parse().expect("an address"),
            protocol,
            proxy_from: IpSet::default(),
        }],
        site,
        access_log,
    })
    .expect("a free port")
}

/// Ends the proxy, which writes what is left of its log, and reads it.
fn log_of(proxy: Proxy, path: &Path) -> Vec<String> {
    proxy.stop(PATIENCE);
    let text = fs::read_to_string(path).expect("a log");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn own_answers_name_the_visitor_behind_trusted_proxies() {
    let mut route = Route::new("own", Action::Respond(Respond::text(200, "hello")));
    route.response_headers = HeaderEdits::new([("x-you", "{clientIp}")], [], []).expect("an edit");
    let redirect = Redirect::new(308, "https://{host}/{clientIp}").expect("a redirect");
    let request =
        b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n";
    let (answer, _) = exchange(&start(trusting(route)), request);
    assert!(
        text(&answer).contains("\r\nx-you: 203.0.113.9\r\n"),
        "{}",
        text(&answer)
    );
    let route = Route::new("away", Action::Redirect(redirect));
    let (answer, _) = exchange(&start(trusting(route)), request);
    assert!(
        text(&answer).contains("\r\nLocation: https://a/203.0.113.9\r\n"),
        "{}",
        text(&answer)
    );
}

#[test]
fn the_log_names_the_server_that_failed_and_the_visitor_behind_proxies() {
    let path = folder("failed").join("access.log");
    let origin = Origin::new(|mut stream, _| {
        read_message(&mut stream);
    });
    let name = origin.address.to_string();
    let mut spec = upstream(vec![server(origin.address)]);
    spec.health.passive = None;
    let mut site = trusting(route());
    site.upstreams = vec![spec];
    let proxy = logging(site, AccessLogSpec::new(&path));
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (answer, _) = exchange(&proxy, request);
    assert!(
        text(&answer).starts_with("HTTP/1.1 502 "),
        "{}",
        text(&answer)
    );
    let address = origin.address;
    drop(origin);
    while TcpStream::connect(address).is_ok() {}
    let (answer, _) = exchange(&proxy, request);
    assert!(
        text(&answer).starts_with("HTTP/1.1 502 "),
        "{}",
        text(&answer)
    );
    exchange(&proxy, b"nonsense\r\n\r\n");
    let lines = log_of(proxy, &path);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for (line, end) in lines.iter().zip(["SH", "SC"]) {
        assert!(line.starts_with("203.0.113.9 - - ["), "{line}");
        assert!(line.contains(&format!(" upstream={name} ")), "{line}");
        assert!(line.ends_with(&format!(" end={end}")), "{line}");
    }
    assert!(lines[2].contains("\"-\" 400 0 "), "{}", lines[2]);
    assert!(lines[2].ends_with(" end=CR"), "{}", lines[2]);
}

#[test]
fn the_upstream_is_told_whose_password_was_right() {
    let (origin, told) = Origin::answering(OK);
    let hash = bcrypt::hash("secret", 4).expect("a hash");
    let users = [
        (
            "ann".to_owned(),
            PasswordHash::new("plain").expect("a password"),
        ),
        ("bob".to_owned(), PasswordHash::new(&hash).expect("a hash")),
    ];
    let auth = BasicAuth::new("here", users)
        .expect("users")
        .with_user_header("X-User")
        .expect("a name");
    let mut route = route();
    route.access.auth = Some(Arc::new(auth));
    let proxy = start(site(route, vec![upstream(vec![server(origin.address)])]));
    // ann:plain, bob:secret; the second time the table of good passwords knows him.
    for (credentials, user) in [
        ("YW5uOnBsYWlu", "ann"),
        ("Ym9iOnNlY3JldA==", "bob"),
        ("Ym9iOnNlY3JldA==", "bob"),
    ] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-User: root\r\nAuthorization: Basic {credentials}\r\nConnection: close\r\n\r\n"
        );
        let (answer, _) = exchange(&proxy, request.as_bytes());
        assert!(
            text(&answer).starts_with("HTTP/1.1 200 "),
            "{}",
            text(&answer)
        );
        let seen = text(&told.recv_timeout(PATIENCE).expect("a request")).to_ascii_lowercase();
        assert!(seen.contains(&format!("\r\nx-user: {user}\r\n")), "{seen}");
        assert!(
            !seen.contains("root") && !seen.contains("authorization"),
            "{seen}"
        );
    }
}

/// Threads of this process with that name.
fn threads(name: &str) -> usize {
    fs::read_dir("/proc/self/task")
        .expect("Linux")
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|comm| comm.trim_end().starts_with(name))
        .count()
}

#[test]
fn many_passwords_at_once_are_checked_by_few_threads_and_hold_up_nobody_else() {
    let (origin, _told) = Origin::answering(OK);
    let hash = bcrypt::hash("secret", 10).expect("a hash");
    let users = [("bob".to_owned(), PasswordHash::new(&hash).expect("a hash"))];
    let mut locked = route();
    locked.access.auth = Some(Arc::new(BasicAuth::new("here", users).expect("users")));
    let open = route::Match {
        path: route::PathPattern::prefix("/open").expect("a path"),
        ..route::Match::default()
    };
    let mut site = site(route(), vec![upstream(vec![server(origin.address)])]);
    site.routes = Arc::new(
        route::Routes::new(vec![(open, route()), (route::Match::default(), locked)])
            .expect("routes"),
    );
    let proxy = start(site);
    let flood: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = connect(&proxy);
            // bob:wrong!
            let request = b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic Ym9iOndyb25nIQ==\r\nConnection: close\r\n\r\n";
            stream.write_all(request).expect("sent");
            stream
        })
        .collect();
    let mut most = 0;
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let began = Instant::now();
        let (answer, _) = exchange(
            &proxy,
            b"GET /open HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        );
        assert!(
            text(&answer).starts_with("HTTP/1.1 200 "),
            "{}",
            text(&answer)
        );
        slowest = slowest.max(began.elapsed());
        most = most.max(threads("gt-passwords"));
    }
    assert!((1..=4).contains(&most), "{most} threads");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let mut statuses = Vec::new();
    for mut stream in flood {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        statuses.push(text(&answer)[9..12].to_owned());
    }
    let count = |status: &str| statuses.iter().filter(|one| *one == status).count();
    assert_eq!(count("401") + count("503"), 100, "{statuses:?}");
    assert!(count("401") >= 32 && count("503") > 0, "{statuses:?}");
}

#[test]
fn files_are_read_by_few_threads() {
    let folder = folder("files");
    fs::write(folder.join("a.bin"), vec![7; 300_000]).expect("written");
    let route = Route::new("files", Action::Files(Files::new(&folder)));
    let proxy = start(site(route, vec![]));
    let streams: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = connect(&proxy);
            let request = b"GET /a.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            stream.write_all(request).expect("sent");
            stream
        })
        .collect();
    let mut most = 0;
    for mut stream in streams {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer.ends_with(&[7; 1000]) && answer.len() > 300_000);
        most = most.max(threads("gt-files"));
    }
    assert!((1..=16).contains(&most), "{most} threads");
}

#[test]
fn an_exchange_ends_when_its_whole_time_is_over() {
    let dribbling = Origin::new(|mut stream, n| {
        read_message(&mut stream);
        if n > 0 {
            // Never answers.
            let _ = stream.read(&mut [0]);
            return;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let path = folder("total").join("access.log");
    let mut limited = route();
    limited.timeouts = Timeouts {
        total: Some(Duration::from_millis(500)),
        ..Timeouts::default()
    };
    let site = site(limited, vec![upstream(vec![server(dribbling.address)])]);
    let proxy = logging(site, AccessLogSpec::new(&path));
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let began = Instant::now();
    let (answer, clean) = exchange(&proxy, request);
    assert!(
        text(&answer).starts_with("HTTP/1.1 200 ") && !clean,
        "{}",
        text(&answer)
    );
    let (answer, _) = exchange(&proxy, request);
    assert!(
        text(&answer).starts_with("HTTP/1.1 504 "),
        "{}",
        text(&answer)
    );
    assert!(
        text(&answer).contains("longer than it may"),
        "{}",
        text(&answer)
    );
    let took = began.elapsed();
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(4)).contains(&took),
        "{took:?}"
    );
    let lines = log_of(proxy, &path);
    assert!(lines[0].ends_with(" end=PD"), "{}", lines[0]);
    assert!(lines[1].ends_with(" end=PH"), "{}", lines[1]);
}

#[test]
fn the_whole_time_of_a_route_ends_no_connection_between_requests() {
    let (origin, _told) = Origin::answering(OK);
    let mut limited = route();
    limited.timeouts.total = Some(Duration::from_millis(300));
    let proxy = start(site(limited, vec![upstream(vec![server(origin.address)])]));
    let mut stream = connect(&proxy);
    for _ in 0..3 {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        let answer = read_message(&mut stream).expect("an answer");
        assert!(text(&answer).starts_with("HTTP/1.1 200 "));
        thread::sleep(Duration::from_millis(500));
    }
}

fn streams_to(address: SocketAddr, times: StreamTimes) -> Proxy {
    let routes = vec![(0, HostPattern::default(), UpstreamId(0))];
    let site = Site {
        streams: StreamRoutes::new(routes),
        stream_times: vec![times],
        ..site(route(), vec![upstream(vec![server(address)])])
    };
    start_with(site, Protocol::Tcp, None)
}

#[test]
fn a_silent_stream_ends_after_the_time_of_its_listener() {
    let origin = Origin::new(|mut stream, _| {
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|n| n == 1) {
            let _ = stream.write_all(&byte);
        }
    });
    let times = StreamTimes {
        idle: Duration::from_secs(1),
        ..StreamTimes::default()
    };
    let proxy = streams_to(origin.address, times);
    let mut stream = connect(&proxy);
    let began = Instant::now();
    let mut byte = [0];
    for _ in 0..4 {
        stream.write_all(b"x").expect("sent");
        stream.read_exact(&mut byte).expect("echoed");
        thread::sleep(Duration::from_millis(400));
    }
    let end = stream.read(&mut byte);
    let took = began.elapsed();
    assert!(!matches!(end, Ok(1)), "{end:?}");
    assert!(
        took > Duration::from_millis(2000) && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[test]
fn a_server_that_does_not_accept_costs_a_stream_only_the_time_of_its_listener() {
    // A listener whose queue is full takes no more: the kernel drops what comes.
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .expect("bound");
    socket.listen(0).expect("listening");
    let address = socket
        .local_addr()
        .expect("an address")
        .as_socket()
        .expect("IPv4");
    let _waiting: Vec<_> = (0..2)
        .filter_map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok())
        .collect();
    let times = StreamTimes {
        connect: Duration::from_millis(300),
        ..StreamTimes::default()
    };
    let proxy = streams_to(address, times);
    let mut stream = connect(&proxy);
    let began = Instant::now();
    let end = stream.read(&mut [0]);
    let took = began.elapsed();
    assert!(!matches!(end, Ok(1..)), "{end:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_log_of_json_has_an_object_per_exchange_and_leaves_out_what_its_route_says() {
    let folder = folder("json");
    let (path, moved) = (folder.join("access.log"), folder.join("old.log"));
    let mut quiet = Route::new("quiet", Action::Respond(Respond::text(200, "hush")));
    quiet.log = false;
    let loud = Route::new("loud", Action::Respond(Respond::text(200, "hello")));
    let at = |path: &str| route::Match {
        path: route::PathPattern::prefix(path).expect("a path"),
        ..route::Match::default()
    };
    let site = Site {
        routes: Arc::new(
            route::Routes::new(vec![(at("/quiet"), quiet), (at("/loud"), loud)]).expect("routes"),
        ),
        ..Site::default()
    };
    let log = AccessLogSpec {
        format: LogFormat::Json,
        ..AccessLogSpec::new(&path)
    };
    let proxy = logging(site, log);
    let get = |path: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: \"x\\\r\nConnection: close\r\n\r\n"
        );
        exchange(&proxy, request.as_bytes());
    };
    get("/loud/1");
    get("/quiet/2");
    // The buffer goes to the file within two seconds; then the file is moved away, as logrotate does.
    let until = Instant::now() + PATIENCE;
    while fs::metadata(&path).expect("a log").len() == 0 {
        assert!(Instant::now() < until, "nothing was written");
        thread::sleep(Duration::from_millis(20));
    }
    fs::rename(&path, &moved).expect("moved");
    proxy.reopen_logs();
    get("/loud/3");
    let lines = log_of(proxy, &path);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let entry: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_eq!(entry["target"], "/loud/3");
    assert_eq!(entry["userAgent"], "\"x\\");
    assert_eq!(
        (&entry["status"], &entry["route"]),
        (&200.into(), &"loud".into())
    );
    let old = fs::read_to_string(&moved).expect("the old log");
    assert!(
        old.contains("/loud/1") && !old.contains("/quiet") && !old.contains("/loud/3"),
        "{old}"
    );
}

#[test]
fn a_sample_is_one_of_so_many() {
    let path = folder("sample").join("access.log");
    let own = Route::new("own", Action::Respond(Respond::text(200, "hello")));
    let log = AccessLogSpec {
        one_of: 5,
        ..AccessLogSpec::new(&path)
    };
    let proxy = logging(site(own, vec![]), log);
    let mut stream = connect(&proxy);
    for _ in 0..50 {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        read_message(&mut stream).expect("an answer");
    }
    drop(stream);
    assert_eq!(log_of(proxy, &path).len(), 10);
}

#[test]
fn a_full_disk_loses_lines_and_counts_them_and_stalls_nobody() {
    let own = Route::new("own", Action::Respond(Respond::text(200, "hello")));
    let proxy = logging(site(own, vec![]), AccessLogSpec::new("/dev/full"));
    let mut stream = connect(&proxy);
    let began = Instant::now();
    for _ in 0..500 {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        read_message(&mut stream).expect("an answer");
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    await_metric(&proxy, "proxy_access_log_lost_total", 500);
}

#[test]
fn a_pipe_that_nobody_empties_stalls_neither_requests_nor_the_end() {
    let path = folder("pipe").join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo runs").success());
    let own = Route::new("own", Action::Respond(Respond::text(200, "hello")));
    let refused = Proxy::start(Options {
        workers: Some(1),
        listeners: vec![],
        site: Site::default(),
        access_log: Some(AccessLogSpec::new(&path)),
    });
    assert!(
        matches!(refused, Err(proxy::StartError::AccessLog { .. })),
        "nobody reads it"
    );
    let reader = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .expect("opened");
    let log = AccessLogSpec {
        buffer: 64 << 10,
        ..AccessLogSpec::new(&path)
    };
    let proxy = logging(site(own, vec![]), log);
    let mut stream = connect(&proxy);
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(4000));
    for _ in 0..200 {
        stream.write_all(request.as_bytes()).expect("sent");
        read_message(&mut stream).expect("an answer");
    }
    drop(stream);
    let began = Instant::now();
    proxy.stop(PATIENCE);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    drop(reader);
}
