//! Who may come in: the configured users, an external service, or anybody, as the configuration says.

mod api;
mod throttle;

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tunnel::{AuthRequest, ClientId, Key, RejectCode, Rejection};

pub(crate) use self::{api::AuthApi, throttle::Throttle};
use crate::{complaints::Complaint, routing::Expected, server::Shared, session::Account};

/// The answer to a client's proof.
#[derive(Debug)]
pub(crate) enum Decision {
    /// The proof fits this key, so the server can prove itself as well.
    Known(Key, Arc<Account>),
    /// The external service vouches for the client but did not hand out the key.
    Vouched(Arc<Account>),
    /// Anybody may come.
    Unverified(Arc<Account>),
    /// The proof does not fit the key of this id.
    WrongSecret(Key),
    UnknownId,
    Refused(Rejection),
}

/// The configured users' keys, derived once.
#[derive(Debug)]
pub(crate) struct Keys(HashMap<String, Key>);

impl Keys {
    pub(crate) fn new(config: &config::Server) -> Result<Self, tunnel::InvalidValue> {
        let derive = |(id, user): (&config::Id, &config::User)| {
            let key = Key::derive(
                &tunnel::Secret::new(user.secret.expose())?,
                &ClientId::new(id.as_str())?,
            );
            Ok((id.as_str().to_owned(), key))
        };
        config
            .users
            .iter()
            .map(derive)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// The configured ids, by the host prefix that is theirs.
#[derive(Debug)]
pub(crate) struct Users(ArcSwap<HashSet<String>>);

impl Users {
    pub(crate) fn new(config: &config::Server) -> Self {
        let users = Self(ArcSwap::default());
        users.replace(config);
        users
    }

    /// The ids of another configuration from now on.
    pub(crate) fn replace(&self, config: &config::Server) {
        let ids = config.users.keys();
        let ids = ids.map(|id| id.as_str().to_ascii_lowercase()).collect();
        self.0.store(Arc::new(ids));
    }
}

impl Expected for Users {
    fn expects(&self, prefix: &str) -> bool {
        self.0.load().contains(&prefix.to_ascii_lowercase())
    }
}

/// Decides, and remembers failures. Also takes care that guessing costs time.
pub(crate) async fn decide(server: &Shared, request: &AuthRequest, address: IpAddr) -> Decision {
    let id = request.client.id.as_str();
    if let Some(wait) = server.throttle.wait(address, id, Instant::now()) {
        server.metrics.auth_throttled_total.add_one();
        let rejection =
            Rejection::new(RejectCode::Throttled, "too many failed attempts").retry_after(wait);
        return Decision::Refused(rejection);
    }
    let decision = look_up(server, request, id, address).await;
    match &decision {
        Decision::WrongSecret(_) | Decision::UnknownId => {
            server.metrics.auth_failures_total.add_one();
            server.throttle.failed(address, id, Instant::now());
        }
        Decision::Known(..) | Decision::Vouched(_) => server.throttle.succeeded(address),
        Decision::Unverified(_) | Decision::Refused(_) => {}
    }
    decision
}

async fn look_up(server: &Shared, request: &AuthRequest, id: &str, address: IpAddr) -> Decision {
    let live = server.live();
    let config = &live.config;
    if let (Some(key), Some(user)) = (
        live.keys.0.get(id),
        config::Id::new(id)
            .ok()
            .and_then(|id| config.users.get(&id)),
    ) {
        if !request.verify(key) {
            return Decision::WrongSecret(key.clone());
        }
        let make = || Account::new(id, user.limits.clone(), user.load_balance);
        return Decision::Known(key.clone(), server.registry.account(id, make));
    }
    if let Some(api) = &live.auth_api {
        let answer = Box::pin(api.ask(request, address)).await;
        match answer {
            Ok(Some(vouched)) => {
                let make =
                    || Account::new(id, vouched.limits(&config.defaults), vouched.load_balance);
                let account = server.registry.account(id, make);
                return match vouched.key {
                    Some(key) if request.verify(&key) => Decision::Known(key, account),
                    Some(key) => Decision::WrongSecret(key),
                    None => Decision::Vouched(account),
                };
            }
            Ok(None) if config.allow_any_client => {}
            Ok(None) => return Decision::UnknownId,
            Err(error) => {
                server.metrics.auth_api_failures_total.add_one();
                if server.complaints.hear(Complaint::AuthApi, address) {
                    tracing::error!(%error, "the authentication service (authAPI) did not answer; the client is told to come back");
                }
                let rejection = Rejection::new(RejectCode::Internal, error.told());
                return Decision::Refused(rejection.retry_after(COME_BACK));
            }
        }
    }
    if config.allow_any_client {
        let make = || Account::new(id, config.defaults.clone(), false);
        return Decision::Unverified(server.registry.account(id, make));
    }
    Decision::UnknownId
}

/// When a client that could not be checked is asked to try again.
const COME_BACK: Duration = Duration::from_secs(5);
