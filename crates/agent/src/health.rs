//! Checks of local services (`healthCheck`): each is asked now and then, and what comes of it is told to the server with the next
//! declaration, so that visitors are sent elsewhere or told why.
//!
//! One task per checked service, all on one worker, begun and ended as the services change. Counting is `route`'s; what a declaration looks
//! like is `keep`'s.

use std::{
    collections::HashMap,
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use config::{CheckKind, HealthCheck, Service};
use net::WorkerHandle;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinHandle,
};
use tunnel::ServiceId;

use crate::{
    agent::{Agent, Shared, lock},
    local::{self, authority},
};

/// Checks services until the client stops.
pub(crate) fn start(shared: &Arc<Shared>, workers: &[WorkerHandle]) {
    let Some(handle) = workers.first() else {
        return;
    };
    let stopping = shared.stopping.clone();
    let _ = handle.spawn(move || async move {
        let Some(agent) = Agent::current() else {
            return;
        };
        tokio::select! {
            () = follow(agent) => {}
            () = stopping.wait() => {}
        }
    });
}

/// A check that runs.
struct Running {
    service: Arc<Service>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Keeps one task for each service that is to be checked, as the services change.
async fn follow(agent: Rc<Agent>) {
    let mut running: HashMap<ServiceId, Running> = HashMap::new();
    let mut offered = agent.shared.offered.subscribe();
    loop {
        offered.borrow_and_update();
        let offer = agent.shared.offer.load_full();
        let wanted: HashMap<ServiceId, Arc<Service>> = offer
            .services()
            .filter(|(_, service)| service.health.is_some())
            .map(|(id, service)| (*id, Arc::clone(service)))
            .collect();
        running.retain(|id, check| {
            let same = |now: &Arc<Service>| is_same(now, &check.service);
            wanted.get(id).is_some_and(same)
        });
        let fewer = {
            let mut down = lock(&agent.shared.down);
            let before = down.len();
            down.retain(|id| running.contains_key(id));
            down.len() < before
        };
        if fewer {
            // What was declared with these services a moment ago may have said otherwise.
            agent.shared.offered.send_replace(());
        }
        for (id, service) in wanted {
            running.entry(id).or_insert_with(|| Running {
                task: tokio::task::spawn_local(check(Rc::clone(&agent), id, Arc::clone(&service))),
                service,
            });
        }
        if offered.changed().await.is_err() {
            return;
        }
    }
}

/// A check goes on, with what it has counted, where a reload changed nothing that it looks at.
fn is_same(a: &Service, b: &Service) -> bool {
    (&a.health, &a.local, &a.proxy_protocol, &a.local_cert)
        == (&b.health, &b.local, &b.proxy_protocol, &b.local_cert)
}

async fn check(agent: Rc<Agent>, id: ServiceId, service: Arc<Service>) {
    let Some(HealthCheck { spec, kind }) = &service.health else {
        return;
    };
    let began = Instant::now();
    let mut state = route::ActiveCheck::new(*spec, Duration::ZERO, rand::random());
    loop {
        let pause = state.due().unwrap_or_default();
        tokio::time::sleep_until((began + pause).into()).await;
        state.started();
        let asked = tokio::time::timeout(spec.timeout, ask(&agent, &service, kind));
        let found = asked.await.unwrap_or(Err(Unfit::Late));
        let changed = state.ended(found.is_ok(), began.elapsed(), rand::random());
        match (changed, found) {
            (Some(true), _) => {
                tracing::info!(service = service.name, "a service is fit again");
                tell(&agent.shared, id, false);
            }
            (Some(false), Err(error)) => {
                tracing::warn!(service = service.name, local = %service.local, %error, "a service fails its checks: its visitors are told so");
                tell(&agent.shared, id, true);
            }
            _ => {}
        }
    }
}

/// Declares the services anew.
fn tell(shared: &Shared, id: ServiceId, down: bool) {
    {
        let mut all = lock(&shared.down);
        if down {
            all.insert(id);
        } else {
            all.remove(&id);
        }
    }
    shared.offered.send_replace(());
}

/// Why a service is not fit.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("no answer in time")]
    Late,
    #[error("{0}")]
    Connect(#[from] local::LocalError),
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("it answers with status {0}")]
    Status(u16),
    #[error("its answer is not HTTP/1.1")]
    NotHttp,
}

async fn ask(agent: &Agent, service: &Service, kind: &CheckKind) -> Result<(), Unfit> {
    let (port, question) = match kind {
        CheckKind::Tcp { port } => (*port, None),
        CheckKind::Http {
            port, path, host, ..
        } => {
            let host = match host {
                Some(host) => host.to_string(),
                None => authority(&service.local),
            };
            let question = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: gt-check\r\nConnection: close\r\n\r\n"
            );
            (*port, Some(question))
        }
    };
    let mut socket = local::dial_to_check(agent, service, port).await?;
    let (Some(question), CheckKind::Http { status, .. }) = (question, kind) else {
        return Ok(());
    };
    socket.write_all(question.as_bytes()).await?;
    socket.flush().await?;
    let mut start = [0; STATUS_LINE];
    socket.read_exact(&mut start).await?;
    let found = read_status(&start).ok_or(Unfit::NotHttp)?;
    match status.iter().any(|range| range.contains(&found)) {
        true => Ok(()),
        false => Err(Unfit::Status(found)),
    }
}

/// `HTTP/1.1 200` (RFC 9112 §4); a reason or the line's end follows.
const STATUS_LINE: usize = 12;

fn read_status(line: &[u8; STATUS_LINE]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let (version, digits) = rest.split_first_chunk::<2>()?;
    let sound = version[0].is_ascii_digit() && version[1] == b' ';
    let digits = std::str::from_utf8(digits).ok().filter(|_| sound)?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_from_the_first_bytes_only_if_they_are_http() {
        assert_eq!(read_status(b"HTTP/1.1 200"), Some(200));
        assert_eq!(read_status(b"HTTP/1.0 503"), Some(503));
        for other in [
            b"HTTP/2.0 200",
            b"HTTP/1.1  20",
            b"HTTP/1.1 +20",
            b"SSH-2.0-Open",
        ] {
            assert_eq!(read_status(other), None);
        }
    }
}
