//! Impaired network paths in user space, seeded: for tests, benches and use by hand.
//!
//! Three layers:
//!
//! - [`Path`]: one direction, sans-IO. Packets and times in, arrivals out; bottleneck with a queue, delay, jitter, reordering,
//!   duplication, random and bursty loss, corruption; settings that change with time. For simulations with a virtual clock.
//! - [`UdpForwarder`]: a UDP port whose datagrams go to another address and back through two paths.
//! - [`TunBridge`]: two network namespaces joined by two paths, for any IP traffic, with a [`Filter`] before them. Needs root.
//!
//! The binary `netem` is the same by hand; README.md shows how.
//!
//! ```
//! use std::time::Duration;
//! use netem::{Packet, Path, Plan};
//!
//! let plan = Plan::parse("rate=8mbit,delay=10ms")?;
//! let mut path = Path::new(plan, 1);
//! path.handle(Duration::ZERO, Packet { tag: (), bytes: vec![0; 1000] });
//! // 1000 bytes at 1 MB/s take 1 ms, then 10 ms on the way.
//! assert!(path.poll(Duration::from_micros(10_999)).is_none());
//! assert!(path.poll(Duration::from_millis(11)).is_some());
//! # Ok::<(), netem::SettingError>(())
//! ```
//!
//! What it does not do: it cannot take time away. What the machine itself adds (a thread that wakes late, a socket buffer that is
//! full) comes on top and is reported: [`Report::lateness`].

mod chance;
mod counters;
mod filter;
mod path;
mod settings;
mod shell;
mod tun;
mod udp;
pub mod units;

pub use crate::{
    counters::{Counters, Lateness, Report},
    filter::{Filter, Protocol, Rule, Verdict},
    path::{Arrival, Packet, Path},
    settings::{GilbertElliott, Loss, Plan, Setting, SettingError, Settings, settings},
    shell::{Direction, Options, Running},
    tun::{Side, TunBridge, TunError, TunOptions, available},
    udp::{UdpForwarder, UdpOptions},
    units::{Chance, Queue, Rate, UnitError},
};
