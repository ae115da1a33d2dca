//! stub
#![allow(missing_docs)]
pub enum Classified {
    NeedMore,
    Link,
    Tls,
    Http1,
    Http2Preface,
    ProxyV1,
    ProxyV2,
    Unknown,
}
pub fn classify(b: &[u8], magic: &[u8]) -> Classified {
    if b.starts_with(magic) {
        return Classified::Link;
    }
    if magic.starts_with(b) {
        return Classified::NeedMore;
    }
    if b[0] == 0x16 {
        return Classified::Tls;
    }
    if b.starts_with(b"PRI * HTTP/2.0") {
        return Classified::Http2Preface;
    }
    if b[0].is_ascii_uppercase() {
        return Classified::Http1;
    }
    Classified::Unknown
}
pub mod host {
    #[derive(Debug, Clone)]
    pub struct Authority(String);
    impl Authority {
        pub fn parse(s: &str) -> Result<Self, ()> {
            Ok(Self(s.split(':').next().unwrap_or("").to_ascii_lowercase()))
        }
        pub fn host(&self) -> &str {
            &self.0
        }
        pub fn first_label(&self) -> Option<&str> {
            self.0.split('.').next()
        }
    }
}
pub mod http {
    use super::host::Authority;
    #[derive(Default)]
    pub struct Limits;
    #[derive(Debug, thiserror::Error)]
    pub enum HeadError {
        #[error("too long")]
        TooLong,
        #[error("too many")]
        TooManyHeaders,
        #[error("bad")]
        Bad,
    }
    impl HeadError {
        pub fn status(&self) -> u16 {
            match self {
                Self::Bad => 400,
                _ => 431,
            }
        }
    }
    pub struct HeadSniffer(String);
    pub struct Head {
        auth: Option<Authority>,
        headers: Vec<(String, Vec<u8>)>,
        method: String,
        pub len: usize,
    }
    impl HeadSniffer {
        pub fn new(_: Limits, h: &str) -> Self {
            Self(h.to_owned())
        }
        pub fn advance(&mut self, b: &[u8]) -> Result<Option<Head>, HeadError> {
            let mut hs = [httparse::EMPTY_HEADER; 100];
            let mut r = httparse::Request::new(&mut hs);
            match r.parse(b) {
                Ok(httparse::Status::Complete(len)) => {
                    let auth = r
                        .headers
                        .iter()
                        .find(|h| h.name.eq_ignore_ascii_case(&self.0))
                        .and_then(|h| std::str::from_utf8(h.value).ok())
                        .and_then(|v| Authority::parse(v).ok());
                    Ok(Some(Head {
                        auth,
                        len,
                        method: r.method.unwrap_or("").to_owned(),
                        headers: r
                            .headers
                            .iter()
                            .map(|h| (h.name.to_owned(), h.value.to_vec()))
                            .collect(),
                    }))
                }
                Ok(_) if b.len() > 16384 => Err(HeadError::TooLong),
                Ok(_) => Ok(None),
                Err(_) => Err(HeadError::Bad),
            }
        }
    }
    impl Head {
        pub fn authority(&self) -> Option<&Authority> {
            self.auth.as_ref()
        }
        pub fn is_websocket(&self) -> bool {
            self.headers
                .iter()
                .any(|h| h.0.eq_ignore_ascii_case("upgrade"))
        }
        pub fn headers<'a>(&'a self, _: &'a [u8]) -> impl Iterator<Item = (&'a str, &'a [u8])> {
            self.headers.iter().map(|(a, b)| (a.as_str(), b.as_slice()))
        }
        pub fn method<'a>(&'a self, _: &'a [u8]) -> &'a str {
            &self.method
        }
        pub fn accepts_html(&self, _: &[u8]) -> bool {
            self.headers.iter().any(|h| {
                h.0.eq_ignore_ascii_case("accept") && h.1.windows(9).any(|w| w == b"text/html")
            })
        }
    }
}
pub mod h2 {
    #[derive(Default)]
    pub struct HeadersSniffer;
    impl HeadersSniffer {
        pub fn advance(
            &mut self,
            _: &[u8],
        ) -> Result<Option<super::host::Authority>, std::io::Error> {
            Err(std::io::ErrorKind::Unsupported.into())
        }
    }
}
pub mod tls {
    pub enum AlertDescription {
        HandshakeFailure,
        DecodeError,
        UnrecognizedName,
        InternalError,
    }
    pub fn alert(_: AlertDescription) -> [u8; 7] {
        [21, 3, 3, 0, 2, 2, 112]
    }
    #[derive(Default)]
    pub struct HelloSniffer;
    pub struct Hello {
        pub server_name: Option<String>,
    }
    impl HelloSniffer {
        pub fn advance(&mut self, _: &[u8]) -> Result<Option<Hello>, std::io::Error> {
            Err(std::io::ErrorKind::Unsupported.into())
        }
    }
}
pub mod proxy {
    use std::net::SocketAddr;
    pub fn write_v1(_: SocketAddr, _: SocketAddr, _: &mut Vec<u8>) {}
    pub fn write_v2(_: SocketAddr, _: SocketAddr, _: &mut Vec<u8>) {}
}
