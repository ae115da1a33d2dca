//! What a visitor or a mistaken peer is told when there is nobody else to tell it: short HTTP answers and TLS alerts, then a close
//! that does not destroy them.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// An HTTP answer of the server itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
    /// One or two sentences, for people.
    pub(crate) text: &'a str,
    /// Seconds for `Retry-After`.
    pub(crate) retry_after: Option<u32>,
}

/// How the visitor wants it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Form {
    pub(crate) html: bool,
    pub(crate) head_only: bool,
    /// The request's stream, if it came over HTTP/2.
    pub(crate) http2_stream: u32,
}

impl Answer<'_> {
    /// The whole response. Every text is the server's own or escaped.
    pub(crate) fn render(&self, form: Form) -> Vec<u8> {
        let Self {
            status,
            reason,
            text,
            retry_after,
        } = *self;
        let (kind, body) = if form.html {
            ("text/html", page(status, reason, text))
        } else {
            ("text/plain", format!("{status} {reason}: {text}\n"))
        };
        let retry = retry_after
            .map(|seconds| format!("Retry-After: {seconds}\r\n"))
            .unwrap_or_default();
        let length = body.len();
        let body = if form.head_only { String::new() } else { body };
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {length}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{retry}Connection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

fn page(status: u16, reason: &str, text: &str) -> String {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{status} {reason}</title><style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem;\
         color:#222}}h1{{font-size:1.4rem}}@media(prefers-color-scheme:dark){{body{{background:#181818;color:#ddd}}}}</style>\
         <h1>{status} {reason}</h1><p>{text}</p></html>\n"
    )
}

/// Sends `bytes`, then waits a little for the peer to read them: closing at once, with the peer's own bytes unread, would make the
/// kernel send a reset that can overtake the answer.
pub(crate) async fn send_and_close(stream: &mut net::Stream, bytes: &[u8]) {
    let _ = timeout(LINGER, async {
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        let mut unread = [0; 1024];
        let mut budget = LINGER_BYTES;
        while budget > 0 {
            let n = stream.read(&mut unread).await?;
            if n == 0 {
                break;
            }
            budget = budget.saturating_sub(n);
        }
        std::io::Result::Ok(())
    })
    .await;
}

const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1 << 20;
