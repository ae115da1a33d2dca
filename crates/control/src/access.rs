//! Who may ask the API: the name under which it is asked, and a password if there is one. Pure; the delay that guessing costs and the
//! answers are left to [`api`](crate::api).
//!
//! A web page of a stranger can let its own name point to 127.0.0.1 (DNS rebinding) and have a browser beside the API read it as if it
//! were the page's own. The Host header then says the stranger's name, which is why it is looked at. An address in it is safe: a page
//! that was loaded from an address can read nothing but that address.

use std::net::{IpAddr, Ipv6Addr};

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    digest::{SHA256, digest},
};
use hyper::{
    HeaderMap, Uri,
    header::{AUTHORIZATION, HOST, HeaderValue},
};

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The name is not one of the API's.
    Name,
    /// A password is needed and there is none.
    NoPassword,
    WrongPassword,
}

/// What is asked of a request.
#[derive(Debug)]
pub(crate) struct Access {
    password: Option<config::Secret>,
    hosts: Vec<config::HostName>,
}

impl Access {
    pub(crate) fn new(listener: &config::ApiListener) -> Self {
        Self {
            password: listener.password.clone(),
            hosts: listener.hosts.clone(),
        }
    }

    /// # Errors
    /// [`Refused`].
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        // RFC 9112 §3.2.2: a target with a host goes before the header. Both must be right, whichever an intermediary looks at.
        let asked = headers.get_all(HOST).iter().map(HeaderValue::to_str);
        let mut asked = asked.chain(uri.authority().map(|authority| Ok(authority.as_str())));
        // Without any, it is HTTP/1.0 and no browser.
        if !asked.all(|host| host.is_ok_and(|host| self.knows(host))) {
            return Err(Refused::Name);
        }
        let Some(password) = &self.password else {
            return Ok(());
        };
        let mut given = headers.get_all(AUTHORIZATION).iter();
        match (given.next(), given.next()) {
            (None, _) => Err(Refused::NoPassword),
            (Some(given), None) if is(password, given) => Ok(()),
            _ => Err(Refused::WrongPassword),
        }
    }

    /// Whether `HOST[:PORT]` is a name of this API. The port does not matter: it may have been forwarded.
    fn knows(&self, host: &str) -> bool {
        if let Some((address, after)) = host.strip_prefix('[').and_then(|host| host.split_once(']'))
        {
            return address.parse::<Ipv6Addr>().is_ok() && (after.is_empty() || is_port(after));
        }
        let name = match host.find(':') {
            Some(colon) if !is_port(&host[colon..]) => return false,
            Some(colon) => &host[..colon],
            None => host,
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let lower = name.to_ascii_lowercase();
        // RFC 6761 §6.3: localhost and what ends with it is always this machine.
        name.parse::<IpAddr>().is_ok()
            || lower == "localhost"
            || lower.ends_with(".localhost")
            || self.hosts.iter().any(|known| known.as_str() == lower)
    }
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether the header has the password: as that of any user (RFC 7617), or as a token (RFC 6750 §2.1). The time it takes does not tell
/// how much of it is right.
fn is(password: &config::Secret, given: &HeaderValue) -> bool {
    let Some((scheme, credentials)) = given.to_str().ok().and_then(|text| text.split_once(' '))
    else {
        return false;
    };
    let credentials = credentials.trim();
    let given = if scheme.eq_ignore_ascii_case("bearer") {
        credentials.as_bytes().to_vec()
    } else if scheme.eq_ignore_ascii_case("basic") {
        let decoded = base64(credentials).unwrap_or_default();
        match decoded.iter().position(|byte| *byte == b':') {
            Some(colon) => decoded[colon + 1..].to_vec(),
            None => return false,
        }
    } else {
        return false;
    };
    // Hashed first: texts of two lengths are compared in the same time as well.
    let hash = |bytes: &[u8]| digest(&SHA256, bytes);
    let (known, given) = (hash(password.expose().as_bytes()), hash(&given));
    verify_slices_are_equal(known.as_ref(), given.as_ref()).is_ok()
}

/// RFC 4648 §4, with or without padding at the end.
fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut count) = (0_u32, 0);
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for byte in text.trim_end_matches('=').bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(password: Option<&str>, hosts: &[&str]) -> Access {
        let host = |name: &&str| config::HostName::new(name).expect("a name");
        let secret = |text| config::Secret::new(text).expect("a password");
        Access::new(&config::ApiListener {
            password: password.map(secret),
            hosts: hosts.iter().map(host).collect(),
            ..config::ApiListener::new(([127, 0, 0, 1], 0).into())
        })
    }

    fn asked(access: &Access, target: &str, headers: &[(&str, &str)]) -> Result<(), Refused> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: hyper::header::HeaderName = name.parse().expect("a name");
            map.append(name, value.parse().expect("a value"));
        }
        access.check(&target.parse().expect("a target"), &map)
    }

    #[test]
    fn only_names_that_cannot_be_a_strangers_are_known() {
        let access = access(None, &["gt.example.com"]);
        for host in [
            "localhost",
            "LOCALHOST.:9000",
            "api.localhost",
            "127.0.0.1",
            "127.0.0.1:9000",
            "[::1]",
            "[::1]:9000",
            "192.0.2.7:80",
            "GT.example.com:9000",
        ] {
            assert_eq!(asked(&access, "/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example.com",
            "localhost.evil.example.com",
            "127.0.0.1.evil.example.com",
            "notlocalhost",
            "gt.example.com.evil.example.com",
            "",
            "localhost:80@evil.example.com",
            "[::1].evil.example.com",
            "[evil]",
            "localhost:x",
        ] {
            let refused = Err(Refused::Name);
            assert_eq!(asked(&access, "/", &[("host", host)]), refused, "{host}");
        }
    }

    #[test]
    fn every_name_in_the_request_must_be_known() {
        let access = access(None, &[]);
        let two = [("host", "localhost"), ("host", "evil.example.com")];
        assert_eq!(asked(&access, "/", &two), Err(Refused::Name));
        let absolute = "http://evil.example.com/";
        assert_eq!(
            asked(&access, absolute, &[("host", "localhost")]),
            Err(Refused::Name)
        );
        assert_eq!(asked(&access, "/", &[]), Ok(()), "HTTP/1.0");
    }

    #[test]
    fn the_password_counts_as_that_of_any_user_and_as_a_token() {
        let access = access(Some("open:sesame"), &[]);
        let ask = |value| asked(&access, "/", &[("authorization", value)]);
        assert_eq!(asked(&access, "/", &[]), Err(Refused::NoPassword));
        // "prometheus:open:sesame", ":open:sesame"
        for right in [
            "Bearer open:sesame",
            "bearer open:sesame",
            "Basic cHJvbWV0aGV1czpvcGVuOnNlc2FtZQ==",
            "basic Om9wZW46c2VzYW1l",
        ] {
            assert_eq!(ask(right), Ok(()), "{right}");
        }
        for wrong in [
            "Bearer open:sesam",
            "Bearer open:sesame!",
            "Bearer",
            "Bearer ",
            "Basic open:sesame",
            "Basic b3BlbjpzZXNhbWU=",
            "Basic !!!",
            "Digest open:sesame",
            "open:sesame",
        ] {
            assert_eq!(ask(wrong), Err(Refused::WrongPassword), "{wrong}");
        }
        let twice = [
            ("authorization", "Bearer guess"),
            ("authorization", "Bearer open:sesame"),
        ];
        assert_eq!(asked(&access, "/", &twice), Err(Refused::WrongPassword));
    }

    #[test]
    fn a_stranger_with_the_password_is_still_a_stranger() {
        let access = access(Some("p"), &[]);
        let request = [("host", "evil.example.com"), ("authorization", "Bearer p")];
        assert_eq!(asked(&access, "/", &request), Err(Refused::Name));
    }
}
