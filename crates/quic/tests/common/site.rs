//! A site that tests ask, and a client that asks it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use net::tls::{TlsClientOptions, TlsServerOptions, Trust};
use quic::{
    bytes::Bytes,
    http::{
        Body, Client, ClientOptions, Datagrams, Protocol, Received, ServeOptions, Serving,
        Versions, serve_with,
    },
};

use super::{LONG, certificate, loopback, on_worker};

pub(crate) fn server(change: impl FnOnce(&mut ServeOptions)) -> Serving {
    let mut options = ServeOptions {
        tls: TlsServerOptions {
            certificates: vec![certificate()],
            ..TlsServerOptions::default()
        },
        workers: 2,
        ..ServeOptions::default()
    };
    change(&mut options);
    serve_with(loopback(), options, handle).unwrap()
}

pub(crate) fn client(change: impl FnOnce(&mut ClientOptions)) -> Client {
    let mut options = ClientOptions {
        tls: TlsClientOptions {
            trust: Trust::InsecureNoVerification,
            ..TlsClientOptions::default()
        },
        versions: Versions::OnlyHttp3,
        ..ClientOptions::default()
    };
    change(&mut options);
    Client::with(options).unwrap()
}

pub(crate) async fn handle(request: Request<Received>) -> Response<Body> {
    match request.uri().path() {
        "/echo" => Response::new(request.into_body().into()),
        "/about" => {
            let fields = request.headers();
            let early = fields
                .get("early-data")
                .map_or("-", |value| value.to_str().unwrap());
            let said = format!("{} {:?} {early}", request.method(), request.version());
            Response::new(said.into())
        }
        "/sum" => {
            let (data, trailers) = request.into_body().collect_up_to(64 << 20).await.unwrap();
            let sum: u64 = data.iter().copied().map(u64::from).sum();
            let trailer = trailers
                .as_ref()
                .and_then(|fields| fields.get("x-end"))
                .map_or("-", |value| value.to_str().unwrap());
            Response::new(format!("{} {sum} {trailer}", data.len()).into())
        }
        "/broken" => {
            let parts = VecDeque::from([Part::Data("some"), Part::Error]);
            Response::new(Body::stream(Parts(parts)))
        }
        "/trailers" => {
            let parts = VecDeque::from([Part::Data("one "), Part::Data("two"), Part::Trailer]);
            Response::new(Body::stream(Parts(parts)))
        }
        "/forever" => std::future::pending().await,
        "/tunnel" => {
            let datagrams = request.extensions().get::<Datagrams>().cloned();
            assert_eq!(request.extensions().get::<Protocol>().unwrap().0, "echo");
            if let Some(datagrams) = datagrams {
                tokio::task::spawn_local(async move {
                    while let Some(payload) = datagrams.receive().await {
                        let _ = datagrams.send(&[b"back ", &payload[..]].concat());
                    }
                });
            }
            Response::new(request.into_body().into())
        }
        "/panic" => panic!("a handler's fault, as the test wants it"),
        _ => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

pub(crate) enum Part {
    Data(&'static str),
    Trailer,
    Error,
}

pub(crate) struct Parts(pub(crate) VecDeque<Part>);

impl http_body::Body for Parts {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, &'static str>>> {
        Poll::Ready(self.0.pop_front().map(|part| match part {
            Part::Data(text) => Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes()))),
            Part::Trailer => {
                let mut fields = HeaderMap::new();
                fields.insert("x-end", HeaderValue::from_static("yes"));
                Ok(http_body::Frame::trailers(fields))
            }
            Part::Error => Err("it breaks off"),
        }))
    }
}

/// Data that is made and read one part at a time.
pub(crate) struct Pipe(tokio::sync::mpsc::Receiver<Bytes>);

impl http_body::Body for Pipe {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let part = self.0.poll_recv(cx);
        part.map(|part| part.map(|data| Ok(http_body::Frame::data(data))))
    }
}

pub(crate) fn pipe() -> (tokio::sync::mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    (sender, Body::stream(Pipe(receiver)))
}

/// Asks a server until a request was early data.
pub(crate) fn early_data_is_taken_from(port: u16) {
    on_worker(move || async move {
        let client = client(|_| {});
        let about = format!("https://localhost:{port}/about");
        let mut said = Bytes::new();
        for _ in 0..20 {
            let response = client.get(&about).await.unwrap();
            (said, _) = response.into_body().collect_up_to(100).await.unwrap();
            if said == "GET HTTP/3.0 early=true" {
                return;
            }
            client.close(LONG).await;
        }
        panic!("never early: {said:?}");
    });
}

/// Has a tunnel and datagrams through a server, from one address after another.
pub(crate) fn a_tunnel_follows_to(port: u16) {
    on_worker(move || async move {
        let client = client(|_| {});
        let (sender, body) = pipe();
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(format!("https://localhost:{port}/tunnel"))
            .extension(Protocol("echo".into()))
            .body(body);
        let response = client.request(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        let datagrams = response.extensions().get::<Datagrams>().cloned().unwrap();
        let mut body = response.into_body();
        for n in 0..4 {
            let part = Bytes::from(format!("part {n}"));
            sender.send(part.clone()).await.unwrap();
            assert_eq!(body.chunk().await.unwrap().unwrap(), part);
            client.rebind().unwrap();
        }
        for _ in 0..50 {
            datagrams.send(b"and").unwrap();
            let wait = tokio::time::timeout(Duration::from_millis(200), datagrams.receive());
            if let Ok(payload) = wait.await {
                assert_eq!(payload.unwrap(), "back and");
                return;
            }
        }
        panic!("no datagram came back");
    });
}
