//! Active checks of upstream servers: made by one worker, told to all.

use std::{rc::Rc, time::Duration};

use net::WorkerHandle;
use route::ServerIndex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

use crate::{site::Check, upstream::Upstream, worker::Worker};

/// Runs for as long as the worker does. Sites come and go; each round looks at the one that is served.
pub(crate) async fn run(worker: Rc<Worker>, peers: Vec<WorkerHandle>) {
    // A check that has ended says when the next one is due.
    let ended = Rc::new(Notify::new());
    loop {
        let now = worker.clock.precise();
        let mut next = now + LONGEST_PAUSE;
        let local = worker.local();
        for (index, upstream) in local.upstreams() {
            loop {
                let due = upstream.health.borrow().next_check();
                match due {
                    Some((server, at)) if at <= now => {
                        upstream.health.borrow_mut().check_started(server);
                        let (worker, peers) = (Rc::clone(&worker), peers.clone());
                        let (upstream, ended) = (Rc::clone(upstream), Rc::clone(&ended));
                        tokio::task::spawn_local(async move {
                            check(&worker, &peers, index, &upstream, server).await;
                            ended.notify_one();
                        });
                    }
                    Some((_, at)) => {
                        next = next.min(at);
                        break;
                    }
                    None => break,
                }
            }
        }
        drop(local);
        let pause = next.saturating_sub(worker.clock.precise());
        tokio::select! {
            () = tokio::time::sleep(pause.max(SHORTEST_PAUSE)) => {}
            () = ended.notified() => {}
        }
    }
}

async fn check(
    worker: &Rc<Worker>,
    peers: &[WorkerHandle],
    index: usize,
    upstream: &Rc<Upstream>,
    server: ServerIndex,
) {
    let spec = upstream.spec();
    let patience = spec
        .health
        .active
        .map_or(Duration::from_secs(2), |active| active.timeout);
    let good = tokio::time::timeout(patience, ask(worker, upstream, server, patience))
        .await
        .unwrap_or(false);
    let now = worker.clock.precise();
    let change = upstream
        .health
        .borrow_mut()
        .check_ended(server, good, now, rand::random());
    if let Some(change) = change {
        let up = matches!(change, route::Change::Up(_));
        upstream.apply(Some(change), now);
        for peer in peers.iter().filter(|peer| peer.index() != 0) {
            let _ = peer.spawn(move || async move {
                if let Some(worker) = Worker::current() {
                    let local = worker.local();
                    if let Some((_, upstream)) = local.upstreams().find(|(at, _)| *at == index) {
                        upstream.health.borrow_mut().set_checked(server, up);
                    }
                }
            });
        }
    }
}

async fn ask(
    worker: &Worker,
    upstream: &Upstream,
    server: ServerIndex,
    patience: Duration,
) -> bool {
    let (clock, metrics) = (&worker.clock, &worker.metrics);
    let Check::Http { path, host, status } = &upstream.spec().check else {
        let opened = upstream.connect_to_check(server, patience, clock, metrics);
        return opened.await.is_ok();
    };
    let opened = upstream
        .connect_to_check(server, patience, clock, metrics)
        .await;
    let Ok(mut lease) = opened else { return false };
    let host = if host.is_empty() {
        &upstream.server(server).authority
    } else {
        host
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: gt-check\r\nConnection: close\r\n\r\n"
    );
    if lease.conn.write_all(request.as_bytes()).await.is_err() || lease.conn.flush().await.is_err()
    {
        return false;
    }
    let mut head = h1::ResponseHead::default();
    let mut read = Vec::with_capacity(1024);
    let limits = h1::Limits::default();
    loop {
        match lease.conn.read_buf(&mut read).await {
            Ok(1..) => {}
            _ => return false,
        }
        match head.parse(&read, &limits) {
            Ok(Some(_)) => {
                let found = head.view(&read).map(|answer| answer.status());
                let good = |found| status.iter().any(|range| range.contains(&found));
                return found.is_some_and(good);
            }
            Ok(None) => {}
            Err(_) => return false,
        }
    }
}

/// A new site is noticed after so long.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
