//! The relays under test, all seen the same way: a server process, a client process, and an address per service.
//!
//! A [`Subject`] is a relay with one kind of link; [`start`] gives it services in front of origins and waits until a visitor
//! gets through. How each one is configured is in its own file; all run with logging down to errors, and none is tuned beyond
//! what its documentation gives as default, except where a file says so.

pub mod frp;
pub mod gt;
pub mod rathole;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::lab::{Lab, Program};
use crate::procstat::{self, Usage};
use crate::tools::Tools;

/// A relay with a kind of link or of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// gt, TCP service, over a link of some kind.
    Gt(gt::Link),
    /// gt, HTTP service (the visitor is routed by its Host header), TCP link.
    GtHttp,
    /// rathole over TCP.
    RatholeTcp,
    /// rathole over TLS.
    RatholeTls,
    /// frp, TCP proxy, plain TCP transport with its multiplexer.
    FrpTcp,
    /// As above over TLS, which is frp's default.
    FrpTls,
    /// frp, HTTP proxy, plain TCP transport with its multiplexer.
    FrpHttp,
}

/// What a relay is to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Addresses of the services, each made reachable.
    pub origins: &'a [SocketAddr],
    /// Links of the client; `None` is the relay's default. Those that know no such number ignore it.
    pub links: Option<u32>,
    /// Core to pin both processes to.
    pub core: Option<usize>,
}

/// A relay that is up.
pub struct Running {
    /// The server process.
    pub server: Program,
    /// The client process.
    pub client: Program,
    /// Where visitors knock, one address per service of the plan.
    pub doors: Vec<SocketAddr>,
    /// Host that visitors name.
    pub host: &'static str,
}

/// What both processes used: a snapshot, children included.
pub struct Cost {
    server: Vec<(u32, Usage)>,
    client: Vec<(u32, Usage)>,
}

/// The host visitors name: the prefix is gt's id.
pub const HOST: &str = "id1.example.com";

impl Subject {
    /// All subjects, in the order of a round.
    pub const ALL: [Self; 10] = [
        Self::Gt(gt::Link::Tcp),
        Self::RatholeTcp,
        Self::FrpTcp,
        Self::Gt(gt::Link::Tls),
        Self::RatholeTls,
        Self::FrpTls,
        Self::GtHttp,
        Self::FrpHttp,
        Self::Gt(gt::Link::Ws),
        Self::Gt(gt::Link::Quic),
    ];

    /// Those of a relay bench when none are named.
    pub fn usual() -> Vec<Self> {
        Self::ALL
            .into_iter()
            .filter(|subject| !matches!(subject, Self::Gt(gt::Link::Ws)))
            .collect()
    }

    /// The name used on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gt(gt::Link::Tcp) => "gt-tcp",
            Self::Gt(gt::Link::Tls) => "gt-tls",
            Self::Gt(gt::Link::Ws) => "gt-ws",
            Self::Gt(gt::Link::Quic) => "gt-quic",
            Self::GtHttp => "gt-http",
            Self::RatholeTcp => "rathole-tcp",
            Self::RatholeTls => "rathole-tls",
            Self::FrpTcp => "frp-tcp",
            Self::FrpTls => "frp-tls",
            Self::FrpHttp => "frp-http",
        }
    }

    /// Whether visitors are routed by their Host header rather than by port.
    pub fn is_http(self) -> bool {
        matches!(self, Self::GtHttp | Self::FrpHttp)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|subject| subject.name() == name)
            .ok_or_else(|| format!("no such relay; there are {}", names()))
    }
}

/// Starts both processes of a relay.
///
/// # Errors
/// When a program is missing ([`crate::tools::Missing`]) or does not start. That visitors get through is for the caller to
/// see, who knows what the origin answers.
pub fn start(subject: Subject, plan: &Plan<'_>, lab: &Lab, tools: &Tools) -> Result<Running> {
    match subject {
        Subject::Gt(link) => gt::start(link, false, plan, lab, tools),
        Subject::GtHttp => gt::start(gt::Link::Tcp, true, plan, lab, tools),
        Subject::RatholeTcp => rathole::start(false, plan, lab, tools),
        Subject::RatholeTls => rathole::start(true, plan, lab, tools),
        Subject::FrpTcp => frp::start(
            frp::Kind {
                tls: false,
                http: false,
            },
            plan,
            lab,
            tools,
        ),
        Subject::FrpTls => frp::start(
            frp::Kind {
                tls: true,
                http: false,
            },
            plan,
            lab,
            tools,
        ),
        Subject::FrpHttp => frp::start(
            frp::Kind {
                tls: false,
                http: true,
            },
            plan,
            lab,
            tools,
        ),
    }
}

impl Running {
    /// A snapshot of what both processes have used.
    ///
    /// # Errors
    /// When one of them has died.
    pub fn cost(&self) -> Result<Cost> {
        let of = |program: &Program| -> Result<Vec<(u32, Usage)>> {
            procstat::family(program.pid())
                .into_iter()
                .map(|pid| Ok((pid, Usage::of(pid)?)))
                .collect()
        };
        Ok(Cost {
            server: of(&self.server).context("server")?,
            client: of(&self.client).context("client")?,
        })
    }

    /// Resident bytes of server and client, children included.
    ///
    /// # Errors
    /// When one of them has died.
    pub fn resident(&self) -> Result<(u64, u64)> {
        let of = |program: &Program| {
            procstat::family(program.pid())
                .into_iter()
                .map(procstat::resident)
                .sum::<Result<u64>>()
        };
        Ok((
            of(&self.server).context("server")?,
            of(&self.client).context("client")?,
        ))
    }

    /// The ends of both logs.
    pub fn logs(&self) -> String {
        format!(
            "server: {}\nclient: {}",
            self.server.log_tail(),
            self.client.log_tail()
        )
    }
}

impl Cost {
    /// Processor time of the server and of the client since an earlier snapshot.
    pub fn since(&self, earlier: &Self) -> (Duration, Duration) {
        let used = |now: &[(u32, Usage)], before: &[(u32, Usage)]| {
            let pairs = now.iter().filter_map(|(pid, usage)| {
                Some((usage, before.iter().find(|(old, _)| old == pid)?))
            });
            pairs.map(|(usage, (_, old))| usage.since(old)).sum()
        };
        (
            used(&self.server, &earlier.server),
            used(&self.client, &earlier.client),
        )
    }
}

/// A self-signed certificate for `localhost` with its key, in PEM and as a PKCS #12 file, made once per lab.
pub struct Certificate {
    /// Certificate, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Both, PKCS #12 with the password [`Certificate::PASSWORD`].
    pub pkcs12: PathBuf,
}

impl Certificate {
    /// Password of the PKCS #12 file: rathole wants one.
    pub const PASSWORD: &str = "bench";

    /// Makes the files with openssl, or gives those made before.
    ///
    /// # Errors
    /// When openssl is missing or refuses.
    pub fn in_lab(lab: &Lab) -> Result<Self> {
        let file = |name: &str| lab.dir().join(name);
        let made = Self {
            cert: file("cert.pem"),
            key: file("key.pem"),
            pkcs12: file("identity.pfx"),
        };
        if made.pkcs12.exists() {
            return Ok(made);
        }
        let mut request = Command::new("openssl");
        request.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "30",
        ]);
        request.args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        ]);
        request
            .arg("-keyout")
            .arg(&made.key)
            .arg("-out")
            .arg(&made.cert);
        openssl(request)?;
        let mut export = Command::new("openssl");
        export.args([
            "pkcs12",
            "-export",
            "-passout",
            &format!("pass:{}", Self::PASSWORD),
        ]);
        export
            .arg("-inkey")
            .arg(&made.key)
            .arg("-in")
            .arg(&made.cert)
            .arg("-out")
            .arg(&made.pkcs12);
        openssl(export)?;
        Ok(made)
    }
}

fn openssl(mut command: Command) -> Result<()> {
    let output = command.output().context("run openssl")?;
    ensure!(
        output.status.success(),
        "openssl: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_is_found_by_its_name() {
        for subject in Subject::ALL {
            assert_eq!(subject.name().parse(), Ok(subject));
        }
        assert!(
            "gt-telegraph"
                .parse::<Subject>()
                .unwrap_err()
                .contains("gt-tcp")
        );
    }
}
