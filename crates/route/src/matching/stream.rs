//! Routes of connections that are not HTTP: TCP, and TLS that is passed through, chosen by listener and server name.

use super::{
    HostPattern,
    host::{MAX_HOST, lower_host},
};
use crate::UpstreamId;

/// Where connections go. An exact server name wins, then the longest wildcard, then a rule without a name; among equals the first.
#[derive(Debug, Clone, Default)]
pub struct StreamRoutes(Box<[Rule]>);

#[derive(Debug, Clone)]
struct Rule {
    listener: u16,
    host: HostPattern,
    to: UpstreamId,
}

impl StreamRoutes {
    /// Sorts rules of listener, server name and upstream. A port in a pattern is not looked at.
    pub fn new(rules: impl IntoIterator<Item = (u16, HostPattern, UpstreamId)>) -> Self {
        let mut rules: Vec<Rule> = rules
            .into_iter()
            .map(|(listener, host, to)| Rule { listener, host, to })
            .collect();
        let rank = |host: &HostPattern| match (host.exact(), host.suffix()) {
            (Some(_), _) => (0, 0),
            (None, Some(suffix)) => (1, usize::MAX - suffix.len()),
            (None, None) => (2, 0),
        };
        rules.sort_by_key(|rule| (rule.listener, rank(&rule.host)));
        Self(rules.into())
    }

    /// The upstream of a connection; `server_name` is what the ClientHello says, `None` without one and for plain TCP.
    pub fn find(&self, listener: u16, server_name: Option<&[u8]>) -> Option<UpstreamId> {
        let mut buffer = [0; MAX_HOST];
        let name = server_name.and_then(|name| lower_host(name, &mut buffer));
        let first = self.0.partition_point(|rule| rule.listener < listener);
        self.0[first..]
            .iter()
            .take_while(|rule| rule.listener == listener)
            .find(|rule| match (rule.host.exact(), rule.host.suffix(), name) {
                (None, None, _) => true,
                (Some(exact), _, Some(name)) => exact == name,
                (_, Some(suffix), Some(name)) => {
                    name.len() > suffix.len() && name.ends_with(suffix)
                }
                (_, _, None) => false,
            })
            .map(|rule| rule.to)
    }

    /// There is no rule.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
