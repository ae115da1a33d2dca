//! `gt -s restart`: another program takes over the process, its sockets and its work.

use std::{fs, process::Command};

use e2e::{TempDir, process::gt_binary, wait};

use crate::{
    load::{Load, Stayer},
    rig::Rig,
};

#[test]
fn the_program_on_disk_takes_over_under_load() {
    let dir = TempDir::new();
    let binary = dir.path().join("gt");
    let install = || {
        let new = dir.program("gt.new", fs::read(gt_binary()).expect("read"));
        fs::rename(&new, &binary).expect("renamed");
    };
    install();
    let rig = Rig::start_with(&binary);
    let load = Load::start(&rig);
    let mut stayer = Stayer::new(&rig);
    let (worker, generation) = rig.server.serving();
    let supervisor = rig.server.status()["pid"].clone();
    // Up and down again.
    for n in 1..=2 {
        install();
        load.wait(100);
        let said = rig.server.done(&["restart"]);
        assert!(said.contains("a new worker serves"), "{said}");
        let (now, number) = rig.server.serving();
        assert!(now != worker && number == generation + n);
        assert_eq!(rig.server.status()["pid"], supervisor, "the same process");
        stayer.talk();
        if n == 1 {
            let running = fs::read_link(format!("/proc/{supervisor}/exe")).expect("an exe");
            assert_eq!(running, binary, "not the deleted file");
            // A worker may still drain when the next restart comes.
            assert_eq!(rig.server.workers().len(), 2);
        }
    }
    load.wait(200);
    load.finish(&rig);
    drop(stayer);
    wait::until("old workers end", || {
        (rig.server.workers().len() == 1).then_some(())
    });
}

/// What the program says that a process runs.
fn version_of(pid: i64) -> String {
    let output = Command::new(format!("/proc/{pid}/exe"))
        .arg("--version")
        .output();
    String::from_utf8_lossy(&output.expect("it runs").stdout).into_owned()
}

#[test]
fn another_build_takes_over_under_load_and_then_the_first_one_again() {
    let dir = TempDir::new();
    let binary = dir.path().join("gt");
    let first = fs::read(gt_binary()).expect("read");
    let number = env!("CARGO_PKG_VERSION");
    // Another program for all that matters here: what it is called and what it tells its peers is different.
    let other = number.replace(|c: char| c.is_ascii_digit(), "9");
    let second = replaced(&first, number.as_bytes(), other.as_bytes());
    let install = |program: &[u8]| {
        let new = dir.program("gt.new", program);
        fs::rename(&new, &binary).expect("renamed");
    };
    install(&first);
    let rig = Rig::start_with(&binary);
    let load = Load::start(&rig);
    let mut stayer = Stayer::new(&rig);
    for (program, version) in [(&second, other.as_str()), (&first, number)] {
        install(program);
        // Server first, then client: each meets the other's older or newer build meanwhile.
        for gt in [&rig.server, &rig.client] {
            gt.done(&["restart"]);
            let supervisor = gt.status()["pid"].as_i64().expect("a process");
            for pid in [supervisor, gt.serving().0] {
                assert!(version_of(pid).contains(version), "{}", version_of(pid));
            }
            load.wait(100);
            stayer.talk();
        }
    }
    load.finish(&rig);
}

fn replaced(program: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut new = program.to_vec();
    let mut at = 0;
    while let Some(found) = program[at..]
        .windows(from.len())
        .position(|window| window == from)
    {
        new[at + found..at + found + to.len()].copy_from_slice(to);
        at += found + from.len();
    }
    assert_ne!(new, program, "the version is in the program");
    new
}

#[test]
fn a_program_of_another_state_is_refused() {
    let dir = TempDir::new();
    let binary = dir.program("gt", fs::read(gt_binary()).expect("read"));
    let rig = Rig::start_with(&binary);
    let before = rig.server.serving();
    let other = dir.program(
        "other",
        "#!/bin/sh\necho '{\"units\":[],\"handover\":4000000000,\"version\":\"99.0.0\"}'\n",
    );
    fs::rename(&other, &binary).expect("renamed");
    let why = rig.server.refused(&["restart"]);
    assert!(why.contains("99.0.0 on disk does not understand"), "{why}");
    assert_eq!(rig.server.serving(), before);
}

#[test]
fn a_program_that_does_not_run_is_refused() {
    let dir = TempDir::new();
    let binary = dir.program("gt", fs::read(gt_binary()).expect("read"));
    let rig = Rig::start_with(&binary);
    let load = Load::start(&rig);
    let before = rig.server.serving();
    let other = dir.program(
        "other",
        "#!/bin/sh\necho this is another program >&2\nexit 3\n",
    );
    fs::rename(&other, &binary).expect("renamed");
    let why = rig.server.refused(&["restart"]);
    assert!(why.contains("this is another program"), "{why}");
    fs::remove_file(&binary).expect("removed");
    rig.server.refused(&["restart"]);
    // A reload runs the program that runs, whatever lies on disk.
    rig.server
        .write(&rig.server_text("  sniAddr: \"127.0.0.1:0\"\n", ""));
    rig.server.done(&["reload"]);
    assert_ne!(rig.server.serving(), before);
    load.finish(&rig);
}
