//! kcptun's client: takes TCP connections and carries them over KCP to a kcptun server, this one's or Go's.
//!
//!     cargo run --release -p kcp --example kcptun_client -- -r SERVER:29900 -l 127.0.0.1:12948 -key SECRET -mode fast3

mod kcptun;

use kcptun::{client::Client, options::ClientOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let options = ClientOptions::from_args(std::env::args().collect()).unwrap_or_else(|e| e.exit());
    Client::bind(options).await?.run().await;
    Ok(())
}
