//! What the system refuses: descriptors, and room for the log. gt goes on, says so, and recovers.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    process::Command,
};

use e2e::{Process, Service, TempDir, http, process::gt_binary, relay::field, wait};

const SECRET: &str = "a secret of the shortage tests";

fn listening(gt: &Process) -> SocketAddr {
    let line = gt.wait_log(&["listening", "option=\"addr\""]);
    let address = field(&line, "address").and_then(|text| text.parse().ok());
    address.expect("an address")
}

/// A supervised server and a client with a service, the server started by `shell` (`$0` is gt, `$1` the file).
fn relay(shell: &str, options: &str, dir: TempDir) -> (Process, Process, Service, SocketAddr) {
    let text = format!(
        "type: server\noptions:\n  addr: \"127.0.0.1:0\"\n  workers: 2\n{options}users: {{web: {{secret: \"{SECRET}\"}}}}\n"
    );
    let file = dir.file("server.yml", text);
    let mut command = Command::new("sh");
    command
        .args(["-c", shell])
        .arg(gt_binary())
        .arg(&file)
        .env_remove("GT_LOG")
        .env("HOME", dir.path())
        .env("GT_RUNTIME_DIR", dir.path().join("run"));
    let server = Process::start("gt server", command, dir).with_workers();
    let address = match options.contains("logFile") {
        false => listening(&server),
        // It says nothing where it could be heard.
        true => wait::until("it listens", || {
            let output = server
                .question(&[
                    "status".as_ref(),
                    "--json".as_ref(),
                    "-c".as_ref(),
                    file.as_os_str(),
                ])
                .output()
                .ok()?;
            let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
            status["units"][0]["listeners"][0]["address"]
                .as_str()?
                .parse()
                .ok()
        }),
    };
    let service = Service::text("served");
    let dir = TempDir::new();
    let text = format!(
        "type: client\noptions: {{id: web, secret: \"{SECRET}\", remote: \"tcp://{address}\", reconnectDelay: 200ms}}\n\
         services: [{{local: \"http://{}\", hostPrefix: web}}]\n",
        service.address()
    );
    let file = dir.file("client.yml", text);
    let args = ["-c".as_ref(), file.as_os_str()];
    let client = Process::gt_supervised("gt client", &gt_binary(), args, dir);
    http::get_until(address, "web.test", "/", 200);
    (server, client, service, address)
}

#[test]
fn without_descriptors_connections_wait_and_are_served_when_there_are_some_again() {
    // The gate for silent connections is out of the way: this is about the system's limit.
    let (server, _client, _service, address) = relay(
        "ulimit -n 120; exec \"$0\" -c \"$1\"",
        "  pendingConnections: 0\n  pendingPerAddress: 0\n",
        TempDir::new(),
    );
    let mut silent: Vec<TcpStream> = Vec::new();
    while server.count_log(&["no connection can be accepted for now"]) == 0 {
        assert!(silent.len() < 500, "the limit was not met");
        silent.push(TcpStream::connect(address).expect("the kernel takes it"));
    }
    // One more waits in the kernel, and is served when others have gone.
    let waits = std::thread::spawn(move || http::get(address, "web.test", "/"));
    server.wait_log(&["no connection can be accepted for now", "ulimit -n"]);
    drop(silent);
    let answer = waits.join().expect("a visitor").expect("not refused");
    assert_eq!(answer.status, 200);
    // The thread that could not accept says so when it accepts again; the kernel chooses whose turn it is.
    wait::until("connections are accepted again", || {
        let answer = http::get(address, "web.test", "/").expect("served");
        assert_eq!(answer.status, 200);
        (server.count_log(&["connections are accepted again"]) > 0).then_some(())
    });
    for _ in 0..50 {
        assert_eq!(
            http::get(address, "web.test", "/").expect("served").status,
            200
        );
    }
    assert_eq!(server.count_log(&["a worker has died"]), 0);
}

#[test]
fn a_disk_that_is_full_for_the_log_stops_nobody() {
    // Both the workers' file and the supervisor's standard error.
    let dir = TempDir::new();
    let log = dir.path().join("gt.log");
    std::os::unix::fs::symlink("/dev/full", &log).expect("linked");
    let options = format!("  logLevel: debug\n  logFile: \"{}\"\n", log.display());
    let shell = "exec \"$0\" -c \"$1\" 2>/dev/full";
    let (server, _client, _service, address) = relay(shell, &options, dir);
    for _ in 0..200 {
        assert_eq!(
            http::get(address, "web.test", "/").expect("served").status,
            200
        );
    }
    // There is room again: the log says what it lacks.
    fs::remove_file(&log).expect("removed");
    server.signal("USR1");
    wait::until("the log goes on", || {
        // Whatever is logged next.
        http::get(address, "web.test", "/").ok()?;
        let text = fs::read_to_string(&log).ok()?;
        text.contains("lines of this log were lost").then_some(())
    });
    assert_eq!(
        http::get(address, "web.test", "/").expect("served").status,
        200
    );
}
