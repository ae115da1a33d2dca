//! The proxies and how each is set up: the same listeners, the same header fields, no log, one worker.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::Case;
use crate::lab::{Lab, Line};
use crate::peers::Certificate;
use crate::tools::Tools;

/// A proxy under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// This one.
    Gt,
    /// This one, with `multiplex: true`.
    GtMultiplex,
    /// Another build of gt, named with `--before`.
    GtBefore,
    /// The same with `multiplex: true`.
    GtBeforeMultiplex,
    /// With connections to the origin kept.
    Nginx,
    /// With a connection to the origin for each request.
    NginxClosing,
    /// With connections to the origin kept.
    Haproxy,
    /// What the kernel allows.
    Floor,
    /// What it allows by io_uring.
    FloorUring,
}

/// Where a proxy listens.
#[derive(Clone, Copy, Debug)]
pub(in crate::run) struct Doors {
    pub(in crate::run) plain: SocketAddr,
    /// TLS, with HTTP/2 by ALPN.
    pub(in crate::run) tls: SocketAddr,
}

impl Subject {
    /// Whether it takes part in a table.
    pub(super) fn can(self, case: Case) -> bool {
        let floor = matches!(self, Self::Floor | Self::FloorUring);
        !floor || !matches!(case, Case::Tls | Case::H2 | Case::Idle)
    }

    pub(super) const ALL: [Self; 9] = [
        Self::Gt,
        Self::GtMultiplex,
        Self::GtBefore,
        Self::GtBeforeMultiplex,
        Self::Nginx,
        Self::Haproxy,
        Self::NginxClosing,
        Self::Floor,
        Self::FloorUring,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gt => "gt",
            Self::GtMultiplex => "gt, multiplex",
            Self::GtBefore => "gt before",
            Self::GtBeforeMultiplex => "gt before, multiplex",
            Self::Nginx => "nginx, keepalive 1024",
            Self::NginxClosing => "nginx, no keepalive upstream",
            Self::Haproxy => "haproxy, http-reuse always",
            Self::Floor => "floor: bytes relayed by epoll",
            Self::FloorUring => "floor: bytes relayed by io_uring",
        }
    }

    /// Its command line, with its configuration written.
    pub(super) fn line(
        self,
        doors: Doors,
        origin: SocketAddr,
        lab: &Lab,
        tools: &Tools,
        before_program: Option<&Path>,
    ) -> Result<Line> {
        let certificate = Certificate::in_lab(lab)?;
        let name = format!("{self:?}");
        Ok(match self {
            Self::Gt | Self::GtMultiplex | Self::GtBefore | Self::GtBeforeMultiplex => {
                let multiplex = matches!(self, Self::GtMultiplex | Self::GtBeforeMultiplex);
                let text = gt(doors, origin, &certificate, multiplex);
                let config = lab.write(&format!("{name}.yml"), &text)?;
                let before = matches!(self, Self::GtBefore | Self::GtBeforeMultiplex);
                let program = match before {
                    true => before_program
                        .context("--before names no program")?
                        .to_owned(),
                    false => tools.gt()?,
                };
                Line::new(program)
                    .args(["proxy", "--no-supervisor", "-c"])
                    .arg(config)
            }
            Self::Floor | Self::FloorUring => Line::new(std::env::current_exe()?)
                .arg("floor")
                .arg(match self {
                    Self::FloorUring => "--driver=io-uring",
                    _ => "--driver=epoll",
                })
                .arg(doors.plain.to_string())
                .arg(origin.to_string()),
            Self::Haproxy => {
                // It wants both in one file.
                let both = [&certificate.cert, &certificate.key].map(std::fs::read_to_string);
                let [cert, key] = both;
                let pem = lab.write("haproxy.pem", &format!("{}{}", cert?, key?))?;
                let text = haproxy(doors, origin, &pem.to_string_lossy());
                let config = lab.write("haproxy.cfg", &text)?;
                Line::new("haproxy").arg("-db").arg("-f").arg(config)
            }
            Self::Nginx | Self::NginxClosing => {
                let dir = lab.dir().join(&name);
                std::fs::create_dir_all(&dir)?;
                let kept = self == Self::Nginx;
                let text = nginx(doors, origin, &certificate, kept, &dir.to_string_lossy());
                let config = lab.write(&format!("{name}.conf"), &text)?;
                Line::new("nginx")
                    .arg("-e")
                    .arg(dir.join("error.log"))
                    .arg("-p")
                    .arg(&dir)
                    .arg("-c")
                    .arg(config)
            }
        })
    }
}

fn gt(doors: Doors, origin: SocketAddr, certificate: &Certificate, multiplex: bool) -> String {
    let Doors { plain, tls } = doors;
    let (cert, key) = (certificate.cert.display(), certificate.key.display());
    format!(
        "version: 1.0\ntype: proxy\noptions:\n  workers: 1\n  logLevel: error\nproxy:\n  listeners:\n    - addr: {plain}\n    - addr: {tls}\n      \
         protocol: https\n      certFile: {cert}\n      keyFile: {key}\n  xForwardedProto: false\n  xForwardedHost: false\n  \
         upstreams:\n    app:\n      servers:\n        - addr: {origin}\n      keepAlive:\n        connections: 1024\n  \
         routes:\n    - to: app\n      multiplex: {multiplex}\n"
    )
}

/// Without a master, whose worker would outlive it when it is killed.
fn nginx(
    doors: Doors,
    origin: SocketAddr,
    certificate: &Certificate,
    kept: bool,
    dir: &str,
) -> String {
    let Doors { plain, tls } = doors;
    let (cert, key) = (certificate.cert.display(), certificate.key.display());
    let (keep, version) = if kept {
        (
            "keepalive 1024; keepalive_requests 100000000;",
            "proxy_http_version 1.1; proxy_set_header Connection \"\";",
        )
    } else {
        ("", "")
    };
    format!(
        "worker_processes 1; master_process off; daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log;\nevents {{ worker_connections 20000; }}\nhttp {{ access_log off; \
         keepalive_requests 100000000; keepalive_timeout 1h; client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};\n\
         upstream app {{ server {origin}; {keep} }}\nserver {{ listen {plain} backlog=4096; listen {tls} ssl http2 backlog=4096; ssl_certificate {cert}; ssl_certificate_key {key}; \
         location / {{ proxy_pass http://app; {version} proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; \
         proxy_set_header X-Real-IP $remote_addr; }} }} }}\n"
    )
}

fn haproxy(doors: Doors, origin: SocketAddr, pem: &str) -> String {
    let Doors { plain, tls } = doors;
    format!(
        "global\n  maxconn 9900\n  nbthread 1\ndefaults\n  mode http\n  timeout client 1h\n  timeout server 60s\n  timeout connect 5s\n  option forwardfor\n  http-reuse always\n\
         frontend in\n  bind {plain}\n  bind {tls} ssl crt {pem} alpn h2,http/1.1\n  http-request set-header X-Real-IP %[src]\n  default_backend app\n\
         backend app\n  server a {origin} pool-max-conn 1024\n"
    )
}
