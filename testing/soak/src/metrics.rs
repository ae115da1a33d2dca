//! The server's metrics in Prometheus' text form, summed over labels.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bench::visit;

/// Values by metric name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Asks the server's API address.
    ///
    /// # Errors
    /// When it does not answer with status 200.
    pub fn fetch(api: SocketAddr) -> Result<Self> {
        let answer = visit::get(api, "localhost", "/metrics")?;
        ensure!(answer.status == 200, "/metrics answers {}", answer.status);
        Ok(Self::parse(&String::from_utf8_lossy(&answer.body)))
    }

    /// Reads the text form: `name{labels} value [time]`, comments start with `#`. Lines that are neither are left out.
    pub fn parse(text: &str) -> Self {
        let mut sums = BTreeMap::new();
        for line in text
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with('#'))
        {
            // A label's value may hold braces and spaces, so the last brace ends the labels.
            let (name, rest) = match (line.split_once('{'), line.rsplit_once('}')) {
                (Some((name, _)), Some((_, rest))) => (name, rest),
                _ => line.split_once(' ').unwrap_or((line, "")),
            };
            if let Some(value) = rest
                .split_ascii_whitespace()
                .next()
                .and_then(|word| word.parse::<f64>().ok())
            {
                *sums.entry(name.trim().to_owned()).or_default() += value;
            }
        }
        Self(sums)
    }

    /// The sum of a metric; `None` when the server does not have it.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_summed_and_comments_left_out() {
        let text = "# HELP gt_links_open links\n# TYPE gt_links_open gauge\ngt_links_open{user=\"a}{ b\",t=\"tcp\"} 3\n\
                    gt_links_open{user=\"c\"} 2 1700000000\ngt_streams_open 0\nbroken\n";
        let metrics = Metrics::parse(text);
        assert_eq!(metrics.get("gt_links_open"), Some(5.0));
        assert_eq!(metrics.get("gt_streams_open"), Some(0.0));
        assert_eq!(metrics.get("broken"), None);
    }
}
