//! The API and the status page of the gt binary: what monitoring and visitors see, up to the end of the process.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

const SECRET: &str = "hunter2-and-more";

/// A gt process whose log is read line by line; killed when dropped.
struct Gt {
    child: Child,
    log: Receiver<String>,
    seen: Vec<String>,
}

impl Gt {
    fn start(line: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gt"))
            .args(line.split(' '))
            // What is killed here is one process.
            .arg("--no-supervisor")
            .env_remove("GT_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("gt runs");
        let lines = BufReader::new(child.stderr.take().expect("its log")).lines();
        let (sender, log) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|l| sender.send(l)));
        Self {
            child,
            log,
            seen: Vec::new(),
        }
    }

    /// The address at which it says to listen for an option.
    fn address(&mut self, option: &str) -> SocketAddr {
        let wanted = format!("listening option=\"{option}\" address=");
        let find = |line: &str| {
            let (_, rest) = line.split_once(&wanted)?;
            rest.split(' ').next()?.parse().ok()
        };
        if let Some(address) = self.seen.iter().find_map(|line| find(line)) {
            return address;
        }
        loop {
            let line = self.log.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no {wanted:?} in {:#?}", self.seen));
            let found = find(&line);
            self.seen.push(line);
            if let Some(address) = found {
                return address;
            }
        }
    }

    fn terminate(&self) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &id]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Its exit code and the rest of its log.
    fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        // The log ends when the process does.
        while let Ok(line) = self
            .log
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.seen.push(line);
        }
        let ended = self
            .child
            .try_wait()
            .ok()
            .flatten()
            .or_else(|| self.child.wait().ok());
        (ended.and_then(|status| status.code()), self.seen.join("\n"))
    }
}

impl Drop for Gt {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn server(options: &str) -> Gt {
    Gt::start(&format!(
        "server -addr 127.0.0.1:0 -apiAddr 127.0.0.1:0 -workers 1 -id web -secret {SECRET}{options}"
    ))
}

fn client(remote: SocketAddr, options: &str) -> Gt {
    Gt::start(&format!(
        "client -local builtin:demo{options} -remote tcp://{remote} -id web -secret {SECRET} -apiAddr 127.0.0.1:0"
    ))
}

fn request(address: SocketAddr, method: &str, path: &str, host: &str) -> String {
    let mut stream = connect(address);
    let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a time limit");
    stream
}

/// Asks again until the answer has `wanted` in it.
fn until(address: SocketAddr, path: &str, wanted: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = request(address, "GET", path, "localhost");
        if answer.contains(wanted) {
            return answer;
        }
        assert!(Instant::now() < deadline, "no {wanted:?} in {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn server_and_client_tell_how_they_are() {
    let mut server = server("");
    let mut client = client(server.address("addr"), "");
    until(server.address("apiAddr"), "/health", "HTTP/1.1 200");
    until(client.address("apiAddr"), "/health", "HTTP/1.1 200");
    until(
        server.address("apiAddr"),
        "/metrics",
        "\ngt_session_links{client=\"web\"} 1\n",
    );
    until(client.address("apiAddr"), "/status", "\"links\":1");
    until(client.address("apiAddr"), "/", "gt client");
}

#[test]
fn health_says_503_while_visits_end_and_the_exit_code_is_0() {
    let mut server = server("");
    let (address, api) = (server.address("addr"), server.address("apiAddr"));
    let mut client = client(address, "");
    until(client.address("apiAddr"), "/status", "\"problem\":null");
    let mut visitor = connect(address);
    visitor
        .write_all(b"GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n")
        .expect("sent");
    visitor.read_exact(&mut [0; 15]).expect("an answer");
    server.terminate();
    let answer = until(api, "/health", "HTTP/1.1 503");
    assert!(answer.ends_with("stopping\n"), "{answer}");
    drop(visitor);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn the_status_page_is_public_and_tells_little() {
    let mut server = server(" -statusHostPrefix status");
    let address = server.address("addr");
    let mut client = client(address, " -hostPrefix secret-project -name shop");
    until(client.address("apiAddr"), "/status", "\"problem\":null");
    let deadline = Instant::now() + PATIENCE;
    let page = loop {
        let page = request(address, "GET", "/", "STATUS.example.com");
        if page.contains("<td>shop<td>http<td>up") {
            break page;
        }
        assert!(Instant::now() < deadline, "{page}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("The server works."));
    for hidden in ["secret-project", ">web<", SECRET, "127.0.0.1"] {
        assert!(!page.contains(hidden), "{hidden}: {page}");
    }
    let head = request(address, "HEAD", "/", "status.example.com");
    assert!(
        head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    for (method, path, status) in [("GET", "/metrics", "404"), ("DELETE", "/", "405")] {
        let answer = request(address, method, path, "status.example.com");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
}

#[test]
fn no_client_gets_the_name_of_the_status_page() {
    let mut server = server(" -statusHostPrefix status");
    let address = server.address("addr");
    for claim in [" -hostPrefix status", " -host status.example.com"] {
        let mut client = client(address, claim);
        until(client.address("apiAddr"), "/status", "(statusHostPrefix)");
    }
    let page = request(address, "GET", "/", "status.example.com");
    assert!(page.contains("The server works."), "{page}");
}

#[test]
fn an_api_that_cannot_listen_ends_gt_with_code_1() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let line = format!("server -addr 127.0.0.1:0 -apiAddr {address} -id web -secret {SECRET}");
    let (code, log) = Gt::start(&line).end();
    assert_eq!(code, Some(1), "{log}");
    let expected = format!("the API cannot start: apiAddr: cannot listen on {address}");
    assert!(log.contains(&expected), "{log}");
}

const PATIENCE: Duration = Duration::from_secs(20);
