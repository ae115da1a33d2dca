//! Measures relays beside one another: gt, rathole and frp; and HTTP/3 servers: crate `quic` and quic-go ([`http3`]).
//!
//! A [`lab::Lab`] is a temporary directory with ports to give away; [`peers`] start a relay's two processes in it and say
//! where a visitor knocks; [`load`] and [`visit`] make the visits; [`procstat`] reads what they cost; [`run`] puts these in the
//! order that makes rounds comparable, and [`table`] writes what came out. The soak uses the parts that start processes and
//! read their figures. Nothing here speaks a relay protocol.

pub mod floor;
pub mod http3;
pub mod lab;
pub mod load;
pub mod machine;
pub mod origin;
pub mod peers;
pub mod procstat;
pub mod run;
pub mod table;
pub mod tools;
pub mod visit;
