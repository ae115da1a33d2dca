//! A reverse proxy in forty lines: visitors over HTTP/3, 2 and 1.1, one server behind it. (`gt proxy` is the one with routes, health and limits.)
//!
//! `cargo run -p quic --example reverse_proxy -- 127.0.0.1:4433 https://example.com`

use std::net::SocketAddr;

use http::{Request, Response, StatusCode, Uri, header};
use net::tls::{TlsServerOptions, self_signed};
use quic::http::{Body, Client, Received};

thread_local! {
    // Connections to the server are each thread's own.
    static CLIENT: Option<Client> = Client::new().ok();
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut given = std::env::args().skip(1);
    let address: SocketAddr = given.next().ok_or("which address?")?.parse()?;
    let server: Uri = given.next().ok_or("which server?")?.parse()?;
    let tls = TlsServerOptions {
        certificates: vec![self_signed(&["localhost".into()])?],
        ..TlsServerOptions::default()
    };
    let serving = quic::serve(address, tls, move |request| {
        pass_on(server.clone(), request)
    })?;
    println!("https://{}", serving.local_addr());
    serving.wait();
    Ok(())
}

async fn pass_on(server: Uri, request: Request<Received>) -> Response<Body> {
    let asked = async {
        let client = CLIENT.with(Clone::clone)?;
        let (mut parts, body) = request.into_parts();
        let mut uri = server.into_parts();
        uri.path_and_query = parts.uri.into_parts().path_and_query;
        parts.uri = Uri::from_parts(uri).ok()?;
        parts.headers.remove(header::HOST);
        let request = Request::from_parts(parts, body.into());
        client.request(request).await.ok()
    };
    match asked.await {
        Some(response) => response.map(Body::from),
        None => {
            let mut response = Response::new("The server cannot be reached.\n".into());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}
