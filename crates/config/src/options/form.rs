//! Texts of the `proxy` section that have a syntax of their own, as the documentation describes them.

use super::{Form, Kind, Opt, Table, list};

pub(super) const fn sections(name: &'static str, table: &'static Table, help: &'static str) -> Opt {
    list(name, Kind::Section(table), "", help)
}

const fn form(metavar: &'static str, what: &'static str, example: &'static str) -> Form {
    Form {
        metavar,
        what,
        example,
    }
}

pub(super) static SERVER_ADDR: Form = form(
    "SERVER",
    "HOST:PORT, http:// or https:// address, or unix:/PATH",
    "127.0.0.1:3000",
);
pub(super) static TARGET: Form = form(
    "UPSTREAM",
    "name of an upstream, or address of a server",
    "127.0.0.1:3000",
);
pub(super) static HASH_KEY: Form = form("KEY", "ip, header:NAME or cookie:NAME", "cookie:session");
pub(super) static RATE_KEY: Form = form("KEY", "ip, header:NAME or all", "header:X-Api-Key");
pub(super) static TOKEN: Form = form(
    "WORD",
    "word of letters, digits and punctuation of RFC 9110",
    "POST",
);
pub(super) static TEXT_LINE: Form = form("TEXT", "one line of up to 1024 bytes", "text/html");
pub(super) static LONG_TEXT: Form = form("TEXT", "text of up to 1 MiB", "nothing here");
pub(super) static PLAIN_PATH: Form = form("PATH", "path that begins with /", "/health");
pub(super) static STATUS_RANGE: Form =
    form("STATUS", "status, or FIRST-LAST, 100 to 599", "200-299");
pub(super) static HOST_PATTERN: Form = form(
    "HOST",
    "NAME, *.NAME or *, with :PORT or without",
    "'*.example.com'",
);
pub(super) static PATH_PATTERN: Form = form("PATH", "/PREFIX, =/EXACT or ~REGEX", "/api");
pub(super) static TEMPLATE: Form = form("TEXT", "text with placeholders", "'https://{host}{uri}'");
pub(super) static HOST_HEADER: Form = form(
    "HOST",
    "visitor, server, or a text with placeholders",
    "app.internal",
);
pub(super) static MEDIA_TYPE: Form = form("TYPE", "TYPE/SUBTYPE or TYPE/*", "text/*");
