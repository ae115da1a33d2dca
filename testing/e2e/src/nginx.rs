//! nginx as the service, for what matters between two real HTTP programs. One worker, everything in a folder of its own.

use std::{fmt::Write, net::SocketAddr, path::Path, process::Command};

use crate::{PortRange, Process, TempDir, wait};

/// A running nginx.
#[derive(Debug)]
pub struct Nginx {
    ports: PortRange,
    process: Process,
}

impl Nginx {
    /// Starts nginx with one port for each text of `servers`: the inside of a `server` block, in which `{listen}` becomes the address.
    /// Relative paths are below the folder `files`, which `prepare` may fill.
    ///
    /// # Panics
    /// When nginx is not installed or does not come up.
    #[must_use]
    pub fn start(servers: &[&str], prepare: impl FnOnce(&TempDir)) -> Self {
        assert!(
            Path::new(PROGRAM).exists(),
            "{PROGRAM} is missing: install nginx"
        );
        let dir = TempDir::new();
        std::fs::create_dir(dir.path().join("files")).expect("a folder for files");
        prepare(&dir);
        let ports = PortRange::claim(u16::try_from(servers.len()).expect("a few servers"));
        let config = dir.file("nginx.conf", config(servers, &ports));
        let mut command = Command::new(PROGRAM);
        command
            .arg("-p")
            .arg(dir.path())
            .arg("-e")
            .arg("stderr")
            .arg("-c")
            .arg(config);
        let process = Process::start("nginx", command, dir);
        let nginx = Self { ports, process };
        for index in 0..servers.len() {
            wait::until_accepting(nginx.address(index));
        }
        nginx
    }

    /// nginx with one server that serves `files` and tells what it is asked at `/host` and `/peer`.
    #[must_use]
    pub fn plain(prepare: impl FnOnce(&TempDir)) -> Self {
        Self::start(
            &[
                "listen {listen}; root files; location = /host { return 200 $http_host; } location = /peer { return 200 $remote_addr; }",
            ],
            prepare,
        )
    }

    /// Where the server at `index` listens.
    #[must_use]
    pub fn address(&self, index: usize) -> SocketAddr {
        SocketAddr::from((
            [127, 0, 0, 1],
            self.ports.first() + u16::try_from(index).unwrap_or_default(),
        ))
    }

    /// As `local` of a service.
    #[must_use]
    pub fn url(&self, index: usize) -> String {
        format!("http://{}", self.address(index))
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}

fn config(servers: &[&str], ports: &PortRange) -> String {
    // Without a master process it is one process, which goes when it is killed.
    let mut text = String::from(
        "daemon off; master_process off; worker_processes 1; pid nginx.pid;\nevents { worker_connections 1024; }\nhttp {\n\
         access_log off; default_type text/plain; client_max_body_size 0; keepalive_timeout 300s;\n\
         client_body_temp_path tmp_body; proxy_temp_path tmp_proxy; fastcgi_temp_path tmp_fastcgi; uwsgi_temp_path tmp_uwsgi; scgi_temp_path tmp_scgi;\n",
    );
    for (server, port) in servers.iter().zip(ports.first()..) {
        let server = server.replace("{listen}", &format!("127.0.0.1:{port}"));
        // Writing to a String does not fail.
        let _ = writeln!(text, "server {{ {server} }}");
    }
    text.push_str("}\n");
    text
}

const PROGRAM: &str = "/usr/sbin/nginx";
