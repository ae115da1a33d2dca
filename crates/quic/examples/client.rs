//! Asks for a page over HTTP/3, or what works, and writes it to the standard output.
//!
//! `cargo run -p quic --example client -- https://localhost:4433/ [--insecure]`

use std::io::Write as _;

use net::tls::{TlsClientOptions, Trust};
use quic::http::{Client, ClientOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let uri = given.first().ok_or("which address?")?;
    let mut options = ClientOptions::default();
    if given.iter().any(|flag| flag == "--insecure") {
        options.tls = TlsClientOptions {
            trust: Trust::InsecureNoVerification,
            ..TlsClientOptions::default()
        };
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())?;
    runtime.block_on(async {
        let client = Client::with(options)?;
        let response = client.get(uri).await?;
        eprintln!("{:?} {}", response.version(), response.status());
        let mut body = response.into_body();
        while let Some(part) = body.chunk().await? {
            std::io::stdout().write_all(&part)?;
        }
        client.close(std::time::Duration::from_secs(1)).await;
        Ok(())
    })
}
