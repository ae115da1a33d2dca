//! Processes that are killed: a worker, a worker that is about to serve, the supervisor.

use std::time::{Duration, Instant};

use e2e::{Process, http, process::gt_binary, wait};

use crate::{
    load::{Load, Stayer},
    rig::{Gt, Rig, signal},
};

#[test]
fn a_killed_worker_is_replaced_and_nobody_is_refused() {
    let rig = Rig::start();
    // A link that has just come up is no good sign; one that has lasted is dialled again at once.
    std::thread::sleep(Duration::from_secs(11));
    let (pid, generation) = rig.server.serving();
    signal(pid, "KILL");
    let killed = Instant::now();
    // Whoever comes now waits, and is served; on the client's way too.
    let response = http::get(rig.address, "web.test", "/after").expect("not refused");
    let took = killed.elapsed();
    assert_eq!(response.status, 200);
    // 15 ms where it was measured, on a busy machine; a second leaves room for slower ones.
    println!("served {took:?} after the worker was killed");
    assert!(took < Duration::from_secs(1), "{took:?}");
    let (now, next) = rig.server.serving();
    assert!(now != pid && next == generation + 1);
    let load = Load::start(&rig);
    load.finish(&rig);
}

#[test]
fn a_killed_worker_of_a_proxy_is_replaced_and_nobody_is_refused() {
    let service = e2e::Service::text("served");
    let port = e2e::PortRange::claim(1);
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port.first()));
    let text = format!(
        "type: proxy\nproxy:\n  listeners: [{{addr: \"{address}\"}}]\n  routes: [{{to: \"{}\"}}]\n",
        service.address()
    );
    let gt = Gt::start("proxy", &text);
    http::get_until(address, "a.test", "/", 200);
    let (pid, generation) = gt.serving();
    signal(pid, "KILL");
    let killed = Instant::now();
    let response = http::get(address, "a.test", "/").expect("not refused");
    let took = killed.elapsed();
    println!("served {took:?} after the proxy's worker was killed");
    assert_eq!(response.status, 200);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(gt.serving().1, generation + 1);
}

#[test]
fn an_old_worker_is_cut_off_at_its_deadline() {
    // Whoever says nothing would be ended by the time limit for silence.
    let patient = "  timeout: 0\n";
    let rig = Rig::start_over("tcp", patient, &gt_binary());
    let mut stayer = Stayer::new(&rig);
    let (old, _) = rig.server.serving();
    rig.server
        .write(&rig.server_text(&format!("{patient}  sniAddr: \"127.0.0.1:0\"\n"), ""));
    rig.server.done(&["reload"]);
    let left = || {
        let status = rig.server.status();
        let workers = status["units"][0]["workers"].as_array()?.clone();
        let old = workers.iter().find(|worker| worker["pid"] == old)?;
        old["ends_within_seconds"].as_u64()
    };
    let at_first = left().expect("it drains");
    // The deadline, and what a worker that does not keep to it gets before it is killed.
    assert!((100..=125).contains(&at_first), "{at_first}");
    stayer.talk();
    if std::env::var("GT_E2E_LONG").is_ok_and(|value| value == "1") {
        let since = Instant::now();
        wait::until_within("it has ended", Duration::from_secs(130), || {
            left().is_none().then_some(())
        });
        assert!(since.elapsed() > Duration::from_secs(110));
        assert!(stayer.is_cut());
    }
}

#[test]
fn a_killed_client_is_replaced_in_its_session() {
    let rig = Rig::start();
    let (pid, _) = rig.client.serving();
    signal(pid, "KILL");
    let killed = Instant::now();
    // A visit that went out on the dead link is lost with it.
    let server = &rig.server.process;
    server.wait_log_times(&["a client's link is down"], 2);
    let response = http::get(rig.address, "web.test", "/after").expect("not refused");
    println!("served {:?} after the client was killed", killed.elapsed());
    assert_eq!(response.status, 200);
    assert_ne!(rig.client.serving().0, pid);
    Load::start(&rig).finish(&rig);
}

#[test]
fn an_old_worker_that_is_killed_takes_only_its_own_visitors_with_it() {
    let rig = Rig::start();
    let mut stayer = Stayer::new(&rig);
    let (old, _) = rig.server.serving();
    rig.server
        .write(&rig.server_text("  sniAddr: \"127.0.0.1:0\"\n", ""));
    rig.server.done(&["reload"]);
    let load = Load::start(&rig);
    load.wait(50);
    stayer.talk();
    signal(old, "KILL");
    wait::until("it is cut", || stayer.is_cut().then_some(()));
    load.wait(50);
    load.finish(&rig);
    assert_eq!(rig.server.workers().len(), 1);
}

#[test]
fn a_supervisor_that_is_killed_takes_nothing_with_it_and_the_next_takes_over() {
    let mut rig = Rig::start();
    let load = Load::start(&rig);
    let mut stayer = Stayer::new(&rig);
    let (worker, _) = rig.server.serving();
    rig.server.process.kill();
    load.wait(100);
    stayer.talk();
    // Another one, of the same file.
    let dir = e2e::TempDir::new();
    let run = rig.server.process.dir().path().join("run");
    let args = ["-c".as_ref(), rig.server.file.as_os_str()];
    let next = Process::gt_supervised_in("gt server again", &gt_binary(), args, dir, &run);
    next.wait_log(&["is taken over"]);
    rig.server.process.replace(next);
    assert_eq!(rig.server.serving().0, worker, "the worker goes on");
    load.wait(100);
    // It is a worker like any other: it is reloaded, replaced, stopped.
    rig.server
        .write(&rig.server_text("  sniAddr: \"127.0.0.1:0\"\n", ""));
    rig.server.done(&["reload"]);
    assert_ne!(rig.server.serving().0, worker);
    load.wait(100);
    stayer.talk();
    load.finish(&rig);
}
