//! Scenarios of VTest (`testing/interop/zoo/vtc`): each has a visitor, the proxy and a server that follow a script.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

use e2e::{PortRange, process::gt_binary};

use crate::tools::{program, zoo};

#[test]
fn scenarios_of_vtest_pass() {
    let varnishtest = program("varnishtest", "Debian's varnish");
    let folder = fs::read_dir(zoo("vtc")).expect("the scenarios");
    let mut scripts: Vec<PathBuf> = folder
        .map(|entry| entry.expect("an entry").path())
        .collect();
    if let Ok(only) = std::env::var("GT_CASE") {
        scripts.retain(|script| script.file_stem().is_some_and(|name| *name == *only));
    }
    scripts.sort_unstable();
    let run = |script: &PathBuf| {
        let port = PortRange::claim(1);
        let output = Command::new(&varnishtest)
            .arg("-D")
            .arg(format!("gt={}", gt_binary().display()))
            .args(["-D", &format!("port={}", port.first())])
            .args(["-t", "30"])
            .arg(script)
            .env_remove("GT_LOG")
            .output()
            .expect("varnishtest runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (!output.status.success()).then(|| format!("{}:\n{said}", script.display()))
    };
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = std::iter::from_fn(|| scripts.get(next.fetch_add(1, Relaxed)));
        mine.filter_map(run).collect::<Vec<_>>()
    };
    let wrong: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..6).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a worker"))
            .collect()
    });
    assert!(
        wrong.is_empty(),
        "{} of {} scenarios:\n{}",
        wrong.len(),
        scripts.len(),
        wrong.join("\n")
    );
    assert!(!scripts.is_empty(), "no scenario");
}
