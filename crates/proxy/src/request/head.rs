//! Heads as the other side gets them: the request's for a server, the answer's for the visitor.

use h1::{HeadWriter, Request, RequestLine, Responder, Response, Sent, Version, WriteError};
use route::{AnswerView, BasicAuth, Compression, HeaderEdits, HostField, Values, VisitorView};

use super::{FieldView, forward::Forward, own::add};
use crate::{compress::Encoder, site::UpstreamServer, upstream::Picked};

/// A request's head for one server.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'h> {
    pub(super) forward: &'h Forward<'h>,
    pub(super) request: Request<'h>,
    pub(super) server: &'h UpstreamServer,
    /// It asks for a WebSocket, and may.
    pub(super) upgrade: bool,
}

impl<'h> Outgoing<'h> {
    /// Appends it to `out`; `value` and `path` are for what is put together. The responder comes back if there is no such request.
    pub(super) fn write(
        self,
        responder: Responder,
        out: &mut Vec<u8>,
        value: &mut Vec<u8>,
        path: &mut Vec<u8>,
    ) -> Result<Sent<Responder>, Responder> {
        let Forward { context, route, .. } = *self.forward;
        let request = self.request;
        let fields = FieldView(request.fields());
        // Few routes have placeholders: the values are put together where one is.
        let values = || context.values(&request, &fields);
        let Ok(line) = self.line(&values, value, path) else {
            return Err(responder);
        };
        let upstream = h1::Upstream::new(&context.local.heads.limits);
        let mut writer = upstream.send(&line, responder, out);
        let forwarding = &context.local.site.forwarding;
        let edits = &route.request_headers;
        let wishes = context.service().map(|rules| &rules.request);
        // Both, so that nobody gives itself a name that only the other would have taken out.
        let auths = [
            route.access.auth.as_deref(),
            context.service().and_then(|rules| rules.auth.as_ref()),
        ];
        let guarded = auths.iter().any(Option::is_some);
        let edited = !edits.is_empty();
        let certified = self.replaces_certificate();
        writer.copy(request.fields(), |field| {
            // RFC 9110 §10.1.1: never without a body, which some servers then wait for; not from HTTP/1.0.
            let unfounded = field.known == h1::Known::Expect && !request.expects_continue();
            let dropped = unfounded
                || forwarding.replaces(field.name, &context.visitor)
                || (edited && edits.removes(field.name))
                || wishes.is_some_and(|wishes| wishes.removes(field.name))
                || (certified && CERTIFICATE.iter().any(|name| reads_as(field.name, name)))
                || (guarded
                    && auths
                        .iter()
                        .flatten()
                        .any(|auth| is_for_us(auth, field.name)));
            !dropped
        });
        let came = VisitorView {
            peer: context.about.peer,
            scheme: context.about.scheme,
            authority: request.authority(),
            headers: &fields,
        };
        let put = |writer: &mut HeadWriter<'_, _>, name: &str, value: &[u8]| {
            let edited = edited && edits.removes(name.as_bytes())
                || wishes.is_some_and(|wishes| wishes.removes(name.as_bytes()));
            if !edited {
                add(writer, name.as_bytes(), value);
            }
        };
        let visitor = &context.visitor;
        match context.introduction {
            Some([before, behind]) if !edited && wishes.is_none() && !visitor.via_trusted => {
                writer.prepared(before);
                let mut behind = Some(behind);
                forwarding.write_of_request(&came, visitor, value, |name, value| {
                    put(&mut writer, name, value);
                    if let Some(behind) = behind.take() {
                        writer.prepared(behind);
                    }
                });
            }
            _ => forwarding.write(&came, visitor, value, |name, value| {
                put(&mut writer, name, value);
            }),
        }
        self.write_own(&mut writer);
        // What the service wishes, where the route says nothing else.
        let wishes = wishes.into_iter().flat_map(HeaderEdits::writes);
        let wishes = wishes.filter(|edit| !edits.removes(edit.name.as_bytes()));
        for edit in wishes.chain(edits.writes()) {
            value.clear();
            edit.value.write(&values(), value);
            add(&mut writer, edit.name.as_bytes(), value);
        }
        Ok(writer.finish())
    }

    /// What the proxy itself says of the request and of who sent it.
    fn write_own<N>(&self, writer: &mut HeadWriter<'_, N>) {
        let Forward { context, route, .. } = *self.forward;
        let edits = &route.request_headers;
        let wishes = context.service().map(|rules| &rules.request);
        let mut own = |name: &str, value: &[u8]| {
            let wished = wishes.is_some_and(|wishes| wishes.removes(name.as_bytes()));
            if !wished && !edits.removes(name.as_bytes()) {
                add(writer, name.as_bytes(), value);
            }
        };
        let auth = context.auth();
        if let (Some(header), Some(user)) = (auth.and_then(|auth| auth.user_header()), context.user)
        {
            own(header, user.as_bytes());
        }
        if let Some(certificate) = &context.about.certificate {
            let values = [&certificate.subject, &certificate.fingerprint];
            for (name, value) in CERTIFICATE.into_iter().zip(values) {
                own(name, value.as_bytes());
            }
        }
        if context.local.site.via {
            let received = match self.request.version() {
                _ if context.http2 => "2 gt",
                Version::Http11 => "1.1 gt",
                Version::Http10 => "1.0 gt",
            };
            own("via", received.as_bytes());
        }
    }

    /// What the request says of a visitor's certificate is no more than a claim, unless a trusted proxy says it of a visitor of its own.
    fn replaces_certificate(&self) -> bool {
        let context = self.forward.context;
        let told = context.visitor.via_trusted && context.about.certificate.is_none();
        context.local.site.client_certificates && !told
    }

    /// What is asked, and of whom.
    fn line<'l>(
        &self,
        values: &dyn Fn() -> Values<'h>,
        host: &'l mut Vec<u8>,
        path: &'l mut Vec<u8>,
    ) -> Result<RequestLine<'l>, WriteError>
    where
        'h: 'l,
    {
        let (request, to) = (self.request, self.forward.to);
        let mut line = RequestLine::of(request);
        if !self.upgrade {
            line = line.without_upgrade();
        }
        let relayed = self.forward.relayed.as_ref();
        if let Some(host) = relayed.and_then(|relayed| relayed.service.host()) {
            return line.with_host(host.as_bytes());
        }
        line = match &to.host {
            HostField::Visitor if !request.authority().is_empty() => line,
            HostField::Visitor | HostField::Server => {
                line.with_host(self.server.authority.as_bytes())?
            }
            HostField::Fixed(template) => {
                host.clear();
                template.write(&values(), host);
                line.with_host(host)?
            }
        };
        let Some(rewrite) = &to.rewrite else {
            return Ok(line);
        };
        path.clear();
        rewrite.write(request.path(), path);
        if let Some(query) = request.query() {
            path.push(b'?');
            path.extend_from_slice(query);
        }
        line.with_target(path)
    }
}

/// An answer's head for the visitor.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'h> {
    pub(super) forward: &'h Forward<'h>,
    pub(super) request: Request<'h>,
    pub(super) answer: Response<'h>,
    pub(super) picked: &'h Picked,
    pub(super) compression: Compression,
    /// It says that what the visitor has, compressed, is still good.
    pub(super) revalidated: bool,
}

impl Incoming<'_> {
    /// Decides whether the body is compressed, and makes the encoder if so.
    pub(super) fn choose(&mut self) -> Option<Encoder> {
        let Forward { context, route, .. } = *self.forward;
        let rules = route.compress.as_ref()?;
        self.revalidated = self.answer.status() == 304 && self.names_weak_tag();
        self.compression = rules.decide(&AnswerView {
            request: &FieldView(self.request.fields()),
            answer: &FieldView(self.answer.fields()),
            status: self.answer.status(),
            length: self.answer.content_length(),
        });
        let Compression::With(coding) = self.compression else {
            return None;
        };
        let encoder = context.worker.encoders.encoder(coding);
        if encoder.is_none() {
            self.compression = Compression::Varies;
        }
        encoder
    }

    /// Appends the fields; the status line was written.
    pub(super) fn write<N>(&self, writer: &mut HeadWriter<'_, N>, value: &mut Vec<u8>) {
        let Forward { context, route, .. } = *self.forward;
        let (answer, edits) = (self.answer, &route.response_headers);
        let wishes = context.service().map(|rules| &rules.response);
        let edited = !edits.is_empty();
        let compressed = matches!(self.compression, Compression::With(_));
        writer.copy(answer.fields(), |field| {
            let dropped = (edited && edits.removes(field.name))
                || wishes.is_some_and(|wishes| wishes.removes(field.name))
                || (compressed && is_of_the_plain(field.name))
                || (self.revalidated && field.name.eq_ignore_ascii_case(b"etag"));
            !dropped
        });
        self.write_compression(writer, value);
        if edited || wishes.is_some() {
            let fields = FieldView(self.request.fields());
            let values = context.values(&self.request, &fields);
            let wishes = wishes.into_iter().flat_map(HeaderEdits::writes);
            let wishes = wishes.filter(|edit| !edits.removes(edit.name.as_bytes()));
            for edit in wishes.chain(edits.writes()) {
                value.clear();
                edit.value.write(&values, value);
                add(writer, edit.name.as_bytes(), value);
            }
        }
        if context.local.site.via && !edits.removes(b"via") {
            // RFC 9110 §7.6.3.
            let received: &[u8] = match answer.version() {
                Version::Http11 => b"1.1 gt",
                Version::Http10 => b"1.0 gt",
            };
            add(writer, b"Via", received);
        }
        // What a server says of itself is not overruled.
        if context.about.http3.is_some() && answer.fields().values(b"alt-svc").next().is_none() {
            context.add_alt_svc(writer, value);
        }
        if !self.picked.sticky {
            write_cookie(writer, self.picked, value);
        }
    }

    /// The visitor asks by the tag that an answer had when it was compressed; a 304 must name the same (RFC 9111 §4.3.4).
    fn names_weak_tag(&self) -> bool {
        let Some(tag) = self.answer.fields().values(b"etag").next() else {
            return false;
        };
        let asked = self.request.fields();
        asked
            .values(b"if-none-match")
            .flat_map(|value| value.split(|byte| *byte == b','))
            .any(|asked| asked.trim_ascii().strip_prefix(b"W/") == Some(tag))
    }

    fn write_compression<N>(&self, writer: &mut HeadWriter<'_, N>, value: &mut Vec<u8>) {
        if self.compression == Compression::Untouched && !self.revalidated {
            return;
        }
        let fields = self.answer.fields();
        let mut varies = fields
            .values(b"vary")
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii);
        if !varies.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding")) {
            add(writer, b"Vary", b"Accept-Encoding");
        }
        match self.compression {
            Compression::With(coding) => {
                add(writer, b"Content-Encoding", coding.as_str().as_bytes());
            }
            _ if self.revalidated => {}
            _ => return,
        }
        // RFC 9110 §8.8.1: the bytes are others now, the meaning is not.
        if let Some(tag) = fields.values(b"etag").next()
            && !self.forward.route.response_headers.removes(b"etag")
        {
            value.clear();
            if !tag.starts_with(b"W/") {
                value.extend_from_slice(b"W/");
            }
            value.extend_from_slice(tag);
            add(writer, b"ETag", value);
        }
    }
}

/// Fields that say something of the bytes as they were before compression.
fn is_of_the_plain(name: &[u8]) -> bool {
    [
        "etag",
        "accept-ranges",
        "content-encoding",
        "content-md5",
        "digest",
        "content-digest",
        "repr-digest",
    ]
    .iter()
    .any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
}

/// The cookie that keeps the visitor on its server, where the upstream has one.
fn write_cookie<N>(writer: &mut HeadWriter<'_, N>, picked: &Picked, value: &mut Vec<u8>) {
    let upstream = picked.upstream();
    let Some((cookie, _)) = &upstream.spec().sticky else {
        return;
    };
    value.clear();
    value.extend_from_slice(cookie.name.as_bytes());
    value.push(b'=');
    upstream.write_sticky_tag(picked.server, value);
    value.extend_from_slice(b"; Path=/; HttpOnly; SameSite=Lax");
    if let Some(age) = cookie.max_age {
        // Writing to a Vec does not fail.
        let _ = std::io::Write::write_fmt(value, format_args!("; Max-Age={}", age.as_secs()));
    }
    add(writer, b"Set-Cookie", value);
}

/// Fields that are between the visitor and this proxy.
fn is_for_us(auth: &BasicAuth, name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"authorization")
        || auth
            .user_header()
            .is_some_and(|header| reads_as(name, header))
}

/// Whether an origin may take one name for the other: to a CGI program, `X_User` and `X-User` are the same (RFC 3875 §4.1.18).
fn reads_as(name: &[u8], other: &str) -> bool {
    let plain = |byte: u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    let pairs = name.iter().zip(other.as_bytes());
    name.len() == other.len() && pairs.into_iter().all(|(a, b)| plain(*a) == plain(*b))
}

/// What is said of the certificate that a visitor has shown: its subject and its fingerprint.
const CERTIFICATE: [&str; 2] = ["x-client-cert-subject", "x-client-cert-fingerprint"];
