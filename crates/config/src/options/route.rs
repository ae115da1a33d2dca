//! Option tables of a proxy's routes.

use super::{form::*, *};

/// One of `routes`.
pub static ROUTE: Table = Table {
    name: "route",
    options: &[
        opt(
            "name",
            Kind::Text,
            "",
            "Name in logs and metrics; without it, host and path.",
        ),
        list(
            "listener",
            Kind::Text,
            "",
            "Listeners by name; without it, all of http and https.",
        ),
        opt(
            "scheme",
            Kind::Choice(&["http", "https"]),
            "",
            "How the request came.",
        ),
        list(
            "host",
            Kind::Form(&HOST_PATTERN),
            "*",
            "NAME, *.NAME or *; a port may follow.",
        ),
        list(
            "path",
            Kind::Form(&PATH_PATTERN),
            "",
            "/PREFIX, =/EXACT or ~REGEX; without it, every path.",
        ),
        list(
            "method",
            Kind::Form(&TOKEN),
            "",
            "Methods; without it, all.",
        ),
        opt(
            "headers",
            Kind::Fields,
            "",
            "What fields must be: a value, * there, ! not there, ~REGEX.",
        ),
        opt(
            "to",
            Kind::Form(&TARGET),
            "",
            "Action: an upstream by name, or one server.",
        ),
        opt(
            "redirect",
            Kind::Short(&REDIRECT),
            "",
            "Action: redirect; a target alone is enough.",
        ),
        opt(
            "respond",
            Kind::Section(&RESPOND),
            "",
            "Action: a fixed response.",
        ),
        opt(
            "files",
            Kind::Short(&FILES),
            "",
            "Action: files of a folder; its path alone is enough.",
        ),
        opt(
            "service",
            Kind::HostName,
            "",
            "Action, in a server's file: the relay service of this host or prefix.",
        ),
        opt(
            "stripPrefix",
            Kind::Bool,
            "false",
            "Take the prefix of path off before forwarding.",
        ),
        opt(
            "rewrite",
            Kind::Section(&REWRITE),
            "",
            "Change the path before forwarding.",
        ),
        opt(
            "hostHeader",
            Kind::Form(&HOST_HEADER),
            "visitor",
            "Host for the upstream: visitor, server, or a text.",
        ),
        opt(
            "requestHeaders",
            Kind::Section(&EDITS),
            "",
            "Changes to the request's fields.",
        ),
        opt(
            "responseHeaders",
            Kind::Section(&EDITS),
            "",
            "Changes to the response's fields.",
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
            "rateLimit",
            Kind::Section(&RATE_LIMIT),
            "",
            "Requests per time, for each visitor; more get 429.",
        ),
        opt(
            "basicAuth",
            Kind::Section(&BASIC_AUTH),
            "",
            "Ask visitors for a name and a password.",
        ),
        opt(
            "compress",
            Kind::Bool,
            "false",
            "Compress responses (gzip, br, zstd).",
        ),
        opt(
            "accessLog",
            Kind::Bool,
            "true",
            "Its exchanges are in the proxy's access log.",
        ),
        opt("websocket", Kind::Bool, "true", "Let WebSocket pass."),
        opt(
            "multiplex",
            Kind::Bool,
            "false",
            "Requests of one moment share a connection to the server.",
        ),
        opt(
            "retries",
            count(0, 10),
            "2",
            "Times that a request that may be repeated is tried on another server.",
        ),
        opt("limits", Kind::Section(&LIMITS), "", "Sizes."),
        opt("timeouts", Kind::Section(&TIMEOUTS), "", "Times."),
    ],
};

/// `redirect`.
pub static REDIRECT: Table = Table {
    name: "redirect",
    options: &[
        opt(
            "to",
            Kind::Form(&TEMPLATE),
            "",
            "Where to; {host}, {uri} and other placeholders are filled in.",
        ),
        opt(
            "status",
            count(301, 308),
            "308",
            "301, 302, 303, 307 or 308.",
        ),
    ],
};

/// `respond`.
pub static RESPOND: Table = Table {
    name: "response",
    options: &[
        opt("status", count(200, 599), "200", "The status."),
        opt("body", Kind::Form(&LONG_TEXT), "", "The body."),
        opt(
            "contentType",
            Kind::Form(&TEXT_LINE),
            "text/plain; charset=utf-8",
            "What the body is.",
        ),
    ],
};

/// `files`.
pub static FILES: Table = Table {
    name: "files",
    options: &[
        opt("root", Kind::Path, "", "The folder."),
        opt(
            "index",
            Kind::Form(&TEXT_LINE),
            "index.html",
            "The file of a folder; empty = none.",
        ),
        opt(
            "fallback",
            Kind::Path,
            "",
            "The file that is sent where there is none.",
        ),
        opt(
            "hidden",
            Kind::Bool,
            "false",
            "Send files whose name begins with a dot.",
        ),
    ],
};

/// `rewrite`.
pub static REWRITE: Table = Table {
    name: "rewrite",
    options: &[
        opt(
            "prefix",
            Kind::Form(&PLAIN_PATH),
            "",
            "Put this in place of the prefix of path.",
        ),
        opt(
            "regex",
            Kind::Regex,
            "",
            "Replace the first match of this in the path.",
        ),
        opt(
            "to",
            Kind::Form(&TEXT_LINE),
            "",
            "For regex: what comes in its place; $1 or ${name} are groups (write $${name} in a file).",
        ),
    ],
};

/// `requestHeaders` and `responseHeaders`.
pub static EDITS: Table = Table {
    name: "header changes",
    options: &[
        opt(
            "set",
            Kind::Fields,
            "",
            "Fields that replace those of the same name; {clientIp} and others are filled in.",
        ),
        opt(
            "add",
            Kind::Fields,
            "",
            "Fields besides those of the same name.",
        ),
        list("remove", Kind::HeaderName, "", "Fields to leave out."),
    ],
};

/// `rateLimit`.
pub static RATE_LIMIT: Table = Table {
    name: "rate limit",
    options: &[
        opt(
            "key",
            Kind::Form(&RATE_KEY),
            "ip",
            "Who shares a limit: ip, header:NAME, or all.",
        ),
        opt(
            "requests",
            count(1, 1_000_000),
            "",
            "Requests in each time of per, per worker.",
        ),
        opt("per", at_most(86_400_000), "1s", "The time."),
        opt(
            "burst",
            count(1, 1_000_000),
            "",
            "Requests at once; without it, requests.",
        ),
        opt(
            "keys",
            count(8, 1 << 20),
            "16384",
            "Visitors that are remembered, per worker.",
        ),
    ],
};

/// `basicAuth`.
pub static BASIC_AUTH: Table = Table {
    name: "basic auth",
    options: &[
        opt("realm", Kind::Text, "gt", "What browsers show."),
        opt(
            "passwords",
            Kind::Secrets,
            "",
            "Passwords by name: bcrypt hashes, texts or {file: PATH}.",
        ),
        opt(
            "usersFile",
            Kind::Path,
            "",
            "File with NAME:HASH lines, as htpasswd -B makes it.",
        ),
        opt(
            "userHeader",
            Kind::HeaderName,
            "",
            "Tell the upstream the name in this field.",
        ),
    ],
};

/// `limits`.
pub static LIMITS: Table = Table {
    name: "limits",
    options: &[
        opt(
            "header",
            Kind::Size,
            "16KiB",
            "Bytes of a head in HTTP/1; at most 1 MiB.",
        ),
        opt(
            "headerList",
            Kind::Size,
            "64KiB",
            "Bytes of a field list in HTTP/2 and 3; at most 1 MiB.",
        ),
        opt("headerFields", count(1, 10_000), "100", "Fields of a head."),
        opt(
            "body",
            Kind::Size,
            "0",
            "Bytes of a request body; 0 = no limit.",
        ),
        opt(
            "requests",
            count(1, u32::MAX as u64),
            "1000000",
            "Requests of one connection; then it is closed.",
        ),
    ],
};

/// `timeouts`.
pub static TIMEOUTS: Table = Table {
    name: "timeouts",
    options: &[
        opt(
            "header",
            at_most(300_000),
            "10s",
            "For a visitor to send a request head.",
        ),
        opt(
            "body",
            at_least(100, false),
            "60s",
            "Between two reads or writes of a body.",
        ),
        opt(
            "keepAlive",
            at_least(100, false),
            "75s",
            "A visitor's connection without a request.",
        ),
        opt(
            "connect",
            at_most(300_000),
            "5s",
            "To connect to a server, with TLS.",
        ),
        opt(
            "response",
            at_least(100, false),
            "60s",
            "From the end of the request to the head of the response.",
        ),
        opt(
            "tunnel",
            at_least(1000, false),
            "1h",
            "Silence of a WebSocket or CONNECT tunnel.",
        ),
        opt(
            "total",
            at_least(100, true),
            "0",
            "The whole exchange; 0 = no limit.",
        ),
    ],
};
