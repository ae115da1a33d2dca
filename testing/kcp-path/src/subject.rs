//! What is measured: names on the command line, and how each is run.

use clap::ValueEnum;

/// A transport with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// kcp-go 5.6.72, mode fast3.
    KcpGo,
    /// The same with FEC 10/3.
    KcpGoFec,
    /// gt's KCP, mode fast3.
    GtFast3,
    /// The same with FEC 10/3.
    GtFast3Fec,
    /// gt's KCP with the classic congestion window (`nc` 0).
    GtReno,
    /// gt's KCP in its paced mode, windows eight times as large as the others': pacing is what bounds it.
    GtPaced,
    /// The same with FEC 10/3.
    GtPacedFec,
    /// Kernel TCP, CUBIC.
    TcpCubic,
    /// Kernel TCP, BBR.
    TcpBbr,
    /// quinn with its default, CUBIC.
    QuicCubic,
    /// quinn with its BBR.
    QuicBbr,
}

impl Subject {
    /// What is measured without a wish: goodput.
    pub(crate) const BULK: &[Self] = &[
        Self::KcpGo,
        Self::GtFast3,
        Self::GtPaced,
        Self::GtPacedFec,
        Self::TcpCubic,
        Self::TcpBbr,
        Self::QuicCubic,
        Self::QuicBbr,
    ];
    /// Latency.
    pub(crate) const TALK: &[Self] = &[
        Self::KcpGo,
        Self::GtFast3,
        Self::GtPaced,
        Self::KcpGoFec,
        Self::GtFast3Fec,
        Self::GtPacedFec,
    ];
    /// Beside CUBIC.
    pub(crate) const BESIDE: &[Self] = &[
        Self::KcpGo,
        Self::GtFast3,
        Self::GtPaced,
        Self::TcpCubic,
        Self::TcpBbr,
    ];

    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Data and parity shards for the Go program, if it is that one's.
    pub(crate) fn go(self) -> Option<[&'static str; 2]> {
        match self {
            Self::KcpGo => Some(["0", "0"]),
            Self::KcpGoFec => Some(["10", "3"]),
            _ => None,
        }
    }

    pub(crate) fn is_tcp(self) -> bool {
        matches!(self, Self::TcpCubic | Self::TcpBbr)
    }
}
