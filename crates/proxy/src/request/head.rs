//! Heads as the other side gets them: the request's for a server, the answer's for the visitor.

use h1::{HeadWriter, Request, RequestLine, Responder, Response, Sent, WriteError};
use route::{BasicAuth, HostField, Values, VisitorView};

use super::{FieldView, forward::Forward, own::add};
use crate::{site::UpstreamServer, upstream::Picked};

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
        let values = context.values(&request, &fields);
        let Ok(line) = self.line(&values, value, path) else {
            return Err(responder);
        };
        let upstream = h1::Upstream::new(&context.local.heads.limits);
        let mut writer = upstream.send(&line, responder, out);
        let forwarding = &context.local.site.forwarding;
        let edits = &route.request_headers;
        let auth = route.access.auth.as_ref();
        let edited = !edits.is_empty();
        writer.copy(request.fields(), |field| {
            let dropped = forwarding.replaces(field.name, &context.visitor)
                || (edited && edits.removes(field.name))
                || auth.is_some_and(|auth| is_for_us(auth, field.name));
            !dropped
        });
        let came = VisitorView {
            peer: context.about.peer,
            scheme: context.about.scheme,
            authority: request.authority(),
            headers: &fields,
        };
        forwarding.write(&came, &context.visitor, value, |name, value| {
            add(&mut writer, name.as_bytes(), value);
        });
        if let (Some(auth), Some(user)) = (auth, context.user)
            && let Some(header) = auth.user_header()
            && !edits.removes(header.as_bytes())
        {
            add(&mut writer, header.as_bytes(), user.as_bytes());
        }
        for edit in edits.writes() {
            value.clear();
            edit.value.write(&values, value);
            add(&mut writer, edit.name.as_bytes(), value);
        }
        Ok(writer.finish())
    }

    /// What is asked, and of whom.
    fn line<'l>(
        &self,
        values: &Values<'_>,
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
                template.write(values, host);
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

impl Forward<'_> {
    /// The fields of the answer as the visitor gets them.
    pub(super) fn write_answer<N>(
        &self,
        mut writer: HeadWriter<'_, N>,
        request: Request<'_>,
        answer: Response<'_>,
        picked: &Picked,
        value: &mut Vec<u8>,
    ) -> N {
        let edits = &self.route.response_headers;
        let edited = !edits.is_empty();
        writer.copy(answer.fields(), |field| {
            !(edited && edits.removes(field.name))
        });
        if edited {
            let fields = FieldView(request.fields());
            let values = self.context.values(&request, &fields);
            for edit in edits.writes() {
                value.clear();
                edit.value.write(&values, value);
                add(&mut writer, edit.name.as_bytes(), value);
            }
        }
        if !picked.sticky {
            write_cookie(&mut writer, picked, value);
        }
        writer.finish()
    }
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
            .is_some_and(|header| header.as_bytes().eq_ignore_ascii_case(name))
}
