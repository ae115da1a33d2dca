//! A gt server and gt clients from configuration files, as users write them.

use std::{
    fmt::Write,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::ExitStatus,
    time::Duration,
};

use crate::{
    Cert, PortRange, Process, TempDir,
    lossy::{LossyPath, Path},
};

/// What links go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `tcp://`
    Tcp,
    /// `tls://`, the server's certificate known to the client
    Tls,
    /// `ws://`
    Ws,
    /// `kcp://`
    Kcp,
    /// `quic://`, the server's certificate known to the client
    Quic,
}

/// A server to be started. It listens on `addr`, `tlsAddr`, `sniAddr`, `kcpAddr` and `quicAddr`, each on a free port.
#[derive(Debug)]
pub struct ServerSpec {
    options: Vec<(String, String)>,
    users: Vec<(String, String)>,
    cert: Option<Cert>,
    proxy: String,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// Its process.
    pub process: Process,
    cert: Cert,
    plain: SocketAddr,
    tls: SocketAddr,
    sni: SocketAddr,
    kcp: SocketAddr,
    quic: SocketAddr,
    /// Before both, where the environment asks for it.
    paths: Option<(LossyPath, LossyPath)>,
}

/// A client to be started.
#[derive(Debug)]
pub struct ClientSpec {
    id: String,
    options: Vec<(String, String)>,
    services: Vec<String>,
    dir: TempDir,
}

/// A running client.
#[derive(Debug)]
pub struct Client {
    /// Its process.
    pub process: Process,
    services: usize,
}

/// The secret of a user that [`ServerSpec::user`] does not give another one.
pub const SECRET: &str = "a secret of the end-to-end tests";

impl ServerSpec {
    /// A server without users.
    #[must_use]
    pub fn new() -> Self {
        Self {
            options: Vec::new(),
            users: Vec::new(),
            cert: None,
            proxy: String::new(),
        }
    }

    /// Sets an option; `value` is YAML. An option that is set again is replaced.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl ToString) -> Self {
        self.options.retain(|(other, _)| other != name);
        self.options.push((name.to_owned(), value.to_string()));
        self
    }

    /// Lets a user come with [`SECRET`].
    #[must_use]
    pub fn user(self, id: &str) -> Self {
        self.user_with(id, "")
    }

    /// Lets a user come with [`SECRET`] and more of its keys: `speed: 1024, connections: 3`.
    #[must_use]
    pub fn user_with(mut self, id: &str, more: &str) -> Self {
        let comma = if more.is_empty() { "" } else { ", " };
        self.users.push((
            id.to_owned(),
            format!("{{secret: \"{SECRET}\"{comma}{more}}}"),
        ));
        self
    }

    /// The ports that clients may use.
    #[must_use]
    pub fn ports(self, ports: &PortRange) -> Self {
        self.option("tcpRange", ports.text())
    }

    /// A `proxy` section: what stands below it, in flow style.
    #[must_use]
    pub fn proxy(mut self, section: &str) -> Self {
        self.proxy = format!("proxy: {section}\n");
        self
    }

    /// The certificate for `tlsAddr`, instead of one for `localhost` and 127.0.0.1.
    #[must_use]
    pub fn cert(mut self, cert: Cert) -> Self {
        self.cert = Some(cert);
        self
    }

    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn start(self) -> Server {
        let cert = self
            .cert
            .unwrap_or_else(|| Cert::self_signed(&["localhost", "127.0.0.1"]));
        let mut text = String::from("type: server\noptions:\n");
        let defaults = [
            ("addr", "\"127.0.0.1:0\"".to_owned()),
            ("tlsAddr", "\"127.0.0.1:0\"".to_owned()),
            ("sniAddr", "\"127.0.0.1:0\"".to_owned()),
            ("kcpAddr", "\"127.0.0.1:0\"".to_owned()),
            ("quicAddr", "\"127.0.0.1:0\"".to_owned()),
            ("certFile", cert.cert_file().display().to_string()),
            ("keyFile", cert.key_file().display().to_string()),
        ];
        let given = |name: &str| self.options.iter().any(|(other, _)| other == name);
        let defaults = defaults.iter().filter(|(name, _)| !given(name));
        let defaults = defaults.map(|(name, value)| ((*name).to_owned(), value.clone()));
        mapping(
            &mut text,
            &defaults
                .chain(self.options.iter().cloned())
                .collect::<Vec<_>>(),
        );
        if !self.users.is_empty() {
            text.push_str("users:\n");
            mapping(&mut text, &self.users);
        }
        text.push_str(&self.proxy);
        let dir = TempDir::new();
        let file = dir.file("server.yml", text);
        let process = Process::gt(
            "gt server",
            [file_arg("server"), "-c".into(), file.into_os_string()],
            dir,
        );
        let address = |option: &str| {
            let line = process.wait_log(&["listening", &format!("option=\"{option}\"")]);
            field(&line, "address")
                .and_then(|address| address.parse().ok())
                .unwrap_or_else(|| panic!("no address in {line:?}"))
        };
        let (plain, tls, sni) = (address("addr"), address("tlsAddr"), address("sniAddr"));
        let (kcp, quic) = (address("kcpAddr"), address("quicAddr"));
        Server {
            process,
            cert,
            plain,
            tls,
            sni,
            kcp,
            quic,
            paths: bad_path().map(|path| (LossyPath::to(kcp, path), LossyPath::to(quic, path))),
        }
    }
}

/// `GT_E2E_PATH=LOSS,DELAY[,SEED]`: links over UDP lose so many of a thousand datagrams and take so many milliseconds each way. For trying the whole
/// suite on a bad path, as `GT_E2E_PATH=100,50 cargo test -p gt --test relay kcp`; bounds on time may then be too narrow.
pub(crate) fn bad_path() -> Option<Path> {
    let text = std::env::var("GT_E2E_PATH").ok()?;
    let mut numbers = text.split(',').map(|number| {
        number
            .trim()
            .parse::<u64>()
            .expect("GT_E2E_PATH has numbers")
    });
    let loss_per_mille = numbers.next().expect("GT_E2E_PATH begins with the loss");
    let delay = Duration::from_millis(numbers.next().expect("GT_E2E_PATH has a delay"));
    let seed = numbers.next().unwrap_or(1);
    eprintln!("links over UDP: {loss_per_mille} of 1000 lost, {delay:?} each way, seed {seed}");
    Some(Path {
        delay,
        loss_per_mille,
        seed,
    })
}

impl Default for ServerSpec {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// `addr`: plain HTTP visitors.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.plain
    }

    /// `tlsAddr`: HTTPS visitors.
    #[must_use]
    pub fn https(&self) -> SocketAddr {
        self.tls
    }

    /// `sniAddr`: TLS visitors that are passed through.
    #[must_use]
    pub fn sni(&self) -> SocketAddr {
        self.sni
    }

    /// `kcpAddr`: KCP links, on UDP.
    #[must_use]
    pub fn kcp(&self) -> SocketAddr {
        self.kcp
    }

    /// `quicAddr`: QUIC links, on UDP.
    #[must_use]
    pub fn quic(&self) -> SocketAddr {
        self.quic
    }

    /// A TCP or UDP port of a service on this server.
    #[must_use]
    pub fn port(&self, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
    }

    /// The certificate of `tlsAddr`.
    #[must_use]
    pub fn cert(&self) -> &Cert {
        &self.cert
    }

    /// As `remote` of a client.
    #[must_use]
    pub fn remote(&self, transport: Transport) -> String {
        match transport {
            Transport::Tcp => format!("tcp://{}", self.plain),
            Transport::Tls => format!("tls://{}", self.tls),
            Transport::Ws => format!("ws://{}", self.plain),
            Transport::Kcp => {
                let path = self.paths.as_ref().map(|(path, _)| path.address());
                format!("kcp://{}", path.unwrap_or(self.kcp))
            }
            Transport::Quic => {
                let path = self.paths.as_ref().map(|(_, path)| path.address());
                format!("quic://{}", path.unwrap_or(self.quic))
            }
        }
    }

    /// A client of this server with [`SECRET`]. It reconnects soon.
    #[must_use]
    pub fn client(&self, transport: Transport, id: &str) -> ClientSpec {
        let client = ClientSpec::new(id).option("remote", self.remote(transport));
        client.option("remoteCert", self.cert.cert_file().display())
    }
}

impl ClientSpec {
    /// A client with [`SECRET`] and no server.
    #[must_use]
    pub fn new(id: &str) -> Self {
        let client = Self {
            id: id.to_owned(),
            options: Vec::new(),
            services: Vec::new(),
            dir: TempDir::new(),
        };
        client
            .option("id", id)
            .option("secret", format!("\"{SECRET}\""))
            .option("reconnectDelay", "200ms")
    }

    /// Sets an option; `value` is YAML. An option that is set again is replaced.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl ToString) -> Self {
        self.options.retain(|(other, _)| other != name);
        self.options.push((name.to_owned(), value.to_string()));
        self
    }

    /// Leaves an option out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.options.retain(|(other, _)| other != name);
        self
    }

    /// Adds a service, in the mode that the environment's `GT_E2E_MODE` names if `more` names none; `more` is the rest of its keys: `hostPrefix: web, allow: 127.0.0.0/8`.
    #[must_use]
    pub fn service(mut self, local: impl ToString, more: &str) -> Self {
        let local = local.to_string();
        let mode = std::env::var("GT_E2E_MODE").unwrap_or_default();
        let by_host = !local.starts_with("tcp:") && !local.starts_with("udp:");
        let mut more = more.to_owned();
        if by_host && !mode.is_empty() && !more.contains("mode:") {
            let comma = if more.is_empty() { "" } else { ", " };
            more = format!("{more}{comma}mode: {mode}");
        }
        let comma = if more.is_empty() { "" } else { ", " };
        self.services
            .push(format!("{{local: \"{local}\"{comma}{more}}}"));
        self
    }

    /// Starts it; whether it connects is for the caller to see.
    #[must_use]
    pub fn start(self) -> Client {
        let mut text = String::from("type: client\noptions:\n");
        mapping(&mut text, &self.options);
        text.push_str("services:\n");
        for service in &self.services {
            // Writing to a String does not fail.
            let _ = writeln!(text, "  - {service}");
        }
        let file = self.dir.file("client.yml", text);
        let args = [file_arg("client"), "-c".into(), file.into_os_string()];
        let process = Process::gt(&format!("gt client {}", self.id), args, self.dir);
        Client {
            process,
            services: self.services.len(),
        }
    }

    /// Starts it and waits until the server has granted every service.
    ///
    /// # Panics
    /// When it has not within [`crate::PATIENCE`].
    #[must_use]
    #[track_caller]
    pub fn start_up(self) -> Client {
        let client = self.start();
        client.wait_up();
        client
    }
}

impl Client {
    /// Waits until the server has granted every service.
    ///
    /// # Panics
    /// When it has not within [`crate::PATIENCE`].
    #[track_caller]
    pub fn wait_up(&self) {
        self.process
            .wait_log_times(&["a service is up"], self.services);
    }

    /// The public TCP or UDP port of the service with that name, once it is granted.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    #[track_caller]
    pub fn port_of(&self, service: &str) -> u16 {
        let line = self
            .process
            .wait_log(&["a service is up", &format!("service=\"{service}\"")]);
        // `local` comes before it and may be an address of the same kind.
        let public = line.split("reachable_at=").nth(1).unwrap_or_default();
        let rest = public
            .split("tcp://")
            .nth(1)
            .or_else(|| public.split("udp://").nth(1));
        let port = rest.and_then(|rest| rest.split(':').nth(1));
        let digits = port.map(|port| {
            port.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        });
        digits
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_else(|| panic!("no port in {line:?}"))
    }

    /// Waits for the reason for which the server refused the service with that name.
    ///
    /// # Panics
    /// When it is not refused.
    #[track_caller]
    pub fn wait_refused(&self, service: &str) -> String {
        self.process.wait_log(&[
            "the server refuses a service",
            &format!("service=\"{service}\""),
        ])
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it goes on.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        self.process.wait_exit()
    }
}

/// The value of `name=value` in a log line.
#[must_use]
pub fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.split(&format!("{name}=")).nth(1)?;
    rest.split(' ').next().map(|value| value.trim_matches('"'))
}

fn mapping(text: &mut String, entries: &[(String, String)]) {
    for (name, value) in entries {
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {name}: {value}");
    }
}

fn file_arg(role: &str) -> std::ffi::OsString {
    role.into()
}
