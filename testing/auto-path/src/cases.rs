//! The paths, what changes on them, and what the client should do.

use std::time::Duration;

use netem::{Protocol, Rate, Rule, Verdict};

/// A path from start to end.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Of both directions, as `netem` reads it.
    pub(crate) path: &'static str,
    pub(crate) phases: Vec<Phase>,
}

/// What holds for a while.
#[derive(Debug)]
pub(crate) struct Phase {
    /// What happens at its beginning; empty where it is the case's name.
    pub(crate) change: &'static str,
    pub(crate) rules: Vec<Rule>,
    /// Any of these is right.
    pub(crate) expected: &'static [&'static str],
    /// How long the first link over one of them may take; the decision may come later where it depends on what is measured.
    pub(crate) within: Option<Duration>,
    /// Whether goodput is measured.
    pub(crate) measured: bool,
}

/// Transports, in the order in which the client that chooses has them.
pub(crate) const SCHEMES: [&str; 4] = ["quic", "kcp", "tls", "wss"];

/// Ports of the server: TLS, WebSocket and QUIC share the usual one.
pub(crate) const HTTPS: u16 = 443;
pub(crate) const KCP: u16 = 29900;

const UDP: &[&str] = &["quic", "kcp"];
const TCP: &[&str] = &["tls", "wss"];
/// TCP does where the system's is BBR: then its goodput says whether it was right.
const BEARS_LOSS: &[&str] = &["kcp", "tls", "wss"];
/// A fallback is no fallback if it takes longer.
const SOON: Duration = Duration::from_secs(3);

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = vec![
        steady("clean, 2 ms", "rate=50mbit,delay=1ms", Vec::new(), UDP),
        steady("20 ms", "rate=50mbit,delay=10ms", Vec::new(), UDP),
    ];
    let lossy = [
        ("100 ms, 1 % lost", "rate=20mbit,delay=50ms,loss=1%"),
        ("100 ms, 5 % lost", "rate=20mbit,delay=50ms,loss=5%"),
        ("100 ms, 10 % lost", "rate=20mbit,delay=50ms,loss=10%"),
    ];
    cases.extend(lossy.map(|(name, path)| steady(name, path, Vec::new(), BEARS_LOSS)));
    let usual = "rate=50mbit,delay=10ms";
    let mut blocked = steady("UDP blocked from the start", usual, no_udp(), TCP);
    blocked.phases[0].within = Some(SOON);
    cases.push(blocked);
    cases.push(udp_comes_and_goes(usual));
    let rate = Rate::from_bits(5_000_000).map_or(Verdict::Drop, Verdict::Police);
    let throttled = vec![rule(Protocol::Udp, None, rate)];
    cases.push(steady("UDP throttled to 5 Mbit/s", usual, throttled, TCP));
    let stalled = vec![rule(Protocol::Tcp, None, Verdict::DropData)];
    cases.push(steady(
        "TCP stalls after its handshake",
        usual,
        stalled,
        UDP,
    ));
    cases.push(tcp_dies(usual));
    let mut https = no_udp();
    https.insert(0, rule(Protocol::Tcp, Some(HTTPS), Verdict::Pass));
    https.push(rule(Protocol::Tcp, None, Verdict::Drop));
    let mut https = steady("only HTTPS let out", usual, https, TCP);
    https.phases[0].within = Some(SOON);
    cases.push(https);
    cases
}

fn rule(protocol: Protocol, port: Option<u16>, verdict: Verdict) -> Rule {
    Rule {
        protocol: Some(protocol),
        port,
        verdict,
    }
}

fn no_udp() -> Vec<Rule> {
    vec![rule(Protocol::Udp, None, Verdict::Drop)]
}

pub(crate) fn steady(
    name: &'static str,
    path: &'static str,
    rules: Vec<Rule>,
    expected: &'static [&'static str],
) -> Case {
    Case {
        name,
        path,
        phases: vec![Phase {
            change: "",
            rules,
            expected,
            within: None,
            measured: true,
        }],
    }
}

fn udp_comes_and_goes(path: &'static str) -> Case {
    let mut case = steady("UDP blocked in mid-run", path, Vec::new(), UDP);
    case.phases[0].measured = false;
    case.phases.push(Phase {
        change: "blocked",
        rules: no_udp(),
        expected: TCP,
        within: Some(SOON),
        measured: true,
    });
    case.phases.push(Phase {
        change: "free again",
        rules: Vec::new(),
        expected: UDP,
        within: None,
        measured: true,
    });
    case
}

fn tcp_dies(path: &'static str) -> Case {
    let mut case = steady("TCP lost in mid-run", path, no_udp(), TCP);
    case.phases[0].measured = false;
    case.phases.push(Phase {
        change: "UDP free, TCP dropped",
        rules: vec![rule(Protocol::Tcp, None, Verdict::Drop)],
        expected: UDP,
        within: None,
        measured: true,
    });
    case
}
