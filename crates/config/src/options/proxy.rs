//! Option tables of a reverse proxy: a file of its own, and the `proxy` section, which a server's file may have as well.

use super::{form::*, server::CERTIFICATE, *};

/// Top level of a proxy's file.
pub static PROXY_FILE: Table = Table {
    name: "proxy file",
    options: &[
        opt(
            "type",
            TYPES,
            "",
            "What the file configures; may be absent when the command says it.",
        ),
        VERSION,
        opt(
            "options",
            Kind::Section(&PROXY_OPTIONS),
            "",
            "The options of the process, and the quick form.",
        ),
        PROXY_SECTION,
        sections(
            "apps",
            &APP,
            "Applications as NiubiX writes them; the same as listeners, upstreams and routes.",
        ),
    ],
};

/// `proxy`, in a proxy's and in a server's file.
pub(super) const PROXY_SECTION: Opt = opt(
    "proxy",
    Kind::Section(&PROXY),
    "",
    "Where the reverse proxy listens, and what goes where.",
);

/// `options` of a proxy.
pub static PROXY_OPTIONS: Table = Table {
    name: "proxy options",
    options: &[
        list(
            "listen",
            Kind::Listen { loopback: false },
            "",
            "Quick form: listen here; HTTPS where there is a certFile, else HTTP.",
        ),
        list(
            "to",
            Kind::Form(&SERVER_ADDR),
            "",
            "Quick form: servers that share all requests.",
        ),
        opt(
            "certFile",
            Kind::Path,
            "",
            "Quick form: certificate chain, PEM.",
        ),
        opt(
            "keyFile",
            Kind::Path,
            "",
            "Quick form: private key of certFile, PEM.",
        ),
        opt(
            "apiAddr",
            Kind::Listen { loopback: true },
            "",
            "Listen here for the API; a bare port means 127.0.0.1.",
        ),
        API_PASSWORD,
        API_PASSWORD_FILE,
        API_HOSTS,
        WORKERS,
        LOG_FILE,
        LOG_MAX_SIZE,
        LOG_MAX_COUNT,
        LOG_LEVEL,
        LOG_FORMAT,
    ],
};

/// `proxy`.
pub static PROXY: Table = Table {
    name: "proxy",
    options: &[
        sections("listeners", &LISTENER, "Where visitors come in."),
        opt(
            "upstreams",
            Kind::Named(&UPSTREAM),
            "",
            "Servers that do the work, in groups with a name.",
        ),
        sections(
            "routes",
            &ROUTE,
            "What goes where; the most specific route wins, wherever it stands.",
        ),
        list(
            "trustedProxies",
            Kind::Network,
            "",
            "Proxies in front, whose forwarding fields are believed.",
        ),
        opt(
            "clientIP",
            Kind::Choice(&["x-forwarded-for", "forwarded", "x-real-ip"]),
            "x-forwarded-for",
            "The field in which trusted proxies name the visitor.",
        ),
        opt(
            "xForwardedFor",
            Kind::Bool,
            "true",
            "Write X-Forwarded-For.",
        ),
        opt(
            "xForwardedProto",
            Kind::Bool,
            "true",
            "Write X-Forwarded-Proto.",
        ),
        opt(
            "xForwardedHost",
            Kind::Bool,
            "true",
            "Write X-Forwarded-Host.",
        ),
        opt("xRealIP", Kind::Bool, "true", "Write X-Real-IP."),
        opt(
            "forwarded",
            Kind::Bool,
            "false",
            "Write Forwarded (RFC 7239).",
        ),
        opt(
            "via",
            Kind::Bool,
            "false",
            "Write Via, in requests and responses.",
        ),
        opt(
            "accessLog",
            Kind::Short(&ACCESS_LOG),
            "",
            "Log every exchange; the path of the file alone is enough.",
        ),
        opt(
            "limits",
            Kind::Section(&LIMITS),
            "",
            "Sizes, for routes that do not set their own.",
        ),
        opt(
            "timeouts",
            Kind::Section(&TIMEOUTS),
            "",
            "Times, for routes that do not set their own.",
        ),
    ],
};

/// `accessLog`.
pub static ACCESS_LOG: Table = Table {
    name: "access log",
    options: &[
        opt(
            "path",
            Kind::Path,
            "",
            "The file; made if it is not there, appended to.",
        ),
        opt(
            "format",
            Kind::Choice(&["combined", "json"]),
            "combined",
            "Lines as nginx's combined with more behind them, or one JSON object per line.",
        ),
        opt(
            "sample",
            count(1, 1_000_000),
            "1",
            "Of so many exchanges one is logged, counted per worker.",
        ),
        opt(
            "buffer",
            Kind::Size,
            "4MiB",
            "Lines that may wait for the disk; 64 KiB to 1 GiB. What comes on top is lost and counted.",
        ),
    ],
};

/// One of `listeners`.
pub static LISTENER: Table = Table {
    name: "listener",
    options: &[
        opt("addr", Kind::Listen { loopback: false }, "", "Listen here."),
        opt(
            "name",
            Kind::Text,
            "",
            "Name by which routes ask for it; without it, its address.",
        ),
        opt(
            "protocol",
            Kind::Choice(&["http", "https", "tcp", "tls"]),
            "",
            "tls passes TLS through by server name. Without it: https where there is a certificate, else http.",
        ),
        opt("certFile", Kind::Path, "", "Certificate chain, PEM."),
        opt("keyFile", Kind::Path, "", "Private key of certFile, PEM."),
        sections(
            "certificates",
            &CERTIFICATE,
            "More certificates, chosen by server name.",
        ),
        opt(
            "tlsVersion",
            Kind::Choice(&["1.2", "1.3", "tls1.2", "tls1.3"]),
            "1.2",
            "Oldest TLS version that is accepted.",
        ),
        opt(
            "clientCA",
            Kind::Path,
            "",
            "Visitors need a certificate that one of these has signed, PEM.",
        ),
        opt(
            "clientCertOptional",
            Kind::Bool,
            "false",
            "With clientCA: visitors without a certificate may come too.",
        ),
        opt(
            "http2",
            Kind::Bool,
            "true",
            "HTTP/2, by ALPN for https and by prior knowledge for http.",
        ),
        opt(
            "to",
            Kind::Form(&TARGET),
            "",
            "For tcp and tls: the upstream, or a server.",
        ),
        opt(
            "timeouts",
            Kind::Section(&TIMEOUTS),
            "",
            "For tcp and tls: header (to say the server name), connect and tunnel (silence); without it, those of the proxy.",
        ),
        list(
            "proxyProtocol",
            Kind::Network,
            "",
            "Load balancers in front that send a PROXY header (v1 or v2); from these it is required.",
        ),
    ],
};

/// One of `apps`, with NiubiX's names.
pub static APP: Table = Table {
    name: "app",
    options: &[
        opt(
            "name",
            Kind::Text,
            "",
            "Its name; that of its upstream and its route.",
        ),
        opt(
            "listen",
            Kind::Listen { loopback: false },
            "",
            "Listen here; apps may share an address.",
        ),
        opt(
            "protocol",
            Kind::Choice(&["http", "https", "tcp"]),
            "http",
            "What visitors speak.",
        ),
        opt(
            "certFile",
            Kind::Path,
            "",
            "For https: certificate chain, PEM.",
        ),
        opt(
            "keyFile",
            Kind::Path,
            "",
            "For https: private key of certFile, PEM.",
        ),
        opt(
            "http_host",
            Kind::Form(&HOST_PATTERN),
            "",
            "The host; default = all.",
        ),
        opt(
            "balance_policy",
            Kind::Choice(&["roundrobin", "random", "iphash"]),
            "roundrobin",
            "round-robin, two-choices, or hash by ip.",
        ),
        opt(
            "backend_protocol",
            Kind::Choice(&["http"]),
            "http",
            "What is spoken with backends.",
        ),
        opt(
            "connect_backend_timeout",
            count(100, 300_000),
            "2000",
            "Milliseconds: timeouts.connect.",
        ),
        opt(
            "frontend_a_complete_req_timeout",
            count(100, 300_000),
            "5000",
            "Milliseconds: timeouts.header.",
        ),
        opt(
            "frontend_idle_timeout",
            count(100, 86_400_000),
            "10000",
            "Milliseconds: timeouts.keepAlive.",
        ),
        opt(
            "x-forwarded-for",
            Kind::Bool,
            "true",
            "Write X-Forwarded-For; the same for all apps.",
        ),
        opt(
            "x-real-ip",
            Kind::Bool,
            "true",
            "Write X-Real-IP; the same for all apps.",
        ),
        sections("backends", &BACKEND, "The servers."),
    ],
};

/// One of an app's `backends`.
pub static BACKEND: Table = Table {
    name: "backend",
    options: &[
        opt("host", Kind::Form(&SERVER_ADDR), "", "HOST:PORT."),
        opt("weight", count(0, 1000), "1", "Its share."),
        opt("down", Kind::Bool, "false", "Not used."),
        opt(
            "health_check_uri",
            Kind::Form(&PLAIN_PATH),
            "",
            "GET this path; 200 is good. Empty = no checks. That of the first backend counts.",
        ),
        opt(
            "health_check_period",
            count(0, 3_600_000),
            "",
            "Milliseconds: health.interval; 0 = no checks.",
        ),
        opt(
            "health_check_timeout",
            count(100, 300_000),
            "",
            "Milliseconds: health.timeout.",
        ),
    ],
};
