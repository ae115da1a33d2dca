//! Waits for what has no event to wait for: asks again, often, until a deadline.

use std::{
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::PATIENCE;

/// Asks `probe` until it has an answer.
///
/// # Panics
/// When there is none within [`PATIENCE`].
#[track_caller]
pub fn until<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    until_within(what, PATIENCE, probe)
}

/// Asks `probe` until it has an answer.
///
/// # Panics
/// When there is none within `limit`.
#[track_caller]
pub fn until_within<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = probe() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the address accepts connections.
///
/// # Panics
/// When it does not within [`PATIENCE`].
#[track_caller]
pub fn until_accepting(address: SocketAddr) {
    until(&format!("{address} accepts"), || {
        TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()
    });
}
