//! One data thread's part of the server: the links that were placed on it.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};

use link::Link;

use crate::{server::Shared, session::SessionKey};

/// Lives on its thread; everything in it is reached without a lock.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) server: Arc<Shared>,
    links: RefCell<HashMap<SessionKey, Vec<Link>>>,
    /// Links that their clients leave: no session's any more, but not ended.
    leaving: RefCell<Vec<Link>>,
    /// What makes a link end when its streams have, by session and number of the link.
    leave: RefCell<HashMap<(SessionKey, u16), Leave>>,
}

/// Makes a link end when its streams have.
pub(crate) type Leave = Rc<dyn Fn(&Worker)>;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Worker>>> = const { RefCell::new(None) };
}

impl Worker {
    /// Makes this thread a worker of the server; done once, before anything else runs on it.
    pub(crate) fn install(index: usize, server: Arc<Shared>) {
        let worker = Rc::new(Self {
            index,
            server,
            links: RefCell::default(),
            leaving: RefCell::default(),
            leave: RefCell::default(),
        });
        CURRENT.with_borrow_mut(|current| *current = Some(worker));
    }

    /// The worker whose thread this is; `None` on other threads and after the server has stopped.
    pub(crate) fn current() -> Option<Rc<Self>> {
        CURRENT.with_borrow(Option::clone)
    }

    pub(crate) fn add_link(&self, session: SessionKey, link: Link) {
        self.links
            .borrow_mut()
            .entry(session)
            .or_default()
            .push(link);
    }

    pub(crate) fn remove_link(&self, session: SessionKey, link: &Link) {
        let mut links = self.links.borrow_mut();
        if let Some(of_session) = links.get_mut(&session) {
            of_session.retain(|other| !other.is(link));
            if of_session.is_empty() {
                links.remove(&session);
            }
        }
    }

    /// The session's least busy link on this worker.
    pub(crate) fn link(&self, session: SessionKey) -> Option<Link> {
        let links = self.links.borrow();
        let of_session = links.get(&session)?;
        match of_session.as_slice() {
            [only] => Some(only).filter(|link| link.is_open()).cloned(),
            several => several
                .iter()
                .filter(|link| link.is_open())
                .min_by_key(|link| link.stream_count())
                .cloned(),
        }
    }

    /// All links, for closing them.
    pub(crate) fn all_links(&self) -> Vec<Link> {
        let links = self.links.borrow();
        let leaving = self.leaving.borrow();
        links.values().flatten().chain(&*leaving).cloned().collect()
    }

    /// The links of the sessions that `of` names.
    pub(crate) fn links_of(&self, of: impl Fn(SessionKey) -> bool) -> Vec<Link> {
        let links = self.links.borrow();
        let named = links.iter().filter(|(session, _)| of(**session));
        named.flat_map(|(_, links)| links).cloned().collect()
    }

    pub(crate) fn add_leaving(&self, link: Link) {
        self.leaving.borrow_mut().push(link);
    }

    /// Sets what [`Worker::leave_link`] does for a link.
    pub(crate) fn on_leave(&self, link: (SessionKey, u16), leave: Leave) {
        self.leave.borrow_mut().insert(link, leave);
    }

    pub(crate) fn forget_leave(&self, link: (SessionKey, u16)) {
        self.leave.borrow_mut().remove(&link);
    }

    /// The client leaves the link with this number, if it is here.
    pub(crate) fn leave_link(&self, session: SessionKey, number: u16) {
        let leave = self.leave.borrow().get(&(session, number)).cloned();
        if let Some(leave) = leave {
            leave(self);
        }
    }

    pub(crate) fn remove_leaving(&self, link: &Link) {
        self.leaving.borrow_mut().retain(|other| !other.is(link));
    }
}
