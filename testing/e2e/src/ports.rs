//! Port numbers that must be known before a process takes them (`tcpRange`, nginx), without two tests choosing the same.
//!
//! A claim is a listener on another loopback address, so that it excludes other tests in any process and leaves 127.0.0.1 free. Numbers
//! are below the kernel's ephemeral range, so that no outgoing connection takes them meanwhile.

use std::{
    net::{Ipv4Addr, TcpListener, UdpSocket},
    process,
    sync::atomic::{AtomicU16, Ordering::Relaxed},
};

/// Neighbouring ports that are free on 127.0.0.1 and belong to this test until dropped.
#[derive(Debug)]
pub struct PortRange {
    first: u16,
    claims: Vec<TcpListener>,
}

impl PortRange {
    /// Claims `count` neighbouring ports.
    ///
    /// # Panics
    /// When there are none.
    #[must_use]
    pub fn claim(count: u16) -> Self {
        // Processes begin at different places, so that they seldom meet.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let start = u16::try_from(process::id() % u32::from(SPAN)).unwrap_or_default();
        for _ in 0..SPAN {
            let step = NEXT.fetch_add(count, Relaxed);
            let offset = (u32::from(start) + u32::from(step)) % u32::from(SPAN - count);
            let first = FIRST + u16::try_from(offset).unwrap_or_default();
            let claims: Option<Vec<_>> = (first..first + count).map(claim).collect();
            if let Some(claims) = claims {
                return Self { first, claims };
            }
        }
        panic!(
            "no {count} neighbouring free ports between {FIRST} and {}",
            FIRST + SPAN
        );
    }

    /// The first port.
    #[must_use]
    pub fn first(&self) -> u16 {
        self.first
    }

    /// The last port.
    #[must_use]
    pub fn last(&self) -> u16 {
        self.first + u16::try_from(self.claims.len()).unwrap_or(1) - 1
    }

    /// Whether the port is one of these.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last()).contains(&port)
    }

    /// As `tcpRange` wants it.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}-{}", self.first, self.last())
    }
}

fn claim(port: u16) -> Option<TcpListener> {
    let claim = TcpListener::bind((CLAIMS, port)).ok()?;
    let _tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
    let _udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
    Some(claim)
}

const CLAIMS: Ipv4Addr = Ipv4Addr::new(127, 77, 77, 77);
const FIRST: u16 = 14_000;
const SPAN: u16 = 16_000;
