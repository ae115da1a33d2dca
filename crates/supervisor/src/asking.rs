//! Those who ask a running supervisor: `gt -s` and its relatives, and workers whose supervisor has died.

use std::{
    io,
    os::fd::AsFd,
    time::{Instant, SystemTime},
};

use crate::{
    channel::Channel,
    control::{
        ANOTHER_SERVES, Adopt, Answer, Ask, Conn, ConnId, Heard, ListenerStatus, MOST_CONNECTIONS,
        QUESTION_TIME, Status, UnitStatus, WorkerStatus, failed,
    },
    job::Kind,
    message::{Protocol, ToWorker},
    run::{MOVING, Supervisor},
    sockets::WorkerId,
    unit::{State, Unit, Worker},
};

impl Supervisor {
    pub(crate) fn hear_conns(&mut self) {
        let now = Instant::now();
        while self.conns.len() < MOST_CONNECTIONS {
            let id = ConnId(self.next_conn);
            let Some(conn) = Conn::accept(&self.listener, id, now) else {
                break;
            };
            self.next_conn += 1;
            self.conns.push(conn);
        }
        for index in (0..self.conns.len()).rev() {
            let conn = &mut self.conns[index];
            match conn.read(&self.place.key) {
                Heard::Nothing if !conn.asked && now > conn.since + QUESTION_TIME => {
                    self.conns.swap_remove(index);
                }
                Heard::Nothing => {}
                Heard::Gone => {
                    self.conns.swap_remove(index);
                }
                Heard::Question(ask) => {
                    let id = conn.id;
                    self.asked(id, ask);
                }
                Heard::Adopt(adopt) => {
                    let conn = self.conns.swap_remove(index);
                    if let Err(error) = self.adopt(conn, adopt, now) {
                        tracing::warn!(%error, "a worker of a former supervisor cannot be taken over");
                    }
                }
            }
        }
    }

    /// Takes over a worker whose supervisor has died, with its sockets; it is replaced when a new one is ready.
    fn adopt(&mut self, conn: Conn, adopt: Adopt, now: Instant) -> io::Result<()> {
        let index = self
            .units
            .iter()
            .position(|unit| unit.spec.name == adopt.adopt && !unit.removed);
        let index = index.ok_or(io::ErrorKind::NotFound)?;
        if self.ending {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        // A second one would serve beside the first.
        if self.units[index].active().is_some() {
            let _ = Channel::from_fd(conn.stream.into()).send(&failed(ANOTHER_SERVES), &[]);
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let peer = rustix::net::sockopt::socket_peercred(&conn.stream)?;
        let (ours, theirs) = Channel::pair()?;
        let answer = Answer {
            ok: true,
            text: String::new(),
            status: None,
        };
        Channel::from_fd(conn.stream.into()).send(&answer, &[theirs.as_fd()])?;
        let id = WorkerId(self.next_worker);
        self.next_worker += 1;
        let unit = &mut self.units[index];
        if let Some(coming) = unit.coming().and_then(|id| unit.worker(id)) {
            coming.kill();
        }
        unit.generation = unit.generation.max(adopt.generation);
        unit.handoff = adopt.handoff;
        unit.ever_ready = true;
        unit.respawn_at = None;
        unit.change_waits = true;
        unit.workers.push(Worker {
            id,
            generation: adopt.generation,
            pid: peer.pid,
            channel: ours,
            closed: false,
            child: false,
            state: State::Active,
            since: now,
            settled: true,
            started: SystemTime::now(),
            what: adopt.what,
            busy: None,
            failed: None,
        });
        tracing::info!(
            pid = peer.pid.as_raw_nonzero(),
            unit = unit.spec.name,
            "a worker of a former supervisor is taken over"
        );
        self.begun();
        Ok(())
    }

    fn asked(&mut self, id: ConnId, ask: Ask) {
        match ask {
            Ask::Reload => self.want(Kind::Reload, Some(id)),
            Ask::Plan => self.want(Kind::Plan, Some(id)),
            Ask::Restart => self.want(Kind::Restart, Some(id)),
            Ask::Stop => {
                self.answer(&[id], true, "it ends; asked again, it ends at once");
                self.stop();
            }
            Ask::ReopenLogs => {
                self.reopen_logs();
                self.answer(&[id], true, "log files are opened again");
            }
            Ask::Status => {
                let answer = Answer {
                    ok: true,
                    text: String::new(),
                    status: Some(self.status()),
                };
                if let Some(conn) = self.conns.iter_mut().find(|conn| conn.id == id) {
                    // A long answer does not fit into the socket at once; the asker reads it soon.
                    let _ = conn.stream.set_nonblocking(false);
                    let _ = conn.stream.set_write_timeout(Some(MOVING));
                    conn.answer(&answer);
                }
                self.conns.retain(|conn| conn.id != id);
            }
        }
    }

    pub(crate) fn want(&mut self, kind: Kind, asker: Option<ConnId>) {
        if self.ending {
            self.answer_one(asker, "gt is ending");
        } else if self.waiting.len() >= MOST_WAITING {
            self.answer_one(asker, "too many wait for the reload that is under way");
        } else {
            self.waiting.push_back((kind, asker));
        }
    }

    fn answer_one(&mut self, asker: Option<ConnId>, text: &str) {
        let answer = failed(text);
        for conn in self.conns.iter_mut().filter(|conn| Some(conn.id) == asker) {
            conn.answer(&answer);
        }
        self.conns.retain(|conn| Some(conn.id) != asker);
    }

    pub(crate) fn reopen_logs(&self) {
        for worker in self.units.iter().flat_map(|unit| &unit.workers) {
            worker.tell(&ToWorker::ReopenLogs);
        }
    }

    fn status(&self) -> Status {
        let now = Instant::now();
        let unit = |unit: &Unit| {
            let (service, configured): (Vec<_>, Vec<_>) = unit
                .sockets
                .addresses()
                .into_iter()
                .partition(|(option, ..)| option.is_empty());
            let listener = |(option, protocol, address)| ListenerStatus {
                option,
                protocol: match protocol {
                    Protocol::Tcp => "tcp".into(),
                    Protocol::Udp => "udp".into(),
                },
                address,
            };
            let worker = |worker: &Worker| WorkerStatus {
                pid: worker.pid.as_raw_nonzero().get(),
                generation: worker.generation,
                state: worker.state.name().into(),
                uptime_seconds: worker.started.elapsed().map_or(0, |age| age.as_secs()),
                what: worker.what.clone(),
                visits: worker.busy.map(|(visits, _)| visits),
                links: worker.busy.map(|(_, links)| links),
                ends_within_seconds: match worker.state {
                    State::Leaving { until, .. } | State::Ending { until } => {
                        Some(until.saturating_duration_since(now).as_secs())
                    }
                    _ => None,
                },
            };
            UnitStatus {
                name: unit.spec.name.clone(),
                workers: unit.workers.iter().map(worker).collect(),
                listeners: configured.into_iter().map(listener).collect(),
                service_ports: service.len(),
                deaths: unit.deaths,
                change_waits: unit.change_waits,
            }
        };
        Status {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            version: self.options.version.clone(),
            program: self.options.program.display().to_string(),
            uptime_seconds: now.saturating_duration_since(self.started).as_secs(),
            configuration: self.place.key.clone(),
            busy: self.job.is_some(),
            units: self.units.iter().map(unit).collect(),
        }
    }
}

const MOST_WAITING: usize = 64;
