//! slowhttptest in all its modes: visitors that are slow on purpose are sent away in time, and meanwhile others are served as if nothing were.

use std::{
    fs,
    net::SocketAddr,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use e2e::{Process, Service, TempDir, http, wait};

use crate::tools::program;

#[test]
fn slow_visitors_are_sent_away_and_others_are_served() {
    attack(&Size {
        connections: 200,
        rate: 200,
        seconds: 10,
        patience: "2s",
    });
}

#[test]
#[ignore = "the long form: make interop-proxy"]
fn many_slow_visitors_are_sent_away_and_others_are_served() {
    attack(&Size {
        connections: 4000,
        rate: 500,
        seconds: 60,
        patience: "10s",
    });
}

struct Size {
    connections: u32,
    rate: u32,
    seconds: u32,
    /// What the proxy grants a head, and a pause within a body.
    patience: &'static str,
}

struct Mode {
    name: &'static str,
    options: &'static [&'static str],
    target: &'static str,
    /// Whether its connections last.
    lasts: bool,
}

const MODES: [Mode; 4] = [
    Mode {
        name: "slow heads",
        options: &["-H", "-i", "1", "-x", "24"],
        target: "/small",
        lasts: true,
    },
    Mode {
        name: "slow bodies",
        options: &["-B", "-i", "3", "-x", "10", "-s", "8192"],
        target: "/small",
        lasts: true,
    },
    Mode {
        name: "slow reading",
        options: &[
            "-X", "-w", "256", "-y", "512", "-n", "5", "-z", "1", "-k", "3",
        ],
        target: "/large",
        lasts: true,
    },
    // Of the proxy's own files, which know ranges.
    Mode {
        name: "ranges",
        options: &["-R", "-a", "1", "-b", "1000"],
        target: "/files/large",
        lasts: false,
    },
];

fn attack(size: &Size) {
    let slowhttptest = program("slowhttptest", "Debian's slowhttptest");
    let service = Service::http(|exchange| {
        let large = exchange.target.starts_with("/large");
        exchange.discard()?;
        exchange.respond(200, if large { &LARGE[..] } else { &LARGE[..12] })
    });
    for mode in MODES {
        let (name, target) = (mode.name, mode.target);
        let dir = TempDir::new();
        dir.file("large", &LARGE[..]);
        let text = format!(
            "type: proxy\nproxy:\n  listeners: [{{addr: \"127.0.0.1:0\"}}]\n  timeouts: {{header: {0}, body: {0}, keepAlive: {0}}}\n  routes:\n    - {{to: \"{1}\"}}\n    - {{path: /files, files: \"{2}\", stripPrefix: true}}\n",
            size.patience,
            service.address(),
            dir.path().display()
        );
        let file = dir.file("proxy.yml", text);
        let gt = Process::gt(
            "gt",
            ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()],
            dir,
        );
        let at = address(&gt);
        let before = (sockets(&gt), gt.rss_kib());
        let mut command = Command::new(&slowhttptest);
        command
            .args(mode.options)
            .args([
                "-c",
                &size.connections.to_string(),
                "-r",
                &size.rate.to_string(),
                "-l",
                &size.seconds.to_string(),
            ])
            .args(["-p", "3", "-u", &format!("http://{at}{target}")]);
        let mut attack = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("slowhttptest runs");
        let (visits, worst, most) = visit_while(&mut attack, &gt, at);
        // Whoever was slow is gone soon after, and so is what it took.
        let after = wait::until(&format!("{name}: the sockets are closed"), || {
            Some(sockets(&gt)).filter(|now| *now <= before.0 + KEPT)
        });
        println!(
            "{name}: {visits} visits, the slowest {} ms; at most {most} sockets, {after} after; {} KiB more at most",
            worst.as_millis(),
            gt.peak_rss_kib().saturating_sub(before.1)
        );
        assert!(!mode.lasts || visits > 20, "{name}: only {visits} visits");
        assert!(
            worst < Duration::from_secs(3),
            "{name}: a visit took {worst:?}"
        );
        assert!(
            !mode.lasts || most > before.0 + 20,
            "{name}: there was no attack"
        );
    }
}

/// Visits as others would until the attack has ended: how many, how long the slowest took, and the most sockets that the proxy had.
fn visit_while(attack: &mut Child, gt: &Process, at: SocketAddr) -> (u32, Duration, usize) {
    let (mut visits, mut worst, mut most) = (0, Duration::ZERO, 0);
    while attack.try_wait().expect("its state").is_none() {
        let begun = Instant::now();
        let answer = http::get(at, "zoo.test", "/small").expect("an answer");
        assert_eq!((answer.status, answer.text().len()), (200, 12));
        worst = worst.max(begun.elapsed());
        visits += 1;
        most = most.max(sockets(gt));
        // Visitors come at their own pace.
        thread::sleep(Duration::from_millis(50));
    }
    (visits, worst, most)
}

fn address(gt: &Process) -> SocketAddr {
    let line = gt.wait_log(&["listening", "option=\"listeners\""]);
    let text = line
        .split("address=")
        .nth(1)
        .and_then(|text| text.split_whitespace().next());
    text.and_then(|text| text.parse().ok()).expect("an address")
}

/// How many descriptors the process has open.
fn sockets(gt: &Process) -> usize {
    fs::read_dir(format!("/proc/{}/fd", gt.pid())).map_or(0, Iterator::count)
}

/// Connections to the service that are kept for later requests.
const KEPT: usize = 600;
/// More than the buffers of sockets take.
static LARGE: [u8; 8 << 20] = [b'*'; 8 << 20];
