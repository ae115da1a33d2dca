//! Links and sessions over any transport: handshake, streams, keep-alive.
