//! A supervised server and a supervised client with one HTTP and one TCP service, from files that a test writes again.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Output,
    sync::{Arc, Mutex, PoisonError},
};

use e2e::{PortRange, Process, Service, TempDir, process::gt_binary, relay::field, wait};

/// The secret of all users.
pub(crate) const SECRET: &str = "a secret of the process tests";

/// A supervised gt and its file.
pub(crate) struct Gt {
    pub(crate) process: Process,
    pub(crate) file: PathBuf,
}

impl Gt {
    /// Starts `gt -c FILE` with the text as its file.
    pub(crate) fn start(name: &str, text: &str) -> Self {
        Self::start_with(name, text, &gt_binary())
    }

    pub(crate) fn start_with(name: &str, text: &str, binary: &Path) -> Self {
        let dir = TempDir::new();
        let file = dir.file(&format!("{name}.yml"), text);
        let args = ["-c".as_ref(), file.as_os_str()];
        let process = Process::gt_supervised(&format!("gt {name}"), binary, args, dir);
        Self { process, file }
    }

    pub(crate) fn write(&self, text: &str) {
        // As editors do: nobody reads half a file.
        let new = self.file.with_extension("new");
        fs::write(&new, text).expect("written");
        fs::rename(&new, &self.file).expect("renamed");
    }

    /// `gt WORDS -c FILE`.
    pub(crate) fn ask(&self, words: &[&str]) -> Output {
        let mut args: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        args.extend(["-c".as_ref(), self.file.as_os_str()]);
        self.process.ask(&args)
    }

    /// A question that must be answered with success; returns what was said.
    #[track_caller]
    pub(crate) fn done(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}{err}");
        said
    }

    /// A question that must be answered with failure; returns the reason.
    #[track_caller]
    pub(crate) fn refused(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert_eq!(output.status.code(), Some(1), "{words:?} was not refused");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// `gt status --json`.
    #[track_caller]
    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.done(&["status", "--json"])).expect("JSON")
    }

    /// Workers of the first configuration: process, generation, state.
    #[track_caller]
    pub(crate) fn workers(&self) -> Vec<(i64, u64, String)> {
        let status = self.status();
        let workers = status["units"][0]["workers"].as_array().expect("workers");
        workers
            .iter()
            .map(|worker| {
                (
                    worker["pid"].as_i64().expect("a process"),
                    worker["generation"].as_u64().expect("a number"),
                    worker["state"].as_str().expect("a word").to_owned(),
                )
            })
            .collect()
    }

    /// The process and generation of the worker that serves.
    #[track_caller]
    pub(crate) fn serving(&self) -> (i64, u64) {
        wait::until("a worker serves", || {
            let workers = self.workers();
            let mut serving = workers.iter().filter(|(.., state)| state == "serving");
            serving
                .next()
                .map(|(pid, generation, _)| (*pid, *generation))
        })
    }
}

/// Sends a signal to any process.
pub(crate) fn signal(pid: i64, signal: &str) {
    let sent = std::process::Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .status();
    assert!(
        sent.is_ok_and(|status| status.success()),
        "no process {pid}"
    );
}

/// Everything a test needs.
pub(crate) struct Rig {
    pub(crate) server: Gt,
    pub(crate) client: Gt,
    pub(crate) address: SocketAddr,
    pub(crate) ports: PortRange,
    pub(crate) origin: Origin,
    _echo: Service,
    about: About,
}

/// Where everything is.
struct About {
    /// An option of the client.
    trust: &'static str,
    /// The server, as the client is told.
    remote: String,
    port: u16,
    web: SocketAddr,
    echo: SocketAddr,
}

impl About {
    fn client_text(&self, options: &str, services: &str) -> String {
        let Self {
            trust,
            remote,
            port,
            web,
            echo,
        } = self;
        format!(
            "type: client\noptions:\n  id: web\n  secret: \"{SECRET}\"\n  remote: \"{remote}\"\n  reconnectDelay: 200ms\n{trust}\
             {options}services:\n\
             - {{name: web, local: \"http://{web}\", hostPrefix: web}}\n\
             - {{name: echo, local: \"tcp://{echo}\", remoteTCPPort: {port}}}\n{services}"
        )
    }
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self::start_with(&gt_binary())
    }

    pub(crate) fn start_with(binary: &Path) -> Self {
        Self::start_over("tcp", "", binary)
    }

    /// With links of this kind; `options` of the server that it needs. A client of `quic` trusts any certificate.
    pub(crate) fn start_over(scheme: &str, options: &str, binary: &Path) -> Self {
        let ports = PortRange::claim(3);
        let origin = Origin::start();
        let echo = Service::echo();
        let echo_address = echo.address();
        let server = Gt::start_with("server", &server_text(&ports, options, ""), binary);
        let listening = |option: &str| -> SocketAddr {
            let option = format!("option=\"{option}\"");
            let line = server.process.wait_log(&["listening", &option]);
            let address = field(&line, "address").and_then(|address| address.parse().ok());
            address.expect("an address")
        };
        let address = listening("addr");
        let door = match scheme {
            "kcp" => listening("kcpAddr"),
            "quic" => listening("quicAddr"),
            _ => address,
        };
        let trust = match scheme {
            "quic" => "  remoteCertInsecure: true\n",
            _ => "",
        };
        let about = About {
            trust,
            remote: format!("{scheme}://{door}"),
            port: ports.first(),
            web: origin.address(),
            echo: echo_address,
        };
        let client = Gt::start_with("client", &about.client_text("", ""), binary);
        client.process.wait_log_times(&["a service is up"], 2);
        Self {
            server,
            client,
            address,
            ports,
            origin,
            _echo: echo,
            about,
        }
    }

    /// The server's file with more options (YAML of one mapping entry each, two spaces before) and more users.
    pub(crate) fn server_text(&self, options: &str, users: &str) -> String {
        server_text(&self.ports, options, users)
    }

    /// The client's file with more options and more services.
    pub(crate) fn client_text(&self, options: &str, services: &str) -> String {
        self.about.client_text(options, services)
    }

    /// The TCP port of the echo service.
    pub(crate) fn tcp(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.first()))
    }
}

fn server_text(ports: &PortRange, options: &str, users: &str) -> String {
    format!(
        "type: server\noptions:\n  addr: \"127.0.0.1:0\"\n  tcpRange: {}\n  workers: 2\n{options}\
         users:\n  web: {{secret: \"{SECRET}\"}}\n{users}",
        ports.text()
    )
}

/// An HTTP service that answers with what it was asked, and counts what it gets.
pub(crate) struct Origin {
    service: Service,
    posted: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    fn start() -> Self {
        let posted: Arc<Mutex<Vec<String>>> = Arc::default();
        let list = Arc::clone(&posted);
        let service = Service::http(move |exchange| {
            let target = exchange.target.clone();
            if exchange.method == "POST" {
                let body = exchange.content()?;
                let text = String::from_utf8_lossy(&body).into_owned();
                list.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(text);
            }
            exchange.respond(200, target)
        });
        Self { service, posted }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// Bodies of POST requests, in the order in which they came.
    pub(crate) fn posted(&self) -> Vec<String> {
        let posted = self.posted.lock();
        posted.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
