//! The sockets of one configuration, kept open while its workers come and go. They are opened when a worker asks for them first,
//! never to find out whether they could be. A group is closed when the worker that serves does not use it; a service's port a
//! while later, because its client may be on its way.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use crate::message::{Protocol, SocketName};

/// A worker, for claims; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WorkerId(pub(crate) u64);

#[derive(Debug)]
struct Group {
    sockets: Vec<OwnedFd>,
    claims: BTreeSet<WorkerId>,
    unclaimed_since: Instant,
}

/// All groups of one configuration.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    groups: BTreeMap<SocketName, Group>,
}

impl Sockets {
    /// The sockets of `name` for a worker; opened if they are not. `given` are those of the service manager, which go first.
    pub(crate) fn claim(
        &mut self,
        worker: WorkerId,
        name: &SocketName,
        count: usize,
        given: &mut Vec<(String, OwnedFd)>,
        now: Instant,
    ) -> io::Result<Vec<BorrowedFd<'_>>> {
        if !self.groups.contains_key(name) {
            if self.groups.len() >= MOST_GROUPS {
                return Err(io::Error::other("too many sockets are kept open"));
            }
            let sockets = match fitting(name, given) {
                Some(socket) => vec![socket],
                None => open(name, count.clamp(1, MOST_SOCKETS))?,
            };
            self.put(name.clone(), sockets, None, now);
        }
        let group = self.groups.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        group.claims.insert(worker);
        Ok(group.sockets.iter().map(AsFd::as_fd).collect())
    }

    /// Adds sockets that were opened before.
    pub(crate) fn put(
        &mut self,
        name: SocketName,
        sockets: Vec<OwnedFd>,
        claim: Option<WorkerId>,
        now: Instant,
    ) {
        let group = self.groups.entry(name).or_insert_with(|| Group {
            sockets: Vec::new(),
            claims: BTreeSet::new(),
            unclaimed_since: now,
        });
        group.sockets.extend(sockets);
        group.claims.extend(claim);
    }

    /// The worker does not use the group any more.
    pub(crate) fn release(&mut self, worker: WorkerId, name: &SocketName, now: Instant) {
        if let Some(group) = self.groups.get_mut(name) {
            group.claims.remove(&worker);
            group.unclaimed_since = now;
            // Its service has gone and its client is not expected any more.
            if group.claims.is_empty() && name.is_of_service() {
                self.groups.remove(name);
            }
        }
    }

    /// The worker uses nothing any more.
    pub(crate) fn release_all(&mut self, worker: WorkerId, now: Instant) {
        for group in self.groups.values_mut() {
            if group.claims.remove(&worker) && group.claims.is_empty() {
                group.unclaimed_since = now;
            }
        }
    }

    /// Closes what nobody uses. `serving`: there is a worker that serves, so what the configuration names and nobody has claimed is
    /// not named any more.
    pub(crate) fn sweep(&mut self, serving: bool, now: Instant) {
        self.groups.retain(|name, group| {
            let idle = now.saturating_duration_since(group.unclaimed_since);
            !group.claims.is_empty()
                || if name.is_of_service() {
                    idle < SERVICE_GRACE
                } else {
                    !serving
                }
        });
    }

    /// All of them, for handing over.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&SocketName, &[OwnedFd])> {
        self.groups
            .iter()
            .map(|(name, group)| (name, group.sockets.as_slice()))
    }

    /// The addresses that are open: option, protocol, address as bound.
    pub(crate) fn addresses(&self) -> Vec<(String, Protocol, String)> {
        let one = |(name, group): (&SocketName, &Group)| {
            let bound = group.sockets.first().and_then(local_address);
            let address = bound.unwrap_or(name.address);
            (name.option.clone(), name.protocol, address.to_string())
        };
        self.groups.iter().map(one).collect()
    }
}

fn open(name: &SocketName, count: usize) -> io::Result<Vec<OwnedFd>> {
    Ok(match name.protocol {
        Protocol::Tcp => net::listen_tcp_group(name.address, count)?
            .into_iter()
            .map(OwnedFd::from)
            .collect(),
        Protocol::Udp => net::bind_udp_group(name.address, count)?
            .into_iter()
            .map(OwnedFd::from)
            .collect(),
    })
}

/// A socket of the service manager that has this address, or this name and the right kind.
fn fitting(name: &SocketName, given: &mut Vec<(String, OwnedFd)>) -> Option<OwnedFd> {
    let kind = match name.protocol {
        Protocol::Tcp => rustix::net::SocketType::STREAM,
        Protocol::Udp => rustix::net::SocketType::DGRAM,
    };
    let fits = |(label, socket): &(String, OwnedFd)| {
        let by_name = !name.option.is_empty() && *label == name.option;
        rustix::net::sockopt::socket_type(socket) == Ok(kind)
            && (by_name || local_address(socket) == Some(name.address))
    };
    let index = given.iter().position(fits)?;
    let (_, socket) = given.swap_remove(index);
    // Whoever made it did not know that nothing here may wait on it.
    rustix::io::ioctl_fionbio(&socket, true).ok()?;
    Some(socket)
}

fn local_address(socket: &OwnedFd) -> Option<std::net::SocketAddr> {
    rustix::net::getsockname(socket).ok()?.try_into().ok()
}

/// How long a service's port that no worker has claimed stays open: clients come back within seconds of a worker's end.
const SERVICE_GRACE: Duration = Duration::from_secs(30);
/// Sockets of one group: they travel in packets of [`MOST_FDS`](crate::channel::MOST_FDS).
pub(crate) const MOST_SOCKETS: usize = 512;
const MOST_GROUPS: usize = 70_000;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn name(option: &str, address: &str) -> SocketName {
        SocketName {
            option: option.into(),
            protocol: Protocol::Tcp,
            address: address.parse().expect("an address"),
        }
    }

    fn port(sockets: &Sockets) -> String {
        sockets.addresses()[0].2.clone()
    }

    #[test]
    fn a_group_outlives_its_worker_and_is_the_same_for_the_next() {
        let (mut sockets, now) = (Sockets::default(), Instant::now());
        let addr = name("addr", "127.0.0.1:0");
        let first = sockets.claim(WorkerId(1), &addr, 2, &mut Vec::new(), now);
        assert_eq!(first.expect("opened").len(), 2);
        let before = port(&sockets);
        sockets.release_all(WorkerId(1), now);
        sockets.sweep(false, now);
        // While nobody serves, visitors wait.
        TcpStream::connect(&before).expect("still open");
        let again = sockets.claim(WorkerId(2), &addr, 7, &mut Vec::new(), now);
        assert_eq!(again.expect("kept").len(), 2);
        assert_eq!(port(&sockets), before);
        sockets.sweep(true, now);
        TcpStream::connect(&before).expect("still open");
        sockets.release_all(WorkerId(2), now);
        sockets.sweep(true, now);
        assert!(TcpStream::connect(&before).is_err());
    }

    #[test]
    fn a_services_port_waits_for_its_client_for_a_while() {
        let (mut sockets, now) = (Sockets::default(), Instant::now());
        let of_service = name("", "127.0.0.1:0");
        sockets
            .claim(WorkerId(1), &of_service, 1, &mut Vec::new(), now)
            .expect("opened");
        sockets.release_all(WorkerId(1), now);
        sockets.sweep(true, now + SERVICE_GRACE / 2);
        assert_eq!(sockets.addresses().len(), 1);
        sockets.sweep(true, now + SERVICE_GRACE);
        assert!(sockets.addresses().is_empty());
        // One that is given back was not lost.
        sockets
            .claim(WorkerId(1), &of_service, 1, &mut Vec::new(), now)
            .expect("opened");
        sockets.release(WorkerId(1), &of_service, now);
        assert!(sockets.addresses().is_empty());
    }

    #[test]
    fn an_address_in_use_is_an_error_and_nothing_is_kept() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("bound").to_string();
        let mut sockets = Sockets::default();
        let claimed = sockets.claim(
            WorkerId(1),
            &name("addr", &address),
            1,
            &mut Vec::new(),
            Instant::now(),
        );
        assert_eq!(
            claimed.expect_err("in use").kind(),
            io::ErrorKind::AddrInUse
        );
        assert!(sockets.addresses().is_empty());
    }

    #[test]
    fn sockets_of_the_service_manager_are_used_by_address_or_name() {
        let open = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let (one, two) = (open(), open());
        let at = one.local_addr().expect("bound");
        let mut given = vec![
            ("whatever".into(), one.into()),
            ("tlsAddr".into(), two.into()),
        ];
        let mut sockets = Sockets::default();
        let now = Instant::now();
        let by_address = name("addr", &at.to_string());
        sockets
            .claim(WorkerId(1), &by_address, 4, &mut given, now)
            .expect("given");
        sockets
            .claim(
                WorkerId(1),
                &name("tlsAddr", "0.0.0.0:443"),
                4,
                &mut given,
                now,
            )
            .expect("given");
        assert!(given.is_empty());
    }
}
