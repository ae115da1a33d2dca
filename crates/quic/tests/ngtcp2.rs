//! ngtcp2's `gtlsclient` against this server: pages, early data, another key, another address, Retry, another version. (Debian's ngtcp2-client.)
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Output},
    sync::OnceLock,
};

use common::site::server;

const PROGRAM: &str = "gtlsclient";

/// One run of the program.
struct Run {
    said: String,
    files: e2e::TempDir,
}

impl Run {
    /// `args` before the server's address, `paths` behind it.
    fn new(program: &PathBuf, server: SocketAddr, args: &[&str], paths: &[&str]) -> Self {
        let files = e2e::TempDir::new();
        // `timeout`: it waits for ever for a server that is silent in the middle.
        let Output { stdout, stderr, .. } = Command::new("timeout")
            .arg("60")
            .arg(program)
            .args([
                "--no-quic-dump",
                "--no-http-dump",
                "--exit-on-all-streams-close",
                "--sni",
            ])
            .args(["localhost", "--download"])
            .arg(files.path())
            .args(args)
            .arg(server.ip().to_string())
            .arg(server.port().to_string())
            .args(paths.iter().map(|path| format!("https://localhost{path}")))
            .output()
            .unwrap();
        let said = [stdout, stderr].concat();
        Self {
            said: String::from_utf8_lossy(&said).into_owned(),
            files,
        }
    }

    fn got(&self, name: &str) -> String {
        let file = self.files.path().join(name);
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{error}: {}", self.said))
    }

    #[track_caller]
    fn has(&self, words: &str) {
        assert!(self.said.contains(words), "no {words:?} in:\n{}", self.said);
    }
}

fn program() -> Option<&'static PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| e2e::tools::wanted(PROGRAM, "Debian's ngtcp2-client"));
    found.as_ref()
}

/// Fetches until a run is as `wanted`: who comes first, the rest of the handshake or the request, is up to the machine.
fn again_until(run: impl Fn() -> Run, wanted: impl Fn(&Run) -> bool) {
    let mut last = None;
    for _ in 0..30 {
        let run = run();
        if wanted(&run) {
            return;
        }
        last = Some(run.said);
    }
    panic!("never:\n{}", last.unwrap_or_default());
}

#[test]
fn it_fetches_pages() {
    let Some(program) = program() else { return };
    let server = server(|_| {});
    let run = Run::new(program, server.local_addr(), &[], &["/about", "/trailers"]);
    assert_eq!(run.got("about"), "GET HTTP/3.0 -");
    assert_eq!(run.got("trailers"), "one two");
    run.has("trailers ended");
    // A request that has been read is not asked to be left out.
    assert!(!run.said.contains("STOP_SENDING"), "{}", run.said);
}

#[test]
fn its_early_data_is_taken() {
    let Some(program) = program() else { return };
    for retry in [false, true] {
        let server = server(|options| {
            if retry {
                options.quic.retry_from = 0;
            }
        });
        let kept = e2e::TempDir::new();
        let file =
            |option: &str, name: &str| format!("{option}={}", kept.path().join(name).display());
        let (session, parameters) = (file("--session-file", "s"), file("--tp-file", "p"));
        let run = || {
            Run::new(
                program,
                server.local_addr(),
                &[&session, &parameters],
                &["/about"],
            )
        };
        let first = run();
        assert_eq!(first.got("about"), "GET HTTP/3.0 -");
        again_until(run, |run| {
            let early = run.got("about") == "GET HTTP/3.0 1";
            if early {
                run.has("type=0RTT");
                assert!(!run.said.contains("Early data was rejected"));
                assert_eq!(run.said.contains("type=Retry"), retry, "{}", run.said);
            }
            early
        });
    }
}

#[test]
fn unsafe_early_requests_are_refused() {
    let Some(program) = program() else { return };
    let server = server(|_| {});
    let kept = e2e::TempDir::new();
    let file = |option: &str, name: &str| format!("{option}={}", kept.path().join(name).display());
    let (session, parameters) = (file("--session-file", "s"), file("--tp-file", "p"));
    let run = || {
        let args = [&session, &parameters, "--http-method=DELETE"];
        Run::new(program, server.local_addr(), &args, &["/about"])
    };
    run().has("[:status: 200]");
    again_until(run, |run| run.said.contains("[:status: 425]"));
}

#[test]
fn it_changes_its_keys() {
    let Some(program) = program() else { return };
    let server = server(|_| {});
    let args = ["--key-update=1ms", "--delay-stream=50ms"];
    let run = Run::new(program, server.local_addr(), &args, &["/about"]);
    assert_eq!(run.got("about"), "GET HTTP/3.0 -");
    run.has("type=1RTT k=1");
}

#[test]
fn it_goes_on_from_another_address() {
    let Some(program) = program() else { return };
    let server = server(|_| {});
    let files = e2e::TempDir::new();
    let data: Vec<u8> = (0..600_000u32).map(|n| b'a' + (n % 23) as u8).collect();
    let file = files.file("data", &data);
    let data_arg = format!("--data={}", file.display());
    for rebinding in [false, true] {
        let mut args = vec!["--http-method=POST", &data_arg, "--change-local-addr=2ms"];
        if rebinding {
            args.push("--nat-rebinding");
        }
        let run = Run::new(program, server.local_addr(), &args, &["/echo"]);
        assert!(run.got("echo").as_bytes() == data);
        run.has("Changing local address");
        let ports: std::collections::HashSet<_> = run
            .said
            .lines()
            .filter(|line| line.starts_with("Received packet"))
            .filter_map(|line| line.split("local=").nth(1)?.split(' ').next())
            .collect();
        assert_eq!(ports.len(), 2, "{ports:?}");
        run.has("PATH_RESPONSE");
    }
}

#[test]
fn it_is_told_of_another_version() {
    let Some(program) = program() else { return };
    let server = server(|_| {});
    let args = ["--version=v2draft", "--preferred-versions=v2draft,v1"];
    let run = Run::new(program, server.local_addr(), &args, &["/about"]);
    assert_eq!(run.got("about"), "GET HTTP/3.0 -");
    run.has("type=VN");
}
