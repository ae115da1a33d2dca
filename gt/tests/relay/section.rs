//! A `proxy` section in a server's file: which visitors it gets, where it shares the server's address and where it has its own, and its reload.

use std::{fs, net::TcpStream, path::PathBuf};

use e2e::{
    Cert, HttpConn, Nginx, PortRange, Process, Server, ServerSpec, Service, TempDir, Transport,
    http, process::gt_binary, relay::SECRET, tls,
};

use socket2::{Domain, Socket, Type};

/// A server whose proxy section stands on its plain address; `{addr}` in `section` is that address.
fn server_with(section: &str) -> (PortRange, Server) {
    let port = PortRange::claim(1);
    let addr = format!("127.0.0.1:{}", port.first());
    let server = ServerSpec::new()
        .user("web")
        .option("addr", format!("\"{addr}\""))
        .proxy(&section.replace("{addr}", &addr))
        .start();
    (port, server)
}

fn text(server: &Server, host: &str, path: &str) -> (u16, String) {
    let answer = http::get(server.http(), host, path).expect("an answer");
    (answer.status, answer.text())
}

#[test]
fn a_route_that_names_a_host_gets_its_visitors_and_the_relay_the_others() {
    let (app, rest, relayed) = (
        Service::text("app"),
        Service::text("rest"),
        Service::text("relayed"),
    );
    let (_port, server) = server_with(&format!(
        "{{listeners: [{{addr: \"{{addr}}\"}}], routes: [{{host: app.test, to: \"{}\"}}, {{host: \"*.wild.test\", respond: {{body: wild}}}}, \
         {{host: app.test, path: /relay, service: web}}, {{to: \"{}\"}}]}}",
        app.address(),
        rest.address()
    ));
    // Before its client has come, the name of a user is waited for by nobody else.
    assert_eq!(text(&server, "web.test", "/").0, 503);
    let _client = server
        .client(Transport::Tcp, "web")
        .service(relayed.url("http"), "")
        .start_up();
    let said = |host: &str, path: &str| text(&server, host, path).1;
    assert_eq!(said("app.test", "/"), "app");
    assert_eq!(said("APP.test:80", "/x"), "app");
    assert_eq!(said("any.wild.test", "/"), "wild");
    assert_eq!(said("web.test", "/"), "relayed");
    assert_eq!(said("app.test", "/relay"), "relayed");
    // Nobody's name: the route for all hosts.
    assert_eq!(said("elsewhere.test", "/"), "rest");
    // The same, request by request.
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    for _ in 0..3 {
        for (host, path, expected) in [
            ("app.test", "/", "app"),
            ("web.test", "/", "relayed"),
            ("app.test", "/relay/x", "relayed"),
            ("elsewhere.test", "/", "rest"),
            ("a.wild.test", "/", "wild"),
        ] {
            let answer = visitor.get(host, path).expect("an answer");
            assert_eq!(answer.text(), expected, "{host}{path}");
        }
    }
}

#[test]
fn without_a_route_for_all_hosts_an_unknown_name_is_not_found() {
    let app = Service::text("app");
    let (_port, server) = server_with(&format!(
        "{{listeners: [{{addr: \"{{addr}}\"}}], routes: [{{host: app.test, path: /only, to: \"{}\"}}]}}",
        app.address()
    ));
    assert_eq!(text(&server, "app.test", "/only"), (200, "app".into()));
    assert_eq!(text(&server, "app.test", "/other").0, 404);
    assert_eq!(text(&server, "nobody.test", "/").0, 404);
}

#[test]
fn a_listener_of_its_own_serves_routes_only_and_services_that_they_name() {
    let relayed = Service::text("relayed");
    let server = ServerSpec::new()
        .user("web")
        .proxy(
            "{listeners: [{addr: \"127.0.0.1:0\"}], routes: [{host: blog.test, service: web, requestHeaders: {set: {X-Via: gt}}}]}",
        )
        .start();
    let line = server
        .process
        .wait_log(&["listening", "option=\"listeners\""]);
    let own = e2e::relay::field(&line, "address").expect("an address");
    let own = own.parse().expect("an address");
    let _client = server
        .client(Transport::Tls, "web")
        .service(relayed.url("http"), "mode: http")
        .start_up();
    let get = |at, host: &str| http::get(at, host, "/").expect("an answer");
    assert_eq!(get(own, "blog.test").text(), "relayed");
    assert_eq!(get(own, "web.test").status, 404);
    // The server's own address knows nothing of the routes.
    assert_eq!(get(server.http(), "blog.test").status, 404);
    assert_eq!(get(server.http(), "web.test").text(), "relayed");
}

#[test]
fn the_servers_tls_is_the_listeners_where_they_share_its_address() {
    let app = Service::text("app");
    let port = PortRange::claim(1);
    let addr = format!("127.0.0.1:{}", port.first());
    let cert = Cert::self_signed(&["app.test", "localhost"]);
    let server = ServerSpec::new()
        .user("web")
        .cert(cert)
        .option("tlsAddr", format!("\"{addr}\""))
        .proxy(&format!(
            "{{listeners: [{{addr: \"{addr}\"}}], routes: [{{host: app.test, to: \"{}\"}}]}}",
            app.address()
        ))
        .start();
    let config = tls::client_config(&[server.cert().der().clone()], &[b"http/1.1"]);
    let stream = tls::connect(server.https(), "app.test", config).expect("TLS");
    let answer = HttpConn::new(stream).get("app.test", "/");
    assert_eq!(answer.expect("an answer").text(), "app");
    // There the server's plain address has no listener of the proxy.
    assert_eq!(text(&server, "app.test", "/").0, 404);
    // Links come on the same address.
    let relayed = Service::text("relayed");
    let _client = server
        .client(Transport::Tls, "web")
        .service(relayed.url("http"), "")
        .start_up();
    assert_eq!(text(&server, "web.test", "/").1, "relayed");
}

#[test]
fn a_trusted_proxy_in_front_is_believed_and_named() {
    let block =
        "listen {listen}; location / { return 200 \"$http_x_forwarded_for|$http_x_real_ip\"; }";
    let nginx = Nginx::start(&[block], |_| {});
    let (_port, server) = server_with(
        "{listeners: [{addr: \"{addr}\"}], routes: [{host: none.test, respond: {}}], trustedProxies: 127.0.0.1}",
    );
    let _client = server
        .client(Transport::Tls, "web")
        .service(nginx.url(0), "mode: http")
        .start_up();
    let to = server.http().to_string();
    let front = ["proxy", "--listen", "127.0.0.1:0", "--to", &to];
    let front = Process::gt("gt proxy", front, TempDir::new());
    let line = front.wait_log(&["listening", "option=\"listeners\""]);
    let at = e2e::relay::field(&line, "address").expect("an address");
    let at: std::net::SocketAddr = at.parse().expect("an address");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let visitor: std::net::SocketAddr = "127.0.0.9:0".parse().expect("an address");
    socket.bind(&visitor.into()).expect("bound");
    socket.connect(&at.into()).expect("connected");
    let mut visitor = HttpConn::new(TcpStream::from(socket));
    let request = "GET / HTTP/1.1\r\nHost: web.test\r\nX-Forwarded-For: 192.0.2.66\r\n\r\n";
    visitor.send(request).expect("sent");
    let answer = visitor.response().expect("an answer").text();
    assert_eq!(answer, "127.0.0.9, 127.0.0.1|127.0.0.9");
}

/// A supervised server with a proxy section on its address.
struct Supervised {
    process: Process,
    file: PathBuf,
    port: PortRange,
}

impl Supervised {
    fn start(section: &str) -> Self {
        let (port, dir) = (PortRange::claim(1), TempDir::new());
        let file = dir.path().join("server.yml");
        fs::write(&file, Self::text(&port, section)).expect("written");
        let args = ["server".as_ref(), "-c".as_ref(), file.as_os_str()];
        let process = Process::gt_supervised("gt server", &gt_binary(), args, dir);
        process.wait_log(&["listening", "option=\"addr\""]);
        Self {
            process,
            file,
            port,
        }
    }

    fn text(port: &PortRange, section: &str) -> String {
        let addr = format!("127.0.0.1:{}", port.first());
        let section = section.replace("{addr}", &addr);
        format!(
            "type: server\noptions:\n  addr: \"{addr}\"\nusers:\n  web: {{secret: \"{SECRET}\"}}\nproxy: {section}\n"
        )
    }

    /// Writes another section and reloads; what was said, and whether it was done.
    fn reload(&self, section: &str, words: &[&str]) -> (bool, String) {
        fs::write(&self.file, Self::text(&self.port, section)).expect("written");
        let mut args: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        args.extend(["-c".as_ref(), self.file.as_os_str()]);
        let said = self.process.ask(&args);
        let text = [said.stdout, said.stderr].concat();
        (
            said.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }
}

#[test]
fn a_reload_changes_routes_in_place_and_says_so_before() {
    let (red, blue) = (Service::text("red"), Service::text("blue"));
    let section = |to: &Service, listeners: &str| {
        format!(
            "{{listeners: {listeners}, routes: [{{host: app.test, to: \"{}\"}}]}}",
            to.address()
        )
    };
    let shared = "[{addr: \"{addr}\"}]";
    let server = Supervised::start(&section(&red, shared));
    let at = ([127, 0, 0, 1], server.port.first()).into();
    let mut visitor = HttpConn::new(http::connect(at).expect("a connection"));
    let ask = |visitor: &mut HttpConn<TcpStream>| {
        let answer = visitor.get("app.test", "/").expect("an answer");
        (answer.status, answer.text())
    };
    assert_eq!(ask(&mut visitor), (200, "red".into()));
    // A plan changes nothing.
    let (good, said) = server.reload(&section(&blue, shared), &["reload", "--plan"]);
    assert!(good && said.contains("routes and upstreams"), "{said}");
    assert_eq!(ask(&mut visitor), (200, "red".into()));
    let (good, said) = server.reload(&section(&blue, shared), &["reload"]);
    assert!(good, "{said}");
    assert_eq!(ask(&mut visitor), (200, "blue".into()));
    // Nor does a file with a mistake.
    let (good, _) = server.reload(
        "{listeners: {addr: 1}, routes: [{to: nowhere}]}",
        &["reload"],
    );
    assert!(!good);
    assert_eq!(ask(&mut visitor), (200, "blue".into()));
    // Another listener needs another process, which the plan says; the visitor is served all the while.
    let more = "[{addr: \"{addr}\"}, {addr: \"127.0.0.1:0\"}]";
    let (good, said) = server.reload(&section(&red, more), &["reload", "--plan"]);
    assert!(good && said.contains("listeners"), "{said}");
    let (good, said) = server.reload(&section(&red, more), &["reload"]);
    assert!(good, "{said}");
    let answer = http::get(at, "app.test", "/").expect("an answer");
    assert_eq!(answer.text(), "red");
}

#[test]
fn a_configuration_with_both_is_checked_and_described() {
    let dir = TempDir::new();
    let file = dir.file(
        "server.yml",
        format!(
            "type: server\noptions: {{addr: 127.0.0.1:18080}}\nusers: {{web: {{secret: \"{SECRET}\"}}}}\n\
             proxy: {{listeners: [{{addr: 127.0.0.1:18080}}], routes: [{{to: 127.0.0.1:1}}]}}\n"
        ),
    );
    let output = std::process::Command::new(gt_binary())
        .args(["config".as_ref(), "check".as_ref(), file.as_os_str()])
        .output()
        .expect("gt runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("proxy on http 127.0.0.1:18080"), "{said}");
}
