//! Streams to relayed services that wait for a request, pooled like connections. One pool per worker.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};

use super::{RelayService, Tag};
use crate::{conn::Conn, h2_server, site::KeepAlive, upstream::Lease};

/// Streams by the service that they lead to.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: RefCell<HashMap<Tag, Vec<Idle>>>,
    /// Of services that speak HTTP/2: connections over one stream each.
    http2: RefCell<HashMap<Tag, Shared>>,
}

#[derive(Debug)]
struct Shared {
    connections: Rc<h2_server::Pool>,
    service: Arc<dyn RelayService>,
}

#[derive(Debug)]
struct Idle {
    conn: Conn,
    since: Duration,
    requests: u32,
    service: Arc<dyn RelayService>,
}

impl Pool {
    /// The HTTP/2 connections to a service that was found under `tag`.
    pub(super) fn http2(&self, service: &Arc<dyn RelayService>, tag: Tag) -> Rc<h2_server::Pool> {
        let mut all = self.http2.borrow_mut();
        let shared = all.entry(tag).or_insert_with(|| Shared {
            connections: Rc::default(),
            service: Arc::clone(service),
        });
        Rc::clone(&shared.connections)
    }

    /// A stream that waited and is still there.
    pub(crate) fn take(
        &self,
        service: &dyn RelayService,
        tag: Tag,
        now: Duration,
    ) -> Option<Lease> {
        if service.tag() != tag {
            return None;
        }
        let mut pool = self.idle.borrow_mut();
        let idle = pool.get_mut(&tag)?;
        while let Some(mut waiting) = idle.pop() {
            if now.saturating_sub(waiting.since) < IDLE && waiting.conn.is_quiet() {
                return Some(Lease {
                    conn: waiting.conn,
                    requests: waiting.requests,
                });
            }
        }
        None
    }

    /// Keeps a stream, opened under `tag`, for the next request.
    pub(crate) fn keep(
        &self,
        service: &Arc<dyn RelayService>,
        tag: Tag,
        lease: Lease,
        now: Duration,
    ) {
        if service.tag() != tag {
            return;
        }
        let mut pool = self.idle.borrow_mut();
        let idle = pool.entry(tag).or_default();
        if idle.len() < MOST_IDLE {
            idle.push(Idle {
                conn: lease.conn,
                since: now,
                requests: lease.requests + 1,
                service: Arc::clone(service),
            });
        }
    }

    /// Ends streams that waited for too long, were closed by the service, or lead to what is not there any more.
    pub(crate) fn sweep(&self, now: Duration) {
        self.http2.borrow_mut().retain(|tag, shared| {
            shared.connections.sweep(KEEP, now);
            shared.service.tag() == *tag && !shared.connections.is_empty()
        });
        self.idle.borrow_mut().retain(|tag, idle| {
            idle.retain_mut(|waiting| {
                now.saturating_sub(waiting.since) < IDLE
                    && waiting.service.tag() == *tag
                    && waiting.conn.is_quiet()
            });
            !idle.is_empty()
        });
    }

    /// Ends them all.
    pub(crate) fn clear(&self) {
        let pool = std::mem::take(&mut *self.idle.borrow_mut());
        drop(pool);
        let shared = std::mem::take(&mut *self.http2.borrow_mut());
        drop(shared);
    }
}

/// Less than what services wait: 5 s is the default of many (Node.js among them).
const IDLE: Duration = Duration::from_secs(4);
/// Of connections over HTTP/2.
pub(super) const KEEP: KeepAlive = KeepAlive {
    idle: IDLE,
    max_idle: MOST_IDLE,
    max_requests: u32::MAX,
    // Nothing is pipelined there.
    behind: Duration::ZERO,
};
/// For one service and worker.
const MOST_IDLE: usize = 256;
