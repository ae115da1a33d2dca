//! Sizes and times of a route, with the defaults of gt.

use std::time::Duration;

/// Sizes.
///
/// The limits of the request head count before a route is known: a listener takes the largest of its routes for reading, and the route's
/// own when it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head in HTTP/1: request line or status line, and all fields.
    pub header_bytes: u32,
    /// Bytes of a field list in HTTP/2 and 3, counted as RFC 9113 §6.5.2 says.
    pub header_list_bytes: u32,
    /// Fields of a head.
    pub header_fields: u16,
    /// Bytes of a request body; `None` = no limit.
    pub body_bytes: Option<u64>,
    /// Requests of one visitor's connection; then it is closed.
    pub requests_per_connection: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 16 << 10,
            header_list_bytes: 64 << 10,
            header_fields: 100,
            body_bytes: None,
            requests_per_connection: 1_000_000,
        }
    }
}

/// Times. `None` = no limit, where it is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a visitor to send a whole request head, from its first byte (or from the connection's start). Counts before a route is known.
    pub header: Duration,
    /// Between two reads of a body, and between two writes of one, on either side.
    pub body: Duration,
    /// A visitor's connection without a request. Counts for the connection's last route.
    pub keep_alive: Duration,
    /// To connect to a server, with TLS.
    pub connect: Duration,
    /// From the end of the request to the head of the response.
    pub response: Duration,
    /// Silence in both directions after an upgrade (WebSocket) or CONNECT.
    pub tunnel_idle: Duration,
    /// The whole exchange, from the request's head to the response's last byte.
    pub total: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(10),
            body: Duration::from_secs(60),
            keep_alive: Duration::from_secs(75),
            connect: Duration::from_secs(5),
            response: Duration::from_secs(60),
            tunnel_idle: Duration::from_secs(3600),
            total: None,
        }
    }
}
