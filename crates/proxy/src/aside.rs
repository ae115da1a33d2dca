//! Work that would stop a data thread (files, password hashes), on threads of its own: few, shared by all workers, and with a bound on what may
//! wait for them. A thread is started when it is needed, and ends when it has had nothing to do for a while.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// What a proxy does beside its data threads. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    /// Opening and reading files: as fast as the disk is.
    pub(crate) files: Pool,
    /// Checking passwords: tens of milliseconds of computing each.
    pub(crate) passwords: Pool,
}

impl Aside {
    pub(crate) fn new() -> Self {
        let cores = net::default_worker_count();
        Self {
            files: Pool::new("gt-files", (cores * 2).clamp(4, 16), FILES_WAITING),
            passwords: Pool::new("gt-passwords", (cores / 2).clamp(1, 4), PASSWORDS_WAITING),
        }
    }
}

/// Threads for one kind of work.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Shared>);

/// The work was not done: as much as may wait is waiting already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

type Job = Box<dyn FnOnce() + Send>;

struct Shared {
    name: &'static str,
    most_threads: usize,
    /// Places for work, both under way and waiting.
    places: Arc<Semaphore>,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Pool {
    /// At most `threads` threads, and `places` pieces of work under way or waiting.
    fn new(name: &'static str, threads: usize, places: usize) -> Self {
        Self(Arc::new(Shared {
            name,
            most_threads: threads,
            places: Arc::new(Semaphore::new(places)),
            state: Mutex::default(),
            wake: Condvar::new(),
        }))
    }

    /// Does `work` on another thread, unless there is too much of it.
    ///
    /// # Errors
    /// [`Busy`] when every place is taken.
    pub(crate) async fn try_run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let place = Arc::clone(&self.0.places).try_acquire_owned();
        self.start(place.map_err(|_| Busy)?, work).await
    }

    /// Does `work` on another thread, after waiting for a place. For the rest of what [`Pool::try_run`] began; the caller bounds the time.
    ///
    /// # Errors
    /// [`Busy`] when no thread can be started.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let place = Arc::clone(&self.0.places).acquire_owned().await;
        self.start(place.map_err(|_| Busy)?, work).await
    }

    async fn start<T: Send + 'static>(
        &self,
        place: OwnedSemaphorePermit,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let (tell, told) = oneshot::channel();
        self.0.submit(Box::new(move || {
            let _place = place;
            // Whoever asked may have gone while this waited.
            if !tell.is_closed() {
                let _ = tell.send(work());
            }
        }))?;
        told.await.map_err(|_| Busy)
    }
}

impl Shared {
    fn submit(self: &Arc<Self>, job: Job) -> Result<(), Busy> {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.idle || state.threads >= self.most_threads {
            self.wake.notify_one();
            return Ok(());
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name(self.name.into());
        if let Err(error) = thread.spawn(move || shared.work()) {
            tracing::error!(%error, name = self.name, "a thread cannot be started");
            let mut state = self.lock();
            state.threads -= 1;
            if state.threads == 0 {
                // Nobody is left who would do it.
                state.jobs.clear();
                return Err(Busy);
            }
        }
        Ok(())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // Unwind safe: the job is gone, and its answer with it.
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!(
                        name = self.name,
                        "a piece of work panicked; the thread goes on"
                    );
                }
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.wake.wait_timeout(state, KEPT);
            let (back, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    /// Held for a few moves of pointers only.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A thread without work ends after so long.
const KEPT: Duration = Duration::from_secs(10);
/// Files that may be asked for at one time: a disk of 1 ms serves them in a fraction of a second, and one that hangs holds so many visitors and no more.
const FILES_WAITING: usize = 512;
/// Password checks at one time: at 100 ms each, the last waits for a few seconds.
const PASSWORDS_WAITING: usize = 32;

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, sync::mpsc, task};

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(future)
    }

    #[test]
    fn what_finds_no_place_is_refused_at_once_and_the_rest_is_done() {
        let pool = Pool::new("test", 2, 3);
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        block_on(async {
            let mut stuck: Vec<_> = (0..3)
                .map(|n| {
                    let (pool, gate) = (pool.clone(), Arc::clone(&gate));
                    Box::pin(async move {
                        pool.try_run(move || {
                            let _ = gate.lock().expect("not poisoned").recv();
                            n
                        })
                        .await
                    })
                })
                .collect();
            let mut cx = task::Context::from_waker(task::Waker::noop());
            for work in &mut stuck {
                assert!(work.as_mut().poll(&mut cx).is_pending());
            }
            assert_eq!(pool.try_run(|| ()).await, Err(Busy));
            let mut later = pin!(pool.run(|| "later"));
            assert!(later.as_mut().poll(&mut cx).is_pending());
            drop(release);
            for (n, work) in stuck.into_iter().enumerate() {
                assert_eq!(work.await, Ok(n));
            }
            assert_eq!(later.await, Ok("later"));
        });
        assert!(pool.0.lock().threads <= 2);
    }

    #[test]
    fn work_that_panics_takes_no_thread_and_no_place_with_it() {
        let pool = Pool::new("test", 1, 1);
        block_on(async {
            for _ in 0..3 {
                let end: Result<(), Busy> = pool.run(|| panic!("on purpose")).await;
                assert_eq!(end, Err(Busy));
            }
            assert_eq!(pool.run(|| 1).await, Ok(1));
        });
    }
}
