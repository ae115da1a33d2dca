//! Option tables of a proxy's upstreams.

use super::{form::*, *};

/// One of `upstreams`.
pub static UPSTREAM: Table = Table {
    name: "upstream",
    options: &[
        Opt {
            list: true,
            ..opt(
                "servers",
                Kind::Short(&SERVER_ENTRY),
                "",
                "Its servers; an address alone is enough.",
            )
        },
        opt(
            "balance",
            Kind::Choice(&[
                "round-robin",
                "least-connections",
                "two-choices",
                "peak-ewma",
                "hash",
            ]),
            "round-robin",
            "How a server is chosen; round-robin is the smooth weighted one.",
        ),
        opt(
            "hashKey",
            Kind::Form(&HASH_KEY),
            "ip",
            "For hash: ip, header:NAME or cookie:NAME.",
        ),
        opt(
            "hashLoad",
            count(101, 1000),
            "",
            "For hash: no server gets more than this many per cent of its share.",
        ),
        opt(
            "sticky",
            Kind::Short(&STICKY),
            "",
            "Visitors stay with their server by a cookie; its name alone is enough.",
        ),
        opt(
            "slowStart",
            at_least(100, true),
            "0",
            "A server that came back gets its share over this time.",
        ),
        opt(
            "protocol",
            Kind::Choice(&["http1", "h2c", "h2", "auto"]),
            "http1",
            "What is spoken with its servers; auto is what TLS agrees on.",
        ),
        opt(
            "tls",
            Kind::Section(&UPSTREAM_TLS),
            "",
            "TLS to its servers; {} is enough, the certificate is verified.",
        ),
        opt(
            "proxyProtocol",
            Kind::Choice(&["v1", "v2"]),
            "",
            "Tell the servers the visitor's address with this header.",
        ),
        opt(
            "keepAlive",
            Kind::Section(&KEEP_ALIVE),
            "",
            "Connections that are kept for later requests.",
        ),
        opt(
            "health",
            Kind::Section(&HEALTH),
            "",
            "Checks of its servers; {} is enough for TCP checks.",
        ),
        opt(
            "ejection",
            Kind::Section(&EJECTION),
            "",
            "Servers whose requests fail are left out for a while.",
        ),
        opt(
            "maxRequests",
            count(1, 1_000_000),
            "10000",
            "Requests under way at one time, per worker.",
        ),
        opt(
            "queue",
            count(0, 65_536),
            "1024",
            "Requests that wait when there are maxRequests, per worker; the rest gets 503.",
        ),
        opt(
            "queueTimeout",
            at_most(300_000),
            "5s",
            "How long a request waits.",
        ),
        opt(
            "retryPercent",
            count(0, 100),
            "20",
            "Retries per hundred requests of the last 10 s; 10 are always allowed.",
        ),
    ],
};

/// One of `servers`.
pub static SERVER_ENTRY: Table = Table {
    name: "upstream server",
    options: &[
        opt(
            "addr",
            Kind::Form(&SERVER_ADDR),
            "",
            "HOST:PORT, http://HOST, https://HOST or unix:/PATH.",
        ),
        opt(
            "weight",
            count(0, 1000),
            "1",
            "Its share; 0 = only visitors whose sticky cookie names it.",
        ),
        opt(
            "backup",
            Kind::Bool,
            "false",
            "Used only when no other server is available.",
        ),
        opt("down", Kind::Bool, "false", "Not used."),
        opt(
            "maxConnections",
            count(1, 1_000_000),
            "",
            "Requests under way at one time, per worker.",
        ),
    ],
};

/// `sticky`.
pub static STICKY: Table = Table {
    name: "sticky cookie",
    options: &[
        opt("cookie", Kind::Form(&TOKEN), "gt", "Name of the cookie."),
        opt(
            "secret",
            Kind::Secret,
            "",
            "Key of its value; several proxies with one key share visitors.",
        ),
        opt(
            "maxAge",
            at_least(1000, true),
            "0",
            "How long browsers keep it; 0 = until they are closed.",
        ),
    ],
};

/// `tls` of an upstream.
pub static UPSTREAM_TLS: Table = Table {
    name: "upstream tls",
    options: &[
        opt(
            "verify",
            Kind::Bool,
            "true",
            "Verify the server's certificate.",
        ),
        opt(
            "ca",
            Kind::Path,
            "",
            "Believe only certificates that one of these has signed, PEM.",
        ),
        opt(
            "serverName",
            Kind::HostName,
            "",
            "The name in the certificate; without it, the server's host.",
        ),
        opt(
            "certFile",
            Kind::Path,
            "",
            "Certificate chain to show, PEM.",
        ),
        opt("keyFile", Kind::Path, "", "Private key of certFile, PEM."),
    ],
};

/// `keepAlive`.
pub static KEEP_ALIVE: Table = Table {
    name: "keep-alive",
    options: &[
        opt(
            "connections",
            count(0, 65_536),
            "256",
            "Idle connections per server and worker; 0 = a new one for each request.",
        ),
        opt(
            "idle",
            at_most(3_600_000),
            "30s",
            "Close an idle connection after this; less than the server's own time.",
        ),
        opt(
            "requests",
            count(1, u32::MAX as u64),
            "1000000",
            "Requests on one connection.",
        ),
    ],
};

/// `health`.
pub static HEALTH: Table = Table {
    name: "health check",
    options: &[
        opt(
            "type",
            Kind::Choice(&["tcp", "http"]),
            "",
            "What is checked; without it, http where there is a path, else tcp.",
        ),
        opt(
            "path",
            Kind::Form(&PLAIN_PATH),
            "",
            "For http: GET this path.",
        ),
        opt(
            "host",
            Kind::Form(&TEXT_LINE),
            "",
            "For http: what Host says; without it, the server's address.",
        ),
        list(
            "status",
            Kind::Form(&STATUS_RANGE),
            "200-399",
            "For http: statuses that are good.",
        ),
        opt(
            "port",
            Kind::Port,
            "",
            "Check this port instead of the server's own.",
        ),
        opt(
            "interval",
            at_most(3_600_000),
            "2s",
            "From one check to the next, give or take a tenth.",
        ),
        opt("timeout", at_most(300_000), "2s", "For one check."),
        opt(
            "fall",
            count(1, 100),
            "3",
            "Bad checks in a row that take a server out.",
        ),
        opt(
            "rise",
            count(1, 100),
            "2",
            "Good checks in a row that bring it back.",
        ),
    ],
};

/// `ejection`.
pub static EJECTION: Table = Table {
    name: "ejection",
    options: &[
        opt(
            "failures",
            count(0, 1000),
            "5",
            "Failed requests in a row (5xx, no connection) that eject a server; 0 = never.",
        ),
        opt("time", at_least(100, false), "30s", "Time outside."),
        opt(
            "maxPercent",
            count(0, 100),
            "50",
            "Of all servers, at most this many per cent are out, rounded down.",
        ),
    ],
};
