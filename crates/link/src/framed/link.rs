//! A handle on a link over a byte transport.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use mux::{Mux, OpenError};

use super::{
    driver::Driver,
    join::Join,
    state::{Shared, State},
    stream::Stream,
};
use crate::{
    join::JoinOptions,
    link::{Handler, LinkOptions},
    pace::Traffic,
};

/// See [`crate::Link`], whose methods these are.
#[derive(Clone)]
pub(crate) struct Framed {
    shared: Rc<Shared>,
}

impl Framed {
    pub(crate) fn start(
        transport: net::Stream,
        options: &LinkOptions,
        handler: Rc<dyn Handler>,
    ) -> (Self, Driver) {
        let mux = Mux::new(options.side, options.config, Duration::ZERO);
        let shared = Rc::new(Shared {
            state: RefCell::new(State::new(mux)),
        });
        let driver = Driver::new(Rc::clone(&shared), handler, transport, options.sweep_every);
        (Self { shared }, driver)
    }

    pub(crate) fn from_shared(shared: Rc<Shared>) -> Self {
        Self { shared }
    }

    /// Opens a stream and joins a socket to it. `first` was read from the socket already and goes before what it sends next; it rides
    /// with the header, so the peer needs no second read to start.
    pub(crate) fn open(
        &self,
        header: &[u8],
        first: Vec<u8>,
        socket: net::Stream,
        options: JoinOptions,
    ) -> Result<Join, (net::Stream, OpenError)> {
        let mut state = self.shared.state.borrow_mut();
        if state.ended || state.closing {
            return Err((socket, OpenError::TooManyStreams));
        }
        state.refresh_clock();
        let now = state.now;
        let (key, taken) = match state.mux.open(header, &first, now) {
            Ok(opened) => opened,
            Err(error) => return Err((socket, error)),
        };
        let slot = state.add(key);
        let tenths = state.tenths();
        slot.borrow_mut().count_sent(taken, tenths);
        let socket = if taken < first.len() {
            socket.with_prefix(first[taken..].to_vec())
        } else {
            socket
        };
        state.wake_driver();
        drop(state);
        Ok(Join::new(Rc::clone(&self.shared), slot, socket, options))
    }

    /// Opens a stream to be read and written here.
    pub(crate) fn open_stream(
        &self,
        header: &[u8],
        traffic: Option<Arc<Traffic>>,
    ) -> Result<Stream, OpenError> {
        let mut state = self.shared.state.borrow_mut();
        if state.ended || state.closing {
            return Err(OpenError::TooManyStreams);
        }
        state.refresh_clock();
        let now = state.now;
        let (key, _) = state.mux.open(header, &[], now)?;
        let slot = state.add(key);
        slot.borrow_mut().traffic = traffic;
        state.wake_driver();
        drop(state);
        Ok(Stream::new(Rc::clone(&self.shared), slot))
    }

    /// Sends a message to the peer's [`Handler::control`]: at most [`mux::MAX_PAYLOAD`] bytes.
    pub(crate) fn send_control(&self, message: &[u8]) {
        let mut state = self.shared.state.borrow_mut();
        state.mux.send_control(message);
        state.wake_driver();
    }

    /// Ends the link after what waits has been sent; streams that are open are reset.
    pub(crate) fn close(&self) {
        let mut state = self.shared.state.borrow_mut();
        state.closing = true;
        state.end_all();
        state.wake_driver();
    }

    /// Whether streams can still be opened.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.shared.state.borrow();
        !state.ended && !state.closing
    }

    /// Streams on the link.
    pub(crate) fn stream_count(&self) -> usize {
        self.shared.state.borrow().mux.stream_count()
    }

    /// Smoothed round-trip time; zero until it was measured.
    pub(crate) fn round_trip(&self) -> Duration {
        self.shared.state.borrow().mux.round_trip()
    }

    /// Bytes sent and received on the transport, before encryption.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let state = self.shared.state.borrow();
        (state.sent_bytes, state.received_bytes)
    }

    /// What the driver saw when it was last asked to look; asks it again.
    pub(crate) fn path(&self) -> Option<net::PathFigures> {
        let mut state = self.shared.state.borrow_mut();
        if !state.ended {
            state.look = true;
            state.wake_driver();
        }
        state.path
    }

    /// Says something that the peer answers.
    pub(crate) fn ping(&self) {
        let mut state = self.shared.state.borrow_mut();
        if !state.ended && !state.closing {
            state.refresh_clock();
            let now = state.now;
            state.mux.send_ping(now);
            state.wake_driver();
        }
    }

    /// Whether both are the same link.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.shared, &other.shared)
    }
}
