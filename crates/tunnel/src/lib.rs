//! The relay protocol above the transport: hello, authentication, services, stream headers, control messages. Sans-IO.
