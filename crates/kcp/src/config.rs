//! Options of a session, checked before use.

use std::time::Duration;

use crate::{ConfigError, arq::HEADER};

/// The largest datagram: kcp-go's buffers hold no more.
pub const MTU_MAX: usize = 1500;
/// The MTU without a wish, as in kcp-go: UDP payload bytes.
pub const MTU_DEFAULT: usize = 1400;

/// How eagerly a session works: kcp-go's four nodelay parameters, and kcptun's names for sets of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Lower timeouts (30 ms at least, not 100) that back off slower. On a path that loses packets, segments of up to 256 bytes
    /// also go out again with each of the next two datagrams, where those have room.
    pub nodelay: bool,
    /// The granularity of the protocol; acknowledgements wait at most half of it. 10 ms to 5 s.
    pub interval: Duration,
    /// A segment is sent again when this many sent later have arrived. 0: never for that reason; 32 at most.
    pub resend: u32,
    /// Whether a congestion window (Reno's rules) holds new segments back.
    pub congestion_control: bool,
}

impl Mode {
    /// kcptun's `normal`.
    pub const NORMAL: Self = Self::new(false, 40, 2, false);
    /// kcptun's `fast`.
    pub const FAST: Self = Self::new(false, 30, 2, false);
    /// kcptun's `fast2`.
    pub const FAST2: Self = Self::new(true, 20, 2, false);
    /// kcptun's `fast3`.
    pub const FAST3: Self = Self::new(true, 10, 2, false);
    /// What a kcp-go session does before its `SetNoDelay`.
    pub const CLASSIC: Self = Self::new(false, 100, 0, true);

    /// A mode; `interval_ms` is brought into its bounds.
    pub const fn new(
        nodelay: bool,
        interval_ms: u64,
        resend: u32,
        congestion_control: bool,
    ) -> Self {
        let ms = match interval_ms {
            0..10 => 10,
            10..=5000 => interval_ms,
            _ => 5000,
        };
        Self {
            nodelay,
            interval: Duration::from_millis(ms),
            resend,
            congestion_control,
        }
    }

    /// The mode of this name: `normal`, `fast`, `fast2`, `fast3`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "normal" => Some(Self::NORMAL),
            "fast" => Some(Self::FAST),
            "fast2" => Some(Self::FAST2),
            "fast3" => Some(Self::FAST3),
            _ => None,
        }
    }
}

/// What decides how much is sent, beside the windows. Both speak the same protocol: each end chooses for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// kcp-go's rules: [`Mode`] says whether there is a congestion window; without it, as much is sent at once as the windows
    /// let through, and two overtaking segments make a loss.
    #[default]
    Classic,
    /// Sending is paced at the bandwidth that the path was measured to have, and what is out is bounded by what it holds;
    /// losses are told by time, so that reordering does not look like loss. For bulk data on paths that are shared, or lose
    /// packets, or hold much. [`Mode::congestion_control`] and [`Mode::resend`] have no meaning then. The windows must be
    /// larger than bandwidth × round trip, several times so on lossy paths.
    Paced,
}

/// How many data packets make a FEC group, and how many parity packets follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shards {
    data: u16,
    parity: u16,
}

impl Shards {
    /// `data` and `parity` are at least 1 and together at most 256.
    pub fn new(data: usize, parity: usize) -> Result<Self, ConfigError> {
        if data == 0 || parity == 0 || data.saturating_add(parity) > 256 {
            return Err(ConfigError::Shards { data, parity });
        }
        Ok(Self {
            data: data as u16,
            parity: parity as u16,
        })
    }

    /// Data packets per group.
    pub fn data(self) -> usize {
        usize::from(self.data)
    }

    /// Parity packets per group.
    pub fn parity(self) -> usize {
        usize::from(self.parity)
    }

    /// Packets per group.
    pub fn total(self) -> usize {
        self.data() + self.parity()
    }

    /// What a decoder assumes of a peer when this end does not use FEC; the tuner finds the truth.
    pub(crate) const GUESS: Self = Self { data: 1, parity: 1 };

    /// Where packet numbers wrap: the largest multiple of the group size that 32 bits hold.
    pub fn wrap(self) -> u32 {
        let total = self.total() as u32;
        u32::MAX / total * total
    }
}

/// Options of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How eagerly it works.
    pub mode: Mode,
    /// What decides how much is sent.
    pub control: Control,
    /// Most segments in flight, 1 to 65535. Twice as many are taken from the application.
    pub send_window: u32,
    /// Most segments received and not read, 1 to 65535.
    pub recv_window: u32,
    /// Largest datagram in bytes of UDP payload, at most [`MTU_MAX`].
    pub mtu: usize,
    /// Whether writes are a stream of bytes, cut anywhere. If not, each write starts a segment.
    pub stream: bool,
    /// Whether every datagram is acknowledged at once.
    pub ack_nodelay: bool,
    /// Whether new data waits for the interval (or a full window), so that small writes share segments.
    pub write_delay: bool,
    /// A segment that was sent this often while nothing at all came from the peer says that the link is dead.
    pub dead_link: u32,
    /// The shortest silence that counts as death, however often was sent: timeouts of some tens of milliseconds make
    /// twenty sends a matter of three seconds, which a change of network takes as well.
    pub dead_silence: Duration,
    /// Forward error correction. Its groups are those of the peer, if the peer is found to have others, unless those are much
    /// more parity.
    pub fec: Option<Shards>,
    /// Whether parity waits until it is known which groups the peer can decode: kcp-go, left to guess, makes wrong packets of
    /// it (5.6.1) or none (5.6.72). A peer without FEC of its own gets none then.
    pub fec_agrees: bool,
}

impl Default for Config {
    /// kcp-go's defaults, with a byte stream.
    fn default() -> Self {
        Self {
            mode: Mode::CLASSIC,
            control: Control::Classic,
            send_window: 32,
            recv_window: 32,
            mtu: MTU_DEFAULT,
            stream: true,
            ack_nodelay: false,
            write_delay: false,
            dead_link: 20,
            dead_silence: Duration::from_secs(10),
            fec: None,
            fec_agrees: true,
        }
    }
}

impl Config {
    /// Checks bounds that do not depend on the cipher.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for window in [self.send_window, self.recv_window] {
            if !(1..=65535).contains(&window) {
                return Err(ConfigError::Window(window));
            }
        }
        if self.mtu > MTU_MAX {
            return Err(ConfigError::Mtu(self.mtu));
        }
        Ok(())
    }

    /// The bytes left for KCP segments when `overhead` bytes of each datagram are taken.
    pub(crate) fn room(&self, overhead: usize) -> Result<usize, ConfigError> {
        match self.mtu.checked_sub(overhead) {
            Some(room) if room > HEADER => Ok(room),
            _ => Err(ConfigError::Mtu(self.mtu)),
        }
    }
}
