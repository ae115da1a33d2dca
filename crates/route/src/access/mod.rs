//! Who may pass: addresses, rates, passwords.

mod auth;
mod ip;
mod rate;

pub use auth::{
    AuthDecision, AuthTable, BasicAuth, CredentialError, GoodPassword, MAX_USERS, PasswordCheck,
    PasswordHash,
};
pub use ip::{IpRules, IpSet};
pub use rate::{RateDecision, RateKey, RateLimit, RateTable};

/// The checks of a route, in the order in which they are made: what costs least comes first.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Addresses; refused with 403.
    pub ip: IpRules,
    /// Rate; refused with 429. The state is in a [`RateTable`] of the worker.
    pub rate: Option<RateLimit>,
    /// Passwords; refused with 401.
    pub auth: Option<std::sync::Arc<BasicAuth>>,
}
