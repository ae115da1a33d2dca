//! `netem calibrate`: how far this machine's paths are from what they are asked for, before anything is measured through them.
//!
//! One sender and one receiver, plain UDP sockets, through the forwarder or through the bridge. Datagrams carry the time they
//! were sent; both ends read one clock, so that delays are one-way.

use std::{
    fs::File,
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use netem::{Options, Plan, Running, TunBridge, TunOptions, UdpForwarder, UdpOptions, available};
use rustix::{
    net::sockopt::set_socket_recv_buffer_size_force,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// Prints a Markdown table of asked and measured figures for both shells.
pub(crate) fn run(spin: Duration) -> anyhow::Result<()> {
    println!("| through | asked for | measured | error |");
    println!("|---|---|---|---|");
    let mut shells = vec![Shell::Udp];
    match available() {
        Ok(()) => shells.push(Shell::Tun),
        Err(reason) => println!("| tun | - | not measured: {reason} | |"),
    }
    for shell in shells {
        for delay in [0, 1, 10, 50] {
            measure_delay(shell, delay, spin)?;
        }
        for (mbit, size) in [(1, 1250), (10, 1250), (100, 1250), (300, 1250), (10, 100)] {
            measure_rate(shell, mbit, size, spin)?;
        }
        for loss in [1, 5, 10] {
            measure_loss(shell, loss, spin)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Shell {
    Udp,
    Tun,
}

impl Shell {
    fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tun => "tun",
        }
    }
}

/// A path with a socket at each end; `send` towards `receive` is up.
struct Bench {
    send: UdpSocket,
    receive: UdpSocket,
    shell: Joined,
}

enum Joined {
    Udp(UdpForwarder),
    Tun(TunBridge),
}

impl Bench {
    fn new(shell: Shell, up: &str, spin: Duration) -> anyhow::Result<Self> {
        let path = Options {
            up: Plan::parse(up)?,
            down: Plan::default(),
            seed: 1,
            spin,
        };
        let local: SocketAddr = ([127, 0, 0, 1], 0).into();
        let bench = match shell {
            Shell::Udp => {
                let receive = UdpSocket::bind(local)?;
                let options = UdpOptions::new(local, receive.local_addr()?, path);
                let forwarder = UdpForwarder::start(&options)?;
                let send = UdpSocket::bind(local)?;
                send.connect(forwarder.local_addr())?;
                Self {
                    send,
                    receive,
                    shell: Joined::Udp(forwarder),
                }
            }
            Shell::Tun => {
                let options = TunOptions::new(path);
                let bridge = TunBridge::start(&options)?;
                let (left, right) = (&options.left, &options.right);
                let receive = bind_in(&right.namespace, (right.address, 0).into())?;
                let send = bind_in(&left.namespace, (left.address, 0).into())?;
                send.connect(receive.local_addr()?)?;
                Self {
                    send,
                    receive,
                    shell: Joined::Tun(bridge),
                }
            }
        };
        // Without the right to more, the system's default has to do.
        let _ = set_socket_recv_buffer_size_force(&bench.receive, 16 << 20);
        bench
            .receive
            .set_read_timeout(Some(Duration::from_millis(300)))?;
        Ok(bench)
    }

    fn running(&self) -> &Running {
        match &self.shell {
            Joined::Udp(forwarder) => &forwarder.running,
            Joined::Tun(bridge) => &bridge.running,
        }
    }
}

fn bind_in(namespace: &str, address: SocketAddr) -> anyhow::Result<UdpSocket> {
    let file = File::open(format!("/run/netns/{namespace}"))?;
    let inside = thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        UdpSocket::bind(address)
    });
    Ok(inside
        .join()
        .map_err(|_| io::Error::other("the thread in the namespace panicked"))??)
}

/// One-way delays of 500 datagrams, about one each 2 ms. Both threads sleep, so the receiver's waking is part of the error.
fn measure_delay(shell: Shell, delay: u64, spin: Duration) -> anyhow::Result<()> {
    let bench = Bench::new(shell, &format!("delay={delay}ms"), spin)?;
    let begun = Instant::now();
    let send = bench.send.try_clone()?;
    let sender = thread::spawn(move || -> io::Result<()> {
        for _ in 0..500 {
            let now = begun.elapsed().as_nanos() as u64;
            send.send(&now.to_ne_bytes())?;
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    });
    let mut errors = Vec::new();
    let mut stamp = [0; 8];
    while errors.len() < 500 && bench.receive.recv(&mut stamp).is_ok() {
        let sent = Duration::from_nanos(u64::from_ne_bytes(stamp));
        let took = begun.elapsed() - sent;
        errors.push(took.as_secs_f64() * 1e6 - delay as f64 * 1e3);
    }
    let _ = sender.join();
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| -> anyhow::Result<f64> {
        let index = (errors.len() as f64 * share) as usize;
        errors.get(index).copied().context("no datagram came")
    };
    let report = bench.running().report();
    println!(
        "| {} | delay {delay} ms | +{:.0} / {:.0} / {:.0} µs (p50, p90, p99), {} of 500 | path alone: p50 {:.0}, p99 {:.0} µs |",
        shell.name(),
        at(0.5)?,
        at(0.9)?,
        at(0.99)?,
        errors.len(),
        report.lateness.quantile(0.5).as_secs_f64() * 1e6,
        report.lateness.quantile(0.99).as_secs_f64() * 1e6,
    );
    Ok(())
}

/// Bytes per second at the receiver over 2 s while the queue is never empty: half more than the rate is sent.
fn measure_rate(shell: Shell, mbit: u64, size: usize, spin: Duration) -> anyhow::Result<()> {
    // What the path counts: the bridge sees 28 bytes of headers more.
    let headers = match shell {
        Shell::Udp => 0,
        Shell::Tun => 28,
    };
    let bench = Bench::new(shell, &format!("rate={mbit}mbit,queue=500ms"), spin)?;
    let send = bench.send.try_clone()?;
    let gap = Duration::from_secs_f64((size + headers) as f64 * 8.0 / (mbit as f64 * 1.5e6));
    let sender = thread::spawn(move || {
        let begun = Instant::now();
        let mut sent = 0;
        while begun.elapsed() < Duration::from_millis(2300) {
            while gap * sent < begun.elapsed() {
                // A refused datagram is one less of those too many.
                let _ = send.send(&vec![0; size]);
                sent += 1;
            }
            thread::sleep(Duration::from_micros(500));
        }
    });
    let mut buffer = [0; 2048];
    let (mut first, mut last, mut bytes) = (None, Instant::now(), 0);
    while let Ok(length) = bench.receive.recv(&mut buffer) {
        let now = Instant::now();
        // The queue fills in the first tenth of a second and empties after the last datagram was sent.
        let begun = *first.get_or_insert(now);
        if now - begun > Duration::from_millis(2200) {
            break;
        }
        if now - begun > Duration::from_millis(200) {
            bytes += length + headers;
            last = now;
        }
    }
    let _ = sender.join();
    let begun = first.context("no datagram came")? + Duration::from_millis(200);
    let seen = bytes as f64 * 8.0 / (last - begun).as_secs_f64() / 1e6;
    println!(
        "| {} | {mbit} Mbit/s, {size} B | {seen:.3} Mbit/s | {:+.2} % |",
        shell.name(),
        (seen / mbit as f64 - 1.0) * 100.0
    );
    Ok(())
}

/// The share of 50,000 datagrams that does not arrive, at 100 Mbit/s.
fn measure_loss(shell: Shell, loss: u64, spin: Duration) -> anyhow::Result<()> {
    const COUNT: u32 = 50_000;
    let bench = Bench::new(shell, &format!("loss={loss}%,delay=10ms"), spin)?;
    let send = bench.send.try_clone()?;
    let sender = thread::spawn(move || {
        let begun = Instant::now();
        for number in 0..COUNT {
            while begun.elapsed() < Duration::from_micros(50) * number {
                thread::sleep(Duration::from_micros(500));
            }
            let _ = send.send(&[0; 100]);
        }
    });
    let mut buffer = [0; 256];
    let mut got = 0;
    while bench.receive.recv(&mut buffer).is_ok() {
        got += 1;
    }
    let _ = sender.join();
    let report = bench.running().report();
    let seen = f64::from(COUNT - got) / f64::from(COUNT) * 100.0;
    let chosen = report.up.lost as f64 / f64::from(COUNT) * 100.0;
    let sigma = (loss as f64 * (100.0 - loss as f64) / f64::from(COUNT)).sqrt();
    println!(
        "| {} | loss {loss} % | {seen:.3} % (the path chose {chosen:.3} %) | {:+.3} % (one sigma {sigma:.3} %) |",
        shell.name(),
        seen - loss as f64
    );
    Ok(())
}
