//! What users see when something is wrong, and what they must not see.

mod common;

use std::path::Path;

use common::{World, refused};
use config::{CommandLine, Role, check_text};

#[test]
fn a_problem_shows_place_line_caret_and_help() {
    let text = World::default()
        .server("options:\n  adr: 80\n  id: a\n  secret: s\n")
        .expect_err("it is refused");
    let expected = "etc/gt.yml:2:3: unknown key `adr` in server options\n  2 |   adr: 80\n    |   ^^^\n  help: did you mean `addr`?";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn several_problems_are_told_at_once_and_in_order() {
    let text = "options:\n  addr: x\n  timeout: 90\n  conections: 3\n  speed: fast\nusers:\n  a: {secret: s, tcp: {range: 9-1}}\n";
    let errors =
        check_text(Path::new("a.yml"), text, None, &World::default()).expect_err("it is refused");
    let lines: Vec<_> = errors.problems().iter().map(|p| p.place()).collect();
    assert_eq!(
        lines,
        [
            "a.yml:2:9",
            "a.yml:3:12",
            "a.yml:4:3",
            "a.yml:5:10",
            "a.yml:7:31"
        ]
    );
}

#[test]
fn keys_of_another_place_are_led_home() {
    refused(
        World::default().server("addr: 80"),
        &[
            "unknown key `addr` in server",
            "`addr` is a key of `options:` of a server",
        ],
    );
    refused(
        World::default().server("options: {remoteSTUN: x}"),
        &["`remoteSTUN` is a key of `options:` of a client"],
    );
    refused(
        World::default().client("options: {hostPrefix: x}"),
        &["one of the `services:` of a client"],
    );
    refused(
        World::default().server("type: client"),
        &["configures a client, but the command is gt server"],
    );
    refused(
        World::default().server("type: sever"),
        &["`sever` of `type` is none of server, client"],
    );
}

#[test]
fn flags_are_checked_as_files_are() {
    refused(
        World::default().server_flags("-adr 80"),
        &[
            "command line: -adr: unknown flag of gt server",
            "did you mean -addr?",
        ],
    );
    refused(
        World::default().server_flags("-remote tcp://x"),
        &["it is a flag of gt client"],
    );
    refused(
        World::default().server_flags("-addr"),
        &["`-addr` needs a value"],
    );
    refused(
        World::default().server_flags("-addr -id a"),
        &["`-addr` needs a value"],
    );
    refused(
        World::default().server_flags("-addr 80 -allowAnyClient false"),
        &["`false` belongs to no flag", "-flag=false"],
    );
    refused(
        World::default().server_flags("-addr x --speed 1x"),
        &[
            "command line: -addr: the value `x`",
            "command line: --speed",
        ],
    );
    refused(
        World::default().server_flags("-certificates x"),
        &["can be given in a file only"],
    );
    refused(
        World::default().server_flags("-c no.yml"),
        &["no.yml: the file cannot be read"],
    );
    let line = CommandLine::parse(
        Role::Server,
        ["-s".into(), "reload".into(), "--help".into()],
    )
    .expect("it parses");
    assert!(line.help && line.signal.as_deref() == Some("reload"));
}

#[test]
fn secrets_never_show() {
    let hidden = "hunter2";
    let long = format!("{hidden}{}", "x".repeat(1100));
    let world = World::default()
        .variable("PW", "hunter2 bad")
        .file("etc/s", "hunter2\nmore");
    for text in [
        format!("options: {{addr: 80, id: a, secret: \"{hidden}\\n\"}}"),
        format!("options: {{addr: 80, id: a, secret: {long}}}"),
        format!("options: {{addr: 80, id: a, secret: {{{hidden}: 1}}}}"),
        format!("options: {{addr: 80, id: a, secret: [{hidden}, [{hidden}]]}}"),
        format!("options: {{addr: 80, id: [a, b], secret: {hidden}}}"),
        format!("options:\n  addr: 80\n  id: a\n  secert: {hidden}\n"),
        format!("options:\n  addr: 80\n  secret: {hidden} : x\n"),
        format!("options:\n  addr: 80\n  secret: \"{hidden}\n"),
        format!("options:\n  addr: 80\n  secret: {hidden}\n  secret: {hidden}\n"),
        format!("options:\n  id: a\n  secret: ${{{hidden} x}}\n"),
        format!("options:\n  id: a\n  secret: |\n    {hidden}\n   bad\n"),
        "options: {addr: 80, id: a, secret: {file: s}}".into(),
        "options: {addr: '${PW}', id: a, secret: s, logLevel: '${PW}'}".into(),
        format!("options: {{addr: 80, password: {hidden}, allowAnyClient: 5}}"),
    ] {
        let error = world.server(&text).expect_err(&text);
        assert!(!error.contains(hidden), "{text} gives\n{error}");
    }
    let server = world
        .server("options: {addr: 80, id: a, secret: hunter2, password: hunter2}")
        .expect("it loads");
    assert!(!format!("{server:?}{server:#?}").contains(hidden));
    let line = CommandLine::parse(Role::Server, ["-secret=hunter2".into()]).expect("it parses");
    assert!(!format!("{line:?}").contains(hidden));
    let error = world
        .server_flags("-addr 80 -id a -id b -secret hunter2 hunter2")
        .expect_err("it is refused");
    assert!(!error.contains(hidden), "{error}");
}

#[test]
fn a_readable_file_with_a_secret_is_warned_of() {
    let with = |text: &str| {
        let world = World {
            world_readable: true,
            ..World::default()
        };
        let warnings = world
            .file("g.yml", text)
            .file("s", "x")
            .server_flags("-c g.yml")
            .expect("it loads")
            .warnings;
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(
        with("options: {addr: 80, id: a, secret: s}")[0]
            .contains("every user of this machine can read it")
    );
    assert!(
        with("options: {addr: 80, id: a, secret: {file: s}}")[0]
            .contains("can read the file of the secret")
    );
    assert!(with("options: {addr: 80, allowAnyClient: true}").is_empty());
}

#[test]
fn the_environment_fills_values_in() {
    let world = World::default()
        .variable("PORT", "8080")
        .variable("S", "a: {b}")
        .variable("R", "x$");
    let server = world
        .server("options: {addr: '${PORT}', id: '${ID:-web}', secret: \"${S}\", hostRegex: '^${R}$', logFile: $HOME/$$x}")
        .expect("it loads");
    assert_eq!(server.listeners.plain.map(|a| a.port()), Some(8080));
    assert_eq!(server.users["web"].secret.expose(), "a: {b}");
    assert_eq!(server.log.file.as_deref(), Some(Path::new("etc/$HOME/$x")));
    refused(
        world.server("options:\n  addr: ${NOPE}"),
        &[
            "etc/gt.yml:2:9: the environment variable `NOPE` is not set",
            "${NOPE:-default}",
        ],
    );
    refused(
        world.server("options: {addr: '${PORT'}"),
        &["has no closing `}`"],
    );
}

#[test]
fn values_stay_as_written() {
    for secret in [
        "0123",
        "1e5",
        "yes",
        "0x10",
        "1_000",
        "12345678901234567890123",
        ".5",
        "n",
        "1.0",
        "1e999",
    ] {
        let server = World::default()
            .server(&format!("options: {{addr: 80, id: 007, secret: {secret}}}"))
            .expect("it loads");
        assert_eq!(server.users["007"].secret.expose(), secret);
    }
}

#[test]
fn duplicate_keys_are_refused() {
    refused(
        World::default().server("options:\n  addr: 80\n  addr: 81\n"),
        &["etc/gt.yml:3:3", "duplicate mapping key"],
    );
    refused(
        World::default().server("users: {a: {secret: x}, a: {secret: y}}"),
        &["duplicate mapping key"],
    );
}

#[test]
fn anchors_and_merges_work_within_bounds() {
    let text = "options: {addr: 80}\nusers:\n  a: &basis {secret: s, speed: 5}\n  b: {<<: *basis, secret: t}\n";
    let server = World::default().server(text).expect("it loads");
    assert_eq!(server.users["b"].limits.speed.map(|n| n.get()), Some(5));
    assert_eq!(server.users["b"].secret.expose(), "t");
}

#[test]
fn documents_made_to_eat_memory_are_refused_quickly() {
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..30 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        laughs.push_str(&format!("a{n}: &a{n} [{aliases}]\n"));
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_blocks = (0..2000)
        .map(|n| format!("{}k:\n", " ".repeat(n)))
        .collect::<String>();
    let many = "- a\n".repeat(400_000);
    let huge = "#".repeat((10 << 20) + 1);
    for text in [laughs, deep, deep_blocks, many, huge] {
        let begun = std::time::Instant::now();
        World::default().server(&text).expect_err("it is refused");
        assert!(
            begun.elapsed().as_secs() < 20,
            "it took {:?}",
            begun.elapsed()
        );
    }
}

#[test]
fn odd_documents_are_refused_in_words() {
    for (text, why) in [
        ("- a\n", "must be a mapping, not a list"),
        ("just text", "must be a mapping, not a single value"),
        ("options: []", "`server options` must be a mapping"),
        ("users: [a]", "users are a mapping of ids, not a list"),
        ("? [a]\n: b\n", "a key must be a name"),
        ("options: {addr: 80}\n---\noptions: {}\n", "not valid YAML"),
        ("\u{0}", "not valid YAML"),
        ("options: {addr: *nope}", "not valid YAML"),
    ] {
        refused(World::default().server(text), &[why, "etc/gt.yml"]);
    }
}
