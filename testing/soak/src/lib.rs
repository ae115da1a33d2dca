//! Long seeded load with kills, against a gt server with three clients.
//!
//! `relay` starts the processes, each client's link going through a `forwarder` that can cut or freeze it; `service`s stand
//! behind the clients; `visitor`s make transfers whose every byte is a `pattern` of their seed; `chaos` kills links, services and
//! clients and writes into the `ledger` when and whom, which decides whether a transfer had the right to fail. `run` puts them
//! together and checks what is left when all is quiet. `reload` kills nothing: supervised processes of all three kinds are reloaded
//! instead, and nothing may be lost. `paths` kills nothing either: clients that choose among several ways get other addresses, and UDP is blocked for a
//! while. Which visits are made follows from the seed; how they meet in time
//! does not.

pub mod acceptor;
pub mod chaos;
pub mod forwarder;
pub mod ledger;
pub mod metrics;
pub mod paths;
pub mod pattern;
pub mod quiet;
pub mod relay;
pub mod reload;
pub mod rng;
pub mod run;
pub mod service;
pub mod tally;
pub mod visitor;
