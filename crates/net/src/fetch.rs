//! One small HTTP request with a small answer, for the control plane: authentication services, address look-ups. Not for the data
//! path: each call is a connection of its own.

use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use url::Url;

use crate::{
    Stream, connect_tcp,
    tls::{TlsConnector, TlsError},
};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The caller's fault: not an `http` or `https` URL with a host.
    #[error("{0} is not an http or https address")]
    BadUrl(Url),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The other side does not speak HTTP as it should.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// The answer's body is longer than [`MAX_ANSWER`] bytes, or broke off.
    #[error("the answer's body is too long or broke off: {0}")]
    Body(String),
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
}

/// Sends a GET, or a POST of `json` if there is some. The caller bounds the time.
///
/// # Errors
/// [`FetchError`]; an answer with an error status is an answer.
pub async fn fetch(
    url: &Url,
    json: Option<Vec<u8>>,
    tls: &TlsConnector,
) -> Result<Answer, FetchError> {
    let bad_url = || FetchError::BadUrl(url.clone());
    let host = url.host_str().ok_or_else(bad_url)?;
    let port = url.port_or_known_default().ok_or_else(bad_url)?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<_> = tokio::net::lookup_host((bare, port)).await?.collect();
    let tcp = connect_tcp(&addresses, None).await?;
    let stream: Stream = match url.scheme() {
        "http" => tcp,
        "https" => tls.connect(tcp, bare).await?,
        _ => return Err(bad_url()),
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let method = if json.is_some() {
        Method::POST
    } else {
        Method::GET
    };
    let mut request = Request::builder()
        .method(method)
        .uri(target)
        .header(header::HOST, authority)
        .header(
            header::USER_AGENT,
            concat!("gt/", env!("CARGO_PKG_VERSION")),
        )
        .header(header::ACCEPT, "application/json, text/plain");
    if json.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let request = request
        .body(Full::new(Bytes::from(json.unwrap_or_default())))
        .map_err(|_| bad_url())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_ANSWER)
            .collect()
            .await;
        let body = body
            .map_err(|error| FetchError::Body(error.to_string()))?
            .to_bytes();
        Ok(Answer { status, body })
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // Drives the exchange; when it ends first, what it has delivered is still there.
        ended = connection => {
            ended?;
            exchange.await
        }
    }
}

/// Longest body of an answer in bytes.
pub const MAX_ANSWER: usize = 64 << 10;
