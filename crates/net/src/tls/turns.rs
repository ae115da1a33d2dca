//! Handshakes take turns, so that those who are connected do not wait behind them.
//!
//! What a server computes to answer a ClientHello takes a hundred times as long as passing a small request on. The event loop serves what is ready in
//! order: where a hundred come at one time, everybody else on the thread would wait until all are done. Here they stand in a queue of their
//! thread's, in order. After each the others have a turn of the event loop, and the next one follows at once only for as long as handshakes have not taken a
//! fourth of the time that the others did: so a thread that has nothing else to do goes from one to the next, and on one that is busy without end
//! they still get a fifth of it.
//!
//! Futures that go away while they wait leave the queue. How long one may wait is the caller's to bound, with the time of a whole handshake.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Does `compute` when it is this handshake's turn on this thread.
pub(crate) async fn take_turn<T>(compute: impl FnOnce() -> T) -> T {
    let queue = QUEUE.with(Arc::clone);
    // Never closed; if it were, handshakes would go in the order they come.
    let _turn = queue.acquire().await;
    if SHARE.get().is_spent() {
        let asked = Instant::now();
        // Returns when all that was ready has been served; what the event queue reports then comes before it, too.
        tokio::task::yield_now().await;
        SHARE.set(Share::after(asked.elapsed()));
    }
    let began = Instant::now();
    let computed = compute();
    SHARE.set(SHARE.get().without(began.elapsed()));
    computed
}

thread_local! {
    /// One turn at a time. Shared, because a task may move to another thread while it waits (where a runtime has several).
    static QUEUE: Arc<Semaphore> = Arc::new(Semaphore::new(1));
    static SHARE: Cell<Share> = const { Cell::new(Share(Duration::ZERO)) };
}

/// What handshakes may still take before it is the others' turn again.
#[derive(Clone, Copy, Debug)]
struct Share(Duration);

impl Share {
    /// The others had their turn, and took so long.
    fn after(others: Duration) -> Self {
        Self(others / OTHERS)
    }

    fn is_spent(self) -> bool {
        self.0.is_zero()
    }

    fn without(self, taken: Duration) -> Self {
        Self(self.0.saturating_sub(taken))
    }
}

/// The others' time for each part of the handshakes'.
const OTHERS: u32 = 4;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::task::Poll;

    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::{spawn_local, yield_now};

    use super::*;

    /// On a thread of its own, whose clock moves only when it is told to.
    fn on_a_worker<T: Send + 'static>(test: impl AsyncFnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(|| {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build_local(LocalOptions::default());
            runtime.unwrap().block_on(test())
        })
        .join()
        .unwrap()
    }

    #[test]
    fn who_is_connected_is_served_between_two_handshakes() {
        let order = on_a_worker(async || {
            let order = Rc::new(RefCell::new(String::new()));
            let connected = Rc::clone(&order);
            let connected = spawn_local(async move {
                loop {
                    connected.borrow_mut().push('.');
                    yield_now().await;
                }
            });
            let handshakes = [(); 20].map(|()| {
                let order = Rc::clone(&order);
                spawn_local(take_turn(move || order.borrow_mut().push('h')))
            });
            for handshake in handshakes {
                handshake.await.unwrap();
            }
            connected.abort();
            order.take()
        });
        assert_eq!(order.matches('h').count(), 20, "{order}");
        assert!(!order.contains("hh"), "{order}");
    }

    #[test]
    fn handshakes_get_a_fifth_of_a_thread_that_never_rests() {
        let (turn, handshake) = (Duration::from_millis(10), Duration::from_micros(200));
        let mut all = Duration::ZERO;
        for _ in 0..100 {
            let mut share = Share::after(turn);
            while !share.is_spent() {
                share = share.without(handshake);
                all += handshake;
            }
        }
        // 2.5 ms in each turn, and what is begun is finished.
        assert_eq!(all, Duration::from_micros(2600) * 100);
    }

    #[test]
    fn handshakes_follow_one_another_where_nobody_else_is() {
        let order = on_a_worker(async || {
            let order = Rc::new(RefCell::new(Vec::new()));
            let handshakes = [0, 1, 2, 3].map(|n| {
                let order = Rc::clone(&order);
                spawn_local(take_turn(move || order.borrow_mut().push(n)))
            });
            for handshake in handshakes {
                handshake.await.unwrap();
            }
            order.take()
        });
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn who_gives_up_does_not_keep_the_others_waiting() {
        on_a_worker(async || {
            let mut first = Box::pin(take_turn(|| ()));
            assert!(waits(&mut first).await);
            let mut second = Box::pin(take_turn(|| ()));
            assert!(waits(&mut second).await);
            let mut third = Box::pin(take_turn(|| ()));
            assert!(waits(&mut third).await);
            // The first has its turn and lets the others go before, the second stands in the queue.
            drop(second);
            drop(first);
            third.await;
        });
    }

    /// Polls it once.
    async fn waits(future: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
    }
}
