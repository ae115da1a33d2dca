//! What a request needs while it is under way and its connection does not need between two: lent by the thread, so that a connection that waits
//! costs a socket and little more.

use std::cell::RefCell;

use h1::{RequestHead, ResponseHead};

use crate::{
    answer::Turn,
    buffer::{Input, Output},
};

/// The state of one exchange, made once and used by many.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) request: RequestHead,
    pub(crate) response: ResponseHead,
    /// The request's head, kept while its body passes through the input.
    pub(crate) saved: Vec<u8>,
    /// The right to answer it, until somebody does.
    pub(crate) turn: Option<Turn>,
    /// To the visitor.
    pub(crate) answer: Output,
    /// From and to the upstream.
    pub(crate) from_upstream: Input,
    pub(crate) to_upstream: Output,
    /// For values that are put together.
    pub(crate) value: Vec<u8>,
    pub(crate) path: Vec<u8>,
    pub(crate) scratch: route::Scratch,
}

thread_local! {
    #[expect(clippy::vec_box, reason = "they move between the store and connections: a pointer is what moves")]
    static STORE: RefCell<Vec<Box<Work>>> = const { RefCell::new(Vec::new()) };
}

/// Goes back to the thread when dropped.
#[derive(Debug)]
pub(crate) struct Lent(Option<Box<Work>>);

impl Lent {
    pub(crate) fn new() -> Self {
        Self(Some(STORE.with_borrow_mut(Vec::pop).unwrap_or_default()))
    }

    pub(crate) fn work(&mut self) -> &mut Work {
        self.0.get_or_insert_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(mut work) = self.0.take() else {
            return;
        };
        work.request.clear();
        work.response.clear();
        work.saved.clear();
        work.turn = None;
        work.answer = Output::default();
        let unread = work.from_upstream.bytes().len();
        work.from_upstream.consume(unread);
        work.from_upstream.rest();
        work.to_upstream = Output::default();
        if work.saved.capacity() > KEPT_BYTES {
            work.saved = Vec::new();
        }
        STORE.with_borrow_mut(|store| {
            if store.len() < KEPT {
                store.push(work);
            }
        });
    }
}

/// Exchanges' state that a thread keeps when nobody needs it.
const KEPT: usize = 128;
/// A saved head larger than this is not kept.
const KEPT_BYTES: usize = 16 << 10;
