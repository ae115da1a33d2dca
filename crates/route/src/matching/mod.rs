//! Which route a request takes.
//!
//! Routes are independent rules, and the most specific rule that fits wins, wherever it stands:
//!
//! 1. host: exact, then wildcard with the longest suffix, then any host;
//! 2. a port in the host pattern before none;
//! 3. path: exact, then regex (in the order of the file), then the longest prefix, then any path;
//! 4. a method condition before none, then more header conditions before fewer, then a listener or scheme condition before none;
//! 5. the order of the file.
//!
//! A rule that does not fit is passed over, also to rules of a less specific host: a rule for all hosts serves what an exact host's rules leave.

mod host;
mod path;
mod stream;

use std::{
    cmp::Reverse, collections::HashMap, hash::BuildHasherDefault, hash::DefaultHasher, sync::Arc,
};

pub use host::HostPattern;
pub use path::{BadPath, PathPattern, Scratch};
pub(crate) use path::{bounded_regex, percent_byte};
pub use stream::StreamRoutes;

use crate::{
    Access, Action, BuildError, Compress, HeaderEdits, Headers, Limits, Method, RequestView,
    Scheme, Timeouts,
};
use host::{MAX_HOST, lower_host};

/// A route's place in the configuration, and in [`Routes::get`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId(pub u32);

/// What rules say of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A rule names it, itself or by a wildcard.
    Named,
    /// Only rules for all hosts fit.
    Any,
    /// No rule fits.
    Nothing,
}

/// What a request must be. The default fits every request.
#[derive(Debug, Clone, Default)]
pub struct Match {
    /// Listeners by their place in the configuration; empty = all.
    pub listeners: Vec<u16>,
    /// The scheme.
    pub scheme: Option<Scheme>,
    /// The host.
    pub host: HostPattern,
    /// The path.
    pub path: PathPattern,
    /// Methods; empty = all.
    pub methods: Vec<Method>,
    /// Conditions on fields; all must hold.
    pub headers: Vec<HeaderCondition>,
}

/// A condition on the fields of one name. Of several fields with that name, one that fits is enough (for `Absent`: none may be there).
#[derive(Debug, Clone)]
pub struct HeaderCondition {
    name: Box<str>,
    test: HeaderTest,
}

/// What the value of a field must be.
#[derive(Debug, Clone)]
pub enum HeaderTest {
    /// There is such a field.
    Present,
    /// There is none.
    Absent,
    /// Exactly this value.
    Equals(Box<[u8]>),
    /// A match anywhere in the value.
    Regex(regex::bytes::Regex),
}

impl HeaderCondition {
    /// A condition on the field `name`.
    ///
    /// # Errors
    /// [`BuildError::HeaderName`] when `name` is no token of at most 64 bytes.
    pub fn new(name: &str, test: HeaderTest) -> Result<Self, BuildError> {
        let name = crate::edit::field_name(name)?;
        Ok(Self { name, test })
    }

    /// The same, with a regular expression (bounded as in [`PathPattern::regex`]).
    ///
    /// # Errors
    /// As [`Self::new`], and [`BuildError::Regex`].
    pub fn regex(name: &str, expression: &str) -> Result<Self, BuildError> {
        Self::new(name, HeaderTest::Regex(path::bounded_regex(expression)?))
    }

    /// The name in lower case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is asked of the value.
    pub fn test(&self) -> &HeaderTest {
        &self.test
    }

    fn holds(&self, headers: &dyn Headers) -> bool {
        let mut values = crate::request::values(headers, &self.name);
        match &self.test {
            HeaderTest::Present => values.next().is_some(),
            HeaderTest::Absent => values.next().is_none(),
            HeaderTest::Equals(wanted) => values.any(|value| *value == **wanted),
            HeaderTest::Regex(regex) => values.any(|value| regex.is_match(value)),
        }
    }
}

/// What happens to a request.
#[derive(Debug, Clone)]
pub struct Route {
    /// Its name in logs and metrics.
    pub name: Box<str>,
    /// Set by [`Routes::new`].
    pub id: RouteId,
    /// What answers.
    pub action: Action,
    /// Who may pass.
    pub access: Access,
    /// Changes to the fields of the request.
    pub request_headers: HeaderEdits,
    /// Changes to the fields of the response.
    pub response_headers: HeaderEdits,
    /// Sizes.
    pub limits: Limits,
    /// Times.
    pub timeouts: Timeouts,
    /// Which answers are compressed on the way; `None` = none.
    pub compress: Option<Arc<Compress>>,
    /// Its exchanges are logged, where there is an access log.
    pub log: bool,
}

impl Route {
    /// A route with defaults.
    pub fn new(name: &str, action: Action) -> Self {
        Self {
            name: name.into(),
            id: RouteId(0),
            action,
            access: Access::default(),
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            compress: None,
            log: true,
        }
    }
}

/// All routes, ready to be looked up. Immutable: a reload makes a new one.
#[derive(Debug, Default)]
pub struct Routes {
    routes: Box<[Route]>,
    matches: Box<[Match]>,
    /// Candidates of an exact host, best first.
    exact: HashMap<Box<[u8]>, Candidates, BuildHasherDefault<DefaultHasher>>,
    /// Candidates of a wildcard's suffix (with its dot), longest suffix first.
    wildcard: Box<[(Box<[u8]>, Candidates)]>,
    /// Candidates for every host.
    any: Candidates,
}

/// Places of rules, best first.
type Candidates = Box<[u32]>;

impl Routes {
    /// Most routes.
    pub const MAX: usize = 100_000;

    /// Sorts the rules; [`RouteId`] is the place in `rules`.
    ///
    /// # Errors
    /// [`BuildError::TooMany`] for more than [`Self::MAX`] rules.
    pub fn new(rules: Vec<(Match, Route)>) -> Result<Self, BuildError> {
        if rules.len() > Self::MAX {
            return Err(BuildError::TooMany(Self::MAX));
        }
        let (matches, mut routes): (Vec<Match>, Vec<Route>) = rules.into_iter().unzip();
        let mut exact: HashMap<Box<[u8]>, Vec<u32>> = HashMap::new();
        let mut wildcard: HashMap<Box<[u8]>, Vec<u32>> = HashMap::new();
        let mut any = Vec::new();
        for (n, (rule, route)) in (0..).zip(matches.iter().zip(&mut routes)) {
            route.id = RouteId(n);
            match (rule.host.exact(), rule.host.suffix()) {
                (Some(name), _) => exact.entry(name.into()).or_default().push(n),
                (None, Some(suffix)) => wildcard.entry(suffix.into()).or_default().push(n),
                (None, None) => any.push(n),
            }
        }
        let best_first = |mut candidates: Vec<u32>| -> Candidates {
            candidates.sort_by_key(|n| (rank(&matches[*n as usize]), *n));
            candidates.into()
        };
        let exact = exact
            .into_iter()
            .map(|(name, list)| (name, best_first(list)))
            .collect();
        let mut wildcard: Vec<_> = wildcard
            .into_iter()
            .map(|(suffix, list)| (suffix, best_first(list)))
            .collect();
        wildcard.sort_by(|a, b| (b.0.len(), &a.0).cmp(&(a.0.len(), &b.0)));
        Ok(Self {
            exact,
            wildcard: wildcard.into(),
            any: best_first(any),
            routes: routes.into(),
            matches: matches.into(),
        })
    }

    /// The route of a request, or `None` where no rule fits. The path is compared in every form in which an origin may read it, see
    /// [`PathPattern`]; `scratch` keeps the buffers for that from request to request.
    ///
    /// # Errors
    /// [`BadPath`]: the request is to be answered with 400 and not forwarded.
    pub fn match_request(
        &self,
        request: &RequestView<'_>,
        scratch: &mut Scratch,
    ) -> Result<Option<&Route>, BadPath> {
        let readings = scratch.read(request.path)?;
        let first = self.best(request, readings.as_sent());
        for reading in readings.others() {
            if self.best(request, reading) != first {
                return Err(BadPath::Ambiguous);
            }
        }
        Ok(first.map(|n| &self.routes[n]))
    }

    fn best(&self, request: &RequestView<'_>, path: &[u8]) -> Option<usize> {
        let fits = |list: &[u32]| {
            let mut list = list.iter().map(|n| *n as usize);
            list.find(|n| fits(&self.matches[*n], request, path))
        };
        if self.exact.is_empty() && self.wildcard.is_empty() {
            return fits(&self.any);
        }
        let mut buffer = [0; MAX_HOST];
        if let Some(host) = lower_host(request.host, &mut buffer) {
            if let Some(n) = self.exact.get(host).and_then(|list| fits(list)) {
                return Some(n);
            }
            for (suffix, list) in &self.wildcard {
                // Something must stand before the dot.
                if host.len() > suffix.len()
                    && host.ends_with(suffix)
                    && let Some(n) = fits(list)
                {
                    return Some(n);
                }
            }
        }
        fits(&self.any)
    }

    /// Whether a rule could take a request for a host on a listener, whatever else it is.
    pub fn claim(&self, listener: u16, scheme: Scheme, host: &[u8]) -> Claim {
        let could = |list: &Candidates| {
            list.iter().any(|n| {
                let rule = &self.matches[*n as usize];
                (rule.listeners.is_empty() || rule.listeners.contains(&listener))
                    && rule.scheme.is_none_or(|wanted| wanted == scheme)
            })
        };
        let mut buffer = [0; MAX_HOST];
        if let Some(host) = lower_host(host, &mut buffer) {
            let below = |suffix: &[u8]| host.len() > suffix.len() && host.ends_with(suffix);
            let mut wildcard = self.wildcard.iter().filter(|(suffix, _)| below(suffix));
            if self.exact.get(host).is_some_and(could) || wildcard.any(|(_, list)| could(list)) {
                return Claim::Named;
            }
        }
        if could(&self.any) {
            Claim::Any
        } else {
            Claim::Nothing
        }
    }

    /// The route of an id.
    pub fn get(&self, id: RouteId) -> Option<&Route> {
        self.routes.get(id.0 as usize)
    }

    /// What a request must be for a route.
    pub fn rule(&self, id: RouteId) -> Option<&Match> {
        self.matches.get(id.0 as usize)
    }

    /// All routes in the order of the configuration.
    pub fn iter(&self) -> std::slice::Iter<'_, Route> {
        self.routes.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

impl<'a> IntoIterator for &'a Routes {
    type Item = &'a Route;
    type IntoIter = std::slice::Iter<'a, Route>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Smaller is looked at first, among rules of one host.
fn rank(rule: &Match) -> impl Ord + use<> {
    (
        rule.host.port().is_none(),
        rule.path.rank(),
        rule.methods.is_empty(),
        Reverse(rule.headers.len()),
        rule.listeners.is_empty(),
        rule.scheme.is_none(),
    )
}

fn fits(rule: &Match, request: &RequestView<'_>, path: &[u8]) -> bool {
    (rule.listeners.is_empty() || rule.listeners.contains(&request.listener))
        && rule.scheme.is_none_or(|scheme| scheme == request.scheme)
        && rule.host.port().is_none_or(|port| port == request.port())
        && (rule.methods.is_empty()
            || rule
                .methods
                .iter()
                .any(|method| method.as_bytes() == request.method))
        && rule.path.fits(path)
        && rule
            .headers
            .iter()
            .all(|condition| condition.holds(request.headers))
}
