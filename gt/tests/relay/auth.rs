//! Who may connect when nobody is configured: anyone, or those for whom an authentication service vouches. And servers whose address
//! comes from a service.

use std::{
    io::{Read, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicUsize, Ordering::SeqCst},
    },
};

use aws_lc_rs::hmac;
use e2e::{Exchange, ServerSpec, Service, Transport, http, over_each_transport, relay::SECRET};
use serde_json::{Value, json};

use crate::server;

over_each_transport!(
    any_client_may_come_where_that_is_allowed,
    an_authentication_service_vouches_for_clients,
    a_wrong_secret_fails_at_the_authentication_service,
    a_key_from_the_authentication_service_is_remembered,
    clients_come_back_while_the_authentication_service_is_down,
    the_authentication_service_sets_limits,
    the_address_service_names_the_server,
);

fn any_client_may_come_where_that_is_allowed(transport: Transport) {
    let service = Service::text("here");
    let server = ServerSpec::new().option("allowAnyClient", true).start();
    // A client that was given no secret makes one.
    let client = |prefix: &str| {
        let spec = server
            .client(transport, "x")
            .without("id")
            .without("secret");
        spec.service(service.url("http"), &format!("hostPrefix: {prefix}"))
            .start_up()
    };
    let _clients = [client("one"), client("two")];
    for host in ["one.example.com", "two.example.com"] {
        assert_eq!(
            http::get(server.http(), host, "/")
                .expect("an answer")
                .text(),
            "here"
        );
    }
}

/// The service that knows the secrets, as `docs/configuration.md` describes it.
struct AuthService {
    http: Service,
    asked: Arc<Mutex<Vec<Value>>>,
    /// What it answers with while it is broken; 0 = it works.
    broken: Arc<AtomicU16>,
}

impl AuthService {
    /// Vouches for the id `web` with the secret of the tests; `more` is merged into the answer. With `key` it hands out the key.
    fn start(key: bool, more: Value) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let broken = Arc::new(AtomicU16::new(0));
        let (heard, state) = (Arc::clone(&asked), Arc::clone(&broken));
        let http = Service::http(move |exchange: &mut Exchange<'_>| {
            let content = exchange.content()?;
            let broken = state.load(SeqCst);
            if broken > 0 {
                return exchange.respond(broken, "broken");
            }
            let question: Value = serde_json::from_slice(&content)?;
            let mut answer = vouch(&question, key);
            if let (Some(answer), Some(more)) = (answer.as_object_mut(), more.as_object()) {
                answer.extend(more.clone());
            }
            heard.lock().expect("not poisoned").push(question);
            exchange.respond(200, answer.to_string())
        });
        Self {
            http,
            asked,
            broken,
        }
    }

    fn url(&self) -> String {
        format!("http://{}/auth?from=gt", self.http.address())
    }

    fn count(&self) -> usize {
        self.asked.lock().expect("not poisoned").len()
    }
}

fn vouch(question: &Value, with_key: bool) -> Value {
    let text = |name: &str| question[name].as_str().unwrap_or_default();
    let mac = |key: &[u8], parts: &[&[u8]]| {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref().to_vec()
    };
    let key = mac(SECRET.as_bytes(), &[b"gt auth v1\0", text("id").as_bytes()]);
    let proof = mac(&key, &[b"client\0", &unhex(text("transcript"))]);
    let ok = text("id") == "web" && proof == unhex(text("proof"));
    if ok && with_key {
        json!({"ok": ok, "key": hex(&key)})
    } else {
        json!({"ok": ok})
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn an_authentication_service_vouches_for_clients(transport: Transport) {
    let service = Service::text("here");
    let auth = AuthService::start(true, json!({}));
    let server = ServerSpec::new().option("authAPI", auth.url()).start();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    assert_eq!(
        http::get(server.http(), "web.example.com", "/")
            .expect("an answer")
            .text(),
        "here"
    );
    let asked = auth.asked.lock().expect("not poisoned")[0].clone();
    assert_eq!(
        (asked["id"].as_str(), asked["address"].as_str()),
        (Some("web"), Some("127.0.0.1"))
    );
    assert!(
        !asked.to_string().contains(SECRET),
        "the secret does not travel"
    );
}

fn a_wrong_secret_fails_at_the_authentication_service(transport: Transport) {
    let auth = AuthService::start(true, json!({}));
    let server = ServerSpec::new().option("authAPI", auth.url()).start();
    let spec = server
        .client(transport, "web")
        .option("secret", "wrong")
        .service("http://127.0.0.1:1", "");
    let mut wrong = spec.start();
    assert_eq!(wrong.wait_exit().code(), Some(1));
    wrong.process.wait_log(&["check id and secret"]);
    server
        .process
        .wait_log(&["a client was refused", "id=\"web\""]);
    let mut unknown = server
        .client(transport, "stranger")
        .service("http://127.0.0.1:1", "")
        .start();
    assert_eq!(unknown.wait_exit().code(), Some(1));
    unknown.process.wait_log(&["check id and secret"]);
    assert_eq!(auth.count(), 2);
}

fn a_key_from_the_authentication_service_is_remembered(transport: Transport) {
    let service = Service::text("here");
    let auth = AuthService::start(true, json!({"cacheSeconds": 60}));
    let server = ServerSpec::new().option("authAPI", auth.url()).start();
    for _ in 0..3 {
        let mut client = server
            .client(transport, "web")
            .option("remoteConnections", 3)
            .service(service.url("http"), "")
            .start_up();
        client.process.wait_log_times(&["connected"], 3);
        assert_eq!(
            http::get_until(server.http(), "web.example.com", "/", 200).text(),
            "here"
        );
        client.process.signal("TERM");
        client.wait_exit();
    }
    assert_eq!(auth.count(), 1);
    // With the service gone, those it vouched for still come in; a wrong proof does not.
    auth.broken.store(500, SeqCst);
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    let wrong = server
        .client(transport, "web")
        .option("secret", "wrong")
        .service(service.url("http"), "")
        .start();
    wrong
        .process
        .wait_log(&["no link", "cannot check clients now"]);
}

fn clients_come_back_while_the_authentication_service_is_down(transport: Transport) {
    let service = Service::text("here");
    let auth = AuthService::start(true, json!({}));
    auth.broken.store(503, SeqCst);
    let server = ServerSpec::new().option("authAPI", auth.url()).start();
    let client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start();
    client
        .process
        .wait_log(&["no link", "its authentication service does not answer"]);
    let line = server
        .process
        .wait_log(&["the authentication service (authAPI) did not answer"]);
    assert!(line.contains("status 503"), "{line}");
    auth.broken.store(0, SeqCst);
    client.wait_up();
    assert_eq!(
        http::get(server.http(), "web.example.com", "/")
            .expect("an answer")
            .text(),
        "here"
    );
}

fn the_authentication_service_sets_limits(transport: Transport) {
    let service = Service::text("here");
    let ports = e2e::PortRange::claim(4);
    let limits =
        json!({"connections": 2, "hostNumber": 1, "tcpNumber": 1, "tcpRanges": [ports.text()]});
    let auth = AuthService::start(true, limits);
    let server = ServerSpec::new().option("authAPI", auth.url()).start();
    let mut spec = server
        .client(transport, "web")
        .option("remoteConnections", 5);
    for n in 0..2 {
        spec = spec.service(
            service.url("http"),
            &format!("name: host{n}, hostPrefix: host{n}"),
        );
        spec = spec.service(
            service.url("tcp"),
            &format!("name: port{n}, remoteTCPRandom: true"),
        );
    }
    let client = spec.start();
    assert!(client.wait_refused("host1").contains("hostNumber"));
    assert!(client.wait_refused("port1").contains("tcpNumber"));
    assert!(ports.contains(client.port_of("port0")));
    client.process.wait_log_times(&["connected"], 2);
    assert_eq!(
        http::get(server.http(), "host0.example.com", "/")
            .expect("an answer")
            .text(),
        "here"
    );
    server.process.wait_log_times(&["a client's link is up"], 2);
    assert_eq!(server.process.count_log(&["a client's link is up"]), 2);
}

fn the_address_service_names_the_server(transport: Transport) {
    let service = Service::text("here");
    let server = server();
    let remote = server.remote(transport);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let addresses = Service::http(move |exchange| match counted.fetch_add(1, SeqCst) {
        0 => exchange.respond(500, "not yet"),
        1 => exchange.respond(200, "no address"),
        _ => exchange.respond(200, json!({"remote": remote}).to_string()),
    });
    let api = format!("http://{}/where", addresses.address());
    let spec = server
        .client(transport, "web")
        .without("remote")
        .option("remoteAPI", api);
    let client = spec.service(service.url("http"), "").start_up();
    client
        .process
        .wait_log(&["no link", "remoteAPI: it answered with status 500"]);
    client
        .process
        .wait_log(&["no link", "is not a server's address"]);
    assert_eq!(
        http::get(server.http(), "web.example.com", "/")
            .expect("an answer")
            .text(),
        "here"
    );
}

#[test]
fn a_flood_of_clients_does_not_flood_the_authentication_service() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inside, peak) = (Arc::clone(&now), Arc::clone(&most));
    // Slower than the server's patience.
    let slow = Service::http(move |exchange: &mut Exchange<'_>| {
        peak.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
        exchange.content()?;
        std::thread::sleep(std::time::Duration::from_secs(6));
        inside.fetch_sub(1, SeqCst);
        exchange.respond(500, "")
    });
    let server = ServerSpec::new()
        .option("authAPI", format!("http://{}/", slow.address()))
        .start();
    let attempt = |n: usize| {
        let mut stream = http::connect(server.http()).expect("accepts");
        let id = tunnel::ClientId::new(&format!("c{n}")).expect("an id");
        let secret = tunnel::Secret::new(SECRET).expect("a secret");
        let config = tunnel::ClientConfig::new(id, secret);
        let binding = tunnel::ChannelBinding::None;
        let nonce = tunnel::Nonce([7; 32]);
        let mut machine = tunnel::ClientHandshake::new(config, nonce, binding);
        let (mut unread, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            stream.write_all(&machine.output()).expect("writable");
            let n = stream.read(&mut piece).expect("an answer");
            assert!(n > 0, "closed without an answer");
            unread.extend_from_slice(&piece[..n]);
            match machine.handle_input(&unread) {
                Ok(taken) => drop(unread.drain(..taken)),
                Err(tunnel::HandshakeError::Rejected(rejection)) => return rejection,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let rejections: Vec<_> = std::thread::scope(|scope| {
        let attempt = &attempt;
        let threads: Vec<_> = (0..320).map(|n| scope.spawn(move || attempt(n))).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        joined.collect()
    });
    assert_eq!(most.load(SeqCst), 32, "calls at one time");
    let told = |text: &str| {
        let has = rejections
            .iter()
            .filter(|rejection| rejection.to_string().contains(text));
        has.count()
    };
    let (unanswered, busy) = (
        told("its authentication service does not answer"),
        told("too many wait to be checked"),
    );
    // Those who wait get no turn while the first calls last.
    assert_eq!((unanswered, busy), (32, 320 - 32));
    for rejection in &rejections {
        assert!(rejection.retry_after.is_some(), "{rejection}");
        assert!(!rejection.code.is_permanent());
    }
}
