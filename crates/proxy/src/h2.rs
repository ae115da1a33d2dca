//! HTTP/2 visitors.

use std::rc::Rc;

use crate::{visitor::About, worker::Worker};

/// Serves a connection until it ends.
pub(crate) async fn serve(_worker: Rc<Worker>, stream: net::Stream, _about: About) {
    stream.abort();
}
