//! Texts with placeholders, as `https://{host}{uri}`: parsed once, written per request into a buffer that is reused.

use std::{io::Write, net::SocketAddr};

use crate::{BuildError, RequestView};

/// A text with placeholders: `{scheme}`, `{host}` (without port), `{authority}` (with the port that was asked for), `{port}`, `{path}`, `{query}`
/// (without `?`), `{uri}` (path and query), `{method}`, `{clientIp}`, `{clientPort}`. `{{` and `}}` are braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Box<[Part]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<[u8]>),
    Scheme,
    Host,
    Authority,
    Port,
    Path,
    Query,
    Uri,
    Method,
    ClientIp,
    ClientPort,
}

/// What placeholders stand for.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// The request.
    pub request: RequestView<'a>,
    /// The visitor, past trusted proxies.
    pub client: SocketAddr,
}

impl Template {
    /// Longest template in bytes.
    pub const MAX_LEN: usize = 4096;

    /// Parses a text of at most [`Self::MAX_LEN`] bytes.
    ///
    /// # Errors
    /// [`BuildError::Placeholder`], [`BuildError::Brace`]; [`BuildError::HeaderValue`] for control characters and what is too long.
    pub fn new(text: &str) -> Result<Self, BuildError> {
        if text.len() > Self::MAX_LEN
            || text
                .bytes()
                .any(|byte| byte.is_ascii_control() && byte != b'\t')
        {
            return Err(BuildError::HeaderValue);
        }
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.extend_from_slice(&rest.as_bytes()[..at]);
            let (brace, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(brace) {
                literal.extend_from_slice(brace.as_bytes());
                rest = after;
                continue;
            }
            let (name, after) = match brace {
                "{" => after.split_once('}').ok_or(BuildError::Brace)?,
                _ => return Err(BuildError::Brace),
            };
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal).into()));
            }
            parts.push(Part::named(name).ok_or_else(|| BuildError::Placeholder(name.into()))?);
            rest = after;
        }
        literal.extend_from_slice(rest.as_bytes());
        if !literal.is_empty() {
            parts.push(Part::Text(literal.into()));
        }
        Ok(Self(parts.into()))
    }

    /// The text, where there is no placeholder in it.
    pub fn as_text(&self) -> Option<&[u8]> {
        match &*self.0 {
            [] => Some(b""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// It begins with something the visitor wrote.
    pub(crate) fn begins_with_path(&self) -> bool {
        matches!(self.0.first(), Some(Part::Path | Part::Uri))
    }

    /// Appends the text. What comes from the visitor never adds a control character, a space or a byte that is not ASCII: such
    /// bytes are percent-encoded.
    pub fn write(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        let request = &values.request;
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Scheme => out.extend_from_slice(request.scheme.as_str().as_bytes()),
                Part::Host => safe(request.host, out),
                Part::Authority => {
                    safe(request.host, out);
                    if let Some(port) = request
                        .port
                        .filter(|port| *port != request.scheme.default_port())
                    {
                        // Writing to a Vec does not fail.
                        let _ = write!(out, ":{port}");
                    }
                }
                Part::Port => {
                    let _ = write!(out, "{}", request.port());
                }
                Part::Path => safe(request.path, out),
                Part::Query => safe(request.query.unwrap_or_default(), out),
                Part::Uri => {
                    safe(request.path, out);
                    if let Some(query) = request.query {
                        out.push(b'?');
                        safe(query, out);
                    }
                }
                Part::Method => safe(request.method, out),
                Part::ClientIp => {
                    let _ = write!(out, "{}", values.client.ip().to_canonical());
                }
                Part::ClientPort => {
                    let _ = write!(out, "{}", values.client.port());
                }
            }
        }
    }
}

impl Part {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "scheme" => Self::Scheme,
            "host" => Self::Host,
            "authority" => Self::Authority,
            "port" => Self::Port,
            "path" => Self::Path,
            "query" => Self::Query,
            "uri" => Self::Uri,
            "method" => Self::Method,
            "clientIp" => Self::ClientIp,
            "clientPort" => Self::ClientPort,
            _ => return None,
        })
    }
}

fn safe(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        if byte.is_ascii_graphic() {
            out.push(*byte);
        } else {
            let digits = [
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ];
            out.extend_from_slice(&digits);
        }
    }
}
