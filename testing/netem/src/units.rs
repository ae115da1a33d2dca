//! Quantities as people write them: `50ms`, `100mbit`, `64KiB`, `5%`.
//!
//! Text becomes a checked type here and nowhere else. A quantity that is out of bounds is an error of the one who wrote it.

use std::{str::FromStr, time::Duration};

use thiserror::Error;

/// What is wrong with a quantity; always the fault of the one who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// No number stands at the beginning.
    #[error("{0:?}: a number is missing")]
    Number(String),
    /// The unit is none of those listed.
    #[error("{text:?}: the unit must be one of {units}")]
    Unit {
        /// What was written.
        text: String,
        /// The units there are.
        units: &'static str,
    },
    /// The number is too small or too large.
    #[error("{text:?}: must be {bounds}")]
    Bounds {
        /// What was written.
        text: String,
        /// What is allowed.
        bounds: &'static str,
    },
}

/// Bits per second, 1 kbit/s to 100 Gbit/s, counted over whole packets as the path gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// A rate; `None` if it is out of bounds.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match bits {
            1_000..=100_000_000_000 => Some(Self(bits)),
            _ => None,
        }
    }

    /// Bits per second.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// How long it takes to send `bytes`.
    pub fn time_of(self, bytes: usize) -> Duration {
        let nanos = (bytes as u128 * 8 * 1_000_000_000).div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many bytes are sent in `time`.
    pub fn bytes_in(self, time: Duration) -> usize {
        let bytes = time.as_nanos() * u128::from(self.0) / 8_000_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text)?;
        let scale = match unit.to_ascii_lowercase().as_str() {
            "bit" | "bps" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(unknown(text, "bit, kbit, mbit, gbit (per second)")),
        };
        Self::from_bits((number * scale) as u64).ok_or_else(|| UnitError::Bounds {
            text: text.to_owned(),
            bounds: "1kbit to 100gbit",
        })
    }
}

/// How much may wait before a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// So many bytes.
    Bytes(usize),
    /// As many bytes as the rate sends in this time.
    Time(Duration),
}

impl Queue {
    /// The limit in bytes before a bottleneck of `rate`.
    pub fn bytes(self, rate: Rate) -> usize {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Time(time) => rate.bytes_in(time),
        }
    }
}

impl FromStr for Queue {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if let Ok(time) = duration(text) {
            return Ok(Self::Time(time));
        }
        let (number, unit) = split(text)?;
        let scale = match unit {
            "B" | "" => 1.0,
            "kB" => 1e3,
            "MB" => 1e6,
            "KiB" => 1024.0,
            "MiB" => 1_048_576.0,
            _ => return Err(unknown(text, "B, kB, MB, KiB, MiB, or a time")),
        };
        let bytes = number * scale;
        if bytes > 1e9 {
            return Err(UnitError::Bounds {
                text: text.to_owned(),
                bounds: "at most 1000MB",
            });
        }
        Ok(Self::Bytes(bytes as usize))
    }
}

/// A probability, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Chance(f64);

impl Chance {
    /// It never happens.
    pub const NEVER: Self = Self(0.0);
    /// It always happens.
    pub const ALWAYS: Self = Self(1.0);

    /// A probability; `None` if it is not within 0 and 1.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// The probability as a number from 0 to 1.
    pub fn share(self) -> f64 {
        self.0
    }
}

impl FromStr for Chance {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text)?;
        let share = match unit {
            "%" => number / 100.0,
            "" => number,
            _ => return Err(unknown(text, "% or none (a share of 1)")),
        };
        Self::new(share).ok_or_else(|| UnitError::Bounds {
            text: text.to_owned(),
            bounds: "0% to 100%",
        })
    }
}

/// A time of at most one hour: `50ms`, `1.5s`, `250us`, `2m`, or `0`.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text)?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "" if number == 0.0 => 1.0,
        _ => return Err(unknown(text, "ns, us, ms, s, m")),
    };
    let seconds = number * scale;
    if seconds > 3600.0 {
        return Err(UnitError::Bounds {
            text: text.to_owned(),
            bounds: "at most 60m",
        });
    }
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// The number at the beginning, not negative, and what follows it.
fn split(text: &str) -> Result<(f64, &str), UnitError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number = text[..end]
        .parse()
        .map_err(|_| UnitError::Number(text.to_owned()))?;
    Ok((number, text[end..].trim()))
}

fn unknown(text: &str, units: &'static str) -> UnitError {
    UnitError::Unit {
        text: text.to_owned(),
        units,
    }
}
