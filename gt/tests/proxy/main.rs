//! `gt proxy` as users run it: from flags, from a file, reloaded.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

mod certificates;
mod passing;
mod slow;

use e2e::{HttpConn, Nginx, Process, Service, TempDir, http, process::gt_binary};

/// Where it says that it listens.
fn address(gt: &Process) -> SocketAddr {
    let line = gt.wait_log(&["listening", "option=\"listeners\""]);
    let text = line.split("address=").nth(1).expect("an address");
    let text = text.split_whitespace().next().expect("an address");
    text.parse().expect("an address")
}

#[test]
fn one_line_puts_a_proxy_before_a_service() {
    let nginx = Nginx::plain(|dir| {
        fs::write(dir.path().join("files/a.txt"), "from nginx").expect("written");
    });
    let to = nginx.address(0).to_string();
    let gt = Process::gt(
        "proxy",
        ["proxy", "--listen", "127.0.0.1:0", "--to", &to],
        TempDir::new(),
    );
    let at = address(&gt);
    let answer = http::get(at, "example.com", "/a.txt").expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (200, "from nginx"));
    let mut conn = HttpConn::new(TcpStream::connect(at).expect("connected"));
    for _ in 0..50 {
        assert_eq!(
            conn.get("example.com", "/a.txt").expect("an answer").status,
            200
        );
        assert_eq!(
            conn.get("example.com", "/none").expect("an answer").status,
            404
        );
    }
}

#[test]
fn a_file_says_what_goes_where() {
    let (red, blue) = (Service::text("red"), Service::text("blue"));
    let dir = TempDir::new();
    fs::create_dir(dir.path().join("www")).expect("made");
    fs::write(dir.path().join("www/page.html"), "<p>a page</p>").expect("written");
    let file = dir.path().join("proxy.yml");
    let text = format!(
        "type: proxy\nproxy:\n  listeners:\n    - {{name: web, addr: 127.0.0.1:0}}\n  upstreams:\n    red: {{servers: {}}}\n    blue: {{servers: {}}}\n  \
         routes:\n    - {{host: red.test, to: red}}\n    - {{host: blue.test, path: /b, to: blue}}\n    - {{host: blue.test, path: /go, redirect: \"https://{{host}}/b\"}}\n    \
         - {{host: files.test, files: {}}}\n",
        red.address(),
        blue.address(),
        dir.path().join("www").display(),
    );
    fs::write(&file, text).expect("written");
    let gt = Process::gt(
        "proxy",
        ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()],
        dir,
    );
    let at = address(&gt);
    let get = |host: &str, path: &str| http::get(at, host, path).expect("an answer");
    assert!(get("red.test", "/x").text().contains("red"));
    assert!(get("blue.test", "/b/x").text().contains("blue"));
    let answer = get("blue.test", "/go");
    assert_eq!(
        (answer.status, answer.header("location")),
        (308, Some("https://blue.test/b"))
    );
    let answer = get("files.test", "/page.html");
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "<p>a page</p>")
    );
    assert_eq!(get("blue.test", "/other").status, 404);
    assert_eq!(get("files.test", "/../proxy.yml").status, 400);
    assert_eq!(get("nobody.test", "/").status, 404);
}

#[test]
fn a_reload_changes_routes_under_a_connection_that_stays() {
    let (red, blue) = (Service::text("red"), Service::text("blue"));
    let dir = TempDir::new();
    let file = dir.path().join("proxy.yml");
    let port = e2e::PortRange::claim(1);
    let write = |service: &Service| {
        let text = format!(
            "type: proxy\nproxy:\n  listeners: [{{addr: \"127.0.0.1:{}\"}}]\n  routes:\n    - {{to: \"{}\"}}\n",
            port.first(),
            service.address()
        );
        fs::write(&file, text).expect("written");
    };
    write(&red);
    let gt = Process::gt_supervised(
        "proxy",
        &gt_binary(),
        ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()],
        dir,
    );
    let at = address(&gt);
    let mut conn = HttpConn::new(TcpStream::connect(at).expect("connected"));
    assert!(
        conn.get("a.test", "/")
            .expect("an answer")
            .text()
            .contains("red")
    );
    write(&blue);
    let said = gt.ask(&["reload".as_ref(), "-c".as_ref(), file.as_os_str()]);
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    assert!(
        conn.get("a.test", "/")
            .expect("an answer")
            .text()
            .contains("blue")
    );
    fs::write(
        &file,
        "type: proxy\nproxy:\n  listeners: [{addr: \"127.0.0.1:1\"}]\n  routes:\n    - {to: nowhere}\n",
    )
    .expect("written");
    let said = gt.ask(&["reload".as_ref(), "-c".as_ref(), file.as_os_str()]);
    assert!(!said.status.success());
    assert!(
        conn.get("a.test", "/")
            .expect("an answer")
            .text()
            .contains("blue"),
        "a bad file changes nothing"
    );
}

#[test]
fn a_stop_ends_connections_that_wait() {
    let service = Service::text("hello");
    let to = service.address().to_string();
    let mut gt = Process::gt(
        "proxy",
        ["proxy", "--listen", "127.0.0.1:0", "--to", &to],
        TempDir::new(),
    );
    let mut stream = TcpStream::connect(address(&gt)).expect("connected");
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 200");
    gt.signal("TERM");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("a clean end");
    assert!(gt.wait_exit().success());
}

#[test]
fn the_access_log_is_opened_again_when_logs_are() {
    let service = Service::text("hello");
    let dir = TempDir::new();
    let file = dir.path().join("proxy.yml");
    let (log, old) = (dir.path().join("access.log"), dir.path().join("old.log"));
    let text = format!(
        "type: proxy\nproxy:\n  accessLog: {{path: access.log, format: json}}\n  listeners: [{{addr: \"127.0.0.1:0\"}}]\n  routes:\n    - {{to: \"{}\"}}\n    \
         - {{path: /quiet, to: \"{0}\", accessLog: false}}\n",
        service.address()
    );
    fs::write(&file, text).expect("written");
    let gt = Process::gt_supervised(
        "proxy",
        &gt_binary(),
        ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()],
        dir,
    );
    let at = address(&gt);
    let get = |path: &str| http::get(at, "a.test", path).expect("an answer");
    get("/first");
    get("/quiet");
    let wait = |path: &std::path::Path, part: &str| {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let text = fs::read_to_string(path).unwrap_or_default();
            if text.contains(part) {
                return text;
            }
            assert!(Instant::now() < until, "{}: {text}", path.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait(&log, "/first");
    fs::rename(&log, &old).expect("moved");
    let said = gt.ask(&[
        "-s".as_ref(),
        "reopen".as_ref(),
        "-c".as_ref(),
        file.as_os_str(),
    ]);
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    // The worker is told by its supervisor: until it has done it, lines may go to the old file.
    let until = Instant::now() + Duration::from_secs(10);
    while !log.exists() {
        assert!(Instant::now() < until, "not opened again");
        std::thread::sleep(Duration::from_millis(20));
    }
    get("/second");
    wait(&log, "/second");
    let old = fs::read_to_string(&old).expect("the old log");
    assert!(!old.contains("/quiet") && !old.contains("/second"), "{old}");
}
