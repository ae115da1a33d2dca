//! The reverse proxy among programs of others: what it passes on means the same to all of them, and their own test suites find nothing.
//!
//! ```text
//!  framing.yml ─► wire (HTTP/1, HTTP/2) ─► gt proxy, nginx, HAProxy ─► recorder, origins (gunicorn, aiohttp, node, Go, nginx, Apache, …)
//!  h2spec, varnishtest, slowhttptest, scripted WebSocket visitors ─► gt proxy ─► a service
//! ```
//!
//! The programs' side is in `testing/interop/zoo`, with how to replay one case. A program that is missing fails the test that needs it. Long forms are ignored
//! tests, run by `make interop-proxy`.

mod autobahn;
mod corpus;
mod expand;
mod framing;
mod h2spec;
mod origins;
mod proxies;
mod recorder;
mod score;
mod slow;
mod tools;
mod vtest;
mod websocket;
mod wire;
mod ws_cases;
