//! Texts to values: durations, sizes, addresses, ranges, remotes, local services. Pure functions of one text.
//!
//! An error's text is a predicate ("is not a duration"): the caller puts the option and, where it is no secret, the value
//! before it.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU64,
    ops::RangeInclusive,
    time::Duration,
};

use ipnet::IpNet;
use regex::{Regex, RegexBuilder};
use url::Url;

use crate::checked::{HostName, Local, NameError, Page, Remote, Scheme, ServerAddress};

/// Why a text is not the value it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("is neither true nor false")]
    NotBool,
    #[error("is not a whole number")]
    NotNumber,
    #[error("is out of bounds: {0}")]
    OutOfBounds(String),
    #[error("is not a duration")]
    NotDuration,
    #[error("is not a size")]
    NotSize,
    #[error("is not an address to listen on")]
    NotListenAddress,
    #[error("names a host; to listen, an IP address is needed")]
    ListenHost,
    #[error("is not a port (0 to 65535)")]
    NotPort,
    #[error("is not a range of ports")]
    NotRange,
    #[error("is a range that ends before it begins")]
    EmptyRange,
    #[error("begins at port 0")]
    RangeAtZero,
    #[error("is not a regular expression: {0}")]
    NotRegex(String),
    #[error("is not an http:// or https:// address")]
    NotUrl,
    #[error("holds a user name or password, which an address may not")]
    UserInfo,
    #[error("is not an IP address or network")]
    NotNetwork,
    #[error("has no scheme")]
    NoScheme(&'static str),
    #[error("has the scheme `{0}`, which is not known here")]
    UnknownScheme(String, &'static str),
    #[error("names no host")]
    NoHost,
    #[error("names a host that {0}")]
    BadHost(NameError),
    #[error("has no port")]
    NoPort,
    #[error("has a path, which has no meaning here")]
    UnwantedPath,
    #[error("is not the path of a socket")]
    NoSocketPath,
    #[error("is not a page that gt has")]
    UnknownPage,
    #[error("is not the name of an HTTP header")]
    NotHeader,
    #[error("is none of {0}")]
    NotChoice(String),
    #[error("{0}")]
    Name(#[from] NameError),
    #[error("{0}")]
    Route(#[from] route::BuildError),
    #[error("{0}")]
    Credential(#[from] route::CredentialError),
    #[error("is not {0}")]
    NotForm(&'static str),
}

impl ValueError {
    /// What to write instead.
    pub(crate) fn help(&self) -> Option<String> {
        if let Self::Route(route::BuildError::Regex { at: Some(at), .. }) = self {
            return Some(format!("look at character {} of the expression", at + 1));
        }
        let text = match self {
            Self::NotBool => "write true or false",
            Self::NotDuration => "write numbers with units, as 90s, 5m, 1h30m or 100ms",
            Self::NotSize => {
                "write bytes as a number or with KB, MB, GB (thousands) or KiB, MiB, GiB (1024), as 500KB or 1MiB"
            }
            Self::NotListenAddress => {
                "write a port or an IP address with a port, as 8080, 0.0.0.0:8080 or \"[::]:8080\""
            }
            Self::ListenHost => {
                "a name can mean several addresses, or others tomorrow: write the address, as 127.0.0.1:8080 for localhost"
            }
            Self::NotRange | Self::EmptyRange | Self::RangeAtZero => {
                "write a port or a range, as 10022 or 10000-20000"
            }
            Self::NotUrl => "write it as https://example.com/path",
            Self::UserInfo => "leave out what stands before the @",
            Self::NotNetwork => "write it as 192.0.2.0/24, 192.0.2.7 or 2001:db8::/32",
            Self::NoScheme(example) | Self::UnknownScheme(_, example) => example,
            Self::NoHost | Self::NoPort => {
                "write it as HOST:PORT, with SCHEME:// before it where it takes one"
            }
            Self::UnwantedPath => "leave out what stands after the host and port",
            Self::NoSocketPath => "write it as unix:/run/app.sock",
            Self::UnknownPage => "gt has builtin:demo and builtin:status",
            Self::NotHeader => "header names have letters, digits and hyphens, as X-Target",
            _ => return None,
        };
        Some(text.into())
    }
}

type Parsed<T> = Result<T, ValueError>;

/// `true` or `false`, and the forms YAML 1.1 and Go's flags have for them.
pub(crate) fn boolean(text: &str) -> Parsed<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" | "t" => Ok(true),
        "false" | "no" | "off" | "0" | "f" => Ok(false),
        _ => Err(ValueError::NotBool),
    }
}

pub(crate) fn count(text: &str, min: u64, max: u64) -> Parsed<u64> {
    match decimal(text) {
        Some(n) if (min..=max).contains(&n) => Ok(n),
        Some(_) => Err(ValueError::OutOfBounds(format!(
            "{min} to {max} are allowed"
        ))),
        None if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => Err(
            ValueError::OutOfBounds(format!("{min} to {max} are allowed")),
        ),
        None => Err(ValueError::NotNumber),
    }
}

/// `0` or numbers with units `ms`, `s`, `m`, `h`, `d`, largest first or in any order: `1h30m`. Fractions as `1.5s`.
pub(crate) fn duration(text: &str) -> Parsed<Duration> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() || text.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or(ValueError::NotDuration)?;
        let unit_len = rest[digits..]
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len() - digits);
        let (number, unit) = (&rest[..digits], &rest[digits..digits + unit_len]);
        let unit = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(ValueError::NotDuration),
        };
        let part = milliseconds(number, unit).ok_or(ValueError::NotDuration)?;
        total = total.checked_add(part).ok_or(ValueError::NotDuration)?;
        rest = &rest[digits + unit_len..];
    }
    Ok(Duration::from_millis(total))
}

fn milliseconds(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole = decimal(whole)?.checked_mul(unit)?;
    if fraction.len() > 6 {
        return None;
    }
    let part =
        decimal(fraction)?.checked_mul(unit)? / 10u64.pow(u32::try_from(fraction.len()).ok()?);
    whole.checked_add(part)
}

/// Bytes: a number, with a unit or not; `/s` may follow, as people write it behind a speed.
pub(crate) fn size(text: &str) -> Parsed<u64> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number = decimal(&text[..digits]).ok_or(ValueError::NotSize)?;
    let unit: u64 = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err(ValueError::NotSize),
    };
    number.checked_mul(unit).ok_or(ValueError::NotSize)
}

/// Bytes per second; 0 = not limited.
pub(crate) fn speed(text: &str) -> Parsed<Option<NonZeroU64>> {
    size(text).map(NonZeroU64::new)
}

/// `80`, `:80`, `0.0.0.0:80`, `[::]:80`. A bare port gets `default_ip`. The empty text means "do not listen".
pub(crate) fn listen_address(text: &str, default_ip: Ipv4Addr) -> Parsed<Option<SocketAddr>> {
    if text.is_empty() {
        return Ok(None);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Some(address));
    }
    let bare = text.strip_prefix(':').unwrap_or(text);
    if !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Some((default_ip, port(bare)?).into()));
    }
    if text.parse::<IpAddr>().is_ok() {
        return Err(ValueError::NoPort);
    }
    match text.rsplit_once(':') {
        Some((_, number)) if decimal(number).is_some_and(|n| n > 65_535) => {
            Err(ValueError::NotPort)
        }
        Some((host, number)) if decimal(number).is_some() && HostName::new(host).is_ok() => {
            Err(ValueError::ListenHost)
        }
        _ => Err(ValueError::NotListenAddress),
    }
}

pub(crate) fn port(text: &str) -> Parsed<u16> {
    decimal(text)
        .and_then(|n| u16::try_from(n).ok())
        .ok_or(ValueError::NotPort)
}

/// `10022` or `10000-20000`.
pub(crate) fn port_range(text: &str) -> Parsed<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let bound = |text: &str| port(text.trim()).map_err(|_| ValueError::NotRange);
    let (first, last) = (bound(first)?, bound(last)?);
    if first == 0 {
        return Err(ValueError::RangeAtZero);
    }
    if last < first {
        return Err(ValueError::EmptyRange);
    }
    Ok(first..=last)
}

/// A regular expression whose compiled form is small: a configuration can come from someone else.
pub(crate) fn regex(text: &str) -> Parsed<Regex> {
    RegexBuilder::new(text)
        .size_limit(1 << 20)
        .nest_limit(64)
        .build()
        .map_err(|error| {
            let text = error.to_string();
            // The library draws the expression and a caret over several lines; the last one says why.
            let reason = text.lines().last().unwrap_or_default();
            ValueError::NotRegex(reason.trim_start_matches("error: ").into())
        })
}

pub(crate) fn http_url(text: &str) -> Parsed<Url> {
    let url = Url::parse(text).map_err(|_| ValueError::NotUrl)?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(ValueError::NotUrl);
    }
    // Such an address would end in logs.
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ValueError::UserInfo);
    }
    Ok(url)
}

/// A network, or one address.
pub(crate) fn network(text: &str) -> Parsed<IpNet> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(address.into()),
        Err(_) => text
            .parse::<IpNet>()
            .map(|net| net.trunc())
            .map_err(|_| ValueError::NotNetwork),
    }
}

/// The name of a header field (RFC 9110 §5.6.2), in lower case.
pub(crate) fn header_name(text: &str) -> Parsed<String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(token) {
        return Err(ValueError::NotHeader);
    }
    Ok(text.to_ascii_lowercase())
}

/// A server's address.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// By one transport.
    One(Remote),
    /// By whichever of several transports is best: `auto://`.
    Best(Vec<Remote>),
}

/// A server's address.
pub(crate) fn remote(text: &str) -> Parsed<Way> {
    const EXAMPLE: &str = "write auto://HOST:PORT, quic://HOST:PORT, tls://HOST:PORT, kcp://HOST:PORT, tcp://HOST:PORT, wss://HOST:PORT/PATH or ws://HOST:PORT/PATH";
    let (scheme, rest) = text
        .split_once("://")
        .ok_or(ValueError::NoScheme(EXAMPLE))?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "tcp" => Some((Scheme::Tcp, 80)),
        "ws" => Some((Scheme::Ws, 80)),
        "tls" => Some((Scheme::Tls, 443)),
        "wss" => Some((Scheme::Wss, 443)),
        "kcp" => Some((Scheme::Kcp, 29_900)),
        "quic" => Some((Scheme::Quic, 443)),
        "auto" => None,
        _ => return Err(ValueError::UnknownScheme(scheme.into(), EXAMPLE)),
    };
    let (host, port, path) = authority(rest)?;
    let Some((scheme, default_port)) = scheme else {
        let ways = AUTO.map(|scheme| plain_remote(scheme, host.clone(), port.unwrap_or(443), path));
        return Ok(Way::Best(ways.into_iter().collect::<Parsed<_>>()?));
    };
    let path = if matches!(scheme, Scheme::Ws | Scheme::Wss) {
        // RFC 3986 §3.3: what is outside printable ASCII, and the fragment, cannot be in a request line.
        if path.bytes().any(|b| !b.is_ascii_graphic() || b == b'#') {
            return Err(ValueError::UnwantedPath);
        }
        if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        }
    } else {
        return plain_remote(scheme, host, port.unwrap_or(default_port), path).map(Way::One);
    };
    match port.unwrap_or(default_port) {
        0 => Err(ValueError::NotPort),
        port => Ok(Way::One(Remote {
            scheme,
            host,
            port,
            path,
        })),
    }
}

/// What `auto://` stands for, all on one port number; the order says which is taken when all are alike.
const AUTO: [Scheme; 3] = [Scheme::Quic, Scheme::Tls, Scheme::Wss];

fn plain_remote(scheme: Scheme, host: String, port: u16, path: &str) -> Parsed<Remote> {
    if !matches!(path, "" | "/") {
        return Err(ValueError::UnwantedPath);
    }
    if port == 0 {
        return Err(ValueError::NotPort);
    }
    Ok(Remote {
        scheme,
        host,
        port,
        path: "/".to_owned(),
    })
}

/// Why a text is not a server's address.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadRemote(String);

impl std::str::FromStr for Remote {
    type Err = BadRemote;

    fn from_str(text: &str) -> Result<Self, BadRemote> {
        match remote(text) {
            Ok(Way::One(remote)) => Ok(remote),
            Ok(Way::Best(_)) => Err(BadRemote("auto:// is no single transport".to_owned())),
            Err(error) => Err(BadRemote(error.to_string())),
        }
    }
}

/// What stands behind a service.
pub(crate) fn local(text: &str) -> Parsed<Local> {
    const EXAMPLE: &str = "write http://HOST:PORT, https://HOST:PORT, tcp://HOST:PORT, udp://HOST:PORT, unix:/PATH or builtin:demo";
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        // sockaddr_un has room for 107 bytes and the final zero.
        if path.is_empty() || path.len() > 107 || path.contains('\0') {
            return Err(ValueError::NoSocketPath);
        }
        return Ok(Local::Unix(path.into()));
    }
    match text.strip_prefix("builtin:") {
        Some("demo") => return Ok(Local::Builtin(Page::Demo)),
        Some("status") => return Ok(Local::Builtin(Page::Status)),
        Some(_) => return Err(ValueError::UnknownPage),
        None => {}
    }
    let (scheme, rest) = text
        .split_once("://")
        .ok_or(ValueError::NoScheme(EXAMPLE))?;
    let scheme = scheme.to_ascii_lowercase();
    if !matches!(scheme.as_str(), "http" | "https" | "tcp" | "udp") {
        return Err(ValueError::UnknownScheme(scheme, EXAMPLE));
    }
    let (host, port, path) = authority(rest)?;
    if !matches!(path, "" | "/") {
        return Err(ValueError::UnwantedPath);
    }
    if port == Some(0) {
        return Err(ValueError::NotPort);
    }
    Ok(match scheme.as_str() {
        "http" => Local::Http {
            host,
            port: port.unwrap_or(80),
        },
        "https" => Local::Https {
            host,
            port: port.unwrap_or(443),
        },
        "tcp" => Local::Tcp {
            host,
            port: port.ok_or(ValueError::NoPort)?,
        },
        _ => Local::Udp {
            host,
            port: port.ok_or(ValueError::NoPort)?,
        },
    })
}

/// A server of an upstream, and whether its address says TLS.
pub(crate) fn server_address(text: &str) -> Parsed<(ServerAddress, Option<bool>)> {
    if text.starts_with("unix:") {
        return match local(text)? {
            Local::Unix(path) => Ok((ServerAddress::Unix(path), None)),
            _ => Err(ValueError::NoSocketPath),
        };
    }
    let (rest, tls) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (rest, Some(false)),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (rest, Some(true)),
        Some((scheme, _)) => {
            return Err(ValueError::UnknownScheme(scheme.into(), SERVER_EXAMPLE));
        }
        None => (text, None),
    };
    let (host, port, path) = authority(rest)?;
    if !matches!(path, "" | "/") {
        return Err(ValueError::UnwantedPath);
    }
    let port = match (port, tls) {
        (Some(0), _) => return Err(ValueError::NotPort),
        (Some(port), _) => port,
        (None, Some(tls)) => {
            if tls {
                443
            } else {
                80
            }
        }
        (None, None) => return Err(ValueError::NoPort),
    };
    Ok((ServerAddress::Host { host, port }, tls))
}

const SERVER_EXAMPLE: &str = "write HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:/PATH";

/// `HOST[:PORT][/PATH]` (RFC 3986 §3.2): host without brackets, port, the rest.
fn authority(text: &str) -> Parsed<(String, Option<u16>, &str)> {
    let end = text.find(['/', '?', '#']).unwrap_or(text.len());
    let (authority, path) = text.split_at(end);
    if authority.contains('@') {
        return Err(ValueError::UserInfo);
    }
    let (host, number) = if let Some(inside) = authority.strip_prefix('[') {
        let (host, after) = inside.split_once(']').ok_or(ValueError::NoHost)?;
        let address: std::net::Ipv6Addr = host.parse().map_err(|_| ValueError::NoHost)?;
        let number = match after {
            "" => None,
            _ => Some(after.strip_prefix(':').ok_or(ValueError::NotPort)?),
        };
        (address.to_string(), number)
    } else {
        let (host, number) = match authority.split_once(':') {
            Some((host, number)) => (host, Some(number)),
            None => (authority, None),
        };
        if host.is_empty() {
            return Err(ValueError::NoHost);
        }
        (
            HostName::new(host)
                .map_err(ValueError::BadHost)?
                .as_str()
                .to_string(),
            number,
        )
    };
    Ok((host, number.map(port).transpose()?, path))
}

fn decimal(text: &str) -> Option<u64> {
    // `u64::from_str` takes a leading plus, which nobody means.
    if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}
