//! Routes and upstreams of a reverse proxy as data: which route a request takes, which server of an upstream gets it, what
//! may pass, and which header fields tell the upstream about the visitor.
//!
//! Nothing here opens a socket, reads a clock or draws random numbers: the time is a [`Duration`](std::time::Duration) since
//! any fixed moment, and random bits are arguments. What is immutable ([`Routes`], [`Route`], [`HeaderEdits`], [`IpRules`], …) is `Send + Sync`
//! and shared by all workers; what changes ([`Balancer`], [`Health`], [`RateTable`], …) belongs to one worker, so counts and limits are per
//! worker. Neither allocates once it is built, where a request passes.
//!
//! One request, in the order of the calls:
//!
//! ```text
//! head parsed ─► Routes::match_request ─► Route
//!                Visitor::find            who the visitor is, past trusted proxies
//!                Access::check            IP rules, rate limit, basic auth
//!                Action                   redirect, respond, files, service ─► answered by the caller
//!                Breaker::enter           a place, a place in the queue, or 503
//!                Balancer::pick           a server ─► Balancer::started
//!                Forwarding::write, HeaderEdits, PathRewrite   the request as the server gets it
//!                RetryBudget::try_retry   after a failure that may be tried again
//!                Balancer::finished, Health::report, Breaker::leave
//! ```
//!
//! ```
//! use route::{Action, HostPattern, Match, NoHeaders, PathPattern, RequestView, Respond, Route, Routes, Scheme, Scratch};
//!
//! let route = |name: &str| Route::new(name, Action::Respond(Respond::text(200, name)));
//! let routes = Routes::new(vec![
//!     (Match::default(), route("everything")),
//!     (
//!         Match { host: HostPattern::new("example.com")?, path: PathPattern::prefix("/api")?, ..Match::default() },
//!         route("api"),
//!     ),
//! ])?;
//! let mut scratch = Scratch::default();
//! let mut request = RequestView::new(Scheme::Https, b"example.com", b"GET", b"/api/users", &NoHeaders);
//! assert_eq!(routes.match_request(&request, &mut scratch)?.map(|route| &*route.name), Some("api"));
//!
//! // Some origins read this as /x, others as /api/../x: the two would take different routes, so it is refused.
//! request.path = b"/api/../x";
//! assert!(routes.match_request(&request, &mut scratch).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Left to others: reading and writing HTTP (`h1`, `h2`), connections and their pools, running checks, files and timers
//! (`server`), and where the data comes from (`config`).

mod access;
mod action;
mod balance;
mod compress;
mod edit;
mod error;
mod forwarded;
mod hash;
mod health;
mod limits;
mod matching;
mod request;
mod template;

pub use access::{
    Access, AuthDecision, AuthTable, BasicAuth, CredentialError, GoodPassword, IpRules, IpSet,
    MAX_USERS, PasswordCheck, PasswordHash, RateDecision, RateKey, RateLimit, RateTable,
};
pub use action::{
    Action, FileError, Files, MAX_BODY, PathRewrite, Redirect, Respond, ServiceName, ToUpstream,
    UpstreamId,
};
pub use balance::{
    Balancer, HashKey, MAX_SERVERS, MAX_WEIGHT, Outcome, Pick, PickRequest, Policy, ServerIndex,
    ServerSpec, Sticky, StickyTag, Tried,
};
pub use compress::{AnswerView, Coding, Compress, Compression};
pub use edit::{HeaderEdit, HeaderEdits};
pub use error::BuildError;
pub use forwarded::{ClientIpSource, Forwarding, HostField, Visitor, VisitorView};
pub use hash::hash_bytes;
pub use health::{
    ActiveCheck, ActiveCheckSpec, Admission, Breaker, BreakerSpec, Change, Ejector, EjectorSpec,
    Health, HealthSpec, Report, RetryBudget, RetryBudgetSpec, Ticket,
};
pub use limits::{Limits, Timeouts};
pub use matching::{
    BadPath, Claim, HeaderCondition, HeaderTest, HostPattern, Match, PathPattern, Route, RouteId,
    Routes, Scratch, StreamRoutes,
};
pub use request::{Headers, Method, NoHeaders, RequestView, Scheme, cookie};
pub use template::{Template, Values};
