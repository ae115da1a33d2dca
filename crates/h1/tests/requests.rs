//! Request heads: what is understood, what is refused, and that pieces make no difference.

mod common;

use common::{for_seeds, growing, parse_request as parse, request_in_pieces};
use h1::{
    FieldError, Framing, Known, Limits, RequestError, RequestHead, RequestLine, Upstream, Version,
};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};

/// Why it is refused; which must not depend on how it arrives.
fn refused(text: &str) -> RequestError {
    let bytes = text.as_bytes();
    let whole = parse(bytes);
    assert_eq!(
        whole,
        request_in_pieces(bytes, 1..=bytes.len(), &Limits::default()),
        "{text:?}"
    );
    match whole {
        Err(error) => error,
        Ok(length) => panic!("{text:?} was accepted: {length:?}"),
    }
}

fn with(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

/// Runs `check` with the view of a request that is accepted.
fn viewed<R>(text: &str, check: impl FnOnce(h1::Request<'_>) -> R) -> R {
    let mut head = RequestHead::default();
    assert_eq!(
        head.parse(text.as_bytes(), &Limits::default()),
        Ok(Some(text.len())),
        "{text:?}"
    );
    check(head.view(text.as_bytes()).expect("a whole head"))
}

#[test]
fn framing_that_two_programs_read_differently_is_refused() {
    use RequestError as E;
    let cases = [
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            E::BothLengths,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            E::BothLengths,
        ),
        (
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            E::ContentLength,
        ),
        (
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            E::ContentLength,
        ),
        ("Content-Length: 5, 5\r\n", E::ContentLength),
        ("Content-Length: +5\r\n", E::ContentLength),
        ("Content-Length: -1\r\n", E::ContentLength),
        ("Content-Length: 0x5\r\n", E::ContentLength),
        ("Content-Length: 5 5\r\n", E::ContentLength),
        ("Content-Length:\r\n", E::ContentLength),
        ("Content-Length: 18446744073709551616\r\n", E::ContentLength),
        ("Transfer-Encoding: gzip, chunked\r\n", E::Coding),
        ("Transfer-Encoding: xchunked\r\n", E::Coding),
        ("Transfer-Encoding: \"chunked\"\r\n", E::Coding),
        ("Transfer-Encoding: chunked;q=1\r\n", E::Coding),
        ("Transfer-Encoding:\r\n", E::Coding),
        ("Transfer-Encoding: identity\r\n", E::Coding),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            E::TransferEncoding,
        ),
        (
            "Transfer-Encoding: chunked\r\ntransfer-encoding: x\r\n",
            E::TransferEncoding,
        ),
        (
            "Transfer-Encoding : chunked\r\n",
            E::Field(FieldError::SpaceInName),
        ),
        (
            "Transfer-Encoding\t: chunked\r\n",
            E::Field(FieldError::SpaceInName),
        ),
        (
            " Transfer-Encoding: chunked\r\n",
            E::Field(FieldError::Folded),
        ),
        (
            "X: 1\r\n\tTransfer-Encoding: chunked\r\n",
            E::Field(FieldError::Folded),
        ),
        (
            "Transfer\0-Encoding: chunked\r\n",
            E::Field(FieldError::Name),
        ),
        (
            "Transfer-Encoding: chunked\0\r\n",
            E::Field(FieldError::Value),
        ),
        (
            "Transfer-Encoding: \u{b}chunked\r\n",
            E::Field(FieldError::Value),
        ),
        (
            "X: a\rTransfer-Encoding: chunked\r\n",
            E::Field(FieldError::BareCr),
        ),
        (
            "X: a\nTransfer-Encoding: chunked\r\n",
            E::Field(FieldError::BareLf),
        ),
        ("X: a\r\r\n", E::Field(FieldError::BareCr)),
        (": chunked\r\n", E::Field(FieldError::NoField)),
        ("chunked\r\n", E::Field(FieldError::NoField)),
        ("X Y: 1\r\n", E::Field(FieldError::SpaceInName)),
        ("(X): 1\r\n", E::Field(FieldError::Name)),
        ("X\u{e4}: 1\r\n", E::Field(FieldError::Name)),
        (
            "Connection: content-length\r\nContent-Length: 3\r\n",
            E::Connection,
        ),
        ("Connection: close, Transfer-Encoding\r\n", E::Connection),
        ("Connection: host\r\n", E::Connection),
        ("Connection: a b\r\n", E::Connection),
        ("Expect: 200-ok\r\n", E::Expect),
        ("Host: b\r\n", E::ManyHosts),
        ("host: a\r\n", E::ManyHosts),
    ];
    for (fields, expected) in cases {
        assert_eq!(refused(&with(fields)), expected, "{fields:?}");
    }
}

#[test]
fn first_lines_that_are_no_request_lines_are_refused() {
    use RequestError as E;
    let cases = [
        ("GET  / HTTP/1.1\r\n", E::RequestLine),
        ("GET / HTTP/1.1 \r\n", E::RequestLine),
        (" GET / HTTP/1.1\r\n", E::Method),
        ("GET /\r\n", E::RequestLine),
        ("GET\t/\tHTTP/1.1\r\n", E::Method),
        ("GET / http/1.1\r\n", E::RequestLine),
        ("GET / HTTP/1.1\n", E::Field(FieldError::BareLf)),
        ("GET / HTTP/1.2\r\n", E::Version),
        ("GET / HTTP/2.0\r\n", E::Version),
        ("GET / HTTP/0.9\r\n", E::Version),
        ("GET / HTTP/11\r\n", E::RequestLine),
        ("GET / HTTP/1.1x\r\n", E::RequestLine),
        ("GET a HTTP/1.1\r\n", E::Target),
        ("GET * HTTP/1.1\r\n", E::Target),
        ("GET /a#b HTTP/1.1\r\n", E::Target),
        ("GET /\u{e4} HTTP/1.1\r\n", E::Target),
        ("GET /\u{7f} HTTP/1.1\r\n", E::Target),
        ("GET ftp://a/ HTTP/1.1\r\n", E::Target),
        ("GET http:///x HTTP/1.1\r\n", E::Target),
        ("GET http://u@a/ HTTP/1.1\r\n", E::Target),
        ("GET http://a?b HTTP/1.1\r\n", E::Target),
        ("CONNECT / HTTP/1.1\r\n", E::Target),
        ("CONNECT a HTTP/1.1\r\n", E::Target),
        ("CONNECT a:99999 HTTP/1.1\r\n", E::Target),
        ("G(T / HTTP/1.1\r\n", E::Method),
        ("PRI * HTTP/2.0\r\n", E::Version),
        ("\r\n\r\nGET / HTTP/1.1\r\n", E::RequestLine),
        ("\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", E::Version),
        ("\nGET / HTTP/1.1\r\n", E::Field(FieldError::BareLf)),
        ("\rGET / HTTP/1.1\r\n", E::Field(FieldError::BareCr)),
        ("GET / HTTP/1.1\rX\r\n", E::Field(FieldError::BareCr)),
        ("GET /\n", E::Field(FieldError::BareLf)),
        ("GET\n", E::Field(FieldError::BareLf)),
    ];
    for (line, expected) in cases {
        let text = format!("{line}Host: a\r\n\r\n");
        assert_eq!(refused(&text), expected, "{line:?}");
    }
}

#[test]
fn other_protocols_are_refused_before_their_first_line_ends() {
    assert_eq!(
        parse(b"\x16\x03\x01\x02\x00\x01"),
        Err(RequestError::Method)
    );
    assert_eq!(
        parse(b"SSH-2.0-OpenSSH"),
        Ok(None),
        "could still be a method"
    );
    assert_eq!(parse(&[b'A'; 40]), Err(RequestError::Method));
    assert_eq!(parse(b"GET /\0"), Err(RequestError::Target));
    let long = [b"GET /".as_slice(), &[b'a'; 9000]].concat();
    assert_eq!(parse(&long), Err(RequestError::TargetTooLong));
}

#[test]
fn hosts_are_checked_and_agree_with_the_target() {
    use RequestError as E;
    let get =
        |target: &str, host: &str| parse(format!("GET {target} HTTP/1.1\r\n{host}\r\n").as_bytes());
    for host in [
        "",
        ".",
        "a..b",
        ".a",
        "a,b",
        "a/b",
        "a@b",
        "a b",
        "a:",
        "a:x",
        "a:65536",
        "[",
        "[::1",
        "[::1]x",
        "[fe80::1%1]",
        "[v1.x]",
        "[g]",
        "a%41",
        "\u{fc}",
    ] {
        assert_eq!(
            get("/", &format!("Host: {host}\r\n")),
            Err(E::Host),
            "{host:?}"
        );
    }
    for host in [
        "a",
        "A.b-c_d",
        "a:1",
        "127.0.0.1:80",
        "[::1]",
        "[2001:db8::1]:8080",
        "a.",
    ] {
        assert!(
            matches!(get("/", &format!("Host: {host}\r\n")), Ok(Some(_))),
            "{host:?}"
        );
    }
    assert_eq!(get("/", ""), Err(E::NoHost));
    assert_eq!(get("http://a/", "Host: b\r\n"), Err(E::HostDiffers));
    assert_eq!(get("http://a/", "Host: a:81\r\n"), Err(E::HostDiffers));
    assert_eq!(get("http://a/", "Host:\r\n"), Err(E::Host));
    assert!(get("http://a/", "Host: A:80\r\n").is_ok());
    assert!(get("https://a:443/", "Host: a\r\n").is_ok());
    assert_eq!(get("https://a:80/", "Host: a\r\n"), Err(E::HostDiffers));
    assert!(parse(b"GET / HTTP/1.0\r\n\r\n").is_ok());
    assert_eq!(
        parse(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        Err(E::TransferEncoding)
    );
    assert_eq!(
        parse(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 1\r\n\r\n"),
        Err(E::BodyNotAllowed)
    );
}

#[test]
fn targets_are_taken_apart() {
    let mut head = RequestHead::default();
    let cases: [(&str, &str, &str, Option<&str>, &str); 6] = [
        ("GET /a?b?c", "/a?b?c", "/a", Some("b?c"), "h"),
        ("GET http://h:80/a?", "/a?", "/a", Some(""), "h"),
        ("GET http://h:80", "/", "/", None, "h"),
        ("OPTIONS http://h:80", "*", "/", None, "h"),
        ("OPTIONS *", "*", "*", None, "h"),
        ("CONNECT h:80", "h:80", "", None, "h"),
    ];
    for (line, target, path, query, host) in cases {
        let text = format!("{line} HTTP/1.1\r\nHost: h:80\r\n\r\n");
        head.clear();
        assert_eq!(
            head.parse(text.as_bytes(), &Limits::default()),
            Ok(Some(text.len())),
            "{line}"
        );
        let request = head.view(text.as_bytes()).expect("a whole head");
        assert_eq!(request.target(), target.as_bytes(), "{line}");
        assert_eq!(request.path(), path.as_bytes(), "{line}");
        assert_eq!(request.query(), query.map(str::as_bytes), "{line}");
        assert_eq!(request.host(), host.as_bytes(), "{line}");
        assert_eq!(request.port(), Some(80), "{line}");
    }
}

#[test]
fn limits_hold_exactly() {
    let limits = Limits {
        head: 64,
        fields: 2,
        target: 8,
        ..Limits::default()
    };
    let parse = |text: &str| RequestHead::default().parse(text.as_bytes(), &limits);
    assert_eq!(
        parse("GET /1234567 HTTP/1.1\r\nHost: a\r\n\r\n"),
        Ok(Some(34))
    );
    assert_eq!(
        parse("GET /12345678 HTTP/1.1\r\nHost: a\r\n\r\n"),
        Err(RequestError::TargetTooLong)
    );
    assert_eq!(
        parse("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 1\r\n\r\n").map_err(RequestError::status),
        Err(431)
    );
    for pad in 0..80 {
        let text = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n",
            "x".repeat(pad)
        );
        let expected = if text.len() <= 64 {
            Ok(Some(text.len()))
        } else {
            Err(431)
        };
        assert_eq!(
            parse(&text).map_err(RequestError::status),
            expected,
            "{pad}"
        );
    }
    assert_eq!(
        parse(&format!(
            "GET / HTTP/1.1\r\nHost: a\r\nA: {}",
            "x".repeat(64)
        ))
        .map_err(RequestError::status),
        Err(431)
    );
}

#[test]
fn fields_of_the_connection_do_not_go_on() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-One,\r\nConnection: upgrade\r\nUpgrade: websocket\r\nKeep-Alive: 5\r\n\
                x-one: 1\r\nProxy-Connection: close\r\nTE: trailers\r\nTrailer: T\r\nX-Two:  2\t\r\nHTTP2-Settings: x\r\nCookie: \r\n\
                Proxy-Authorization: y\r\nX-Forwarded-For: z\r\nAccept: */*\r\n\r\n";
    viewed(text, |request| {
        assert!(request.keep_alive() && request.accepts_trailers());
        assert_eq!(request.upgrade(), Some(&b"websocket"[..]));
        let names: Vec<_> = request
            .fields()
            .end_to_end()
            .map(|field| String::from_utf8_lossy(field.name))
            .collect();
        assert_eq!(
            names,
            ["Trailer", "X-Two", "Cookie", "X-Forwarded-For", "Accept"]
        );
        let mut out = Vec::new();
        let line = RequestLine::of(request);
        let mut head = Upstream::new(&Limits::default()).send(&line, (), &mut out);
        head.copy(request.fields(), |field| !field.known.is_forwarding());
        head.finish();
        let expected = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, te\r\nUpgrade: websocket\r\nTE: trailers\r\n\
                        Trailer: T\r\nX-Two: 2\r\nCookie: \r\nAccept: */*\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    });
}

#[test]
fn fields_that_look_like_others_do_not_travel() {
    // What CGI and WSGI make of these is the same variable as of the field with `-`.
    let text = with(
        "Content_Length: 5\r\nTransfer_encoding: chunked\r\nX_Forwarded-For: 1\r\nx_real_ip: 1\r\nX_Mine: 1\r\n",
    );
    viewed(&text, |request| {
        assert_eq!(request.framing(), Framing::None);
        let kinds: Vec<_> = request.fields().all().map(|field| field.known).collect();
        use Known::{Host, Lookalike, Other};
        assert_eq!(
            kinds,
            [Host, Lookalike, Lookalike, Lookalike, Lookalike, Other]
        );
        let names: Vec<_> = request
            .fields()
            .end_to_end()
            .map(|field| field.name)
            .collect();
        assert_eq!(names, [b"X_Mine"]);
    });
}

#[test]
fn keep_alive_is_as_the_version_says() {
    for (version, connection, expected) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: CLOSE , x\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        (
            "1.0",
            "Connection: keep-alive\r\nConnection: close\r\n",
            false,
        ),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n");
        assert_eq!(
            viewed(&text, |request| request.keep_alive()),
            expected,
            "{text:?}"
        );
    }
}

#[test]
fn an_upgrade_is_asked_for_in_one_way_only() {
    let wish = |start: &str, fields: &str| {
        let text = format!("{start}\r\nHost: a\r\n{fields}\r\n");
        viewed(&text, |request| request.upgrade().map(<[u8]>::to_vec))
    };
    let get = "GET / HTTP/1.1";
    let good = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(wish(get, good), Some(b"websocket".to_vec()));
    assert_eq!(
        wish(get, "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n"),
        Some(b"TLS/1.0".to_vec())
    );
    assert_eq!(wish("GET / HTTP/1.0", good), None);
    assert_eq!(wish(get, "Upgrade: websocket\r\n"), None);
    assert_eq!(wish(get, "Connection: upgrade\r\n"), None);
    assert_eq!(wish(get, "Connection: upgrade\r\nUpgrade:\r\n"), None);
    assert_eq!(
        wish(get, "Connection: upgrade\r\nUpgrade: h2c\r\n"),
        None,
        "never passed on"
    );
    assert_eq!(
        wish(get, "Connection: upgrade\r\nUpgrade: websocket, h2c\r\n"),
        None
    );
    assert_eq!(wish(get, &format!("{good}Upgrade: h2c\r\n")), None);
    assert_eq!(
        wish(get, &format!("{good}Content-Length: 1\r\n")),
        None,
        "the body comes first"
    );
}

#[test]
fn an_expectation_counts_where_there_is_a_body() {
    let waits = |version: &str, fields: &str| {
        let text = format!("PUT / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        viewed(&text, |request| request.expects_continue())
    };
    assert!(waits(
        "1.1",
        "Expect: 100-Continue\r\nContent-Length: 1\r\n"
    ));
    assert!(waits(
        "1.1",
        "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"
    ));
    assert!(!waits("1.1", "Expect: 100-continue\r\n"));
    assert!(!waits(
        "1.1",
        "Expect: 100-continue\r\nContent-Length: 0\r\n"
    ));
    assert!(!waits(
        "1.0",
        "Expect: 100-continue\r\nContent-Length: 1\r\n"
    ));
}

#[test]
fn http2_is_told_apart_by_its_whole_preface() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut head = RequestHead::default();
    for n in 1..preface.len() {
        assert_eq!(
            head.parse(&preface[..n], &Limits::default()),
            Ok(None),
            "{n}"
        );
    }
    assert_eq!(
        head.parse(preface, &Limits::default()),
        Err(RequestError::Http2)
    );
    assert!(parse(b"PRINT / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok());
}

#[test]
fn one_empty_line_may_come_first() {
    let text = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(parse(text), Ok(Some(text.len())));
    assert_eq!(
        request_in_pieces(text, 1..=text.len(), &Limits::default()),
        Ok(Some(text.len()))
    );
}

#[test]
fn a_head_is_used_again() {
    let mut head = RequestHead::default();
    let (one, two) = (
        "GET /one HTTP/1.0\r\nConnection: a\r\n\r\n",
        with("Content-Length: 7\r\n"),
    );
    for _ in 0..3 {
        head.clear();
        assert_eq!(
            head.parse(one.as_bytes(), &Limits::default()),
            Ok(Some(one.len()))
        );
        let request = head.view(one.as_bytes()).expect("a whole head");
        assert_eq!(
            (request.version(), request.authority()),
            (Version::Http10, &b""[..])
        );
        head.clear();
        assert!(head.view(one.as_bytes()).is_none(), "nothing is left of it");
        assert_eq!(
            head.parse(two.as_bytes(), &Limits::default()),
            Ok(Some(two.len()))
        );
        let request = head.view(two.as_bytes()).expect("a whole head");
        assert_eq!(
            (request.framing(), request.authority()),
            (Framing::Length(7), &b"a"[..])
        );
        assert_eq!(request.fields().len(), 2);
    }
}

#[test]
fn an_error_stays_and_another_buffer_does_no_harm() {
    let mut head = RequestHead::default();
    assert_eq!(
        head.parse(b"GET /\0", &Limits::default()),
        Err(RequestError::Target)
    );
    assert_eq!(
        head.parse(b"GET / HTTP/1.1\r\n", &Limits::default()),
        Err(RequestError::Target)
    );
    head.clear();
    let text = with("");
    assert_eq!(
        head.parse(text.as_bytes(), &Limits::default()),
        Ok(Some(text.len()))
    );
    assert!(head.view(b"short").is_none());
    head.clear();
    assert_eq!(
        head.parse(b"GET / HTTP/1.1\r\nHost: a", &Limits::default()),
        Ok(None)
    );
    assert_eq!(head.parse(b"", &Limits::default()), Ok(None));
}

#[test]
fn a_long_line_in_single_bytes_costs_no_more_than_its_length() {
    // Quadratic work would be 2^43 steps here.
    let limits = Limits {
        head: 4 << 20,
        target: 4 << 20,
        ..Limits::default()
    };
    let long = "a".repeat(3 << 20);
    for text in [
        format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a\r\n{long}: x\r\n\r\n"),
    ] {
        let answer = request_in_pieces(text.as_bytes(), 1..=text.len(), &limits);
        assert_eq!(answer, Ok(Some(text.len())));
    }
}

#[test]
fn an_error_never_repeats_what_was_sent() {
    for text in [
        "GET /<script> x\r\n",
        "<script>\r\n",
        "GET / HTTP/1.1\r\n<script>: 1\r\n",
    ] {
        let error = refused(text);
        assert!(!error.to_string().contains("script"));
        assert_eq!(
            (error.status(), error.reason_phrase()),
            (400, "Bad Request")
        );
    }
}

/// Mostly good lines with mistakes among them.
fn somewhat_wrong(rng: &mut StdRng) -> Vec<u8> {
    const STARTS: [&str; 8] = [
        "GET / HTTP/1.1\r\n",
        "POST /a?b HTTP/1.1\r\n",
        "\r\nHEAD / HTTP/1.0\r\n",
        "GET http://h/x HTTP/1.1\r\n",
        "CONNECT h:1 HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "PRI * HTTP/2.0\r\n",
        "GET /#  HTTP/1.1\r\n",
    ];
    const LINES: [&str; 20] = [
        "Host: h\r\n",
        "Host: h:1\r\n",
        "Host: other\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: 05\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: \tCHUNKED \r\n",
        "Connection: close\r\n",
        "Connection: x, host\r\n",
        "Connection: upgrade\r\n",
        "Upgrade: websocket\r\n",
        "Expect: 100-continue\r\n",
        "TE: trailers\r\n",
        "X: \u{e4}\r\n",
        "X:\r\n",
        "X : 1\r\n",
        " fold\r\n",
        "nothing\r\n",
        "Cookie: a=b; c=d\r\n",
        "\r\n",
    ];
    let mut out = STARTS.choose(rng).expect("some").as_bytes().to_vec();
    if rng.random_ratio(3, 4) {
        out.extend_from_slice(b"Host: h\r\n");
    }
    for _ in 0..rng.random_range(0..6) {
        out.extend_from_slice(LINES.choose(rng).expect("some").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    for _ in 0..[0, 0, 0, 1, 2].choose(rng).copied().expect("some") {
        let at = rng.random_range(0..out.len());
        out[at] = *b"\0\r\n :\t,;\x7f\xffaA0_".choose(rng).expect("some");
    }
    out
}

#[test]
fn no_answer_depends_on_the_pieces() {
    let small = Limits {
        head: 60,
        fields: 2,
        target: 5,
        ..Limits::default()
    };
    for_seeds(20_000, |rng| {
        let bytes = somewhat_wrong(rng);
        for limits in [Limits::default(), small] {
            let whole = RequestHead::default().parse(&bytes, &limits);
            let ends = growing(bytes.len(), rng);
            let text = String::from_utf8_lossy(&bytes);
            assert_eq!(whole, request_in_pieces(&bytes, ends, &limits), "{text:?}");
            assert_eq!(
                whole,
                request_in_pieces(&bytes, 1..=bytes.len(), &limits),
                "{text:?}"
            );
        }
    });
}

#[test]
fn what_is_written_reads_back_the_same() {
    for_seeds(20_000, |rng| {
        let bytes = somewhat_wrong(rng);
        let mut head = RequestHead::default();
        let Ok(Some(_)) = head.parse(&bytes, &Limits::default()) else {
            return;
        };
        let request = head.view(&bytes).expect("a whole head");
        let mut out = Vec::new();
        let mut writer =
            Upstream::new(&Limits::default()).send(&RequestLine::of(request), (), &mut out);
        writer.copy(request.fields(), |_| true);
        writer.finish();
        let mut again = RequestHead::default();
        let text = String::from_utf8_lossy(&out);
        if request.authority().is_empty() {
            assert_eq!(
                again.parse(&out, &Limits::default()),
                Err(RequestError::Host),
                "{text:?}"
            );
            return;
        }
        assert_eq!(
            again.parse(&out, &Limits::default()),
            Ok(Some(out.len())),
            "{text:?}"
        );
        let second = again.view(&out).expect("a whole head");
        assert_eq!(
            (request.method(), request.target(), request.authority()),
            (second.method(), second.target(), second.authority())
        );
        assert_eq!(
            (request.framing(), request.upgrade()),
            (second.framing(), second.upgrade())
        );
        assert!(
            request
                .fields()
                .end_to_end()
                .eq(second.fields().end_to_end()),
            "{text:?}"
        );
        assert!(second.keep_alive());
    });
}
