//! What stands behind the relay: nginx with one worker for requests and downloads, an echo process for idle ones and keystrokes.
//!
//! Both run as processes of their own, so that neither their descriptors nor their time mix with the bench's. The echo is this
//! same program, started with a hidden command.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::lab::{Lab, Line, Program};
use crate::{tools, visit};

/// A running origin.
pub struct Origin {
    /// Its address.
    pub at: SocketAddr,
    _program: Program,
}

/// Body of the answer to `GET /`.
pub const BODY: &[u8] = b"hello world\n";

/// Path of the large file.
pub const LARGE_PATH: &str = "/large";

/// Its length: 1 GiB.
pub const LARGE: u64 = 1 << 30;

/// Path and length of a file of 10 KiB.
pub const MEDIUM_PATH: &str = "/medium";
/// Its length.
pub const MEDIUM: u64 = 10 << 10;

/// Path and length of a file of 1 MiB.
pub const BIG_PATH: &str = "/big";
/// Its length.
pub const BIG: u64 = 1 << 20;

/// Starts nginx: one process, no logs, connections kept for ever; [`BODY`] at `/`, files at the other paths.
///
/// # Errors
/// When nginx is missing, does not start, or answers something else.
pub fn nginx(lab: &Lab, core: usize) -> Result<Origin> {
    let at = lab.address()?;
    let dir = lab.dir().join("nginx");
    std::fs::create_dir_all(&dir)?;
    // Files of holes: their bytes come from the page cache, not from a disk.
    for (path, length) in [(LARGE_PATH, LARGE), (MEDIUM_PATH, MEDIUM), (BIG_PATH, BIG)] {
        File::create(dir.join(&path[1..]))
            .and_then(|file| file.set_len(length))
            .with_context(|| format!("make the file {path}"))?;
    }
    let config = lab.write("nginx.conf", &config(at, &dir.to_string_lossy()))?;
    let program = tools::on_path("nginx").context("missing nginx: apt-get install nginx-light")?;
    let line = Line::new(program)
        .arg("-e")
        .arg(dir.join("error.log"))
        .arg("-p")
        .arg(&dir)
        .arg("-c")
        .arg(config);
    let program = lab.start("nginx", &line, Some(core))?;
    let answer = visit::until_ready(Duration::from_secs(5), || visit::get(at, "origin", "/"));
    let answer = answer.with_context(|| format!("nginx: {}", program.log_tail()))?;
    ensure!(
        answer.status == 200 && answer.body == BODY,
        "nginx answers {}",
        answer.status
    );
    Ok(Origin {
        at,
        _program: program,
    })
}

/// Starts the echo process.
///
/// # Errors
/// When it does not start.
pub fn echo(lab: &Lab, core: Option<usize>) -> Result<Origin> {
    let at = lab.address()?;
    let line = Line::new(std::env::current_exe()?)
        .arg("echo")
        .arg(at.port().to_string());
    let program = lab.start("echo", &line, core)?;
    visit::until_ready(Duration::from_secs(5), || {
        visit::echo_byte(&mut visit::connect(at, None)?, b'e')
    })?;
    Ok(Origin {
        at,
        _program: program,
    })
}

/// The echo process itself: gives back what comes, on any number of connections, until it is killed.
///
/// # Errors
/// When the port is taken.
pub fn serve_echo(port: u16) -> Result<()> {
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let local = tokio::task::LocalSet::new();
        local.run_until(accept(listener)).await
    })
}

/// Raises this process's limit of open descriptors as far as it may; children inherit it. Gives the limit now in force.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let wish = Rlimit {
        current: Some(WANTED_DESCRIPTORS),
        maximum: Some(WANTED_DESCRIPTORS),
    };
    if now.maximum.is_some_and(|most| most >= WANTED_DESCRIPTORS)
        || setrlimit(Resource::Nofile, wish).is_err()
    {
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: now.maximum,
                maximum: now.maximum,
            },
        );
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

async fn accept(listener: TcpListener) -> Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::task::spawn_local(async move {
            let _ = stream.set_nodelay(true);
            let mut buffer = [0; 64];
            while let Ok(n) = stream.read(&mut buffer).await {
                if n == 0 || stream.write_all(&buffer[..n]).await.is_err() {
                    break;
                }
            }
        });
    }
}

fn config(at: SocketAddr, dir: &str) -> String {
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/error.log crit;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  tcp_nodelay on;
  sendfile on;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  server {{
    listen {at} backlog=4096;
    default_type text/plain;
    location = / {{ return 200 \"hello world\\n\"; }}
    location / {{ root {dir}; }}
  }}
}}
"
    )
}

const WANTED_DESCRIPTORS: u64 = 100_000;
