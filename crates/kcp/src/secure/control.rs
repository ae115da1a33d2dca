//! What a session says beside its data: questions whether the peer lives, the ends of both directions, reports of what arrived.
//!
//! Each frame is said once when it is due; only an end is repeated until the peer knows it. Deadlines are kept here, so that a
//! session that is silent wakes once per keep-alive interval.

use std::time::Duration;

use aws_lc_rs::hmac;

use super::{Options, wire::Frame};
use crate::Time;

/// A report says something about at least so many datagrams, and is not made more often than this.
const REPORT_EVERY: u64 = 64;
const REPORT_PAUSE: Duration = Duration::from_millis(100);
/// Questions are repeated at this pace until an answer comes.
const ASK_AGAIN: Duration = Duration::from_secs(3);
/// An end is said again after this or the retransmission timeout, doubled each time up to the longest.
const FIN_LEAST: Duration = Duration::from_millis(100);
const FIN_LONGEST: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Control {
    keep_alive: Duration,
    idle_timeout: Duration,
    heard_at: Time,
    asked_at: Option<Time>,
    ping: bool,
    pong: bool,
    response: Option<[u8; 8]>,
    fin: Option<Fin>,
    /// The peer's total, once it has ended its direction.
    peer_total: Option<u64>,
    owes_ack: bool,
    reset: bool,
    reported: (u64, Time),
    report: bool,
    tokens: (hmac::Key, u64),
}

#[derive(Debug)]
struct Fin {
    total: Option<u64>,
    acked: bool,
    due: Time,
    wait: Duration,
}

impl Control {
    /// Bytes of all frames at most.
    pub(super) const MOST: usize = 2 + 9 + 9 + 9 + 9 + 17;

    pub(super) fn new(now: Time, options: &Options, seed: [u8; 32]) -> Self {
        Self {
            keep_alive: options.keep_alive.max(Duration::from_secs(1)),
            idle_timeout: options.idle_timeout.max(Duration::from_secs(2)),
            heard_at: now,
            asked_at: None,
            ping: false,
            pong: false,
            response: None,
            fin: None,
            peer_total: None,
            owes_ack: false,
            reset: false,
            reported: (0, now),
            report: false,
            tokens: (hmac::Key::new(hmac::HMAC_SHA256, &seed), 0),
        }
    }

    /// Something authentic came: `received` datagrams so far.
    pub(super) fn heard(&mut self, now: Time, received: u64) {
        self.heard_at = now;
        self.asked_at = None;
        if received - self.reported.0 >= REPORT_EVERY && now.since(self.reported.1) >= REPORT_PAUSE
        {
            self.report = true;
        }
    }

    /// Bytes that nobody can guess.
    pub(super) fn token(&mut self) -> [u8; 8] {
        self.tokens.1 += 1;
        let mut token = [0; 8];
        token.copy_from_slice(
            &hmac::sign(&self.tokens.0, &self.tokens.1.to_le_bytes()).as_ref()[..8],
        );
        token
    }

    pub(super) fn ping(&mut self) {
        self.ping = true;
    }

    pub(super) fn pong(&mut self) {
        self.pong = true;
    }

    pub(super) fn respond(&mut self, token: [u8; 8]) {
        self.response = Some(token);
    }

    pub(super) fn say_reset(&mut self) {
        self.reset = true;
    }

    /// Whether a reset is to be said; once.
    pub(super) fn takes_reset(&mut self) -> bool {
        std::mem::take(&mut self.reset)
    }

    pub(super) fn shut(&mut self, now: Time) {
        self.fin.get_or_insert(Fin {
            total: None,
            acked: false,
            due: now,
            wait: FIN_LEAST,
        });
    }

    pub(super) fn is_shut(&self) -> bool {
        self.fin.is_some()
    }

    /// Whether the peer knows of this direction's end, if it has ended.
    pub(super) fn end_is_known(&self) -> bool {
        self.fin.as_ref().is_none_or(|fin| fin.acked)
    }

    /// The peer ends its direction. Returns whether that agrees with what it said before.
    pub(super) fn fin_came(&mut self, total: u64) -> bool {
        self.owes_ack = true;
        *self.peer_total.get_or_insert(total) == total
    }

    pub(super) fn fin_acked(&mut self, total: u64) {
        if let Some(fin) = self.fin.as_mut().filter(|fin| fin.total == Some(total)) {
            fin.acked = true;
        }
    }

    pub(super) fn peer_total(&self) -> Option<u64> {
        self.peer_total
    }

    pub(super) fn owes_ack(&self) -> bool {
        self.owes_ack
    }

    /// Whether a report is due; once.
    pub(super) fn takes_report(&mut self, now: Time, received: u64) -> bool {
        let due = std::mem::take(&mut self.report);
        if due {
            self.reported = (received, now);
        }
        due
    }

    /// Appends every frame that is due but a report. `written`: bytes of this direction.
    pub(super) fn frames(&mut self, now: Time, written: u64, rto: Duration, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.ping) {
            Frame::Ping.push(out);
        }
        if std::mem::take(&mut self.pong) {
            Frame::Pong.push(out);
        }
        if let Some(token) = self.response.take() {
            Frame::Response(token).push(out);
        }
        if std::mem::take(&mut self.owes_ack)
            && let Some(total) = self.peer_total
        {
            Frame::FinAck(total).push(out);
        }
        if let Some(fin) = self.fin.as_mut().filter(|fin| !fin.acked && fin.due <= now) {
            let total = *fin.total.get_or_insert(written);
            Frame::Fin(total).push(out);
            fin.wait = fin.wait.max(rto);
            fin.due = now + fin.wait;
            fin.wait = (fin.wait * 2).min(FIN_LONGEST);
        }
    }

    /// The next deadline: there always is one.
    pub(super) fn due(&self) -> Time {
        let ask = match self.asked_at {
            None => self.heard_at + self.keep_alive,
            Some(asked) => asked + ASK_AGAIN,
        };
        let fin = self
            .fin
            .as_ref()
            .filter(|fin| !fin.acked)
            .map(|fin| fin.due);
        let alive = ask.min(self.dead_at());
        fin.map_or(alive, |fin| fin.min(alive))
    }

    /// When the peer counts as dead, if nothing comes.
    pub(super) fn dead_at(&self) -> Time {
        self.heard_at + self.idle_timeout
    }

    /// Acts on deadlines; returns whether the peer counts as dead.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let silence = now.since(self.heard_at);
        if silence >= self.idle_timeout {
            return true;
        }
        let again = self
            .asked_at
            .is_none_or(|asked| now.since(asked) >= ASK_AGAIN);
        if silence >= self.keep_alive && again {
            self.asked_at = Some(now);
            self.ping = true;
        }
        false
    }
}
