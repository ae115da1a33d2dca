//! Datagrams on their way from the process that reads a UDP address to an older one that carries their session.
//!
//! Processes of one service follow one another on the same UDP sockets, and only one of them may read: what the other took would be lost.
//! A session's id therefore names the process that has it (its *epoch*). A process that is replaced opens an [`Inlet`] before it stops
//! reading; the next one passes on through an [`Outlet`] what is not its own.
//!
//! ```text
//!  peer ──► UDP socket ──► new process ── Outlet ═══ packet socket in a private folder ═══ Inlet ──► old process
//!  peer ◄── UDP socket ◄──────────────────────────────────────────────────────────────────────────── old process
//! ```
//!
//! Nothing waits: a datagram that finds no room, or nobody, is lost as on any path. Who may open the socket is decided by the folder, which
//! belongs to one user and lets nobody else in. What an id looks like is left to the protocols.

use std::{
    fs,
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::{
        fd::OwnedFd,
        unix::{
            fs::OpenOptionsExt as _,
            net::{UnixDatagram as StdDatagram, UnixListener as StdListener},
        },
    },
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixDatagram, UnixListener};

/// Where the processes of one service meet, and which of them this one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steering {
    stem: PathBuf,
    epoch: u8,
}

impl Steering {
    /// `stem`: the beginning of file names in a folder that only this user can enter, the same for all processes of the service.
    /// `generation` counts these processes; two that live at one time are less than 256 apart.
    #[must_use]
    pub fn new(stem: PathBuf, generation: u32) -> Self {
        Self {
            stem,
            epoch: generation.to_le_bytes()[0],
        }
    }

    /// What the ids of this process's sessions carry.
    #[must_use]
    pub fn epoch(&self) -> u8 {
        self.epoch
    }

    /// A secret of all processes of the service, for ids that each of them can tell from those that strangers make up. It is made once and kept
    /// beside the sockets.
    ///
    /// # Errors
    /// The system's; `InvalidData` when something else is in its place.
    pub fn key(&self) -> io::Result<[u8; KEY]> {
        let mut path = self.stem.clone().into_os_string();
        path.push(".key");
        let path = PathBuf::from(path);
        if !path.exists() {
            let new = path.with_extension(format!("key-{}", std::process::id()));
            let _ = fs::remove_file(&new);
            let mut options = fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(&rand::random::<[u8; KEY]>())?;
            // Whole or not at all, and the first one stays.
            let linked = fs::hard_link(&new, &path);
            let _ = fs::remove_file(&new);
            linked.or_else(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Ok(()),
                _ => Err(error),
            })?;
        }
        let bytes = fs::read(&path)?;
        bytes
            .try_into()
            .map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Opens the way into this process for the protocol `label`.
    ///
    /// # Errors
    /// The system's; a path that is too long for a socket is `InvalidInput`.
    pub fn inlet(&self, label: &str) -> io::Result<Inlet> {
        let path = self.path(label, self.epoch);
        // Left by a process of the same number that was killed.
        let _ = fs::remove_file(&path);
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(&path)?)?;
        let inlet = Inlet {
            listener: StdListener::from(OwnedFd::from(socket.try_clone()?)),
            path,
        };
        socket.listen(PEERS)?;
        Ok(inlet)
    }

    /// The way out of this process, for one thread.
    #[must_use]
    pub fn outlet(&self, label: &str) -> Outlet {
        Outlet {
            steering: self.clone(),
            label: label.to_owned(),
            ways: Vec::new(),
            filled: false,
        }
    }

    fn path(&self, label: &str, epoch: u8) -> PathBuf {
        let mut path = self.stem.clone().into_os_string();
        path.push(format!(".{label}.{epoch}"));
        path.into()
    }
}

/// Takes datagrams from other processes. Dropping it closes the way.
#[derive(Debug)]
pub struct Inlet {
    listener: StdListener,
    path: PathBuf,
}

impl Inlet {
    /// Gives each datagram, its sender's address and its mark to `take`, without end, on a worker's runtime.
    ///
    /// # Errors
    /// When the socket is of no use.
    pub async fn serve(self, take: impl Fn(SocketAddr, u8, &[u8]) + 'static) -> io::Result<()> {
        let listener = UnixListener::from_std(self.listener.try_clone()?)?;
        let take = Rc::new(take);
        let peers = Rc::new(());
        loop {
            let (stream, _) = listener.accept().await?;
            // A thread of the next process each.
            if Rc::strong_count(&peers) > PEERS as usize {
                continue;
            }
            let packets = StdDatagram::from(OwnedFd::from(stream.into_std()?));
            let packets = UnixDatagram::from_std(packets)?;
            let (take, peer) = (Rc::clone(&take), Rc::clone(&peers));
            tokio::task::spawn_local(async move {
                let _peer = peer;
                let mut packet = vec![0; PACKET];
                while let Ok(length @ 1..) = packets.recv(&mut packet).await {
                    if each(&packet[..length], &*take).is_none() {
                        return tracing::error!(
                            "a process of this server passed on what makes no sense"
                        );
                    }
                }
            });
        }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Passes datagrams on to other processes. Never waits.
#[derive(Debug)]
pub struct Outlet {
    steering: Steering,
    label: String,
    ways: Vec<(u8, Way)>,
    /// Something was passed on since the last flush.
    filled: bool,
}

#[derive(Debug)]
enum Way {
    Open {
        socket: Socket,
        packet: Vec<u8>,
    },
    /// There is none: anybody may send ids of processes that never were, so it is not looked for each time.
    Closed {
        until: Instant,
    },
}

impl Outlet {
    /// Takes a datagram for the process `epoch`; [`flush`](Self::flush) sends it at the latest. `mark` is what the network wrote on it (ECN, 0
    /// to 3).
    pub fn pass(&mut self, epoch: u8, from: SocketAddr, mark: u8, datagram: &[u8]) {
        if epoch == self.steering.epoch || datagram.len() > LONGEST {
            return;
        }
        let Some((socket, packet)) = self.way(epoch) else {
            return;
        };
        if packet.len() + HEADER + datagram.len() > PACKET && !send(socket, packet) {
            return self.close(epoch);
        }
        write(packet, from, mark, datagram);
        self.filled = true;
    }

    /// Whether a process `epoch` was there when it was last looked for, at most a second ago.
    pub fn reaches(&mut self, epoch: u8) -> bool {
        epoch != self.steering.epoch && self.way(epoch).is_some()
    }

    /// Sends what was taken; to be called at the end of each turn.
    pub fn flush(&mut self) {
        if !std::mem::take(&mut self.filled) {
            return;
        }
        for (_, way) in &mut self.ways {
            if let Way::Open { socket, packet } = way
                && !packet.is_empty()
                && !send(socket, packet)
            {
                *way = closed();
            }
        }
    }

    fn way(&mut self, epoch: u8) -> Option<(&Socket, &mut Vec<u8>)> {
        let at = match self.ways.iter().position(|(other, _)| *other == epoch) {
            Some(at) => at,
            None => {
                self.ways.push((epoch, self.open(epoch)));
                self.ways.len() - 1
            }
        };
        if let Way::Closed { until } = self.ways[at].1
            && Instant::now() >= until
        {
            self.ways[at].1 = self.open(epoch);
        }
        match &mut self.ways[at].1 {
            Way::Open { socket, packet } => Some((socket, packet)),
            Way::Closed { .. } => None,
        }
    }

    fn open(&self, epoch: u8) -> Way {
        let connect = || {
            let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
            socket.set_nonblocking(true)?;
            // What the old process has not read yet; the system may give less.
            let _ = socket.set_send_buffer_size(BUFFER);
            socket.connect(&SockAddr::unix(self.steering.path(&self.label, epoch))?)?;
            io::Result::Ok(socket)
        };
        match connect() {
            Ok(socket) => Way::Open {
                socket,
                packet: Vec::new(),
            },
            Err(_) => closed(),
        }
    }

    fn close(&mut self, epoch: u8) {
        for (_, way) in self.ways.iter_mut().filter(|(other, _)| *other == epoch) {
            *way = closed();
        }
    }
}

fn closed() -> Way {
    Way::Closed {
        until: Instant::now() + AGAIN,
    }
}

/// Sends and empties the packet; false when the process is gone.
fn send(socket: &Socket, packet: &mut Vec<u8>) -> bool {
    let sent = socket.send(packet);
    packet.clear();
    match sent {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// length u16 ‖ address 16 (IPv4 mapped) ‖ family and 16 × mark u8 ‖ port u16 ‖ scope u32 ‖ datagram, little-endian: both ends are one machine's.
fn write(packet: &mut Vec<u8>, from: SocketAddr, mark: u8, datagram: &[u8]) {
    let (ip, family, scope) = match from {
        SocketAddr::V4(from) => (from.ip().to_ipv6_mapped(), 4, 0),
        SocketAddr::V6(from) => (*from.ip(), 6, from.scope_id()),
    };
    let length = u16::try_from(datagram.len()).unwrap_or_default();
    packet.extend_from_slice(&length.to_le_bytes());
    packet.extend_from_slice(&ip.octets());
    packet.push(family | (mark << 4));
    packet.extend_from_slice(&from.port().to_le_bytes());
    packet.extend_from_slice(&scope.to_le_bytes());
    packet.extend_from_slice(datagram);
}

/// `None` when the packet is not made like this.
fn each(mut packet: &[u8], take: &impl Fn(SocketAddr, u8, &[u8])) -> Option<()> {
    while !packet.is_empty() {
        let (length, rest) = packet.split_first_chunk::<2>()?;
        let (ip, rest) = rest.split_first_chunk::<16>()?;
        let (family, rest) = rest.split_first()?;
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let (scope, rest) = rest.split_first_chunk::<4>()?;
        let (datagram, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        let (ip, port) = (Ipv6Addr::from(*ip), u16::from_le_bytes(*port));
        let (family, mark) = (family & 15, family >> 4);
        let from = match family {
            4 => {
                let ip = ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED);
                SocketAddr::new(IpAddr::V4(ip), port)
            }
            _ => SocketAddrV6::new(ip, port, 0, u32::from_le_bytes(*scope)).into(),
        };
        take(from, mark, datagram);
        packet = rest;
    }
    Some(())
}

/// Bytes of [`Steering::key`].
const KEY: usize = 32;
/// Threads of other processes that may be connected.
const PEERS: i32 = 256;
const HEADER: usize = 2 + 16 + 1 + 2 + 4;
/// One packet carries several datagrams: a system call for each batch that the network brought.
const PACKET: usize = 32 << 10;
/// More than any protocol's datagrams here.
const LONGEST: usize = 16 << 10;
const BUFFER: usize = 4 << 20;
const AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, sync::atomic::AtomicU32};

    use super::*;

    static NUMBER: AtomicU32 = AtomicU32::new(0);

    fn stem() -> PathBuf {
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        std::env::temp_dir().join(format!("gt-steer-{}-{number}", std::process::id()))
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let mut packet = Vec::new();
        let four: SocketAddr = "192.0.2.1:53".parse().expect("an address");
        let six = SocketAddr::from(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 9, 0, 3));
        write(&mut packet, four, 0, b"one");
        write(&mut packet, six, 3, b"");
        write(&mut packet, four, 2, &[7; 1500]);
        let got = RefCell::new(Vec::new());
        let take = |from, mark, datagram: &[u8]| {
            got.borrow_mut().push((from, mark, datagram.to_vec()));
        };
        each(&packet, &take).expect("whole");
        let expected = [
            (four, 0, b"one".to_vec()),
            (six, 3, Vec::new()),
            (four, 2, vec![7; 1500]),
        ];
        assert_eq!(got.take(), expected);
        for cut in [1, 24, 26, packet.len() - 1] {
            assert!(each(&packet[..cut], &take).is_none(), "{cut}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn datagrams_reach_the_process_that_is_named_and_no_other() {
        let stem = stem();
        let old = Steering::new(stem.clone(), 257);
        let mut outlet = Steering::new(stem.clone(), 258).outlet("kcp");
        let from: SocketAddr = "127.0.0.1:7".parse().expect("an address");
        // Nobody there, and nobody else is asked.
        outlet.pass(9, from, 0, b"lost");
        outlet.flush();
        let inlet = old.inlet("kcp").expect("opened");
        let local = tokio::task::LocalSet::new();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        local
            .run_until(async {
                let serving = tokio::task::spawn_local(inlet.serve(move |from, mark, datagram| {
                    let _ = tell.send((from, mark, datagram.to_vec()));
                }));
                for n in 0..100_u8 {
                    outlet.pass(1, from, n % 4, &[n; 1400]);
                }
                outlet.flush();
                for n in 0..100_u8 {
                    assert_eq!(told.recv().await, Some((from, n % 4, vec![n; 1400])));
                }
                serving.abort();
                let _ = serving.await;
            })
            .await;
        // Gone: lost without an error, and the file with it.
        assert!(outlet.reaches(1));
        outlet.pass(1, from, 0, b"late");
        outlet.flush();
        assert!(!outlet.reaches(1), "it was found to be gone");
        assert!(old.inlet("kcp").is_ok());
        assert!(!old.path("kcp", 1).exists());
    }

    #[test]
    fn all_processes_of_a_service_have_one_key() {
        let stem = stem();
        let first = Steering::new(stem.clone(), 1).key().expect("made");
        assert_eq!(Steering::new(stem.clone(), 2).key().expect("read"), first);
        assert_ne!(first, [0; KEY]);
        let path = stem.with_extension("key");
        fs::write(&path, b"short").expect("written");
        assert!(Steering::new(stem, 3).key().is_err());
        let _ = fs::remove_file(path);
    }
}
