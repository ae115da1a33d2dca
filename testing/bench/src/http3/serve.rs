//! The server: GET `/N` is answered with N bytes, PUT with the number of bytes that came. `testing/interop/quic/bench` does the same on quic-go.

use std::{
    net::SocketAddr,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use anyhow::Result;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use net::tls::{TlsServerOptions, load_certificates};
use quic::http::{Body, BoxError, Received, ServeOptions};

use super::FILLING;

/// Serves until it is killed, on one thread for each core it may use.
///
/// # Errors
/// When files or address are not to be had.
pub fn serve(address: SocketAddr, certificate: &Path, key: &Path) -> Result<()> {
    let options = ServeOptions {
        tls: TlsServerOptions {
            certificates: vec![load_certificates(certificate, key)?],
            ..TlsServerOptions::default()
        },
        quic: quic::Config {
            transport: quic::Transport {
                // What quic-go's server sends at most, also where the route takes more.
                largest_packet: 1452,
                ..quic::Transport::default()
            },
            ..quic::Config::default()
        },
        ..ServeOptions::default()
    };
    quic::serve_with(address, options, answer)?.wait();
    Ok(())
}

async fn answer(request: Request<Received>) -> Response<Body> {
    if request.method() == Method::PUT {
        let mut body = request.into_body();
        let mut length = 0;
        while let Ok(Some(part)) = body.chunk().await {
            length += part.len();
        }
        return Response::new(length.to_string().into());
    }
    let path = request.uri().path();
    match path.get(1..).and_then(|text| text.parse::<u64>().ok()) {
        Some(size) if size <= PORTION as u64 => {
            Response::new(Bytes::from_static(&FILLED).slice(..size as usize).into())
        }
        Some(size) => Response::new(Body::stream(Long { left: size })),
        None => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

/// A body that is made while it is sent.
struct Long {
    left: u64,
}

impl http_body::Body for Long {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let n = self.left.min(PORTION as u64);
        self.left -= n;
        let part = Bytes::from_static(&FILLED).slice(..n as usize);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// What is given at a time where a body is long.
const PORTION: usize = 64 << 10;

static FILLED: [u8; PORTION] = [FILLING; PORTION];
