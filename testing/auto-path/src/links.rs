//! What links carry: visitors' downloads and uploads through each kind of link over gt's own multiplexer, one visitor and four, beside what
//! the same path carries without gt (`plain.rs`), and how long a keystroke takes beside a download.

use std::{fmt::Write, net::SocketAddr, sync::atomic::AtomicU64, thread, time::Duration};

use e2e::{Client, Transport, netns::inside};

use crate::{
    Settings,
    cases::{Case, steady},
    lab::Lab,
    plain::{self, Direction, Services},
    table::{median, spread},
};

/// Links that are measured; what each is compared with stands in [`Row::plain`].
const LINKS: [&str; 3] = ["tls", "wss", "kcp"];
const VISITORS: [usize; 2] = [1, 4];

/// The paths: long, and worse and worse.
pub(crate) fn cases() -> Vec<Case> {
    [
        ("100 ms", "rate=20mbit,delay=50ms"),
        ("100 ms, 1 % lost", "rate=20mbit,delay=50ms,loss=1%"),
        ("100 ms, 5 % lost", "rate=20mbit,delay=50ms,loss=5%"),
        ("100 ms, 10 % lost", "rate=20mbit,delay=50ms,loss=10%"),
    ]
    .map(|(name, path)| steady(name, path, Vec::new(), &[]))
    .into()
}

/// What one path has shown.
#[derive(Debug)]
pub(crate) struct Measured {
    down: Row,
    up: Row,
    /// Milliseconds of keystrokes beside a download, by link, sorted.
    keys: [Vec<f64>; LINKS.len()],
    /// The most memory of the server and of each client, in KiB.
    server_kib: u64,
    client_kib: [u64; LINKS.len()],
}

/// Mbit/s in one direction, by round.
#[derive(Debug, Default)]
struct Row {
    tcp: Vec<f64>,
    kcp: Vec<f64>,
    /// By link and number of visitors.
    links: [[Vec<f64>; VISITORS.len()]; LINKS.len()],
}

impl Row {
    /// What the path carries for a link of this kind.
    fn plain(&self, link: usize) -> f64 {
        median(if LINKS[link] == "kcp" {
            &self.kcp
        } else {
            &self.tcp
        })
    }

    fn share(&self, link: usize, visitors: usize) -> f64 {
        median(&self.links[link][visitors]) / self.plain(link)
    }
}

/// Measures one path.
pub(crate) fn run(case: &Case, settings: Settings) -> anyhow::Result<Measured> {
    let lab = Lab::new(case, settings)?;
    let services = inside(&lab.left, Services::start)?;
    let clients = LINKS.map(|scheme| client(&lab, scheme, &services));
    let times = (WARM, settings.time);
    let mut rows = [Row::default(), Row::default()];
    let mut keys: [Vec<f64>; LINKS.len()] = Default::default();
    for round in 0..settings.rounds {
        for (direction, row) in [Direction::Down, Direction::Up].into_iter().zip(&mut rows) {
            let sunk = (direction == Direction::Up).then_some(&*services.sunk);
            row.tcp.push(direct(&lab, &services, sunk, times)?);
            row.kcp.push(session(&lab, direction, round, times)?);
            for (number, client) in clients.iter().enumerate() {
                for (visitors, rates) in VISITORS.iter().zip(&mut row.links[number]) {
                    let watched = direction == Direction::Down && *visitors == 1;
                    let keys = watched.then_some(&mut keys[number]);
                    rates.push(through(&lab, client, *visitors, sunk, keys, times)?);
                    thread::sleep(PAUSE);
                }
            }
        }
    }
    for keys in &mut keys {
        keys.sort_by(f64::total_cmp);
    }
    let [down, up] = rows;
    Ok(Measured {
        down,
        up,
        keys,
        server_kib: lab.server.process.peak_rss_kib(),
        client_kib: clients.map(|client| client.process.peak_rss_kib()),
    })
}

fn client(lab: &Lab, scheme: &str, services: &Services) -> Client {
    let spec = lab
        .server
        .client(Transport::Tls, scheme)
        .option("remote", lab.remote(scheme))
        .option("remoteConnections", 1)
        .service(
            format!("tcp://{}", services.source),
            "name: source, remoteTCPRandom: true",
        )
        .service(
            format!("tcp://{}", services.sink),
            "name: sink, remoteTCPRandom: true",
        )
        .service(
            format!("tcp://{}", services.echo),
            "name: echo, remoteTCPRandom: true",
        );
    inside(&lab.left, || spec.start_up())
}

/// Without anything between visitor and service but the path.
fn direct(
    lab: &Lab,
    services: &Services,
    sunk: Option<&AtomicU64>,
    times: (Duration, Duration),
) -> anyhow::Result<f64> {
    let service = if sunk.is_some() {
        services.sink
    } else {
        services.source
    };
    let address = SocketAddr::new(lab.left_address.into(), service.port());
    let rate = plain::visit(&lab.right, address, 1, sunk, times)?;
    thread::sleep(PAUSE);
    Ok(rate)
}

fn session(
    lab: &Lab,
    direction: Direction,
    round: u32,
    times: (Duration, Duration),
) -> anyhow::Result<f64> {
    let number = 2 * round + u32::from(direction == Direction::Up);
    // Each time another port: the last session may not have ended for its peer yet.
    let port = FIRST_PORT + u16::try_from(number % 1000)?;
    let address = SocketAddr::new(lab.server.kcp().ip(), port);
    let rate = plain::kcp_session((&lab.left, &lab.right), address, direction, times)?;
    thread::sleep(PAUSE);
    Ok(rate)
}

/// Through gt, with a keystroke beside it where those are wanted.
fn through(
    lab: &Lab,
    client: &Client,
    visitors: usize,
    sunk: Option<&AtomicU64>,
    keys: Option<&mut Vec<f64>>,
    times: (Duration, Duration),
) -> anyhow::Result<f64> {
    let port = |service| lab.server.port(client.port_of(service));
    let address = port(if sunk.is_some() { "sink" } else { "source" });
    let echo = port("echo");
    thread::scope(|scope| {
        let typist = keys.is_some().then(|| {
            let (warm, time) = times;
            scope.spawn(move || plain::keys(&lab.right, echo, warm, time))
        });
        let rate = plain::visit(&lab.right, address, visitors, sunk, times)?;
        if let (Some(keys), Some(typist)) = (keys, typist) {
            let took = typist
                .join()
                .map_err(|_| anyhow::anyhow!("the typist panicked"))??;
            keys.extend(took.iter().map(|time| time.as_secs_f64() * 1000.0));
        }
        Ok(rate)
    })
}

/// The tables.
pub(crate) fn write(
    cases: &[Case],
    measured: &[Measured],
    settings: Settings,
    parallel: usize,
) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "# What links carry of what a path carries\n\n{}.\n\n    make bench-links\n\n\
         Real `gt server` and `gt client` in two network namespaces, `netem` between them (seed {}, queues of 100 ms), {parallel} paths at a time; one link each. Mbit/s in {} s \
         after {} that do not count, counted where they arrive; medians of {} rounds, least and most in brackets. `tcp` is a connection of the kernel without gt, `session` a \
         bare session of crate kcp with a link's options. A link's share is of `tcp` for tls and wss, of `session` for kcp.\n",
        crate::table::where_and_when(),
        settings.seed,
        settings.time.as_secs(),
        WARM.as_secs(),
        settings.rounds,
    );
    let mut head = "| path | direction | tcp | session |".to_owned();
    for link in LINKS {
        for visitors in VISITORS {
            let _ = write!(head, " {link}, {visitors} | share |");
        }
    }
    let _ = writeln!(
        text,
        "{head}\n|{}",
        "---|".repeat(4 + 2 * LINKS.len() * VISITORS.len())
    );
    for (case, measured) in cases.iter().zip(measured) {
        for (name, row) in [("down", &measured.down), ("up", &measured.up)] {
            let mut line = format!(
                "| {} | {name} | {} | {} |",
                case.name,
                spread(&row.tcp),
                spread(&row.kcp)
            );
            for (number, rates) in row.links.iter().enumerate() {
                for (visitors, rates) in rates.iter().enumerate() {
                    let share = row.share(number, visitors) * 100.0;
                    let _ = write!(line, " {} | {share:.0} % |", spread(rates));
                }
            }
            let _ = writeln!(text, "{line}");
        }
    }
    rest(&mut text, cases, measured);
    text
}

/// Keystrokes, memory, and the paths in `netem`'s words.
fn rest(text: &mut String, cases: &[Case], measured: &[Measured]) {
    let _ = writeln!(
        text,
        "\nA byte each 50 ms to an echo service beside one visitor's download over the same link, milliseconds; and the most memory of the processes, MiB:\n\n\
         | path | {} | server | {} |\n|---|{}",
        LINKS.map(|link| format!("{link} p50 | p99")).join(" | "),
        LINKS.map(|link| format!("client {link}")).join(" | "),
        "---|".repeat(3 * LINKS.len() + 1),
    );
    for (case, measured) in cases.iter().zip(measured) {
        let mut line = format!("| {} |", case.name);
        for keys in &measured.keys {
            let at = |share: usize| keys.get(keys.len() * share / 100).copied().unwrap_or(0.0);
            let _ = write!(line, " {:.0} | {:.0} |", at(50), at(99));
        }
        for kib in std::iter::once(measured.server_kib).chain(measured.client_kib) {
            let _ = write!(line, " {:.1} |", kib as f64 / 1024.0);
        }
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "\nPaths (each direction):\n");
    for case in cases {
        let _ = writeln!(text, "- {}: `{}`", case.name, case.path);
    }
}

/// Where a link carries less than it should.
pub(crate) fn verdict(cases: &[Case], measured: &[Measured]) -> Vec<String> {
    let mut bad = Vec::new();
    for (case, measured) in cases.iter().zip(measured) {
        for (name, row) in [("down", &measured.down), ("up", &measured.up)] {
            for (number, link) in LINKS.iter().enumerate() {
                for (at, visitors) in VISITORS.iter().enumerate() {
                    let share = row.share(number, at);
                    if share.is_nan() || share < WANTED {
                        bad.push(format!(
                            "{}, {name}, {link}, {visitors} at a time: {:.0} % of what the path carries",
                            case.name,
                            share * 100.0
                        ));
                    }
                }
            }
        }
    }
    bad
}

const WANTED: f64 = 0.85;
/// A start that does not count: windows and congestion control find the path.
const WARM: Duration = Duration::from_secs(3);
/// Between two measurements.
const PAUSE: Duration = Duration::from_millis(700);
/// Of the bare sessions.
const FIRST_PORT: u16 = 29_910;
