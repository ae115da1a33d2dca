//! What the first bytes of a connection say: gt link, Host, SNI, ALPN, PROXY protocol. Sans-IO.
