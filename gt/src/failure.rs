//! Why gt ends badly, and the exit code for it: 1 failed while running, 2 the command line or the configuration is wrong.

use crate::{log::LogError, run::RunError};

/// Why gt ends with another code than 0.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The configuration is wrong.
    #[error(transparent)]
    Configuration(#[from] config::Errors),
    /// The log cannot be set up.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The supervisor.
    #[error(transparent)]
    Supervisor(#[from] supervisor::SupervisorError),
    /// A running gt was not reached.
    #[error(transparent)]
    Ask(#[from] supervisor::AskError),
    /// A running gt did not do it.
    #[error("{0}")]
    NotDone(String),
    /// It failed while it ran.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Failure {
    /// The code that the process ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Configuration(_) | Self::Log(LogError::Level(_)) => 2,
            Self::Log(LogError::File(..))
            | Self::Run(_)
            | Self::Supervisor(_)
            | Self::Ask(_)
            | Self::NotDone(_) => 1,
        }
    }
}
