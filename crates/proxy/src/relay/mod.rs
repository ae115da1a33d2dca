//! Services of relay clients as targets: what a server gives so that requests reach them.
//!
//! Whoever has links implements [`Relay`] and [`RelayService`]. They are asked once per request, and for a stream where none waits; the bytes
//! then pass through [`RelayStream`], which is a type and no trait object.

mod bridge;
mod http2;
mod pool;
mod rules;
mod stream;
#[cfg(test)]
mod tests;

use std::{any::Any, fmt, future::Future, net::IpAddr, net::SocketAddr, pin::Pin, sync::Arc};

use tunnel::ResetReason;

pub(crate) use self::pool::Pool;
pub use self::{
    bridge::FarEnd,
    rules::{BadRules, ServiceRules},
    stream::RelayStream,
};

/// A future of one thread.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Finds services.
pub trait Relay: fmt::Debug + Send + Sync {
    /// Who answers. May wait a little where names are on their way.
    fn find(&self, wanted: Wanted<'_>) -> LocalFuture<Found>;
}

/// What is looked for.
#[derive(Clone, Copy)]
pub enum Wanted<'a> {
    /// The service that a request asks for.
    Request {
        /// Its host, without port.
        host: &'a [u8],
        /// Its fields, where another than Host says who is meant.
        fields: &'a dyn route::Headers,
    },
    /// The service of this host name or prefix.
    Name(&'a str),
}

/// Who answers.
#[derive(Debug)]
pub enum Found {
    /// A service.
    Service(Arc<dyn RelayService>),
    /// The server itself.
    Page(Page),
    /// A client that is not connected now.
    Away,
    /// Nobody.
    Nothing,
}

/// An answer of the server itself to a GET.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its media type.
    pub content_type: &'static str,
    /// Its content.
    pub body: bytes::Bytes,
}

/// One service of one client.
pub trait RelayService: fmt::Debug + Send + Sync + Any {
    /// Streams that were opened under another tag carry no more requests.
    fn tag(&self) -> Tag;
    /// Its name, for the log.
    fn name(&self) -> &str;
    /// Whether this visitor may come.
    fn admits(&self, visitor: IpAddr) -> bool;
    /// Takes a place for a request among those that the client may have at one time; each success is followed by one [`RelayService::leave`].
    fn enter(&self) -> bool;
    /// The request is over.
    fn leave(&self);
    /// A stream carries the requests of one visitor only.
    fn one_visitor(&self) -> bool;
    /// It speaks HTTP/2: a stream carries the requests of many at one time.
    fn speaks_http2(&self) -> bool;
    /// It answers its client's checks, or has none.
    fn is_fit(&self) -> bool;
    /// What is done to its requests.
    fn rules(&self) -> Option<&Arc<ServiceRules>>;
    /// What `Host` says instead of what the visitor asked for.
    fn host(&self) -> Option<&str>;
    /// Opens a stream. Waits a little for a client that is away; the wait is bounded.
    fn open(self: Arc<Self>, visit: Visit) -> LocalFuture<Result<RelayStream, NoStream>>;
    /// What the visitor is told when the client gave a stream up before an answer: status and a sentence.
    fn explain(&self, reason: ResetReason) -> (u16, &'static str);
}

/// What streams of a service have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u64, pub u64);

/// For whom a stream is opened.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The visitor.
    pub visitor: SocketAddr,
    /// Where it came in.
    pub local: SocketAddr,
    /// The host it asked for.
    pub host: Box<str>,
}

/// Why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStream {
    /// The client is not connected, and did not come back in time.
    Away,
    /// As many streams as there may be.
    Overloaded,
}

/// A request that is under way at a service; leaves when dropped.
#[derive(Debug)]
pub(crate) struct Inside(Arc<dyn RelayService>);

impl Inside {
    pub(crate) fn enter(service: &Arc<dyn RelayService>) -> Option<Self> {
        service.enter().then(|| Self(Arc::clone(service)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.leave();
    }
}
