//! HTTP/2 to servers: streams of few connections, trailers, bodies both ways at once, and what a server may say against a request.

mod common;

use std::{
    io::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use bytes::Bytes;
use common::*;
use h2::{
    Reason, RecvStream, SendStream, client,
    server::{Connection, SendResponse},
};
use http::{HeaderMap, Method, Request, Response};
use proxy::{Proxy, ServerProtocol};
use tokio::net::{TcpListener, TcpStream};

type Failure = Box<dyn std::error::Error>;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A server that speaks HTTP/2 at once; `serve` gets each connection with its number. Serves until the test process ends.
fn origin<F, Fut>(serve: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(TcpStream, usize) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), Failure>> + 'static,
{
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("not blocking");
    let address = listener.local_addr().expect("an address");
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    thread::spawn(move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime(), async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serve(stream, count.fetch_add(1, SeqCst));
                tokio::task::spawn_local(async move {
                    let _ = serving.await;
                });
            }
        });
    });
    (address, accepted)
}

/// A proxy with one route to it.
fn before(address: SocketAddr) -> Proxy {
    let mut app = upstream(vec![server(address)]);
    app.protocol = ServerProtocol::Http2;
    start(site(route(), vec![app]))
}

/// Answers every request of a connection in a task of its own.
async fn serve_each<F, Fut>(
    mut connection: Connection<TcpStream, Bytes>,
    answer: F,
) -> Result<(), Failure>
where
    F: Fn(Request<RecvStream>, SendResponse<Bytes>) -> Fut,
    Fut: Future<Output = Result<(), Failure>> + 'static,
{
    while let Some(request) = connection.accept().await {
        let (request, respond) = request?;
        let answer = answer(request, respond);
        tokio::task::spawn_local(async move {
            let _ = answer.await;
        });
    }
    Ok(())
}

/// Sends back each piece when it comes, and says at the end how many bytes there were.
async fn echo(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), Failure> {
    let seen = format!(
        "{} {} te={:?} host={:?}",
        request.method(),
        request.uri(),
        request.headers().get("te"),
        request.headers().get("host")
    );
    let head = Response::builder().header("x-seen", seen).body(())?;
    let mut out = respond.send_response(head, false)?;
    let mut body = request.into_body();
    let mut length = 0;
    while let Some(data) = body.data().await {
        let data = data?;
        length += data.len();
        body.flow_control().release_capacity(data.len())?;
        send(&mut out, data).await?;
    }
    let sent = body.trailers().await?.unwrap_or_default();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse()?);
    trailers.insert("x-length", length.to_string().parse()?);
    if let Some(value) = sent.get("x-from-visitor") {
        trailers.insert("x-back", value.clone());
    }
    out.send_trailers(trailers)?;
    Ok(())
}

/// Sends within the peer's window.
async fn send(out: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), Failure> {
    while !bytes.is_empty() {
        out.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| out.poll_capacity(cx));
        let room = room.await.ok_or("reset")??;
        out.send_data(bytes.split_to(room.min(bytes.len())), false)?;
    }
    Ok(())
}

/// Runs `visit` with an HTTP/2 connection to the proxy.
fn visit<F: Future<Output = Result<(), Failure>>>(
    proxy: &Proxy,
    visit: impl FnOnce(client::SendRequest<Bytes>) -> F,
) {
    let address = proxy.addresses()[0];
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime(), async {
        let stream = TcpStream::connect(address).await.expect("connected");
        let (sender, connection) = client::handshake(stream).await.expect("a handshake");
        tokio::task::spawn_local(async move {
            let _ = connection.await;
        });
        let visited = tokio::time::timeout(PATIENCE, visit(sender)).await;
        visited.expect("in time").expect("no failure");
    });
}

fn post(path: &str) -> Request<()> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://app.test{path}"))
        .header("te", "trailers")
        .body(())
        .expect("a request")
}

async fn piece(body: &mut RecvStream) -> Result<Bytes, Failure> {
    let data = body.data().await.ok_or("no more")??;
    body.flow_control().release_capacity(data.len())?;
    Ok(data)
}

#[test]
fn a_call_streams_both_ways_at_once_and_ends_with_trailers() {
    let (address, _) =
        origin(async |stream, _| serve_each(h2::server::handshake(stream).await?, echo).await);
    let proxy = before(address);
    visit(&proxy, async |sender| {
        let mut sender = sender.ready().await?;
        let (answer, mut out) = sender.send_request(post("/pkg.Service/Call?x=1"), false)?;
        out.send_data(Bytes::from_static(b"first"), false)?;
        // The answer begins although the request goes on.
        let answer = answer.await?;
        assert_eq!(
            answer.headers()["x-seen"],
            "POST http://app.test/pkg.Service/Call?x=1 te=Some(\"trailers\") host=None"
        );
        let mut body = answer.into_body();
        assert_eq!(piece(&mut body).await?, "first");
        for n in 0..50 {
            let message = format!("message {n}");
            out.send_data(message.clone().into(), false)?;
            assert_eq!(piece(&mut body).await?, message);
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-from-visitor", "yes".parse()?);
        out.send_trailers(trailers)?;
        assert!(body.data().await.is_none());
        let trailers = body.trailers().await?.ok_or("no trailers")?;
        assert_eq!(trailers["grpc-status"], "0");
        assert_eq!(trailers["x-back"], "yes");
        Ok(())
    });
}

#[test]
fn requests_share_a_connection_also_at_the_same_time() {
    let (address, accepted) =
        origin(async |stream, _| serve_each(h2::server::handshake(stream).await?, echo).await);
    let proxy = before(address);
    visit(&proxy, async |sender| {
        let mut sender = sender.ready().await?;
        // One alone first: several at once would open several.
        let (answer, _) = sender.send_request(post("/"), true)?;
        assert_eq!(answer.await?.status(), 200);
        let mut calls = Vec::new();
        for _ in 0..60 {
            sender = sender.ready().await?;
            calls.push(sender.send_request(post("/"), false)?);
        }
        for (answer, mut out) in calls {
            out.send_data(Bytes::from_static(b"all"), true)?;
            let mut body = answer.await?.into_body();
            assert_eq!(piece(&mut body).await?, "all");
        }
        Ok(())
    });
    assert_eq!(accepted.load(SeqCst), 1);
}

#[test]
fn a_servers_limit_of_streams_is_kept() {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    let (address, accepted) = origin(move |stream, _| {
        let most = Arc::clone(&seen);
        async move {
            let mut builder = h2::server::Builder::new();
            builder.max_concurrent_streams(2);
            let connection = builder.handshake(stream).await?;
            let open = Arc::new(AtomicUsize::new(0));
            serve_each(connection, move |request, respond| {
                most.fetch_max(open.fetch_add(1, SeqCst) + 1, SeqCst);
                let open = Arc::clone(&open);
                async move {
                    let done = echo(request, respond).await;
                    open.fetch_sub(1, SeqCst);
                    done
                }
            })
            .await
        }
    });
    let proxy = before(address);
    visit(&proxy, async |sender| {
        let mut sender = sender.ready().await?;
        let (answer, _) = sender.send_request(post("/"), true)?;
        assert_eq!(answer.await?.status(), 200);
        let mut calls = Vec::new();
        for _ in 0..40 {
            sender = sender.ready().await?;
            calls.push(sender.send_request(post("/"), false)?);
        }
        // Those that have a place end, and the next get theirs.
        let ends = calls.into_iter().map(|(answer, mut out)| async move {
            out.send_data(Bytes::from_static(b"x"), true)?;
            let answer = answer.await?;
            assert_eq!(answer.status(), 200);
            let mut body = answer.into_body();
            while let Some(data) = body.data().await {
                data?;
            }
            Ok::<(), Failure>(())
        });
        let ends: Vec<_> = ends.map(tokio::task::spawn_local).collect();
        for end in ends {
            end.await??;
        }
        Ok(())
    });
    assert!(most.load(SeqCst) <= 2, "more than the server allows");
    assert!(
        accepted.load(SeqCst) <= 8,
        "more connections than there may be"
    );
}

#[test]
fn a_refused_stream_is_sent_again_whatever_its_method() {
    let (address, _) = origin(async |stream, _| {
        let refused = AtomicUsize::new(0);
        serve_each(
            h2::server::handshake(stream).await?,
            move |request, mut respond| {
                let first = refused.fetch_add(1, SeqCst) == 0;
                async move {
                    if first {
                        respond.send_reset(Reason::REFUSED_STREAM);
                        return Ok(());
                    }
                    echo(request, respond).await
                }
            },
        )
        .await
    });
    let proxy = before(address);
    let answer = send_http1(
        &proxy,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(metric(&proxy, "proxy_upstream_retries_total"), 1);
}

#[test]
fn a_reset_stream_is_not_sent_again_where_that_could_do_it_twice() {
    let (address, _) = origin(async |stream, _| {
        serve_each(
            h2::server::handshake(stream).await?,
            async |_, mut respond: SendResponse<Bytes>| {
                respond.send_reset(Reason::INTERNAL_ERROR);
                Ok(())
            },
        )
        .await
    });
    let proxy = before(address);
    let answer = send_http1(
        &proxy,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert_eq!(metric(&proxy, "proxy_upstream_retries_total"), 0);
}

#[test]
fn a_server_that_goes_away_gets_its_requests_on_another_connection() {
    let (address, accepted) = origin(async |stream, _| {
        let mut connection = h2::server::handshake(stream).await?;
        let Some(request) = connection.accept().await else {
            return Ok(());
        };
        let (request, respond) = request?;
        connection.graceful_shutdown();
        tokio::task::spawn_local(async move {
            let _ = echo(request, respond).await;
        });
        while connection.accept().await.is_some() {}
        Ok(())
    });
    let proxy = before(address);
    for _ in 0..5 {
        let answer = send_http1(
            &proxy,
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        );
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(accepted.load(SeqCst) >= 2);
}

#[test]
fn a_visitor_who_does_not_read_holds_no_more_than_the_windows() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let (address, _) = origin(move |stream, _| {
        let count = Arc::clone(&count);
        async move {
            serve_each(
                h2::server::handshake(stream).await?,
                move |_, mut respond| {
                    let count = Arc::clone(&count);
                    async move {
                        let mut out = respond.send_response(Response::new(()), false)?;
                        let block = Bytes::from(vec![0; 16 << 10]);
                        loop {
                            send(&mut out, block.clone()).await?;
                            count.fetch_add(block.len(), SeqCst);
                        }
                    }
                },
            )
            .await
        }
    });
    let proxy = before(address);
    visit(&proxy, async |sender| {
        let mut sender = sender.ready().await?;
        let (answer, _) = sender.send_request(post("/"), true)?;
        let _unread = answer.await?.into_body();
        // Until nothing moves any more.
        let mut before = usize::MAX;
        while before != sent.load(SeqCst) {
            before = sent.load(SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        assert!(before < 2 << 20, "{before} bytes were taken for nobody");
        Ok(())
    });
}

#[test]
fn head_and_no_content_have_no_body() {
    let (address, _) = origin(async |stream, _| {
        serve_each(
            h2::server::handshake(stream).await?,
            async |request: Request<RecvStream>, mut respond: SendResponse<Bytes>| {
                let answer = match request.uri().path() {
                    "/204" => Response::builder().status(204).body(())?,
                    _ => Response::builder().header("content-length", "5").body(())?,
                };
                respond.send_response(answer, true)?;
                Ok(())
            },
        )
        .await
    });
    let proxy = before(address);
    let answer = send_http1(&proxy, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").to_ascii_lowercase();
    assert!(answer.contains("content-length: 5\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    let answer = send_http1(&proxy, "GET /204 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn a_server_that_speaks_no_http2_is_a_bad_gateway() {
    let origin = Origin::new(|stream, _| drop(stream));
    let proxy = before(origin.address);
    let answer = send_http1(&proxy, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
}

/// One request on a connection that is closed behind it; the whole answer as text.
fn send_http1(proxy: &Proxy, request: &str) -> String {
    use std::io::{Read, Write};
    let request = request.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
    let mut stream = std::net::TcpStream::connect(proxy.addresses()[0]).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Their bodies wait on one connection to the server, whose window all streams share.
#[test]
fn visitors_who_do_not_read_stop_nobody_on_the_same_connection() {
    const SILENT: usize = 40;
    let (address, accepted) = origin(async |stream, _| {
        let answer = async |request: Request<RecvStream>, mut respond: SendResponse<Bytes>| {
            let mut out = respond.send_response(Response::new(()), false)?;
            let length = match request.uri().path() {
                "/large" => 64 << 20,
                _ => 5,
            };
            let mut left = length;
            while left > 0 {
                let part = Bytes::from(vec![b'x'; left.min(64 << 10)]);
                left -= part.len();
                send(&mut out, part).await?;
            }
            out.send_data(Bytes::new(), true)?;
            Ok(())
        };
        serve_each(h2::server::handshake(stream).await?, answer).await
    });
    let proxy = before(address);
    let mut silent: Vec<_> = (0..SILENT).map(|_| connect(&proxy)).collect();
    for visitor in &mut silent {
        let request = b"GET /large HTTP/1.1\r\nHost: app.test\r\n\r\n";
        visitor.write_all(request).expect("sent");
        assert!(read_head(visitor).is_some());
    }
    // Until nothing moves any more for those who are silent: what is asked for then has only what they have left.
    let received = || metric(&proxy, "proxy_upstream_connects_total");
    let before = received();
    for _ in 0..20 {
        let mut visitor = connect(&proxy);
        let request = b"GET /small HTTP/1.1\r\nHost: app.test\r\n\r\n";
        visitor.write_all(request).expect("sent");
        let answer = read_message(&mut visitor).expect("an answer");
        assert!(text(&answer).contains("xxxxx"), "{}", text(&answer));
        thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(received(), before, "another connection was opened");
    assert!(accepted.load(SeqCst) <= 4);
}
