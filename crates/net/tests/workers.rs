//! Worker threads and the shutdown token.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use net::{Shutdown, StillRunning, WorkerGone, Workers, current_worker, default_worker_count};

const LONG: Duration = Duration::from_secs(10);

#[test]
fn each_task_runs_on_the_worker_it_was_given_to() {
    let workers = Workers::start(3, "w").unwrap();
    let (tx, rx) = mpsc::channel();
    for handle in workers.handles() {
        let (tx, own) = (tx.clone(), handle.clone());
        handle
            .spawn(move || async move {
                // Not Send, and alive over an await.
                let local = Rc::new(Cell::new(own.index()));
                tokio::task::yield_now().await;
                let name = std::thread::current().name().unwrap().to_owned();
                tx.send((local.get(), current_worker(), own.is_current(), name))
                    .unwrap();
            })
            .unwrap();
    }
    let mut seen: Vec<_> = rx.iter().take(3).collect();
    seen.sort();
    let expected: Vec<_> = (0..3)
        .map(|index| (index, Some(index), true, format!("w-{index}")))
        .collect();
    assert_eq!(seen, expected);
    assert_eq!(current_worker(), None);
    workers.shutdown(LONG).unwrap();
}

#[test]
fn a_panic_ends_its_task_only() {
    let workers = Workers::start(1, "panic").unwrap();
    let handle = workers.handles()[0].clone();
    let (tx, rx) = mpsc::channel();
    handle.spawn(|| async { panic!("in the task") }).unwrap();
    handle
        .spawn(|| -> std::future::Ready<()> { panic!("before there is a task") })
        .unwrap();
    handle
        .spawn(move || async move { tx.send("alive").unwrap() })
        .unwrap();
    assert_eq!(rx.recv_timeout(LONG).unwrap(), "alive");
    workers.shutdown(LONG).unwrap();
}

#[test]
fn shutdown_drops_what_still_runs_and_refuses_more() {
    struct Witness(mpsc::Sender<&'static str>);
    impl Drop for Witness {
        fn drop(&mut self) {
            self.0.send("dropped").unwrap();
        }
    }
    let workers = Workers::start(1, "stop").unwrap();
    let handle = workers.handles()[0].clone();
    let (tx, rx) = mpsc::channel();
    let started = tx.clone();
    handle
        .spawn(move || async move {
            let _witness = Witness(tx);
            started.send("started").unwrap();
            std::future::pending::<()>().await;
        })
        .unwrap();
    assert_eq!(rx.recv_timeout(LONG).unwrap(), "started");
    workers.shutdown(LONG).unwrap();
    assert_eq!(rx.recv_timeout(LONG).unwrap(), "dropped");
    assert_eq!(handle.spawn(|| async {}), Err(WorkerGone { index: 0 }));
}

#[test]
fn a_worker_that_does_not_stop_is_named() {
    let workers = Workers::start(2, "stuck").unwrap();
    let (started, is_started) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    workers.handles()[1]
        .spawn(move || async move {
            started.send(()).unwrap();
            let _ = released.recv();
        })
        .unwrap();
    is_started.recv_timeout(LONG).unwrap();
    assert_eq!(
        workers.shutdown(Duration::from_millis(100)),
        Err(StillRunning { workers: vec![1] })
    );
    drop(release);
}

#[test]
fn there_is_a_worker_for_each_processor() {
    assert!(default_worker_count() >= 1);
}

#[test]
fn the_shutdown_token_reaches_waiters_on_other_threads_and_late_ones() {
    let workers = Workers::start(2, "token").unwrap();
    let shutdown = Shutdown::new();
    let (tx, rx) = mpsc::channel();
    for handle in workers.handles() {
        let (tx, shutdown) = (tx.clone(), shutdown.clone());
        handle
            .spawn(move || async move {
                tx.send("waiting").unwrap();
                shutdown.wait().await;
                tx.send("told").unwrap();
            })
            .unwrap();
    }
    let mut seen: Vec<_> = (0..2).map(|_| rx.recv_timeout(LONG).unwrap()).collect();
    assert!(!shutdown.is_triggered());
    shutdown.trigger();
    seen.extend((0..2).map(|_| rx.recv_timeout(LONG).unwrap()));
    assert_eq!(seen, ["waiting", "waiting", "told", "told"]);
    let late = tx;
    workers.handles()[0]
        .spawn(move || async move {
            shutdown.wait().await;
            late.send("late").unwrap();
        })
        .unwrap();
    assert_eq!(rx.recv_timeout(LONG).unwrap(), "late");
    workers.shutdown(LONG).unwrap();
}
