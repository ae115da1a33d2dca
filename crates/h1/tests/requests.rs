//! Request heads: what is understood, what is refused, and that pieces make no difference.

use h1::{FieldError, Framing, HeadWriter, Known, Limits, RequestError, RequestHead, Version};
use rand::{Rng, SeedableRng, rngs::StdRng};

fn parse(bytes: &[u8]) -> Result<Option<usize>, RequestError> {
    RequestHead::default().parse(bytes, &Limits::default())
}

fn refused(text: &str) -> RequestError {
    match parse(text.as_bytes()) {
        Err(error) => error,
        Ok(length) => panic!("{text:?} was accepted: {length:?}"),
    }
}

fn with(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
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
            E::Field(FieldError::SpaceBeforeColon),
        ),
        (
            "Transfer-Encoding\t: chunked\r\n",
            E::Field(FieldError::SpaceBeforeColon),
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
        ("X Y: 1\r\n", E::Field(FieldError::Name)),
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
        (" GET / HTTP/1.1\r\n", E::RequestLine),
        ("GET /\r\n", E::RequestLine),
        ("GET\t/\tHTTP/1.1\r\n", E::RequestLine),
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
        ("PRI * HTTP/2.0\r\n", E::Http2),
        ("\r\n\r\nGET / HTTP/1.1\r\n", E::RequestLine),
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
    assert_eq!(
        parse(b"GET /\0"),
        Err(RequestError::Field(FieldError::Value))
    );
    let long = [b"GET /".as_slice(), &[b'a'; 9000]].concat();
    assert_eq!(parse(&long), Err(RequestError::TargetTooLong));
}

#[test]
fn hosts_are_checked_and_agree_with_the_target() {
    use RequestError as E;
    let get =
        |target: &str, host: &str| parse(format!("GET {target} HTTP/1.1\r\n{host}\r\n").as_bytes());
    for host in [
        "a,b", "a/b", "a@b", "a b", "a:", "a:x", "a:65536", "[::1", "[::1]x", "[g]", "a%41",
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
        "",
    ] {
        assert!(
            matches!(get("/", &format!("Host: {host}\r\n")), Ok(Some(_))),
            "{host:?}"
        );
    }
    assert_eq!(get("/", ""), Err(E::NoHost));
    assert_eq!(get("http://a/", "Host: b\r\n"), Err(E::HostDiffers));
    assert_eq!(get("http://a/", "Host: a:81\r\n"), Err(E::HostDiffers));
    assert_eq!(get("http://a/", "Host:\r\n"), Err(E::HostDiffers));
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
        let request = head.view(text.as_bytes());
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
    let text = "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-One\r\nConnection: upgrade\r\nUpgrade: websocket\r\nKeep-Alive: 5\r\nx-one: 1\r\n\
                Proxy-Connection: close\r\nTE: trailers\r\nTrailer: T\r\nX-Two:  2\t\r\nCookie: \r\n\r\n";
    let mut head = RequestHead::default();
    head.parse(text.as_bytes(), &Limits::default())
        .expect("valid");
    let request = head.view(text.as_bytes());
    assert!(request.upgrade() && request.keep_alive() && request.accepts_trailers());
    let names: Vec<_> = request
        .fields()
        .end_to_end()
        .map(|field| String::from_utf8_lossy(field.name))
        .collect();
    assert_eq!(names, ["Host", "Trailer", "X-Two", "Cookie"]);
    let mut out = Vec::new();
    let mut writer = HeadWriter::request(&mut out, request.method(), request.target());
    writer.copy_fields(request.fields(), |field| field.known != Known::Host);
    writer.field(b"Transfer-Encoding", b"chunked");
    writer.field(b"X-Bad", b"a\r\nb");
    writer.field_with(b"X-Worse", |out| out.extend_from_slice(b"a\nb"));
    writer.field_with(b"X-Good", |out| out.extend_from_slice(b"c"));
    writer.finish(Framing::Length(3));
    let expected = "GET / HTTP/1.1\r\nTrailer: T\r\nX-Two: 2\r\nCookie: \r\nX-Good: c\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

#[test]
fn keep_alive_is_as_the_version_says() {
    for (version, connection, expected) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n");
        let mut head = RequestHead::default();
        head.parse(text.as_bytes(), &Limits::default())
            .expect("valid");
        let request = head.view(text.as_bytes());
        assert_eq!(request.keep_alive(), expected, "{text}");
        assert_eq!(request.version() == Version::Http11, version == "1.1");
    }
}

#[test]
fn pieces_make_no_difference() {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let messages = [
        "\r\nGET /a HTTP/1.1\r\nHost: a\r\nA: 1\r\n\r\nrest",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nBad\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\nA: b\r\n\r\n",
    ];
    for message in messages {
        let bytes = message.as_bytes();
        let whole = parse(bytes);
        for round in 0..50 {
            let mut head = RequestHead::default();
            let mut end = 0;
            let found = loop {
                end += if round == 0 {
                    1
                } else {
                    random.random_range(1..20)
                };
                match head.parse(&bytes[..end.min(bytes.len())], &Limits::default()) {
                    Ok(None) if end < bytes.len() => {}
                    found => break found,
                }
            };
            assert_eq!(found, whole, "{message:?}");
        }
    }
}
