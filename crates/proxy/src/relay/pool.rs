//! Streams to relayed services that wait for a request, pooled like connections. One pool per worker.

use std::{cell::RefCell, collections::HashMap, sync::Arc, time::Duration};

use super::{RelayService, Tag};
use crate::{
    conn::Conn,
    upstream::{Lease, is_quiet},
};

/// Streams by the service that they lead to.
#[derive(Debug, Default)]
pub(crate) struct Pool(RefCell<HashMap<Tag, Vec<Idle>>>);

#[derive(Debug)]
struct Idle {
    conn: Conn,
    since: Duration,
    requests: u32,
    service: Arc<dyn RelayService>,
}

impl Pool {
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
        let mut pool = self.0.borrow_mut();
        let idle = pool.get_mut(&tag)?;
        while let Some(mut waiting) = idle.pop() {
            if now.saturating_sub(waiting.since) < IDLE && is_quiet(&mut waiting.conn) {
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
        let mut pool = self.0.borrow_mut();
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
        self.0.borrow_mut().retain(|tag, idle| {
            idle.retain_mut(|waiting| {
                now.saturating_sub(waiting.since) < IDLE
                    && waiting.service.tag() == *tag
                    && is_quiet(&mut waiting.conn)
            });
            !idle.is_empty()
        });
    }

    /// Ends them all.
    pub(crate) fn clear(&self) {
        let pool = std::mem::take(&mut *self.0.borrow_mut());
        drop(pool);
    }
}

/// Less than what services wait: 5 s is the default of many (Node.js among them).
const IDLE: Duration = Duration::from_secs(4);
/// For one service and worker.
const MOST_IDLE: usize = 256;
