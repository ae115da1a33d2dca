//! Worker threads: one OS thread per core, each with a single-threaded runtime of its own.
//!
//! Work reaches a worker as a closure that makes a future there ([`WorkerHandle::spawn`]); the future need not be
//! `Send`, and everything it spawns stays on that thread. From another thread the closure travels through a channel;
//! from the worker itself it is spawned directly. What the tasks do, and how they are asked to stop, is left to the
//! callers (see [`Shutdown`](crate::Shutdown)).
//!
//! The scheduler's intervals are tokio's own: no measurement has asked for others.

use std::any::Any;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc as sync_mpsc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Shutdown;

/// How many workers to start when nobody says: the processors this process may use, at least 1.
pub fn default_worker_count() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The index of the worker whose thread this is, or `None` on any other thread.
pub fn current_worker() -> Option<usize> {
    CURRENT.get().map(|(_, index)| index)
}

/// A running set of worker threads. Dropping it tells them to stop without waiting; [`Workers::shutdown`] waits.
#[derive(Debug)]
pub struct Workers {
    handles: Vec<WorkerHandle>,
    threads: Vec<JoinHandle<()>>,
    stop: Shutdown,
    ended: sync_mpsc::Receiver<usize>,
}

impl Workers {
    /// Starts `count` threads (at least one) named `{name_prefix}-{index}`.
    ///
    /// # Errors
    /// The system's, when a thread or a runtime's event queue cannot be made; threads started before are stopped.
    pub fn start(count: usize, name_prefix: &str) -> io::Result<Self> {
        let pool = next_pool();
        let (ended_tx, ended) = sync_mpsc::channel();
        let mut workers = Self {
            handles: Vec::new(),
            threads: Vec::new(),
            stop: Shutdown::new(),
            ended,
        };
        for index in 0..count.max(1) {
            let (jobs_tx, jobs) = unbounded_channel();
            let (ready_tx, ready) = sync_mpsc::channel();
            let seat = Seat {
                pool,
                index,
                stop: workers.stop.clone(),
                ended: ended_tx.clone(),
            };
            let thread = thread::Builder::new()
                .name(format!("{name_prefix}-{index}"))
                .spawn(move || seat.run(jobs, &ready_tx))?;
            ready
                .recv()
                .map_err(|_| io::Error::other("worker thread ended while starting"))??;
            workers.threads.push(thread);
            workers.handles.push(WorkerHandle {
                shared: Arc::new(Shared {
                    pool,
                    index,
                    jobs: jobs_tx,
                }),
            });
        }
        Ok(workers)
    }

    /// One handle per worker, in order of index.
    pub fn handles(&self) -> &[WorkerHandle] {
        &self.handles
    }

    /// Stops every worker, dropping the tasks it still has, and waits for the threads at most `deadline`.
    ///
    /// Must not be called on a worker.
    ///
    /// # Errors
    /// [`StillRunning`] names the workers that did not end in time: a task of theirs does not yield. Their threads are
    /// left to themselves.
    pub fn shutdown(mut self, deadline: Duration) -> Result<(), StillRunning> {
        self.stop.trigger();
        let until = Instant::now() + deadline;
        let mut running: Vec<usize> = (0..self.threads.len()).collect();
        while !running.is_empty() {
            match self
                .ended
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(index) => running.retain(|other| *other != index),
                Err(_) => return Err(StillRunning { workers: running }),
            }
        }
        for thread in self.threads.drain(..) {
            // A worker's thread function catches what its tasks throw; there is nothing left to report.
            let _ = thread.join();
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.trigger();
    }
}

/// The way to run something on one worker. Cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    shared: Arc<Shared>,
}

impl WorkerHandle {
    /// The worker's place among its siblings, from 0.
    pub fn index(&self) -> usize {
        self.shared.index
    }

    /// Whether the calling thread is this worker.
    pub fn is_current(&self) -> bool {
        CURRENT.get() == Some((self.shared.pool, self.shared.index))
    }

    /// Runs `make()` on the worker and drives the future it gives there to its end.
    ///
    /// A panic in either is logged and ends that task only. A future not finished when the worker stops is dropped.
    ///
    /// # Errors
    /// [`WorkerGone`] when the worker has stopped; `make` is dropped then.
    pub fn spawn<F, Fut>(&self, make: F) -> Result<(), WorkerGone>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let index = self.shared.index;
        if self.is_current() {
            tokio::task::spawn_local(contained(index, make));
            return Ok(());
        }
        let job: Job = Box::new(move || drop(tokio::task::spawn_local(contained(index, make))));
        self.shared.jobs.send(job).map_err(|_| WorkerGone { index })
    }
}

/// The worker has stopped and takes no more work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {index} has stopped")]
pub struct WorkerGone {
    /// Which worker.
    pub index: usize,
}

/// Workers that did not stop within the time given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("workers {workers:?} did not stop in time: a task on them does not yield")]
pub struct StillRunning {
    /// Their indexes.
    pub workers: Vec<usize>,
}

type Job = Box<dyn FnOnce() + Send>;

struct Shared {
    pool: u64,
    index: usize,
    jobs: UnboundedSender<Job>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// What a worker's thread is given.
struct Seat {
    pool: u64,
    index: usize,
    stop: Shutdown,
    ended: sync_mpsc::Sender<usize>,
}

impl Seat {
    fn run(self, jobs: UnboundedReceiver<Job>, ready: &sync_mpsc::Sender<io::Result<()>>) {
        let runtime = match Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
        {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        CURRENT.set(Some((self.pool, self.index)));
        let _ = ready.send(Ok(()));
        self.serve(&runtime, jobs);
        // A blocking task (a name lookup) may still run on a thread of its own; it is not waited for.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| runtime.shutdown_background())) {
            log_panic(self.index, &*panic);
        }
        let _ = self.ended.send(self.index);
    }

    fn serve(&self, runtime: &LocalRuntime, mut jobs: UnboundedReceiver<Job>) {
        runtime.block_on(async {
            let mut stopped = pin!(self.stop.wait());
            poll_fn(|cx| {
                if stopped.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                loop {
                    match jobs.poll_recv(cx) {
                        Poll::Ready(Some(job)) => job(),
                        // No handle is left, but tasks may be: they run until told to stop.
                        Poll::Ready(None) | Poll::Pending => return Poll::Pending,
                    }
                }
            })
            .await;
        });
    }
}

/// The task made by `make`, with its panics logged instead of lost in a join handle nobody holds.
async fn contained<F, Fut>(index: usize, make: F)
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = ()>,
{
    let mut task = pin!(async move { make().await });
    poll_fn(|cx| {
        // Unwind safe: the future is never polled again after it panicked.
        catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))).unwrap_or_else(|panic| {
            log_panic(index, &*panic);
            Poll::Ready(())
        })
    })
    .await;
}

fn log_panic(worker: usize, panic: &(dyn Any + Send)) {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned());
    tracing::error!(worker, panic = %text, "a task panicked; the worker goes on");
}

fn next_pool() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

thread_local! {
    static CURRENT: Cell<Option<(u64, usize)>> = const { Cell::new(None) };
}
