//! A server, a client and their APIs on free loopback ports, and an HTTP client that reads until the end of the connection.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use config::{ApiListener, Certificate, Checked, CommandLine, Role, System};
use control::{Api, ApiError, Source};

pub(crate) const SECRET: &str = "hunter2-and-more";

pub(crate) struct Server {
    pub(crate) server: server::Server,
    pub(crate) api: Api,
    /// For visitors and links.
    pub(crate) address: SocketAddr,
}

pub(crate) fn server() -> Server {
    let Checked::Server(config) = checked(
        Role::Server,
        &format!("-addr 127.0.0.1:0 -id web -secret {SECRET} -workers 1"),
    ) else {
        panic!("a server was asked for");
    };
    let server = server::Server::start(*config).expect("a server");
    let api = api(Source::Server(server.observer()), None).expect("an API");
    let address = server.observer().snapshot().listeners[0].1;
    Server {
        server,
        api,
        address,
    }
}

pub(crate) struct Client {
    pub(crate) client: agent::Client,
    pub(crate) api: Api,
}

pub(crate) fn client(remote: SocketAddr) -> Client {
    let line = format!(
        "-local builtin:demo -remote tcp://{remote} -id web -secret {SECRET} -reconnectDelay 1s"
    );
    let Checked::Client(config) = checked(Role::Client, &line) else {
        panic!("a client was asked for");
    };
    let client = agent::Client::start(*config).expect("a client");
    let api = api(Source::Client(client.observer()), None).expect("an API");
    Client { client, api }
}

fn checked(role: Role, line: &str) -> Checked {
    let line = CommandLine::parse(role, line.split(' ').map(str::to_owned)).expect("flags");
    let system = System {
        create_identity: false,
    };
    let mut checked = config::load(&line, &system).expect("a configuration");
    checked.pop().expect("one configuration")
}

pub(crate) fn api(source: Source, certificate: Option<Certificate>) -> Result<Api, ApiError> {
    let listener = ApiListener {
        certificate,
        ..ApiListener::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    Api::start(&listener, source)
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Self {
            status: status.expect("a status"),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path, "localhost")
}

pub(crate) fn request(address: SocketAddr, method: &str, path: &str, host: &str) -> Answer {
    let mut stream = connect(address);
    let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("sent");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    Answer::parse(&bytes)
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    let limit = Some(Duration::from_secs(20));
    stream.set_read_timeout(limit).expect("a time limit");
    stream
}

/// Asks again until the answer is as wanted.
pub(crate) fn until(address: SocketAddr, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = get(address, path);
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{path} stays at {answer:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
