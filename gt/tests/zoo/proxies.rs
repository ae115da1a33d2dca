//! The proxies that cases go through, each with one port per origin.

use std::{fmt::Write, net::SocketAddr, process::Command};

use e2e::{PortRange, Process, TempDir, wait};

use crate::tools::program;

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    _process: Process,
    ports: PortRange,
    /// Ports for HTTP/2 follow those for HTTP/1.
    apart: u16,
}

impl Proxy {
    /// Where the origin at `index` is reached.
    pub(crate) fn address(&self, index: usize) -> SocketAddr {
        let index = u16::try_from(index).expect("a few origins");
        SocketAddr::from(([127, 0, 0, 1], self.ports.first() + index))
    }

    /// The same for HTTP/2.
    pub(crate) fn address_h2(&self, index: usize) -> SocketAddr {
        let mut address = self.address(index);
        address.set_port(address.port() + self.apart);
        address
    }

    fn start(
        name: &'static str,
        command: Command,
        dir: TempDir,
        ports: PortRange,
        apart: u16,
    ) -> Self {
        let proxy = Self {
            name,
            _process: Process::start(name, command, dir),
            ports,
            apart,
        };
        wait::until_accepting(proxy.address(0));
        proxy
    }

    /// gt with one worker: its kept connections meet all cases.
    pub(crate) fn gt(to: &[SocketAddr]) -> Self {
        let (ports, dir) = (claim(to.len()), TempDir::new());
        let mut text = String::from("type: proxy\noptions: {workers: 1}\nproxy:\n  listeners:\n");
        for (n, port) in (0..to.len()).zip(ports.first()..) {
            let _ = writeln!(text, "    - {{name: o{n}, addr: \"127.0.0.1:{port}\"}}");
        }
        text.push_str("  routes:\n");
        for (n, to) in to.iter().enumerate() {
            let _ = writeln!(text, "    - {{listener: o{n}, to: \"{to}\"}}");
        }
        let file = dir.file("proxy.yml", text);
        let mut command = Command::new(e2e::process::gt_binary());
        command
            .args(["proxy", "--no-supervisor", "-c"])
            .arg(file)
            .env_remove("GT_LOG")
            .env("HOME", dir.path());
        Self::start("gt", command, dir, ports, 0)
    }

    /// nginx with kept connections to its upstreams.
    pub(crate) fn nginx(to: &[SocketAddr]) -> Self {
        let (ports, dir) = (claim(2 * to.len()), TempDir::new());
        let apart = u16::try_from(to.len()).expect("a few origins");
        let mut text = String::from(
            "daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log stderr crit;\nevents { worker_connections 512; }\nhttp { access_log off; \
             client_max_body_size 0; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n",
        );
        for ((n, to), port) in to.iter().enumerate().zip(ports.first()..) {
            let _ = writeln!(text, "upstream o{n} {{ server {to}; keepalive 16; }}");
            for (port, more) in [(port, ""), (port + apart, " http2")] {
                let _ = writeln!(
                    text,
                    "server {{ listen 127.0.0.1:{port}{more}; location / {{ proxy_pass http://o{n}; proxy_http_version 1.1; \
                     proxy_request_buffering off; proxy_set_header Connection \"\"; proxy_set_header Host $http_host; \
                     proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-Host $http_host; \
                     proxy_set_header X-Forwarded-Proto $scheme; }} }}"
                );
            }
        }
        let config = dir.file("nginx.conf", text + "}\n");
        let mut command = Command::new(program("nginx", "Debian's nginx-light"));
        command
            .arg("-p")
            .arg(dir.path())
            .args(["-e", "stderr", "-c"])
            .arg(config);
        Self::start("nginx", command, dir, ports, apart)
    }

    /// HAProxy that keeps connections to its servers.
    pub(crate) fn haproxy(to: &[SocketAddr]) -> Self {
        let (ports, dir) = (claim(2 * to.len()), TempDir::new());
        let apart = u16::try_from(to.len()).expect("a few origins");
        let mut text = String::from(
            "global\n  nbthread 1\n  maxconn 512\ndefaults\n  mode http\n  http-reuse always\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n",
        );
        for ((n, to), port) in to.iter().enumerate().zip(ports.first()..) {
            let _ = writeln!(
                text,
                "frontend f{n}\n  bind 127.0.0.1:{port}\n  bind 127.0.0.1:{} proto h2\n  http-request set-header X-Forwarded-For %[src]\n  http-request set-header X-Real-IP %[src]\n  http-request set-header X-Forwarded-Host %[req.hdr(host)]\n  http-request set-header X-Forwarded-Proto http\n  default_backend b{n}\nbackend b{n}\n  server s {to}",
                port + apart
            );
        }
        let config = dir.file("haproxy.cfg", text);
        let mut command = Command::new(program("haproxy", "Debian's haproxy"));
        command.args(["-db", "-f"]).arg(config);
        Self::start("HAProxy", command, dir, ports, apart)
    }
}

fn claim(count: usize) -> PortRange {
    PortRange::claim(u16::try_from(count).expect("a few origins"))
}
