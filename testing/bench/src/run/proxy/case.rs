//! What is asked of the proxies: sizes of bodies, kinds of connections.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use super::{HOST, subject::Doors};
use crate::lab::{Lab, Line};
use crate::load::{Load, Wrk};
use crate::{origin, tools, visit};

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// 12 bytes, keep-alive.
    Small,
    /// 10 KiB, keep-alive.
    Medium,
    /// 1 MiB, keep-alive.
    Large,
    /// 12 bytes, a connection for each request.
    Closing,
    /// 12 bytes, keep-alive over TLS.
    Tls,
    /// 12 bytes, HTTP/2 over TLS, 10 requests at a time on each of 10 connections.
    H2,
    /// Connections that have made one request and stay: memory.
    Idle,
}

impl Case {
    pub(in crate::run) fn title(self) -> &'static str {
        match self {
            Self::Small => "12 bytes, keep-alive",
            Self::Medium => "10 KiB, keep-alive",
            Self::Large => "1 MiB, keep-alive",
            Self::Closing => "12 bytes, a connection for each request",
            Self::Tls => "12 bytes, keep-alive, TLS 1.3",
            Self::H2 => "12 bytes, HTTP/2 over TLS (h2load, 10 connections with 10 streams each)",
            Self::Idle => "Idle visitors",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Medium => origin::MEDIUM_PATH,
            Self::Large => origin::BIG_PATH,
            _ => "/",
        }
    }

    fn body(self) -> u64 {
        match self {
            Self::Medium => origin::MEDIUM,
            Self::Large => origin::BIG,
            _ => origin::BODY.len() as u64,
        }
    }

    /// How long a correct answer is, head and body.
    pub(in crate::run) fn answer_length(self, doors: Doors) -> Result<u64> {
        let get = match self {
            Self::Closing => visit::get_last,
            _ => visit::get,
        };
        let answer = get(doors.plain, HOST, self.path())?;
        ensure!(
            answer.status == 200 && answer.body.len() as u64 == self.body(),
            "status {}",
            answer.status
        );
        Ok(answer.length)
    }

    /// The load.
    pub(in crate::run) fn run(
        self,
        doors: Doors,
        connections: u32,
        seconds: u32,
        core: usize,
        lab: &Lab,
    ) -> Result<Load> {
        if self == Self::H2 {
            return h2load(doors, seconds, core);
        }
        let (scheme, to) = match self {
            Self::Tls => ("https", doors.tls),
            _ => ("http", doors.plain),
        };
        Wrk {
            scheme,
            to,
            host: HOST,
            path: self.path(),
            closing: self == Self::Closing,
            answer_length: self.answer_length(doors)?,
            connections,
            seconds,
            core: Some(core),
        }
        .run(lab)
    }
}

/// `h2load`: it tells no percentiles, so that latency is the mean.
fn h2load(doors: Doors, seconds: u32, core: usize) -> Result<Load> {
    let program =
        tools::on_path("h2load").context("missing h2load: apt-get install nghttp2-client")?;
    let line = Line::new(program)
        .args(["-t1", "-c10", "-m10"])
        .arg(format!("-D{seconds}"))
        .arg("--warm-up-time=0")
        .arg(format!("https://localhost:{}/", doors.tls.port()));
    let mut command: Command = line.command(Some(core));
    let output = command.output().context("run h2load")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "h2load: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let count = |what: &str| -> Result<u64> {
        let line = text.lines().find(|line| line.starts_with("requests: "));
        let words: Vec<_> = line
            .context("h2load said nothing")?
            .split([' ', ','])
            .collect();
        let at = words
            .iter()
            .position(|word| *word == what)
            .context("h2load's words")?;
        words[at - 1].parse().context("h2load's number")
    };
    let (good, failed) = (
        count("succeeded")?,
        count("failed")? + count("errored")? + count("timeout")?,
    );
    ensure!(failed == 0, "{failed} requests failed");
    let codes = text.lines().find(|line| line.starts_with("status codes: "));
    let codes = codes.context("h2load's codes")?;
    ensure!(codes.contains(" 0 3xx, 0 4xx, 0 5xx"), "{codes}");
    let mean = text
        .lines()
        .find_map(|line| line.strip_prefix("time for request:"))
        .and_then(|line| line.split_whitespace().nth(2))
        .and_then(duration)
        .context("h2load's times")?;
    Ok(Load {
        requests: good,
        time: Duration::from_secs(seconds.into()),
        p50: mean,
        p99: Duration::ZERO,
    })
}

/// `812us`, `1.21ms`, `1.00s`.
fn duration(text: &str) -> Option<Duration> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let number: f64 = text[..at].parse().ok()?;
    let unit = match &text[at..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Some(Duration::from_secs_f64(number * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h2loads_times_are_read() {
        assert_eq!(duration("812us"), Some(Duration::from_micros(812)));
        assert_eq!(duration("1.50ms"), Some(Duration::from_micros(1500)));
        assert_eq!(duration("2.00s"), Some(Duration::from_secs(2)));
        assert_eq!(duration("x"), None);
    }
}
