//! A server on HTTP/3, 2 and 1.1: says hello, and sends back what is posted to it.
//!
//! `cargo run -p quic --example server -- 127.0.0.1:4433 [CERTIFICATE.pem KEY.pem]`; without files it makes a certificate for `localhost`.

use std::{net::SocketAddr, path::Path};

use http::{Method, Request, Response};
use net::tls::{TlsServerOptions, load_certificates, self_signed};
use quic::http::{Body, Received};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let address: SocketAddr = given
        .first()
        .map_or("127.0.0.1:4433", |text| text)
        .parse()?;
    let certificate = match (given.get(1), given.get(2)) {
        (Some(certificate), Some(key)) => {
            load_certificates(Path::new(certificate), Path::new(key))?
        }
        _ => self_signed(&["localhost".into()])?,
    };
    let tls = TlsServerOptions {
        certificates: vec![certificate],
        ..TlsServerOptions::default()
    };
    let serving = quic::serve(address, tls, answer)?;
    println!("https://{}", serving.local_addr());
    serving.wait();
    Ok(())
}

async fn answer(request: Request<Received>) -> Response<Body> {
    match *request.method() {
        // The body goes back as it comes.
        Method::POST | Method::PUT => Response::new(request.into_body().into()),
        _ => Response::new(format!("Hello over {:?}.\n", request.version()).into()),
    }
}
