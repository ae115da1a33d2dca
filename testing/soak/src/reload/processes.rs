//! The processes of the reload soak, all supervised and each from a file of its own: a server, a client for each kind of link, a reverse proxy.
//!
//! ```text
//!  visitor ─► gt server ◄═ tcp, tls, ws, kcp, quic ═ gt client ─► service
//!  visitor ─► gt proxy ────────────────────────────────────► service
//! ```

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::lab::{Lab, Line, Program};
use bench::peers::Certificate;
use bench::procstat;

use super::load::Way;
use super::origin::Origin;
use crate::acceptor::Acceptor;
use crate::service;
use crate::visitor::Route;

/// Links of the clients.
pub const LINKS: [&str; 5] = ["tcp", "tls", "ws", "kcp", "quic"];

/// A supervised gt and its file.
pub struct Supervised {
    /// For messages.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    gt: PathBuf,
    program: Program,
    /// The file's text before what changes, and behind it.
    text: (String, String),
}

impl Supervised {
    fn start(lab: &Lab, gt: &Path, name: &str, before: String, behind: String) -> Result<Self> {
        let file = lab.write(&format!("{name}.yml"), "")?;
        let text = (before, behind);
        std::fs::write(&file, format!("{}{}", text.0, text.1))?;
        let line = Line::new(gt).arg("-c").arg(&file);
        let program = lab.start(name, &line, None)?;
        Ok(Self {
            name: name.to_owned(),
            file,
            gt: gt.to_owned(),
            program,
            text,
        })
    }

    /// Writes the file again with more options (behind the others, two spaces before each) and more of what ends the file.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, options: &str, end: &str) -> Result<()> {
        // Two reloads may write at one time.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let new = self.file.with_extension(format!("new{number}"));
        let text = format!("{}{options}{}{end}", self.text.0, self.text.1);
        std::fs::write(&new, text).context("write a file")?;
        std::fs::rename(&new, &self.file).context("put a file in its place")
    }

    /// `gt WORDS -c FILE`; what it said.
    ///
    /// # Errors
    /// What it said when it failed.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let output = Command::new(&self.gt)
            .args(words)
            .arg("-c")
            .arg(&self.file)
            .output()
            .context("run gt")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{} {words:?}: {said}{error}",
            self.name
        );
        Ok(said)
    }

    /// Workers, those that let their work end too.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn workers(&self) -> Result<usize> {
        Ok(self
            .ask(&["status", "--json"])?
            .matches("\"generation\"")
            .count())
    }

    /// Resident bytes of supervisor and workers.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let family = procstat::family(self.program.pid());
        family
            .iter()
            .filter_map(|&pid| procstat::resident(pid).ok())
            .sum()
    }

    /// Whether the supervisor lives.
    pub fn is_running(&mut self) -> bool {
        self.program.is_running()
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.program.log_tail()
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self) -> Result<()> {
        self.ask(&["-s", "stop"])?;
        let until = Instant::now() + STOP;
        while self.program.is_running() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        ensure!(!self.program.is_running(), "{} does not stop", self.name);
        Ok(())
    }
}

impl Drop for Supervised {
    /// Workers outlive a supervisor that is killed.
    fn drop(&mut self) {
        let family = procstat::family(self.program.pid());
        self.program.kill();
        for pid in family {
            let _ = Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .output();
        }
    }
}

/// Everything that runs.
pub struct Field {
    /// The server.
    pub server: Supervised,
    /// The clients, as [`LINKS`].
    pub clients: Vec<Supervised>,
    /// The reverse proxy.
    pub proxy: Supervised,
    /// Ways to HTTP services: one through each client, then the proxy's.
    pub ways: Vec<Way>,
    /// The service of each way.
    pub origins: Vec<Origin>,
    /// Ways to the transfers of the long soak, through the clients.
    pub routes: Vec<Route>,
    _services: Vec<Acceptor>,
    /// Removed last. Not used from several threads, but seen by them.
    _lab: Option<Mutex<Lab>>,
}

impl Field {
    /// Starts all of it; [`ways`](Self::ways) may need a moment until they are open.
    ///
    /// # Errors
    /// When something does not start.
    pub fn start(gt: &Path) -> Result<Self> {
        let lab = Lab::new("soak-reload")?;
        let certificate = Certificate::in_lab(&lab)?;
        let (plain, secure) = (lab.address()?, lab.address()?);
        let (udp, quic) = (lab.address()?, lab.address()?);
        let text = format!(
            "type: server\noptions:\n  addr: \"{plain}\"\n  tlsAddr: \"{secure}\"\n  kcpAddr: \"{udp}\"\n  quicAddr: \"{quic}\"\n  certFile: {}\n  keyFile: {}\n  \
             logLevel: info\n  tcpNumber: 0\n  tcpRange: 1024-65535\n",
            certificate.cert.display(),
            certificate.key.display()
        );
        let users: String = (LINKS.iter())
            .map(|link| format!("  {link}: {{secret: secret-of-{link}}}\n"))
            .collect();
        let server = Supervised::start(&lab, gt, "server", text, format!("users:\n{users}"))?;
        let (proxy, proxied, behind) = start_proxy(&lab, gt)?;
        let mut field = Self {
            server,
            clients: Vec::new(),
            proxy,
            ways: Vec::new(),
            origins: Vec::new(),
            routes: Vec::new(),
            _services: Vec::new(),
            _lab: None,
        };
        for link in LINKS {
            let at = match link {
                "tls" => secure,
                "kcp" => udp,
                "quic" => quic,
                _ => plain,
            };
            field.add_client(&lab, gt, link, at, plain, &certificate)?;
        }
        field.ways.push(proxied);
        field.origins.push(behind);
        field._lab = Some(Mutex::new(lab));
        Ok(field)
    }

    fn add_client(
        &mut self,
        lab: &Lab,
        gt: &Path,
        link: &str,
        at: SocketAddr,
        http: SocketAddr,
        certificate: &Certificate,
    ) -> Result<()> {
        let origin = Origin::open(lab.address()?)?;
        let data = service::data(lab.address()?)?;
        let door = lab.address()?;
        let trust = match link {
            "tls" | "quic" => format!("  remoteCert: {}\n", certificate.cert.display()),
            _ => String::new(),
        };
        let text = format!(
            "type: client\noptions:\n  id: {link}\n  secret: secret-of-{link}\n  remote: \"{link}://{at}\"\n  reconnectDelay: 1s\n  logLevel: info\n{trust}"
        );
        let services = format!(
            "services:\n- {{name: web, local: \"http://{}\", hostPrefix: {link}}}\n- {{name: data, local: \"tcp://{}\", remoteTCPPort: {}}}\n",
            origin.at(),
            data.at(),
            door.port()
        );
        let client = Supervised::start(lab, gt, &format!("client-{link}"), text, services)?;
        let host = format!("{link}.example.com");
        self.ways.push(Way {
            name: format!("relay, {link} link"),
            at: http,
            host: host.clone(),
        });
        self.routes.push(Route {
            data: door,
            http,
            host,
        });
        self.clients.push(client);
        self.origins.push(origin);
        self._services.push(data);
        Ok(())
    }

    /// Copies the logs of all processes into a folder.
    ///
    /// # Errors
    /// The system's.
    pub fn keep_logs(&self, into: &Path) -> Result<()> {
        std::fs::create_dir_all(into)?;
        for name in ["server", "proxy"]
            .into_iter()
            .map(str::to_owned)
            .chain(LINKS.map(|link| format!("client-{link}")))
        {
            let log = self.server.file.with_file_name(format!("{name}.log"));
            std::fs::copy(&log, into.join(format!("{name}.log")))
                .with_context(|| format!("copy {}", log.display()))?;
        }
        Ok(())
    }

    /// What the processes of the relay and of the proxy have logged last.
    #[must_use]
    pub fn last_words(&self) -> String {
        let mut text = String::new();
        for process in [&self.server, &self.proxy].into_iter().chain(&self.clients) {
            let log = process.program.log();
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(LAST_WORDS)..] {
                let _ = writeln!(text, "{}: {line}", process.name);
            }
        }
        text
    }

    /// All supervised processes.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Supervised> {
        [&mut self.server, &mut self.proxy]
            .into_iter()
            .chain(&mut self.clients)
    }
}

fn start_proxy(lab: &Lab, gt: &Path) -> Result<(Supervised, Way, Origin)> {
    let (at, origin) = (lab.address()?, Origin::open(lab.address()?)?);
    let text = "type: proxy\noptions:\n  logLevel: info\n".to_owned();
    let behind = format!(
        "proxy:\n  listeners: [{{addr: \"{at}\"}}]\n  upstreams: {{app: {{servers: \"{}\"}}}}\n  routes:\n  - {{to: app}}\n",
        origin.at()
    );
    let proxy = Supervised::start(lab, gt, "proxy", text, behind)?;
    let way = Way {
        name: "reverse proxy".into(),
        at,
        host: "app.example.com".into(),
    };
    Ok((proxy, way, origin))
}

/// Lines of each process that say what it was doing.
const LAST_WORDS: usize = 40;
const STOP: Duration = Duration::from_secs(15);
