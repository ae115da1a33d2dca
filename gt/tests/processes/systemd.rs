//! What systemd sees: states, the watchdog, and sockets that it has opened.

use std::{
    net::TcpListener,
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    process::{Command, Stdio},
    time::Duration,
};

use e2e::{Process, TempDir, http, process::gt_binary, wait};

fn text(address: &str) -> String {
    format!("type: server\noptions: {{addr: \"{address}\", id: web, secret: change-me-now}}\n")
}

#[test]
fn states_are_told_as_sd_notify_wants_them() {
    let dir = TempDir::new();
    let path = dir.path().join("notify");
    let told = UnixDatagram::bind(&path).expect("a socket");
    told.set_read_timeout(Some(e2e::PATIENCE)).expect("set");
    let file = dir.file("gt.yml", text("127.0.0.1:0"));
    let mut command = Command::new(gt_binary());
    command
        .arg("-c")
        .arg(&file)
        .env("GT_RUNTIME_DIR", dir.path().join("run"))
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "400000");
    let mut gt = Process::start("gt notify", command, dir).with_workers();
    let next = |word: &str| loop {
        let mut buffer = [0; 1024];
        let n = told.recv(&mut buffer).expect("told in time");
        let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
        if text.starts_with(word) {
            return text;
        }
        assert!(
            text.starts_with("WATCHDOG=1") || word == "WATCHDOG=1",
            "{text:?} instead of {word}"
        );
    };
    assert!(next("READY=1").contains("STATUS=1 of 1"));
    next("WATCHDOG=1");
    next("WATCHDOG=1");
    gt.signal("HUP");
    let reloading = next("RELOADING=1");
    let usec = reloading
        .split("MONOTONIC_USEC=")
        .nth(1)
        .and_then(|usec| usec.parse::<u64>().ok());
    assert!(usec.is_some_and(|usec| usec > 0), "{reloading}");
    next("READY=1");
    gt.signal("TERM");
    next("STOPPING=1");
    assert_eq!(gt.wait_exit().code(), Some(0));
}

#[test]
fn a_socket_of_the_service_manager_is_used_and_kept_over_a_worker() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let dir = TempDir::new();
    let file = dir.file("gt.yml", text(&address.to_string()));
    // The shell puts the socket where systemd does.
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" -c \"$1\" 3<&0 </dev/null";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(gt_binary())
        .arg(&file)
        .env("GT_RUNTIME_DIR", dir.path().join("run"))
        .stdin(Stdio::from(OwnedFd::from(listener)));
    let mut gt = Process::start_as_is("gt activated", command, dir).with_workers();
    // Without the socket it could not listen here: the address is taken.
    let line = gt.wait_log(&["a worker serves", "pid="]);
    let pid = e2e::relay::field(&line, "pid").expect("a pid").to_owned();
    assert_eq!(
        http::get(address, "nobody.test", "/")
            .expect("served")
            .status,
        404
    );
    assert!(
        Command::new("kill")
            .args(["-KILL", &pid])
            .status()
            .is_ok_and(|s| s.success())
    );
    let after = wait::until_within("another worker serves", Duration::from_secs(10), || {
        http::get(address, "nobody.test", "/").ok()
    });
    assert_eq!(after.status, 404);
    gt.signal("TERM");
    assert_eq!(gt.wait_exit().code(), Some(0));
}
