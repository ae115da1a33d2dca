//! What the supervisor hears of its workers: their messages, the sockets that they ask for, their ends.

use std::{io, time::Instant};

use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

use crate::{
    channel::MOST_FDS,
    message::{SocketName, ToSupervisor, ToWorker},
    run::Supervisor,
    sockets::{MOST_SOCKETS, WorkerId},
    unit::{State, Unit},
};

impl Supervisor {
    pub(crate) fn start_worker(&mut self, index: usize, now: Instant) -> io::Result<WorkerId> {
        let id = WorkerId(self.next_worker);
        self.next_worker += 1;
        let control = self.place.socket();
        self.units[index].start(id, &control, &self.place.key, now)?;
        Ok(id)
    }

    /// Lets a worker that is ready serve.
    pub(crate) fn go(&mut self, index: usize, id: WorkerId, now: Instant) {
        let unit = &mut self.units[index];
        let handoff = unit.handoff.clone();
        if let Some(worker) = unit.worker_mut(id) {
            worker.tell(&ToWorker::Go { handoff });
            worker.state = State::Active;
            let (pid, generation) = (worker.pid.as_raw_nonzero(), worker.generation);
            tracing::info!(
                pid,
                generation,
                unit = unit.spec.name,
                what = unit.worker(id).map(|worker| worker.what.as_str()),
                "a worker serves"
            );
        }
        unit.ever_ready = true;
        unit.sockets.sweep(true, now);
        self.begun();
    }

    /// Whether the first start is done.
    pub(crate) fn begun(&mut self) {
        if self.beginning && self.units.iter().all(|unit| unit.active().is_some()) {
            self.beginning = false;
            self.given.clear();
            self.tell_state();
        }
    }

    pub(crate) fn hear_workers(&mut self) {
        for index in 0..self.units.len() {
            let ids: Vec<WorkerId> = self.units[index]
                .workers
                .iter()
                .map(|worker| worker.id)
                .collect();
            for id in ids {
                self.hear_worker(index, id);
            }
        }
    }

    fn hear_worker(&mut self, index: usize, id: WorkerId) {
        // Bounded: one worker must not keep the loop from the others.
        for _ in 0..MOST_MESSAGES {
            let Some(worker) = self.units[index]
                .worker_mut(id)
                .filter(|worker| !worker.closed)
            else {
                return;
            };
            match worker.channel.recv::<ToSupervisor>(false) {
                Ok(Some((ToSupervisor::Kept { socket }, fds))) => {
                    let unit = &mut self.units[index];
                    unit.sockets.put(socket, fds, Some(id), Instant::now());
                }
                Ok(Some((message, _))) => self.heard(index, id, message, Instant::now()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(None) => {
                    worker.closed = true;
                    if !worker.child {
                        return self.ended(index, id, "it has ended", None);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "a worker makes no sense and is killed");
                    worker.closed = true;
                    worker.kill();
                }
            }
        }
    }

    pub(crate) fn heard(
        &mut self,
        index: usize,
        id: WorkerId,
        message: ToSupervisor,
        now: Instant,
    ) {
        let unit = &mut self.units[index];
        match message {
            ToSupervisor::Listen {
                id: question,
                socket,
                count,
            } => self.listen(index, id, question, &socket, count, now),
            ToSupervisor::Release { socket } => unit.sockets.release(id, &socket, now),
            ToSupervisor::Ready { what } => {
                let Some(worker) = unit.worker_mut(id) else {
                    return;
                };
                worker.what = what;
                if matches!(worker.state, State::Starting { .. }) {
                    worker.state = State::Ready;
                }
                // Nobody has to make room first.
                if unit.active().is_none() && !unit.removed && !self.ending {
                    self.go(index, id, now);
                }
            }
            ToSupervisor::Settled => {
                if let Some(worker) = unit.worker_mut(id) {
                    worker.settled = true;
                }
            }
            ToSupervisor::Stopped => {
                unit.sockets.release_all(id, now);
                if let Some(worker) = unit.worker_mut(id)
                    && let State::Leaving { acked, .. } = &mut worker.state
                {
                    *acked = true;
                }
            }
            ToSupervisor::Busy { visits, links } => {
                if let Some(worker) = unit.worker_mut(id) {
                    worker.busy = Some((visits, links));
                }
            }
            ToSupervisor::Failed { error, for_good } => {
                if let Some(worker) = unit.worker_mut(id) {
                    worker.failed = Some((error, for_good));
                }
            }
            ToSupervisor::Handoff { state } => unit.handoff = Some(state),
            ToSupervisor::Reloaded(outcome) => {
                let name = unit.spec.name.clone();
                if unit.active().is_some_and(|worker| worker.id == id) {
                    self.reloaded(&name, outcome);
                }
            }
            // Its sockets are needed, so it is heard where they are.
            ToSupervisor::Kept { .. } => {}
        }
    }

    fn listen(
        &mut self,
        index: usize,
        id: WorkerId,
        question: u64,
        name: &SocketName,
        count: usize,
        now: Instant,
    ) {
        let unit = &mut self.units[index];
        let refused = |error: &io::Error| ToWorker::Listening {
            id: question,
            error: Some((error.raw_os_error().unwrap_or(0), error.to_string())),
            more: false,
        };
        let leaving = unit.worker(id).is_none_or(|worker| {
            matches!(worker.state, State::Leaving { .. } | State::Ending { .. })
        });
        if leaving {
            let error = io::Error::other("another worker serves now");
            if let Some(worker) = unit.worker(id) {
                worker.tell(&refused(&error));
            }
            return;
        }
        let Unit {
            sockets, workers, ..
        } = unit;
        let Some(worker) = workers.iter().find(|worker| worker.id == id) else {
            return;
        };
        let count = count.min(MOST_SOCKETS);
        match sockets.claim(id, name, count, &mut self.given, now) {
            Ok(fds) => {
                let last = fds.len().div_ceil(MOST_FDS).saturating_sub(1);
                for (n, part) in fds.chunks(MOST_FDS).enumerate() {
                    let message = ToWorker::Listening {
                        id: question,
                        error: None,
                        more: n < last,
                    };
                    if worker.channel.send(&message, part).is_err() {
                        worker.kill();
                        return;
                    }
                }
            }
            Err(error) => worker.tell(&refused(&error)),
        }
    }

    /// Children that have ended.
    pub(crate) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if !self.check_ended(pid, status) {
                self.worker_ended(pid, status);
            }
        }
    }

    fn worker_ended(&mut self, pid: Pid, status: WaitStatus) {
        let Some((index, id)) = self.units.iter().enumerate().find_map(|(index, unit)| {
            let worker = unit.workers.iter().find(|worker| worker.pid == pid)?;
            Some((index, worker.id))
        }) else {
            return;
        };
        // Its last words.
        self.hear_worker(index, id);
        let code = status
            .exit_status()
            .and_then(|code| u8::try_from(code).ok());
        self.ended(index, id, &describe(status), code);
    }

    pub(crate) fn ended(&mut self, index: usize, id: WorkerId, end: &str, code: Option<u8>) {
        let now = Instant::now();
        let beginning = self.beginning;
        let unit = &mut self.units[index];
        let Some(at) = unit.workers.iter().position(|worker| worker.id == id) else {
            return;
        };
        let worker = unit.workers.remove(at);
        unit.sockets.release_all(id, now);
        let raw = worker.pid.as_raw_nonzero();
        let why = match &worker.failed {
            Some((error, _)) => error.clone(),
            None => end.to_owned(),
        };
        self.last_failure = Some(why.clone());
        let unplanned = match worker.state {
            State::Active => {
                tracing::warn!(pid = raw, unit = unit.spec.name, end, "a worker has died");
                true
            }
            State::Starting { .. } | State::Ready => {
                tracing::warn!(
                    pid = raw,
                    unit = unit.spec.name,
                    why,
                    "a worker did not start"
                );
                unit.active().is_none()
            }
            State::Leaving { .. } | State::Ending { .. } => {
                tracing::info!(
                    pid = raw,
                    unit = unit.spec.name,
                    end,
                    "an old worker has ended"
                );
                false
            }
        };
        if !unplanned || self.ending || unit.removed {
            return;
        }
        let for_good = worker.failed.is_some_and(|(_, for_good)| for_good);
        if for_good || beginning && !unit.ever_ready {
            unit.over = Some(code.filter(|code| *code > 0).unwrap_or(1));
            self.one_is_over();
        } else if unit.coming().is_none() {
            let pause = unit.died(now.saturating_duration_since(worker.since), now);
            if !pause.is_zero() {
                tracing::warn!(unit = unit.spec.name, ?pause, "the next worker has to wait");
            }
        }
    }

    /// A configuration has failed for good: if it is the last, or the first start is not done, that is the end.
    pub(crate) fn one_is_over(&mut self) {
        let codes = || self.units.iter().filter_map(|unit| unit.over);
        if self.beginning || codes().count() == self.units.len() {
            let code = codes().next().unwrap_or(1);
            self.stop();
            self.exit = code;
        }
    }
}

fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("it ended with code {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        _ => format!("{status:?}"),
    }
}

const MOST_MESSAGES: usize = 256;
