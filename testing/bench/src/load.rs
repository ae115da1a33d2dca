//! Load: wrk for requests, a loop of single bytes for what a person at a terminal feels.
//!
//! wrk writes its figures through a `done` script, exact and in one line, instead of its rounded report. What makes an answer
//! correct is checked here: no socket error, no status above 399, and as many bytes per answer as the one checked by hand had.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::lab::{Lab, Line};
use crate::{tools, visit};

/// A wrk run to do.
#[derive(Clone, Copy, Debug)]
pub struct Wrk<'a> {
    /// Where visitors are taken.
    pub to: SocketAddr,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Host header.
    pub host: &'a str,
    /// What is asked for.
    pub path: &'a str,
    /// Whether each request has a connection of its own.
    pub closing: bool,
    /// Length of a correct answer to such a request, head and body.
    pub answer_length: u64,
    /// Connections.
    pub connections: u32,
    /// Seconds.
    pub seconds: u32,
    /// Core to pin wrk to.
    pub core: Option<usize>,
}

/// What a wrk run gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests answered correctly.
    pub requests: u64,
    /// Time from first to last.
    pub time: Duration,
    /// Half of the answers came within this.
    pub p50: Duration,
    /// 99 of 100 answers came within this.
    pub p99: Duration,
}

impl Wrk<'_> {
    /// The command line.
    ///
    /// # Errors
    /// When the script cannot be written.
    pub fn line(&self, lab: &Lab) -> Result<Line> {
        let script = lab.write("done.lua", DONE)?;
        let program = tools::on_path("wrk").context("missing wrk: apt-get install wrk")?;
        let line = Line::new(program)
            .arg("-t1")
            .arg(format!("-c{}", self.connections))
            .arg(format!("-d{}s", self.seconds));
        let line = line
            .arg("-s")
            .arg(script)
            .arg("-H")
            .arg(format!("Host: {}", self.host));
        let line = if self.closing {
            line.args(["-H", "Connection: close"])
        } else {
            line
        };
        Ok(line.arg(format!("{}://{}{}", self.scheme, self.to, self.path)))
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When wrk fails, or any answer was not correct: the round does not count then.
    pub fn run(&self, lab: &Lab) -> Result<Load> {
        let output = self
            .line(lab)?
            .command(self.core)
            .output()
            .context("run wrk")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "wrk: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        parse(&text, self.answer_length, self.connections)
    }
}

/// Sends a byte each `every` for `length` and awaits its echo; gives each echo's time.
///
/// # Errors
/// When an echo is wrong or late, or the connection ends.
pub fn keystrokes(
    stream: &mut TcpStream,
    every: Duration,
    length: Duration,
) -> Result<Vec<Duration>> {
    let start = Instant::now();
    let mut times = Vec::new();
    let mut due = start;
    while due - start < length {
        // The pace is the measurement's own: there is nothing to wait for but the clock.
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        times.push(visit::echo_byte(stream, times.len() as u8)?);
        due += every;
    }
    Ok(times)
}

/// The time that `share` (0 to 1) of the times are within; zero without times.
pub fn percentile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let last = sorted.len().saturating_sub(1);
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted
        .get(at.saturating_sub(1).min(last))
        .copied()
        .unwrap_or_default()
}

/// On each of the `connections` an answer may be under way when time is up.
fn parse(output: &str, answer_length: u64, connections: u32) -> Result<Load> {
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("figures "))
        .context("wrk printed no figures")?;
    let figures: Vec<u64> = line
        .split(' ')
        .map(|word| word.parse().context("wrk figure"))
        .collect::<Result<_>>()?;
    let &[
        requests,
        micros,
        bytes,
        connect,
        read,
        write,
        status,
        timeout,
        p50,
        p99,
    ] = figures.as_slice()
    else {
        bail!("wrk printed {} figures", figures.len());
    };
    ensure!(
        connect + read + write + timeout == 0,
        "socket errors: connect {connect} read {read} write {write} timeout {timeout}"
    );
    ensure!(status == 0, "{status} answers with a status above 399");
    ensure!(requests > 0, "no answer");
    let mean = bytes as f64 / requests as f64;
    let expected = answer_length as f64;
    // The answers cut off by wrk's end are in the bytes and not in the requests: few among small ones, many among large ones.
    let cut = f64::from(connections) / requests as f64;
    ensure!(
        mean > expected * 0.98 && mean < expected * (1.02 + cut),
        "answers of {mean:.1} bytes instead of {answer_length}"
    );
    let time = Duration::from_micros(micros);
    Ok(Load {
        requests,
        time,
        p50: Duration::from_micros(p50),
        p99: Duration::from_micros(p99),
    })
}

const DONE: &str = r#"done = function(s, latency, _)
  local e = s.errors
  print(string.format("figures %d %d %d %d %d %d %d %d %d %d", s.requests, s.duration, s.bytes, e.connect, e.read, e.write,
    e.status, e.timeout, latency:percentile(50), latency:percentile(99)))
end
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let load = parse(
            "Running\nfigures 1000 4000000 150000 0 0 0 0 0 900 7000\n",
            150,
            0,
        )
        .unwrap();
        assert_eq!(load.requests, 1000);
        assert_eq!(load.time, Duration::from_secs(4));
        assert_eq!(
            (load.p50, load.p99),
            (Duration::from_micros(900), Duration::from_millis(7))
        );
    }

    #[test]
    fn a_round_with_anything_wrong_does_not_count() {
        let round = |figures: &str| parse(&format!("figures {figures}\n"), 150, 10);
        assert!(round("1000 4000000 150000 0 1 0 0 0 9 9").is_err());
        assert!(round("1000 4000000 150000 0 0 0 3 0 9 9").is_err());
        assert!(round("1000 4000000 90000 0 0 0 0 0 9 9").is_err());
        assert!(round("1000 4000000 160000 0 0 0 0 0 9 9").is_err());
        assert!(round("0 4000000 0 0 0 0 0 0 9 9").is_err());
        assert!(parse("no figures", 150, 0).is_err());
    }

    #[test]
    fn answers_that_were_under_way_at_the_end_are_no_mistake() {
        let figures = "figures 100 4000000 16500 0 0 0 0 0 9 9\n";
        assert!(parse(figures, 150, 10).is_ok());
        assert!(parse(figures, 150, 5).is_err());
    }

    #[test]
    fn percentiles_are_taken_from_the_sorted_times() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 0.5), Duration::from_millis(50));
        assert_eq!(percentile(&times, 0.99), Duration::from_millis(99));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }
}
