//! A reload or restart under way: check in a process of its own, ask the workers what they can take, replace those that cannot.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek},
    os::fd::OwnedFd,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{Pid, Signal, WaitStatus, kill_process},
};

use crate::{
    CHECK,
    control::{Answer, ConnId},
    message::{Checked, Outcome, ToWorker},
    notify::OWN_VARIABLES,
    resume,
    run::{DRAIN, STOP_PATIENCE, Supervisor},
    sockets::WorkerId,
    unit::{SELF, State, Unit},
};

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Reload,
    Plan,
    Restart,
    /// After a restart: every configuration gets a worker of the new program.
    Renew,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) askers: Vec<ConnId>,
    phase: Phase,
    report: Vec<String>,
    failed: bool,
}

#[derive(Debug)]
enum Phase {
    Checking(Check),
    Units(BTreeMap<String, Step>),
}

#[derive(Debug)]
struct Check {
    pid: Pid,
    out: File,
    err: File,
    until: Instant,
}

/// How far one configuration is.
#[derive(Clone, Debug)]
enum Step {
    /// Its worker was asked.
    Answering {
        until: Instant,
    },
    /// It needs another worker.
    Replacing,
    /// That worker starts.
    Starting(WorkerId),
    /// The old worker was told to stop accepting.
    Stopping {
        new: WorkerId,
        old: WorkerId,
        until: Instant,
    },
    Done,
}

impl Supervisor {
    /// Begins; the askers are told how it ended.
    pub(crate) fn begin(&mut self, kind: Kind, askers: Vec<ConnId>) {
        let now = Instant::now();
        if kind != Kind::Plan {
            self.notify.reloading();
        }
        let phase = if kind == Kind::Renew {
            let steps = self.units.iter().filter(|unit| !unit.removed);
            let steps = steps.map(|unit| (unit.spec.name.clone(), Step::Replacing));
            Ok(Phase::Units(steps.collect()))
        } else {
            self.spawn_check(kind == Kind::Restart, now)
                .map(Phase::Checking)
        };
        match phase {
            Ok(phase) => {
                self.job = Some(Job {
                    kind,
                    askers,
                    phase,
                    report: Vec::new(),
                    failed: false,
                })
            }
            Err(error) => {
                let text = format!("the configuration cannot be checked: {error}");
                tracing::error!("{text}");
                self.answer(&askers, false, &text);
                self.tell_state();
            }
        }
    }

    /// The check reads the whole configuration in another process: what goes wrong there harms nothing here. For a restart it is the
    /// program on disk that checks.
    fn spawn_check(&self, on_disk: bool, now: Instant) -> io::Result<Check> {
        let file = || memfd_create("gt-check", MemfdFlags::CLOEXEC).map(File::from);
        let (out, err) = (file()?, file()?);
        let mut command = if on_disk {
            Command::new(&self.options.program)
        } else {
            Command::new(SELF)
        };
        command
            .arg(CHECK)
            .args(&self.options.args)
            .stdin(Stdio::null())
            .stdout(OwnedFd::from(out.try_clone()?))
            .stderr(OwnedFd::from(err.try_clone()?));
        for variable in OWN_VARIABLES {
            command.env_remove(variable);
        }
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Check {
            pid: pid.ok_or(io::ErrorKind::InvalidData)?,
            out,
            err,
            until: now + CHECK_TIME,
        })
    }

    /// A child has ended; whether it was the check.
    pub(crate) fn check_ended(&mut self, pid: Pid, status: WaitStatus) -> bool {
        let Some(Job {
            phase: Phase::Checking(check),
            kind,
            ..
        }) = &mut self.job
        else {
            return false;
        };
        if check.pid != pid {
            return false;
        }
        let kind = *kind;
        let (out, err) = (text_of(&mut check.out), text_of(&mut check.err));
        if status.exit_status() != Some(0) {
            let text = match err.trim() {
                "" => format!("the check of the configuration ended with {status:?}"),
                text => text.to_owned(),
            };
            self.fail(&text);
        } else {
            match serde_json::from_str::<Checked>(&out) {
                Ok(checked) if kind == Kind::Restart => self.become_other(&checked),
                Ok(checked) => self.ask_units(&checked),
                Err(error) => {
                    self.fail(&format!("the check's answer cannot be read: {error}"));
                }
            }
        }
        true
    }

    fn fail(&mut self, text: &str) {
        if let Some(job) = &mut self.job {
            job.report.push(text.to_owned());
            job.failed = true;
            job.phase = Phase::Units(BTreeMap::new());
        }
    }

    fn become_other(&mut self, checked: &Checked) {
        if checked.handover != resume::HANDOVER {
            return self.fail(&format!(
                "gt {} on disk does not understand the state of this one; stop and start it instead",
                checked.version
            ));
        }
        if self.units.iter().any(|unit| unit.leaving() >= MOST_LEAVING) {
            return self.fail("two older workers still let their work end; try again later");
        }
        tracing::info!(version = checked.version, "the program on disk takes over");
        let askers = self.job.take().map(|job| job.askers).unwrap_or_default();
        // It returns only if it could not be done.
        let error = resume::exec(self, &askers);
        let text = format!("the program on disk cannot be started: {error}");
        tracing::error!("{text}");
        self.answer(&askers, false, &text);
        self.tell_state();
    }

    fn ask_units(&mut self, checked: &Checked) {
        let now = Instant::now();
        let Some(mut job) = self.job.take() else {
            return;
        };
        let plan = job.kind == Kind::Plan;
        let mut steps = BTreeMap::new();
        for spec in &checked.units {
            let known = self
                .units
                .iter_mut()
                .find(|unit| unit.spec.name == spec.name && !unit.removed);
            let step = match known {
                Some(unit) => {
                    unit.spec.clone_from(spec);
                    match unit.active() {
                        Some(worker) => {
                            worker.tell(&ToWorker::Reload { plan });
                            Step::Answering {
                                until: now + ANSWER_TIME,
                            }
                        }
                        None if plan => {
                            job.report
                                .push(format!("{}: does not run; would be started", spec.name));
                            Step::Done
                        }
                        None => {
                            unit.over = None;
                            unit.respawn_at = None;
                            Step::Replacing
                        }
                    }
                }
                None if plan => {
                    job.report
                        .push(format!("{}: is new; would be started", spec.name));
                    Step::Done
                }
                None => {
                    self.units.push(Unit::new(spec.clone()));
                    job.report.push(format!("{}: is new", spec.name));
                    Step::Replacing
                }
            };
            steps.insert(spec.name.clone(), step);
        }
        for unit in self.units.iter_mut().filter(|unit| !unit.removed) {
            if steps.contains_key(&unit.spec.name) {
                continue;
            }
            if plan {
                job.report.push(format!(
                    "{}: is not there any more; would be stopped",
                    unit.spec.name
                ));
                continue;
            }
            job.report.push(format!(
                "{}: is not there any more; it is stopped",
                unit.spec.name
            ));
            unit.removed = true;
            unit.respawn_at = None;
            for worker in &mut unit.workers {
                worker.stop(STOP_PATIENCE, now);
            }
        }
        job.phase = Phase::Units(steps);
        self.job = Some(job);
    }

    /// A worker has answered.
    pub(crate) fn reloaded(&mut self, name: &str, outcome: Outcome) {
        let Some(Job {
            kind,
            phase: Phase::Units(steps),
            report,
            failed,
            ..
        }) = &mut self.job
        else {
            return;
        };
        let Some(step @ Step::Answering { .. }) = steps.get_mut(name) else {
            return;
        };
        let plan = *kind == Kind::Plan;
        let mut list = |prefix: &str, changes: Vec<String>| {
            report.extend(
                changes
                    .into_iter()
                    .map(|change| format!("{name}: {prefix}{change}")),
            );
        };
        *step = match outcome {
            Outcome::InPlace { changes } if changes.is_empty() => {
                report.push(format!("{name}: nothing has changed"));
                Step::Done
            }
            Outcome::InPlace { changes } => {
                list("in place: ", changes);
                Step::Done
            }
            Outcome::Replace { changes, reasons } => {
                list("", changes);
                list("needs a new process: ", reasons);
                if plan {
                    report.push(format!(
                        "{name}: the worker would be replaced; what it carries would have {} s to end",
                        DRAIN.as_secs()
                    ));
                    Step::Done
                } else {
                    Step::Replacing
                }
            }
            Outcome::Refused { error } => {
                report.push(error);
                *failed = true;
                Step::Done
            }
        };
    }

    /// Does what can be done now.
    pub(crate) fn advance(&mut self, now: Instant) {
        let Some(mut job) = self.job.take() else {
            return self.take_up_waiting();
        };
        match &mut job.phase {
            Phase::Checking(check) => {
                if now >= check.until {
                    // Its end is noticed like any other.
                    let _ = kill_process(check.pid, Signal::KILL);
                }
                self.job = Some(job);
                return;
            }
            Phase::Units(steps) => {
                for (name, step) in steps.iter_mut() {
                    while let Some(next) =
                        self.next_step(name, step, &mut job.report, &mut job.failed, now)
                    {
                        *step = next;
                    }
                }
                if steps.values().any(|step| !matches!(step, Step::Done)) {
                    self.job = Some(job);
                    return;
                }
            }
        }
        let text = job.report.join("\n");
        for line in &job.report {
            match job.failed {
                true => tracing::error!("{line}"),
                false => tracing::info!("{line}"),
            }
        }
        if job.kind != Kind::Plan {
            match job.failed {
                true => tracing::error!("the reload failed; what ran goes on"),
                false => tracing::info!("reloaded"),
            }
        }
        self.answer(&job.askers, !job.failed, &text);
        self.tell_state();
    }

    /// A change that had to wait for older workers can be made now.
    fn take_up_waiting(&mut self) {
        let mut units = self.units.iter_mut();
        let waiting = units.find(|unit| unit.change_waits && unit.leaving() < MOST_LEAVING);
        if let Some(unit) = waiting {
            unit.change_waits = false;
            self.begin(Kind::Reload, Vec::new());
        }
    }

    fn next_step(
        &mut self,
        name: &str,
        step: &Step,
        report: &mut Vec<String>,
        failed: &mut bool,
        now: Instant,
    ) -> Option<Step> {
        let mut give_up = |text: String| {
            report.push(format!("{name}: {text}"));
            *failed = true;
            Some(Step::Done)
        };
        let Some(index) = self
            .units
            .iter()
            .position(|unit| unit.spec.name == name && !unit.removed)
        else {
            return (!matches!(step, Step::Done)).then_some(Step::Done);
        };
        match step.clone() {
            Step::Done => None,
            Step::Answering { until } if self.units[index].active().is_none() => {
                // It died over the question; its successor reads the new configuration anyway.
                let _ = until;
                give_up("the worker ended while it was asked".into())
            }
            Step::Answering { until } => (now >= until)
                .then(|| give_up("the worker did not answer in time".into()))
                .flatten(),
            Step::Replacing => {
                let unit = &mut self.units[index];
                if unit.leaving() >= MOST_LEAVING {
                    unit.change_waits = true;
                    report.push(format!(
                        "{name}: two older workers still let their work end; the change is made when one of them has"
                    ));
                    return Some(Step::Done);
                }
                if unit.is_settling(now) {
                    return None;
                }
                if let Some(coming) = unit.coming() {
                    // One that was started before the change was known.
                    if let Some(worker) = unit.worker(coming) {
                        worker.kill();
                    }
                    return None;
                }
                match self.start_worker(index, now) {
                    Ok(id) => Some(Step::Starting(id)),
                    Err(error) => give_up(format!("no process can be started: {error}")),
                }
            }
            Step::Starting(id) => {
                let unit = &mut self.units[index];
                match unit.worker(id).map(|worker| worker.state) {
                    Some(State::Ready) => {}
                    Some(State::Active) => return Some(Step::Done),
                    Some(_) => return None,
                    None => {
                        let why = self.last_failure.take().unwrap_or_default();
                        return give_up(format!("the new worker did not start: {why}"));
                    }
                }
                let Some(old) = unit.active_mut() else {
                    self.go(index, id, now);
                    return Some(Step::Done);
                };
                let old_id = old.id;
                old.drain(DRAIN, now);
                Some(Step::Stopping {
                    new: id,
                    old: old_id,
                    until: now + STOPPED_TIME,
                })
            }
            Step::Stopping { new, old, until } => {
                let unit = &self.units[index];
                let accepting = unit.worker(old).is_some_and(|worker| {
                    matches!(worker.state, State::Leaving { acked: false, .. })
                });
                if accepting && now < until {
                    return None;
                }
                if unit.worker(new).is_none() {
                    // It died in the last moment: like any worker that serves, it is replaced.
                    self.units[index].respawn_at = Some(now);
                    return Some(Step::Done);
                }
                self.go(index, new, now);
                report.push(format!("{name}: a new worker serves"));
                Some(Step::Done)
            }
        }
    }

    pub(crate) fn answer(&mut self, askers: &[ConnId], ok: bool, text: &str) {
        let answer = Answer {
            ok,
            text: text.to_owned(),
            status: None,
        };
        for conn in self
            .conns
            .iter_mut()
            .filter(|conn| askers.contains(&conn.id))
        {
            conn.answer(&answer);
        }
        self.conns.retain(|conn| !askers.contains(&conn.id));
    }
}

fn text_of(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file
        .rewind()
        .and_then(|()| file.take(MOST_TEXT).read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("the output of the check cannot be read: {error}"),
    }
}

/// Generations that may end their work at one time.
const MOST_LEAVING: usize = 2;
/// A folder of many large files takes a while.
const CHECK_TIME: Duration = Duration::from_secs(30);
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// What a worker may take to stop accepting; the next one begins then in any case.
const STOPPED_TIME: Duration = Duration::from_secs(2);
const MOST_TEXT: u64 = 4 << 20;
