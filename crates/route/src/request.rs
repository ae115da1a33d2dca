//! A request as routing sees it: borrowed parts of a head that somebody else has parsed and checked.

use std::net::IpAddr;

/// How the visitor speaks to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    /// `http` or `https`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// 80 or 443.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The fields of a request head. Names are asked for in lower case and compared without case.
pub trait Headers {
    /// The value of the `n`th field (from 0) of that name, in the order they were sent; `None` when there are fewer.
    fn nth(&self, name: &str, n: usize) -> Option<&[u8]>;
}

/// A head without fields.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn nth(&self, _: &str, _: usize) -> Option<&[u8]> {
        None
    }
}

/// Pairs of name and value, mostly for tests.
impl Headers for [(&str, &[u8])] {
    fn nth(&self, name: &str, n: usize) -> Option<&[u8]> {
        self.iter()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .nth(n)
            .map(|(_, value)| *value)
    }
}

/// All values of one name.
pub(crate) fn values<'a>(
    headers: &'a dyn Headers,
    name: &'a str,
) -> impl Iterator<Item = &'a [u8]> {
    (0..MAX_VALUES).map_while(move |n| headers.nth(name, n))
}

/// Fields of one name that are looked at; asking for the n-th costs n.
const MAX_VALUES: usize = 32;

/// What a route is chosen by.
#[derive(Clone, Copy)]
pub struct RequestView<'a> {
    /// The listener it came to, by its place in the configuration.
    pub listener: u16,
    /// How it came.
    pub scheme: Scheme,
    /// The host that was asked for, without port, in any case; brackets around an IPv6 address. Empty where HTTP/1.0 named none.
    pub host: &'a [u8],
    /// The port that was asked for with the host; `None` stands for the scheme's own.
    pub port: Option<u16>,
    /// The method.
    pub method: &'a [u8],
    /// The path as sent, without query; `*` or empty where the target has none (RFC 9112 §3.2.3, §3.2.4).
    pub path: &'a [u8],
    /// What follows the `?`.
    pub query: Option<&'a [u8]>,
    /// The fields.
    pub headers: &'a dyn Headers,
}

impl<'a> RequestView<'a> {
    /// A request to listener 0 without port and query.
    pub fn new(
        scheme: Scheme,
        host: &'a [u8],
        method: &'a [u8],
        path: &'a [u8],
        headers: &'a dyn Headers,
    ) -> Self {
        Self {
            listener: 0,
            scheme,
            host,
            port: None,
            method,
            path,
            query: None,
            headers,
        }
    }

    /// The port that was asked for.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(self.scheme.default_port())
    }
}

/// A method name: 1 to 32 bytes of a token, compared with case (RFC 9110 §9.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Method(Box<[u8]>);

impl Method {
    /// Checks a text.
    ///
    /// # Errors
    /// [`BuildError::Method`](crate::BuildError::Method) when it is no token.
    pub fn new(text: &str) -> Result<Self, crate::BuildError> {
        if text.is_empty() || text.len() > 32 || !text.bytes().all(is_token) {
            return Err(crate::BuildError::Method);
        }
        Ok(Self(text.as_bytes().into()))
    }

    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The value of a cookie (RFC 6265 §4.2.1): the first of that name; HTTP/2 may spread cookies over several fields.
pub fn cookie<'a>(headers: &'a dyn Headers, name: &'a str) -> Option<&'a [u8]> {
    values(headers, "cookie")
        .flat_map(|field| field.split(|byte| *byte == b';'))
        .find_map(|pair| {
            let pair = pair.trim_ascii_start();
            let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(value.trim_ascii_end())
        })
}

/// A byte of a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// IPv4 as IPv4, also where a dual-stack socket shows it as `::ffff:a.b.c.d`.
pub(crate) fn plain_ip(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}
