//! Option tables of a client.

use super::*;

/// Top level of a client's file.
pub static CLIENT: Table = Table {
    name: "client",
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
            Kind::Section(&CLIENT_OPTIONS),
            "",
            "The options of the client.",
        ),
        Opt {
            list: true,
            ..opt(
                "services",
                Kind::Section(&SERVICE),
                "",
                "What the client makes reachable.",
            )
        },
    ],
};

/// `options` of a client.
pub static CLIENT_OPTIONS: Table = Table {
    name: "client options",
    options: &[
        opt(
            "id",
            Kind::Id,
            "",
            "Who the client is; without it, one is made and kept.",
        ),
        opt(
            "secret",
            Kind::Secret,
            "",
            "The secret that the client and the server know; without it, one is made and kept.",
        ),
        opt("secretFile", Kind::Path, "", "File that holds the secret."),
        opt(
            "identity",
            Kind::Path,
            "",
            "File in which a made id and secret are kept, instead of the one in the state folder.",
        ),
        list(
            "remote",
            Kind::Remote,
            "",
            "Servers, best first: quic://, tls://, tcp://, wss://, ws://, kcp://; or auto:// for the best of quic, tls and wss.",
        ),
        opt(
            "remoteChoice",
            Kind::Choice(&["order", "best"]),
            "order",
            "With best, the remotes are ways to one server: the best is found out and kept; auto:// implies it.",
        ),
        opt(
            "remoteAPI",
            Kind::Url,
            "",
            "A GET of this address returns the server's address.",
        ),
        opt(
            "remoteCert",
            Kind::Path,
            "",
            "Believe only servers with this certificate, or one signed by it; PEM.",
        ),
        opt(
            "remoteCertInsecure",
            Kind::Bool,
            "false",
            "Believe any certificate.",
        ),
        opt(
            "remoteConnections",
            count(1, 64),
            "",
            "Links to one server; without it, as many as the server asks for (one for each of its workers).",
        ),
        opt(
            "remoteIdleConnections",
            count(0, 64),
            "1",
            "Least links to one server, also where it asks for fewer; at least one is always kept.",
        ),
        opt(
            "remoteTimeout",
            at_least(1000, false),
            "45s",
            "A link that is silent for this long is dead; also the time to connect.",
        ),
        opt(
            "reconnectDelay",
            at_most(3_600_000),
            "5s",
            "First pause before connecting again.",
        ),
        KCP_MODE,
        KCP_FEC,
        KCP_MTU,
        opt(
            "apiAddr",
            Kind::Listen { loopback: true },
            "",
            "Listen here for the client's API; a bare port means 127.0.0.1.",
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
        ignored("remoteSTUN", "STUN server for direct paths."),
        ignored("webrtc*", "Settings of direct paths over WebRTC."),
        ignored(
            "tcpForwardAddr",
            "Listen here and forward over a direct path.",
        ),
        ignored("tcpForwardHostPrefix", "Host prefix that is forwarded to."),
        ignored(
            "tcpForwardConnections",
            "Connections that are kept for forwarding.",
        ),
        WEB_ADDR,
        WEB_CERT_FILE,
        WEB_KEY_FILE,
        ADMIN,
        PASSWORD,
        SIGNING_KEY,
        SENTRY,
        BBR,
        UDP_FEC,
    ],
};

/// One of `services`. As flags, these belong to the `-local` before them.
pub static SERVICE: Table = Table {
    name: "service",
    options: &[
        opt(
            "local",
            Kind::Local,
            "",
            "Where the service is: http://, https://, tcp://, udp://, unix:/PATH, builtin:demo.",
        ),
        opt(
            "name",
            Kind::Text,
            "",
            "Name in logs; without it, made from the prefix, host or port.",
        ),
        opt(
            "hostPrefix",
            Kind::HostPrefix,
            "",
            "Visitors whose host name begins with this label; for HTTP the default is the id.",
        ),
        opt(
            "host",
            Kind::HostName,
            "",
            "Visitors of exactly this host name.",
        ),
        opt(
            "localTimeout",
            at_least(100, true),
            "120s",
            "Time to connect and for the first byte of the answer; 0 = no limit.",
        ),
        opt(
            "useLocalAsHTTPHost",
            Kind::Bool,
            "false",
            "Send the local address as Host instead of what the visitor asked for.",
        ),
        opt(
            "localCert",
            Kind::Path,
            "",
            "For https://: believe only a service with this certificate, or one signed by it; PEM.",
        ),
        opt("remoteTCPPort", Kind::Port, "", "TCP port on the server."),
        opt(
            "remoteTCPRandom",
            Kind::Bool,
            "false",
            "Any free TCP port, where remoteTCPPort is absent or taken.",
        ),
        opt("remoteUDPPort", Kind::Port, "", "UDP port on the server."),
        opt(
            "remoteUDPRandom",
            Kind::Bool,
            "false",
            "Any free UDP port, where remoteUDPPort is absent or taken.",
        ),
        opt(
            "proxyProtocol",
            Kind::Choice(&["v1", "v2"]),
            "",
            "Tell the service the visitor's address with this header.",
        ),
        list(
            "allow",
            Kind::Network,
            "",
            "Visitors that may come; without it, all.",
        ),
        list(
            "deny",
            Kind::Network,
            "",
            "Visitors that may not come, even where allow names them.",
        ),
        opt(
            "bandwidth",
            Kind::Speed,
            "0",
            "Bytes per second in each direction; 0 = not limited.",
        ),
        opt(
            "loadBalance",
            Kind::Text,
            "",
            "Clients that name the same group share the visitors.",
        ),
        opt(
            "mode",
            Kind::Choice(&["stream", "http"]),
            "stream",
            "http: the server looks at each request of visitors by host, the default where an option needs it; stream copies bytes.",
        ),
        opt(
            "protocol",
            Kind::Choice(&["http1", "h2c"]),
            "http1",
            "For mode http: what the service speaks; h2c is HTTP/2 without TLS.",
        ),
        opt(
            "headers",
            Kind::Section(&HEADERS),
            "",
            "For mode http: changes to header fields.",
        ),
        opt(
            "basicAuth",
            Kind::Section(&BASIC_AUTH),
            "",
            "For mode http: ask visitors for a name and a password.",
        ),
        opt(
            "healthCheck",
            Kind::Section(&HEALTH),
            "",
            "Check the service; while it fails, visitors go elsewhere or are told; {} is enough for TCP checks.",
        ),
    ],
};

/// `headers` of a service.
pub static HEADERS: Table = Table {
    name: "headers",
    options: &[
        opt(
            "request",
            Kind::Section(&EDITS),
            "",
            "Changes to the request's fields.",
        ),
        opt(
            "response",
            Kind::Section(&EDITS),
            "",
            "Changes to the response's fields.",
        ),
    ],
};
