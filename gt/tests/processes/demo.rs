//! `make run` as people use it: in a terminal, ended with Ctrl-C.

use std::{
    fs,
    io::Write,
    net::{SocketAddr, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use e2e::{HttpConn, PortRange, Process, TempDir, process::gt_binary, wait};

#[test]
fn ctrl_c_ends_all_processes_of_make_run_at_once() {
    let dir = TempDir::new();
    let (target, temporary) = (dir.path().join("target"), dir.path().join("tmp"));
    fs::create_dir_all(target.join("fast")).expect("made");
    fs::create_dir(&temporary).expect("made");
    dir.program("target/fast/gt", fs::read(gt_binary()).expect("read"));
    let port = PortRange::claim(1);
    let at = SocketAddr::from(([127, 0, 0, 1], port.first()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/run.sh");
    let exec = format!("exec '{}'", script.display());
    let (mut keys, terminal) = UnixStream::pair().expect("a pair");
    // A terminal of its own; nothing is built, because there is a program already.
    let mut command = Command::new("env");
    command
        // Whoever runs the tests in the background has made shells ignore Ctrl-C; a person's terminal has not.
        .args(["--default-signal=INT,QUIT", "script"])
        .args(["-qfec", &exec, "/dev/null"])
        // One shell that stays would be ended by Ctrl-C itself; which one it is depends on the user otherwise.
        .env("SHELL", "/bin/sh")
        .env("CARGO", "true")
        .env("CARGO_TARGET_DIR", &target)
        .env("TMPDIR", &temporary)
        .env("PORT", port.first().to_string())
        .env("GT_RUNTIME_DIR", dir.path().join("run"))
        .env_remove("GT_LOG")
        .stdin(Stdio::from(OwnedFd::from(terminal)));
    let mut run = Process::start_as_is("make run", command, dir).with_workers();
    run.wait_log(&["Ctrl-C ends everything"]);
    // Somebody looks at the page, and keeps the connection as browsers do.
    let mut browser = HttpConn::new(TcpStream::connect(at).expect("connected"));
    let page = browser.get("demo.localhost", "/").expect("an answer");
    assert_eq!(page.status, 200);
    let pressed = Instant::now();
    // Twice, as impatient people do: the second one must not cut the clean-up short.
    keys.write_all(b"\x03").expect("pressed");
    run.wait_log(&["ending"]);
    keys.write_all(b"\x03").expect("pressed");
    let status = run.wait_exit();
    assert!(status.success(), "{status}");
    assert!(pressed.elapsed() < Duration::from_secs(4));
    assert!(TcpStream::connect(at).is_err(), "nobody listens");
    let left = fs::read_dir(&temporary).expect("a folder").count();
    assert_eq!(left, 0, "no files are left");
    // Nor processes: each of them has this folder in its environment.
    let mark = temporary.display().to_string();
    wait::until("no process is left", || (!anybody_has(&mark)).then_some(()));
}

fn anybody_has(mark: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("processes");
    processes.flatten().any(|process| {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(mark)
    })
}
