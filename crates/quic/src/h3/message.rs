//! Field sections as requests, responses and trailers (RFC 9114 §4.2, §4.3), read strictly: whatever this lets through is a message in HTTP/1.1's
//! sense too.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header,
    uri::{Authority, PathAndQuery, Scheme},
};

use super::qpack::{self, Limits, Unusable};

/// What an extended CONNECT asks for (RFC 9220): in the extensions of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol(pub String);

/// Why a section is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    Section(Unusable),
    Malformed,
}

impl From<Unusable> for Unfit {
    fn from(unusable: Unusable) -> Self {
        Self::Section(unusable)
    }
}

/// Reads a request.
pub(crate) fn request(block: &[u8], limits: Limits) -> Result<Request<()>, Unfit> {
    let section = Section::read(block, limits)?;
    let Section { pseudo, fields } = section;
    if pseudo.status.is_some() {
        return Err(Unfit::Malformed);
    }
    let method = pseudo.method.ok_or(Unfit::Malformed)?;
    let mut request = Request::new(());
    let plain_connect = method == Method::CONNECT && pseudo.protocol.is_none();
    if pseudo.protocol.is_some() && method != Method::CONNECT {
        return Err(Unfit::Malformed);
    }
    // §4.4: CONNECT names a host and a port and nothing else.
    if plain_connect && (pseudo.scheme.is_some() || pseudo.path.is_some()) {
        return Err(Unfit::Malformed);
    }
    let authority = authority(pseudo.authority, &fields)?;
    let mut parts = http::uri::Parts::default();
    parts.authority = authority;
    if !plain_connect {
        let scheme = pseudo.scheme.ok_or(Unfit::Malformed)?;
        let path = pseudo.path.ok_or(Unfit::Malformed)?;
        // §4.3.1: `*` stands for no path, which only OPTIONS may ask about.
        if path == "*" && method != Method::OPTIONS {
            return Err(Unfit::Malformed);
        }
        parts.scheme = Some(scheme);
        parts.path_and_query = Some(path);
    }
    if parts.authority.is_none() {
        return Err(Unfit::Malformed);
    }
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| Unfit::Malformed)?;
    *request.method_mut() = method;
    *request.version_mut() = Version::HTTP_3;
    *request.headers_mut() = fields;
    if let Some(protocol) = pseudo.protocol {
        request.extensions_mut().insert(Protocol(protocol));
    }
    Ok(request)
}

/// Reads a response.
pub(crate) fn response(block: &[u8], limits: Limits) -> Result<Response<()>, Unfit> {
    let Section { pseudo, fields } = Section::read(block, limits)?;
    let asks = pseudo.method.is_some()
        || pseudo.scheme.is_some()
        || pseudo.path.is_some()
        || pseudo.authority.is_some()
        || pseudo.protocol.is_some();
    let status = pseudo.status.filter(|_| !asks).ok_or(Unfit::Malformed)?;
    // §4.5: HTTP/3 has no use for 101.
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Unfit::Malformed);
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = Version::HTTP_3;
    *response.headers_mut() = fields;
    Ok(response)
}

/// Reads trailers.
pub(crate) fn trailers(block: &[u8], limits: Limits) -> Result<HeaderMap, Unfit> {
    let Section { pseudo, fields } = Section::read(block, limits)?;
    if pseudo.any {
        Err(Unfit::Malformed)
    } else {
        Ok(fields)
    }
}

/// The length a message says its body has.
pub(crate) fn content_length(fields: &HeaderMap) -> Result<Option<u64>, Unfit> {
    let mut length = None;
    for value in fields.get_all(header::CONTENT_LENGTH) {
        let text = value.as_bytes();
        let digits = !text.is_empty() && text.len() <= 19 && text.iter().all(u8::is_ascii_digit);
        let value = std::str::from_utf8(text)
            .ok()
            .filter(|_| digits)
            .and_then(|text| text.parse::<u64>().ok())
            .ok_or(Unfit::Malformed)?;
        if length.is_some_and(|before| before != value) {
            return Err(Unfit::Malformed);
        }
        length = Some(value);
    }
    Ok(length)
}

/// Appends a request's section, and counts its size as the peer does.
pub(crate) fn write_request<T>(into: &mut Vec<u8>, request: &Request<T>) -> u64 {
    let mut out = Out::new(into);
    out.field(":method", request.method().as_str().as_bytes());
    let uri = request.uri();
    let protocol = request.extensions().get::<Protocol>();
    let host = request
        .headers()
        .get(header::HOST)
        .map(HeaderValue::as_bytes);
    let authority = uri
        .authority()
        .map_or(host, |name| Some(name.as_str().as_bytes()));
    if request.method() != Method::CONNECT || protocol.is_some() {
        out.field(":scheme", uri.scheme_str().unwrap_or("https").as_bytes());
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        out.field(":path", path.as_bytes());
    }
    if let Some(authority) = authority {
        out.field(":authority", authority);
    }
    if let Some(Protocol(protocol)) = protocol {
        out.field(":protocol", protocol.as_bytes());
    }
    out.fields(request.headers());
    out.size
}

/// What a server adds to a response's fields. Beside them, because a map of fields costs two allocations, and each field in it a look-up.
#[derive(Debug, Default)]
pub(crate) struct Added {
    /// `content-length`.
    pub(crate) length: Option<u64>,
    /// `date`.
    pub(crate) date: Option<HeaderValue>,
}

/// Appends a response's section.
pub(crate) fn write_response<T>(into: &mut Vec<u8>, response: &Response<T>, added: &Added) -> u64 {
    let mut out = Out::new(into);
    if response.status() == StatusCode::OK {
        out.size += (":status".len() + "200".len() + 32) as u64;
        qpack::indexed(out.block, qpack::STATUS_200);
    } else {
        out.field(":status", response.status().as_str().as_bytes());
    }
    out.fields(response.headers());
    if let Some(length) = added.length {
        let (digits, start) = decimal(length);
        out.named("content-length", qpack::CONTENT_LENGTH, &digits[start..]);
    }
    if let Some(date) = &added.date {
        out.named("date", qpack::DATE, date.as_bytes());
    }
    out.size
}

/// Appends trailers.
pub(crate) fn write_trailers(into: &mut Vec<u8>, trailers: &HeaderMap) -> u64 {
    let mut out = Out::new(into);
    out.fields(trailers);
    out.size
}

/// A number's digits, and where they begin.
fn decimal(mut number: u64) -> ([u8; 20], usize) {
    let (mut digits, mut start) = ([b'0'; 20], 20);
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return (digits, start);
        }
    }
}

struct Out<'a> {
    block: &'a mut Vec<u8>,
    size: u64,
}

impl<'a> Out<'a> {
    fn new(block: &'a mut Vec<u8>) -> Self {
        qpack::begin(block);
        Self { block, size: 0 }
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        self.size += (name.len() + value.len() + 32) as u64;
        qpack::field(self.block, name, value);
    }

    /// A field whose name has that number in the table.
    fn named(&mut self, name: &str, index: u8, value: &[u8]) {
        self.size += (name.len() + value.len() + 32) as u64;
        qpack::named(self.block, index, value);
    }

    /// All but those that are about a connection of HTTP/1.1, and `Host`, which is said otherwise.
    fn fields(&mut self, fields: &HeaderMap) {
        for (name, value) in fields {
            let dropped = *name == header::HOST
                || of_connection(name)
                || (*name == header::TE && value.as_bytes() != b"trailers");
            if !dropped {
                self.field(name.as_str(), value.as_bytes());
            }
        }
    }
}

/// §4.2: fields that must not be.
fn of_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade"
    )
}

#[derive(Debug, Default)]
struct Pseudo {
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    protocol: Option<String>,
    status: Option<StatusCode>,
    any: bool,
}

struct Section {
    pseudo: Pseudo,
    fields: HeaderMap,
}

impl Section {
    fn read(block: &[u8], limits: Limits) -> Result<Self, Unfit> {
        let mut section = Self {
            pseudo: Pseudo::default(),
            fields: HeaderMap::new(),
        };
        qpack::decode(block, limits, |name, value| section.take(name, value))?;
        Ok(section)
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), Unfit> {
        if name.first() == Some(&b':') {
            // §4.3: before all others.
            if !self.fields.is_empty() {
                return Err(Unfit::Malformed);
            }
            self.pseudo.any = true;
            return self.pseudo.take(name, value);
        }
        // Names in upper case are refused here (§4.2), and control characters in values below (§10.3).
        let name = HeaderName::from_lowercase(name).map_err(|_| Unfit::Malformed)?;
        let te = name == header::TE && value != b"trailers";
        if te || of_connection(&name) {
            return Err(Unfit::Malformed);
        }
        // RFC 9110 §5.5: space around a value is none of it, and must not be sent.
        let padded = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if padded(value.first()) || padded(value.last()) {
            return Err(Unfit::Malformed);
        }
        let value = HeaderValue::from_bytes(value).map_err(|_| Unfit::Malformed)?;
        self.fields
            .try_append(name, value)
            .map(|_| ())
            .map_err(|_| Unfit::Section(Unusable::TooLarge))
    }
}

impl Pseudo {
    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), Unfit> {
        let again = match name {
            b":method" => {
                let method = Method::from_bytes(value).map_err(|_| Unfit::Malformed)?;
                self.method.replace(method).is_some()
            }
            b":scheme" => {
                let scheme = Scheme::try_from(value).map_err(|_| Unfit::Malformed)?;
                self.scheme.replace(scheme).is_some()
            }
            b":authority" => self.authority.replace(whom(value)?).is_some(),
            b":path" => {
                // §4.3.1: not empty, and absolute. A fragment, which is no part of it, would be cut off below in silence.
                if (!value.starts_with(b"/") && value != b"*") || value.contains(&b'#') {
                    return Err(Unfit::Malformed);
                }
                let path = PathAndQuery::try_from(value).map_err(|_| Unfit::Malformed)?;
                self.path.replace(path).is_some()
            }
            b":protocol" => {
                let text = std::str::from_utf8(value).map_err(|_| Unfit::Malformed)?;
                self.protocol.replace(text.to_owned()).is_some()
            }
            b":status" => {
                let status = StatusCode::from_bytes(value).map_err(|_| Unfit::Malformed)?;
                self.status.replace(status).is_some()
            }
            _ => true,
        };
        if again { Err(Unfit::Malformed) } else { Ok(()) }
    }
}

/// §4.3.1: `:authority` or `Host`, the same if both are there.
fn authority(pseudo: Option<Authority>, fields: &HeaderMap) -> Result<Option<Authority>, Unfit> {
    let mut hosts = fields.get_all(header::HOST).iter();
    let host = hosts.next().map(HeaderValue::as_bytes);
    if hosts.next().is_some() {
        return Err(Unfit::Malformed);
    }
    match (pseudo, host) {
        (Some(one), Some(other)) if one.as_str().as_bytes() != other => Err(Unfit::Malformed),
        (Some(one), _) => Ok(Some(one)),
        (None, Some(host)) => whom(host).map(Some),
        (None, None) => Ok(None),
    }
}

/// Not empty, and nobody's password in it (§4.3.1).
fn whom(text: &[u8]) -> Result<Authority, Unfit> {
    if text.is_empty() || text.contains(&b'@') {
        return Err(Unfit::Malformed);
    }
    Authority::try_from(text).map_err(|_| Unfit::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        size: 4096,
        count: 20,
    };

    const GET: &[(&str, &str)] = &[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a.example"),
        (":path", "/x?y"),
    ];

    fn read(fields: &[(&str, &str)]) -> Result<Request<()>, Unfit> {
        let mut block = Vec::new();
        qpack::begin(&mut block);
        for (name, value) in fields {
            qpack::field(&mut block, name, value.as_bytes());
        }
        request(&block, LIMITS)
    }

    fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        [GET, more].concat()
    }

    #[test]
    fn a_request_is_written_and_read() {
        let request = Request::builder()
            .method("PUT")
            .uri("https://a.example:1/x?y")
            .header("te", "trailers")
            .header("connection", "close")
            .header("x-own", "1")
            .body(())
            .unwrap();
        let mut block = Vec::new();
        write_request(&mut block, &request);
        let seen = super::request(&block, LIMITS).unwrap();
        assert_eq!(seen.method(), "PUT");
        assert_eq!(seen.uri(), request.uri());
        assert_eq!(seen.headers().len(), 2);
    }

    #[test]
    fn what_a_server_adds_is_among_the_fields_and_counts() {
        for length in [0, 7, 30, 10_000, u64::MAX] {
            let mut response = Response::new(());
            response
                .headers_mut()
                .insert("x-own", HeaderValue::from_static("1"));
            let added = Added {
                length: Some(length),
                date: Some(HeaderValue::from_static("now")),
            };
            let mut block = Vec::new();
            let size = write_response(&mut block, &response, &added);
            let seen = super::response(&block, LIMITS).unwrap();
            assert_eq!(seen.status(), 200);
            assert_eq!(seen.headers()["content-length"], length.to_string());
            assert_eq!(seen.headers()["date"], "now");
            let counted: usize = seen
                .headers()
                .iter()
                .map(|(name, value)| name.as_str().len() + value.len() + 32)
                .sum();
            assert_eq!(size, (counted + ":status200".len() + 32) as u64);
        }
    }

    #[test]
    fn requests_that_are_none_are_malformed() {
        assert!(read(GET).is_ok());
        let bad = [
            with(&[(":method", "GET")]),
            with(&[(":status", "200")]),
            with(&[(":own", "1")]),
            with(&[(":protocol", "websocket")]),
            with(&[("x", "1"), (":path", "/")]),
            with(&[("X-Upper", "1")]),
            with(&[("connection", "close")]),
            with(&[("transfer-encoding", "chunked")]),
            with(&[("upgrade", "h2c")]),
            with(&[("te", "gzip")]),
            with(&[("x", "a\nb")]),
            with(&[("x", " a")]),
            with(&[("host", "b.example")]),
            GET[..3].to_vec(),
            GET[1..].to_vec(),
            vec![GET[0], GET[1], GET[3]],
            vec![GET[0], GET[1], (":authority", "u:p@a.example"), GET[3]],
            vec![GET[0], GET[1], GET[2], (":path", "x")],
            vec![GET[0], GET[1], GET[2], (":path", "")],
            vec![GET[0], GET[1], GET[2], (":path", "*")],
            vec![(":method", "CONNECT"), GET[1], GET[2], GET[3]],
            vec![(":method", "CONNECT")],
        ];
        for fields in bad {
            assert_eq!(read(&fields).err(), Some(Unfit::Malformed), "{fields:?}");
        }
    }

    #[test]
    fn connect_comes_plain_and_extended() {
        let plain = read(&[(":method", "CONNECT"), (":authority", "a.example:443")]).unwrap();
        assert_eq!(plain.uri().authority().unwrap(), "a.example:443");
        let mut fields = with(&[(":protocol", "websocket")]);
        fields[0].1 = "CONNECT";
        let extended = read(&fields).unwrap();
        assert_eq!(
            extended.extensions().get::<Protocol>(),
            Some(&Protocol("websocket".into()))
        );
    }

    #[test]
    fn lengths_that_contradict_each_other_are_malformed() {
        let length = |values: &[&str]| {
            let mut fields = HeaderMap::new();
            for value in values {
                fields.append(
                    header::CONTENT_LENGTH,
                    HeaderValue::from_str(value).unwrap(),
                );
            }
            content_length(&fields)
        };
        assert_eq!(length(&[]), Ok(None));
        assert_eq!(length(&["7", "7"]), Ok(Some(7)));
        for bad in [
            &["7", "8"][..],
            &["+7"],
            &[""],
            &["7, 7"],
            &["99999999999999999999"],
        ] {
            assert_eq!(length(bad), Err(Unfit::Malformed), "{bad:?}");
        }
    }
}
