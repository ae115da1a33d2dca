//! `gt -s restart`: another program takes over the process, its sockets and its work.

use std::fs;

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
        let new = dir.path().join("gt.new");
        fs::copy(gt_binary(), &new).expect("copied");
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

#[test]
fn a_program_that_does_not_run_is_refused() {
    let dir = TempDir::new();
    let binary = dir.path().join("gt");
    fs::copy(gt_binary(), &binary).expect("copied");
    let rig = Rig::start_with(&binary);
    let load = Load::start(&rig);
    let before = rig.server.serving();
    let other = dir.file(
        "other",
        "#!/bin/sh\necho this is another program >&2\nexit 3\n",
    );
    fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("made executable");
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
