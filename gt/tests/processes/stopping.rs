//! Ends: in order, and at once for who insists; and failures of the first start.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use e2e::{Process, TempDir, process::gt_binary, wait};

use crate::{
    load::Stayer,
    rig::{Gt, Rig, signal},
};

#[test]
fn a_stop_waits_for_visitors_and_a_second_one_does_not() {
    let mut rig = Rig::start();
    let mut stayer = Stayer::new(&rig);
    let said = rig.server.done(&["stop"]);
    assert!(said.contains("asked again"), "{said}");
    rig.server.process.wait_log(&["ending"]);
    stayer.talk();
    assert_eq!(rig.server.process.try_exit(), None);
    let again = Instant::now();
    rig.server.done(&["-s", "stop"]);
    assert_eq!(rig.server.process.wait_exit().code(), Some(1));
    assert!(again.elapsed() < Duration::from_secs(2));
    assert!(stayer.is_cut());
    // With nothing to wait for, a stop is quick and ends well.
    rig.client.process.signal("TERM");
    assert_eq!(rig.client.process.wait_exit().code(), Some(0));
}

#[test]
fn signals_for_the_supervisor_do_not_end_a_worker() {
    let rig = Rig::start();
    let mut stayer = Stayer::new(&rig);
    let before = rig.server.serving();
    // As `killall -HUP gt` does.
    for name in ["HUP", "USR1", "USR2"] {
        signal(before.0, name);
    }
    rig.server.process.signal("HUP");
    rig.server.process.wait_log(&["nothing has changed"]);
    stayer.talk();
    assert_eq!(rig.server.serving(), before);
}

#[test]
fn a_start_that_fails_says_why_and_leaves_nothing_behind() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let text =
        format!("type: server\noptions: {{addr: \"{address}\", id: a, secret: change-me-now}}\n");
    let mut gt = Gt::start("taken", &text);
    assert_eq!(gt.process.wait_exit().code(), Some(1));
    gt.process
        .wait_log(&["addr: cannot listen on", &address.to_string()]);
    drop(taken);
    // The same place is free for the next.
    let dir = TempDir::new();
    let args = ["-c".as_ref(), gt.file.as_os_str()];
    let run = gt.process.dir().path().join("run");
    let next = Process::gt_supervised_in("gt again", &gt_binary(), args, dir, &run);
    next.wait_log(&["a worker serves"]);
}

#[test]
fn a_client_that_is_refused_for_good_ends() {
    let rig = Rig::start();
    let text = rig
        .client_text("", "")
        .replace("  id: web\n", "  id: nobody\n");
    let mut stranger = Gt::start("stranger", &text);
    assert_eq!(stranger.process.wait_exit().code(), Some(1));
}

#[test]
fn flags_without_a_file_are_found_again() {
    let dir = TempDir::new();
    let flags = [
        "server",
        "-addr",
        "127.0.0.1:0",
        "-id",
        "a",
        "-secret",
        "change-me-now",
    ];
    let mut gt = Process::gt_supervised("gt flags", &gt_binary(), flags, dir);
    gt.wait_log(&["a worker serves"]);
    let mut asked: Vec<&std::ffi::OsStr> = flags.iter().map(AsRef::as_ref).collect();
    asked.extend(["-s", "status"].map(std::ffi::OsStr::new));
    let output = gt.ask(&asked);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("serving since") && said.contains("addr"),
        "{said}"
    );
    asked.pop();
    asked.push(std::ffi::OsStr::new("stop"));
    assert!(gt.ask(&asked).status.success());
    assert_eq!(gt.wait_exit().code(), Some(0));
    wait::until("nothing is left", || {
        (!gt.ask(&asked).status.success()).then_some(())
    });
}
