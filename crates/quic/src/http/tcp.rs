//! The same over TCP: HTTP/2 and 1.1, by hyper. Responses tell of HTTP/3.

use std::{convert::Infallible, net::TcpListener, rc::Rc};

use http::{HeaderValue, Request, Response, header};
use hyper::{
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use net::{
    Acceptor, Stream,
    tls::{PLAIN_HTTP_ANSWER, TlsError},
};
use tokio::{io::AsyncWriteExt as _, time::timeout};

use super::{Body, Received, serve::State};

/// Accepts until told to stop.
pub(super) async fn accept<H, Fut>(state: Rc<State<H>>, listener: TcpListener)
where
    H: Fn(Request<Received>) -> Fut + Clone + 'static,
    Fut: Future<Output = Response<Body>> + 'static,
{
    let mut acceptor = match Acceptor::new(listener) {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "a listener cannot be served"),
    };
    let stop = state.common.stop.clone();
    let alternative = alternative(&state);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.wait() => return,
            accepted = acceptor.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                return tracing::error!(%error, "a listener has failed and accepts no more");
            }
        };
        if state.open() >= state.common.options.tcp_connections {
            continue;
        }
        let _ = net::tune_visitor(&stream);
        let (busy, state) = (state.busy(), Rc::clone(&state));
        let alternative = alternative.clone();
        tokio::task::spawn_local(async move {
            serve(&state, stream, alternative).await;
            drop(busy);
        });
    }
}

async fn serve<H, Fut>(state: &Rc<State<H>>, stream: Stream, alternative: HeaderValue)
where
    H: Fn(Request<Received>) -> Fut + Clone + 'static,
    Fut: Future<Output = Response<Body>> + 'static,
{
    let options = &state.common.options;
    let time = options.quic.handshake_time;
    let stream = match timeout(time, state.common.acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(TlsError::PlainHttp(mut stream))) => {
            let _ = timeout(time, async {
                stream.write_all(PLAIN_HTTP_ANSWER).await?;
                stream.shutdown().await
            })
            .await;
            return;
        }
        Ok(Err(_)) | Err(_) => return,
    };
    let two = stream.alpn() == Some(b"h2");
    let (handler, patience) = (state.handler.clone(), options.body_time);
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let answer = handler(request.map(|body| Received::tcp(body, patience)));
        let alternative = alternative.clone();
        async move {
            let mut response = answer.await;
            response
                .headers_mut()
                .entry(header::ALT_SVC)
                .or_insert(alternative);
            Ok::<_, Infallible>(response)
        }
    });
    let stop = state.common.stop.clone();
    let io = TokioIo::new(stream);
    let fields = options.http3.section_bytes;
    if two {
        let mut builder = http2::Builder::new(LocalTasks);
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(options.quic.transport.bidi_streams)
            .max_header_list_size(u32::try_from(fields).unwrap_or(u32::MAX))
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(options.quic.transport.idle)
            .keep_alive_timeout(options.quic.transport.idle);
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = stop.wait() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .max_headers(options.http3.fields)
            .max_buf_size(fields.max(8192))
            .header_read_timeout(options.http3.head_time);
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = stop.wait() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

/// RFC 7838 §3: the same host, this port.
fn alternative<H>(state: &State<H>) -> HeaderValue {
    let port = state.common.address.port();
    let age = state.common.options.alt_svc_age.as_secs();
    HeaderValue::from_str(&format!("h3=\":{port}\"; ma={age}"))
        .unwrap_or_else(|_| HeaderValue::from_static("clear"))
}

/// Tasks on the current thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalTasks;

impl<F> Executor<F> for LocalTasks
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// For each stream of HTTP/2.
const SEND_BUFFER: usize = 256 << 10;
