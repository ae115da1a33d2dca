//! What was measured, as Markdown; and what of it is not as it should be.

use std::{fmt::Write, time::Duration};

use crate::{
    Settings,
    cases::{Case, Phase, SCHEMES},
    lab::Measured,
};

/// The day, the machine, gt's version and the system's congestion control.
pub(crate) fn where_and_when() -> String {
    let tcp = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    format!(
        "{}, {}, gt {}; TCP of this system: {}",
        bench::machine::date(),
        bench::machine::machine(),
        env!("CARGO_PKG_VERSION"),
        tcp.as_ref().map_or("unknown", |name| name.trim()),
    )
}

/// The whole text.
pub(crate) fn write(
    cases: &[Case],
    measured: &[Vec<Measured>],
    settings: Settings,
    parallel: usize,
) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "# Which way the client chooses\n\n{}, QUIC: CUBIC.\n\n    make bench-auto\n",
        where_and_when(),
    );
    let _ = writeln!(
        text,
        "Real `gt server` and `gt client` in two network namespaces, `netem` between them (seed {}, queues of 100 ms), {parallel} cases at a time. The client has \
         `remote: [{}]` and `remoteChoice: best`. Visitors keep it busy until it has settled. Goodput: a visitor's download of {} s after two that do \
         not count, through the client that chooses and through one for each transport in turn on the same path; medians of {} rounds, least and most in brackets. \
         Times are from the phase's beginning (the first time from the client's start): to the first link, and to the first over the transport that it stays with.\n",
        settings.seed,
        SCHEMES.map(|scheme| format!("{scheme}://…")).join(", "),
        settings.time.as_secs(),
        settings.rounds,
    );
    let fixed = SCHEMES.join(" | ");
    let _ = writeln!(
        text,
        "| path | chosen | first link | settled | moves | auto Mbit/s | {fixed} | of the best |"
    );
    let _ = writeln!(
        text,
        "|---|---|---|---|---|---|{}---|",
        "---|".repeat(SCHEMES.len())
    );
    let mut reasons = String::new();
    for (case, phase, measured) in rows(cases, measured) {
        let name = title(case, phase);
        let goodputs = measured.goodputs.iter().map(|rounds| spread(rounds));
        let mut goodputs: Vec<String> = goodputs.collect();
        goodputs.resize(1 + SCHEMES.len(), String::new());
        let share =
            share(measured).map_or(String::new(), |share| format!("{:.0} %", share * 100.0));
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {share} |",
            measured.chosen,
            millis(measured.first),
            millis(measured.settled),
            measured.moves,
            goodputs.join(" | "),
        );
        if let Some(reason) = &measured.reason {
            let _ = writeln!(reasons, "- {name}: {reason}");
        }
    }
    let _ = writeln!(text, "\nPaths (each direction):\n");
    for case in cases {
        let _ = writeln!(text, "- {}: `{}`", case.name, case.path);
    }
    let _ = writeln!(text, "\nReasons of the last moves, as logged:\n\n{reasons}");
    let bad = verdict(cases, measured);
    let verdict = if bad.is_empty() {
        "All as it should be.".to_owned()
    } else {
        format!("Not as it should be: {}.", bad.join("; "))
    };
    let _ = writeln!(
        text,
        "Wanted: one of the right transports, at least 90 % of the best fixed one's goodput, and a fallback within 3 s where UDP is blocked. {verdict}"
    );
    text
}

/// What is not as it should be.
pub(crate) fn verdict(cases: &[Case], measured: &[Vec<Measured>]) -> Vec<String> {
    let mut bad = Vec::new();
    for (case, phase, measured) in rows(cases, measured) {
        let name = title(case, phase);
        if !phase.expected.contains(&&*measured.chosen) {
            bad.push(format!("{name}: {} was chosen", measured.chosen));
        }
        if let Some(share) = share(measured).filter(|share| *share < 0.9) {
            bad.push(format!("{name}: {:.0} % of the best", share * 100.0));
        }
        let late = |within: &Duration| measured.first.is_none_or(|first| first > *within);
        if phase.within.as_ref().is_some_and(late) {
            bad.push(format!("{name}: a link after {}", millis(measured.first)));
        }
    }
    bad
}

fn rows<'a>(
    cases: &'a [Case],
    measured: &'a [Vec<Measured>],
) -> impl Iterator<Item = (&'a Case, &'a Phase, &'a Measured)> {
    cases.iter().zip(measured).flat_map(|(case, measured)| {
        let phases = case.phases.iter().zip(measured);
        phases.map(move |(phase, measured)| (case, phase, measured))
    })
}

fn title(case: &Case, phase: &Phase) -> String {
    match (phase.change, case.phases.len()) {
        ("", 1) => case.name.to_owned(),
        ("", _) => format!("{}: before", case.name),
        (change, _) => format!("{}: {change}", case.name),
    }
}

/// The goodput of the client that chooses, of that of the best fixed one.
fn share(measured: &Measured) -> Option<f64> {
    let (auto, fixed) = measured.goodputs.split_first()?;
    let best = fixed
        .iter()
        .map(|rounds| median(rounds))
        .fold(0.0, f64::max);
    (best > 0.0).then(|| median(auto) / best)
}

/// The median, and in brackets the least and the most.
pub(crate) fn spread(rounds: &[f64]) -> String {
    let least = rounds.iter().copied().fold(f64::MAX, f64::min);
    let most = rounds.iter().copied().fold(0.0, f64::max);
    if most == 0.0 {
        return "nothing".to_owned();
    }
    format!("{:.1} ({least:.1} to {most:.1})", median(rounds))
}

/// The middle one; 0 of nothing.
pub(crate) fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn millis(time: Option<Duration>) -> String {
    time.map_or("none".to_owned(), |time| format!("{} ms", time.as_millis()))
}
