//! Worker threads, sockets, TLS and WebSocket transports: the only crate that names sockets.
