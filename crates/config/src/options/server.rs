//! Option tables of a server.

use super::*;

/// Top level of a server's file.
pub static SERVER: Table = Table {
    name: "server",
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
            Kind::Section(&SERVER_OPTIONS),
            "",
            "The options of the server.",
        ),
        opt(
            "users",
            Kind::Named(&USER),
            "",
            "Clients that may come, by id.",
        ),
        Opt {
            list: true,
            ..opt(
                "tcp",
                Kind::Section(&TCP),
                "",
                "TCP ports that clients may use.",
            )
        },
        opt(
            "host",
            Kind::Section(&HOST),
            "",
            "Host prefixes and names that clients may claim.",
        ),
        super::proxy::PROXY_SECTION,
    ],
};

/// `options` of a server.
pub static SERVER_OPTIONS: Table = Table {
    name: "server options",
    options: &[
        opt(
            "addr",
            Kind::Listen { loopback: false },
            "",
            "Listen here for HTTP visitors and for tcp:// and ws:// clients.",
        ),
        opt(
            "tlsAddr",
            Kind::Listen { loopback: false },
            "",
            "Listen here for HTTPS visitors and for tls:// and wss:// clients.",
        ),
        opt(
            "certFile",
            Kind::Path,
            "",
            "Certificate chain for tlsAddr, PEM.",
        ),
        opt("keyFile", Kind::Path, "", "Private key of certFile, PEM."),
        Opt {
            list: true,
            ..opt(
                "certificates",
                Kind::Section(&CERTIFICATE),
                "",
                "More certificates for tlsAddr, chosen by server name.",
            )
        },
        opt(
            "tlsVersion",
            Kind::Choice(&["1.2", "1.3", "tls1.2", "tls1.3"]),
            "1.2",
            "Oldest TLS version that is accepted.",
        ),
        opt(
            "sniAddr",
            Kind::Listen { loopback: false },
            "",
            "Listen here for TLS that is passed through by server name.",
        ),
        opt(
            "kcpAddr",
            Kind::Listen { loopback: false },
            "",
            "Listen here, on UDP, for kcp:// clients.",
        ),
        opt(
            "quicAddr",
            Kind::Listen { loopback: false },
            "",
            "Listen here, on UDP, for quic:// clients; certFile and keyFile are needed.",
        ),
        opt(
            "http3",
            Kind::Bool,
            "false",
            "Serve HTTP/3 visitors on UDP too, at the address of tlsAddr; quicAddr may be the same.",
        ),
        BBR,
        UDP_FEC,
        KCP_MODE,
        KCP_FEC,
        KCP_MTU,
        opt(
            "apiAddr",
            Kind::Listen { loopback: true },
            "",
            "Listen here for the API; a bare port means 127.0.0.1.",
        ),
        opt(
            "apiCertFile",
            Kind::Path,
            "",
            "Certificate chain for apiAddr, PEM.",
        ),
        opt(
            "apiKeyFile",
            Kind::Path,
            "",
            "Private key of apiCertFile, PEM.",
        ),
        API_PASSWORD,
        API_PASSWORD_FILE,
        API_HOSTS,
        list(
            "id",
            Kind::Id,
            "",
            "Ids that may come, each with the secret at the same position.",
        ),
        list("secret", Kind::Secret, "", "Secrets of the ids."),
        list(
            "secretFile",
            Kind::Path,
            "",
            "Files that hold the secrets of the ids, instead of secret.",
        ),
        opt(
            "users",
            Kind::NamedOrPath(&USER),
            "",
            "File with clients that may come, or the clients themselves.",
        ),
        opt(
            "authAPI",
            Kind::Url,
            "",
            "Ask this service about ids that are not configured.",
        ),
        opt(
            "allowAnyClient",
            Kind::Bool,
            "false",
            "Accept every id with any secret.",
        ),
        opt(
            "tcpNumber",
            count(0, 65_535),
            "0",
            "Ports one client may hold at one time; 0 = as many as its ranges have.",
        ),
        list(
            "tcpRange",
            Kind::PortRange,
            "",
            "Ports that clients may use; without it, none.",
        ),
        opt(
            "hostNumber",
            count(0, 100_000),
            "0",
            "Host prefixes and names one client may hold; 0 = no limit.",
        ),
        list(
            "hostRegex",
            Kind::Regex,
            "",
            "A prefix or name must match one of these (anchor with ^ and $).",
        ),
        opt(
            "hostWithID",
            Kind::Bool,
            "false",
            "Put the client's id and a hyphen before each of its prefixes.",
        ),
        opt(
            "speed",
            Kind::Speed,
            "0",
            "Bytes per second for one client in each direction; 0 = not limited.",
        ),
        opt(
            "connections",
            count(1, 1000),
            "10",
            "Links one client may hold; with loadBalance also how many clients with one id.",
        ),
        opt(
            "streams",
            count(1, 1_000_000),
            "65536",
            "Visitor connections one client may hold at one time.",
        ),
        opt(
            "loadBalance",
            Kind::Bool,
            "false",
            "Two clients with one id both serve; otherwise the newer is refused.",
        ),
        opt(
            "reconnectTimes",
            count(0, 1_000_000),
            "3",
            "Failed authentications before one is shut out; 0 = never.",
        ),
        opt(
            "reconnectDuration",
            at_least(1000, true),
            "5m",
            "How long one is shut out.",
        ),
        opt(
            "httpMUXHeader",
            Kind::HeaderName,
            "Host",
            "Request header by whose value visitors are routed.",
        ),
        opt(
            "timeout",
            at_least(1000, true),
            "90s",
            "Close visitor connections that are silent for this long; 0 = never.",
        ),
        opt(
            "timeoutOnUnidirectionalTraffic",
            Kind::Bool,
            "false",
            "For timeout, one silent direction is enough.",
        ),
        opt(
            "handshakeTimeout",
            at_most(300_000),
            "10s",
            "Time for a client to authenticate.",
        ),
        opt(
            "headerTimeout",
            at_most(300_000),
            "10s",
            "Time for a visitor to send the first header block or ClientHello.",
        ),
        opt(
            "pendingConnections",
            count(0, 1_000_000),
            "16384",
            "Connections that may be there without having shown what they are; 0 = no limit.",
        ),
        opt(
            "pendingPerAddress",
            count(0, 1_000_000),
            "1024",
            "The same for one address (IPv6: one /64); 0 = no limit, as behind a load balancer.",
        ),
        opt(
            "statusHostPrefix",
            Kind::HostPrefix,
            "",
            "Show a status page under this host prefix to everyone (docs/operation.md).",
        ),
        WORKERS,
        LOG_FILE,
        LOG_MAX_SIZE,
        LOG_MAX_COUNT,
        LOG_LEVEL,
        LOG_FORMAT,
        ignored("stunAddr", "Listen here for STUN."),
        WEB_ADDR,
        WEB_CERT_FILE,
        WEB_KEY_FILE,
        ADMIN,
        PASSWORD,
        SIGNING_KEY,
        SENTRY,
    ],
};

/// One client that may come, under `users`. What is absent is taken from the server.
pub static USER: Table = Table {
    name: "user",
    options: &[
        opt(
            "secret",
            Kind::Secret,
            "",
            "The secret that the client and the server know.",
        ),
        opt("secretFile", Kind::Path, "", "File that holds the secret."),
        Opt {
            list: true,
            ..opt(
                "tcp",
                Kind::Section(&TCP),
                "",
                "Ports that this client may use.",
            )
        },
        opt(
            "tcpNumber",
            count(0, 65_535),
            "0",
            "Ports it may hold at one time; 0 = as many as its ranges have.",
        ),
        opt(
            "speed",
            Kind::Speed,
            "0",
            "Bytes per second in each direction; 0 = not limited.",
        ),
        opt("connections", count(1, 1000), "10", "Links it may hold."),
        opt(
            "streams",
            count(1, 1_000_000),
            "65536",
            "Visitor connections it may hold at one time.",
        ),
        opt(
            "host",
            Kind::Section(&HOST),
            "",
            "Host prefixes and names it may claim.",
        ),
        opt(
            "loadBalance",
            Kind::Bool,
            "false",
            "Two clients with this id both serve.",
        ),
    ],
};

/// `tcp`: a range of ports.
pub static TCP: Table = Table {
    name: "tcp",
    options: &[list(
        "range",
        Kind::PortRange,
        "",
        "A port or a range of ports.",
    )],
};

/// `host`: what a client may claim.
pub static HOST: Table = Table {
    name: "host",
    options: &[
        opt(
            "number",
            count(0, 100_000),
            "0",
            "Prefixes and names one client may hold; 0 = no limit.",
        ),
        list(
            "regex",
            Kind::Regex,
            "",
            "A prefix or name must match one of these (anchor with ^ and $).",
        ),
        opt(
            "withID",
            Kind::Bool,
            "false",
            "Put the client's id and a hyphen before each of its prefixes.",
        ),
    ],
};

/// `certificates`: one certificate.
pub static CERTIFICATE: Table = Table {
    name: "certificate",
    options: &[
        opt(
            "certFile",
            Kind::Path,
            "",
            "Certificate chain, PEM, leaf first.",
        ),
        opt("keyFile", Kind::Path, "", "Private key, PEM."),
    ],
};
