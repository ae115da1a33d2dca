//! What one direction of a path does to packets, as data: written as `loss=5%,delay=50ms`, applied one by one.
//!
//! [`Settings`] is the whole, [`Setting`] one change to it. A [`Plan`] is what a direction begins with and what changes when.

use std::{str::FromStr, time::Duration};

use thiserror::Error;

use crate::units::{self, Chance, Queue, Rate, UnitError};

/// What one direction does to packets. The default passes everything at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The bottleneck; without one nothing ever queues.
    pub rate: Option<Rate>,
    /// What may wait before the bottleneck; the packet that is being sent counts. A packet is always taken when none is there.
    pub queue: Queue,
    /// The time on the way, after the bottleneck.
    pub delay: Duration,
    /// The time on the way varies evenly by so much to both sides, never below zero.
    pub jitter: Duration,
    /// Whether jitter may change the order. If not, a packet that would overtake arrives together with the one before.
    pub jitter_reorders: bool,
    /// How likely a packet is held back by [`reorder_by`](Self::reorder_by), so that later ones overtake it.
    pub reorder: Chance,
    /// How long a packet is held back.
    pub reorder_by: Duration,
    /// How likely a packet arrives twice.
    pub duplicate: Chance,
    /// What is lost on the way. Lost packets have used the bottleneck, as on a radio link.
    pub loss: Loss,
    /// How likely one random bit of a packet is flipped.
    pub corrupt: Chance,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate: None,
            queue: Queue::Time(Duration::from_millis(100)),
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            jitter_reorders: false,
            reorder: Chance::NEVER,
            reorder_by: Duration::from_millis(5),
            duplicate: Chance::NEVER,
            loss: Loss::Random(Chance::NEVER),
            corrupt: Chance::NEVER,
        }
    }
}

/// Which packets are lost.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// Each with the same probability.
    Random(Chance),
    /// In bursts.
    Bursts(GilbertElliott),
}

/// Bursty loss: a good and a bad state, each with its loss (Gilbert 1960, Elliott 1963).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// From good to bad, per packet.
    pub to_bad: Chance,
    /// From bad to good, per packet.
    pub to_good: Chance,
    /// Loss in the good state.
    pub loss_good: Chance,
    /// Loss in the bad state.
    pub loss_bad: Chance,
}

impl GilbertElliott {
    /// Bursts of `length` packets on average (at least 1) that make up `mean` of all packets; everything is lost in a burst and
    /// nothing between. `None` if that cannot be: bursts so short would have to begin more often than always.
    pub fn bursts(mean: Chance, length: f64) -> Option<Self> {
        if !(1.0..=1e6).contains(&length) || mean.share() >= 1.0 {
            return None;
        }
        let to_good = 1.0 / length;
        Some(Self {
            to_bad: Chance::new(to_good * mean.share() / (1.0 - mean.share()))?,
            to_good: Chance::new(to_good)?,
            loss_good: Chance::NEVER,
            loss_bad: Chance::ALWAYS,
        })
    }

    /// The share of packets lost in the long run.
    pub fn mean(&self) -> f64 {
        let turns = self.to_bad.share() + self.to_good.share();
        if turns == 0.0 {
            return self.loss_good.share();
        }
        let bad = self.to_bad.share() / turns;
        bad * self.loss_bad.share() + (1.0 - bad) * self.loss_good.share()
    }
}

/// One change of [`Settings`].
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// `rate=100mbit`, `rate=none`
    Rate(Option<Rate>),
    /// `queue=100ms`, `queue=1250kB`
    Queue(Queue),
    /// `delay=50ms`
    Delay(Duration),
    /// `jitter=5ms`
    Jitter(Duration),
    /// `jitter-reorders=yes`
    JitterReorders(bool),
    /// `reorder=1%`
    Reorder(Chance),
    /// `reorder-by=5ms`
    ReorderBy(Duration),
    /// `duplicate=1%`
    Duplicate(Chance),
    /// `loss=5%`, `burst=5%/8` (mean and average length), `gilbert=1%/20%/0%/100%` (to bad, to good, loss in good, in bad)
    Loss(Loss),
    /// `corrupt=0.1%`
    Corrupt(Chance),
}

impl Setting {
    /// Makes the change.
    pub fn apply(&self, settings: &mut Settings) {
        match self {
            Self::Rate(rate) => settings.rate = *rate,
            Self::Queue(queue) => settings.queue = *queue,
            Self::Delay(delay) => settings.delay = *delay,
            Self::Jitter(jitter) => settings.jitter = *jitter,
            Self::JitterReorders(yes) => settings.jitter_reorders = *yes,
            Self::Reorder(chance) => settings.reorder = *chance,
            Self::ReorderBy(time) => settings.reorder_by = *time,
            Self::Duplicate(chance) => settings.duplicate = *chance,
            Self::Loss(loss) => settings.loss = loss.clone(),
            Self::Corrupt(chance) => settings.corrupt = *chance,
        }
    }
}

/// What is wrong with a setting; always the fault of the one who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    /// Not `name=value`.
    #[error("{0:?}: write name=value")]
    Form(String),
    /// No setting has this name.
    #[error(
        "{0:?}: the names are rate, queue, delay, jitter, jitter-reorders, reorder, reorder-by, duplicate, loss, burst, \
         gilbert, corrupt"
    )]
    Name(String),
    /// The value is wrong.
    #[error("{name}: {error}")]
    Value {
        /// The setting.
        name: String,
        /// What is wrong.
        error: UnitError,
    },
    /// A value with parts has too few, too many or impossible ones.
    #[error("{name}: write {form}")]
    Parts {
        /// The setting.
        name: String,
        /// How it is written.
        form: &'static str,
    },
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| SettingError::Form(text.to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        let wrong = |error| SettingError::Value {
            name: name.to_owned(),
            error,
        };
        let parts = |form| SettingError::Parts {
            name: name.to_owned(),
            form,
        };
        Ok(match name {
            "rate" if value == "none" => Self::Rate(None),
            "rate" => Self::Rate(Some(value.parse().map_err(wrong)?)),
            "queue" => Self::Queue(value.parse().map_err(wrong)?),
            "delay" => Self::Delay(units::duration(value).map_err(wrong)?),
            "jitter" => Self::Jitter(units::duration(value).map_err(wrong)?),
            "jitter-reorders" => Self::JitterReorders(match value {
                "yes" => true,
                "no" => false,
                _ => return Err(parts("yes or no")),
            }),
            "reorder" => Self::Reorder(value.parse().map_err(wrong)?),
            "reorder-by" => Self::ReorderBy(units::duration(value).map_err(wrong)?),
            "duplicate" => Self::Duplicate(value.parse().map_err(wrong)?),
            "loss" => Self::Loss(Loss::Random(value.parse().map_err(wrong)?)),
            "burst" => {
                let form = "MEAN/LENGTH, as 5%/8";
                let (mean, length) = value.split_once('/').ok_or_else(|| parts(form))?;
                let mean = mean.parse().map_err(wrong)?;
                let length = length.parse().map_err(|_| parts(form))?;
                let model = GilbertElliott::bursts(mean, length).ok_or_else(|| parts(form))?;
                Self::Loss(Loss::Bursts(model))
            }
            "gilbert" => {
                Self::Loss(Loss::Bursts(gilbert(value).ok_or_else(|| {
                    parts("TO_BAD/TO_GOOD/LOSS_GOOD/LOSS_BAD, as 1%/20%/0%/100%")
                })?))
            }
            "corrupt" => Self::Corrupt(value.parse().map_err(wrong)?),
            _ => return Err(SettingError::Name(name.to_owned())),
        })
    }
}

fn gilbert(value: &str) -> Option<GilbertElliott> {
    let mut chances = value.split('/').map(|part| part.parse().ok());
    let model = GilbertElliott {
        to_bad: chances.next()??,
        to_good: chances.next()??,
        loss_good: chances.next()??,
        loss_bad: chances.next()??,
    };
    chances.next().is_none().then_some(model)
}

/// Settings separated by commas, as `rate=100mbit,delay=50ms`.
pub fn settings(text: &str) -> Result<Vec<Setting>, SettingError> {
    text.split(',').map(str::parse).collect()
}

/// What a direction does from the beginning, and what changes later.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// From the beginning.
    pub first: Settings,
    /// Changes, each at its time since the beginning. Any order; changes of the same time keep theirs.
    pub later: Vec<(Duration, Setting)>,
}

impl Plan {
    /// A plan from text, `rate=100mbit,delay=50ms`, without later changes.
    pub fn parse(text: &str) -> Result<Self, SettingError> {
        let mut plan = Self::default();
        plan.set(&settings(text)?);
        Ok(plan)
    }

    /// Changes what holds from the beginning.
    pub fn set(&mut self, changes: &[Setting]) {
        for change in changes {
            change.apply(&mut self.first);
        }
    }
}
