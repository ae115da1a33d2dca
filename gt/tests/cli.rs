//! The program as users meet it: what it prints, where, and with which exit code. Nothing here opens a socket.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

struct Outcome {
    code: Option<i32>,
    out: String,
    err: String,
}

fn gt(args: &[&str]) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_gt"))
        .args(args)
        .env_remove("GT_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("gt runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Outcome {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/config")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn help_teaches_by_examples() {
    for flag in ["--help", "-help", "-h"] {
        let server = gt(&["server", flag]);
        assert_eq!((server.code, server.err.as_str()), (Some(0), ""));
        assert!(
            server
                .out
                .contains("gt server -addr 8080 -id web -secret SECRET")
        );
        assert!(server.out.contains("-tcpRange FIRST-LAST"));
        let client = gt(&["client", "-local", "http://h", flag]);
        assert!(client.code == Some(0) && client.out.contains("-remoteTCPRandom"));
    }
    let proxy = gt(&["proxy", "--help"]);
    assert!(proxy.code == Some(0) && proxy.out.contains("gt proxy --listen :8080 --to"));
    let all = gt(&["--help"]);
    assert!(all.code == Some(0) && all.out.contains("gt client -local"));
    let version = gt(&["--version"]);
    assert_eq!(
        (version.code, version.out),
        (Some(0), format!("gt {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn nothing_to_do_is_a_usage_error() {
    for args in [
        &[][..],
        &["server"],
        &["client"],
        &["proxy"],
        &["config", "check"],
        &["nonsense"],
    ] {
        let outcome = gt(args);
        assert_eq!(
            (outcome.code, outcome.out.as_str()),
            (Some(2), ""),
            "{args:?}"
        );
        assert!(!outcome.err.is_empty());
    }
}

#[test]
fn check_says_what_a_file_is_for() {
    let outcome = gt(&["config", "check", path(&examples())]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert!(
        outcome.out.contains("server on plain 0.0.0.0:8080"),
        "{}",
        outcome.out
    );
    assert!(
        outcome
            .err
            .contains("`stunAddr` is not in this build and is ignored"),
        "{}",
        outcome.err
    );
    assert!(!format!("{}{}", outcome.out, outcome.err).contains("change-me"));
}

#[test]
fn a_proxy_is_checked_and_what_is_not_there_yet_is_said() {
    let file = examples().join("proxy-site.yml");
    let outcome = gt(&["config", "check", path(&file)]);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
    let expected = "proxy on http 0.0.0.0:8080, tcp 0.0.0.0:15432, 7 routes, 3 upstreams";
    assert!(outcome.out.contains(expected), "{}", outcome.out);
    // Better no proxy than one that does less than the file says.
    let file = std::env::temp_dir().join(format!("gt-cli-proxy-{}.yml", std::process::id()));
    let text = "type: proxy\nproxy:\n  listeners: [{addr: 127.0.0.1:0}]\n  upstreams:\n    search:\n      protocol: h2c\n      proxyProtocol: v2\n      \
        servers: [{addr: 127.0.0.1:9}]\n  routes: [{to: search}]\n";
    fs::write(&file, text).expect("written");
    let outcome = gt(&["proxy", "--no-supervisor", "-c", path(&file)]);
    fs::remove_file(file).expect("removed");
    assert_eq!(outcome.code, Some(1), "{}", outcome.err);
    let said = "upstream search: a PROXY header before HTTP/2 is not supported yet";
    assert!(outcome.err.contains(said), "{}", outcome.err);
    let outcome = gt(&["proxy", "--listen", ":8080", "--to", "nowhere"]);
    assert!(
        outcome.code == Some(2) && outcome.err.contains("has no port"),
        "{}",
        outcome.err
    );
}

#[test]
fn a_bad_file_is_shown_and_nothing_starts() {
    let file = std::env::temp_dir().join(format!("gt-cli-{}.yml", std::process::id()));
    fs::write(
        &file,
        "options:\n  addr: 80\n  conections: 3\n  secret: hunter2\n",
    )
    .expect("written");
    for args in [
        &["config", "check", path(&file)][..],
        &["server", "-c", path(&file)],
        &["-c", path(&file)],
    ] {
        let outcome = gt(args);
        assert_eq!(
            (outcome.code, outcome.out.as_str()),
            (Some(2), ""),
            "{args:?}"
        );
        let expected = format!("{}:3:3: unknown key `conections`", file.display());
        assert!(
            outcome.err.contains(&expected) && outcome.err.contains("did you mean `connections`?"),
            "{}",
            outcome.err
        );
        assert!(!outcome.err.contains("hunter2"), "{}", outcome.err);
    }
    fs::remove_file(file).expect("removed");
}

#[test]
fn wrong_flags_end_with_code_2() {
    let outcome = gt(&[
        "client",
        "-local",
        "tcp://127.0.0.1:22",
        "-remote",
        "tcp://h",
        "-id",
        "a",
        "-secret",
        "hunter2",
    ]);
    assert!(
        outcome.code == Some(2) && outcome.err.contains("remoteTCPRandom"),
        "{}",
        outcome.err
    );
    assert!(!outcome.err.contains("hunter2"));
    for words in [
        &["server", "-s", "reload"][..],
        &["-s", "stop"],
        &["status"],
    ] {
        let outcome = gt(words);
        assert!(
            outcome.code == Some(2) && outcome.err.contains("which gt?"),
            "{words:?}: {}",
            outcome.err
        );
    }
    let outcome = gt(&["-s", "relaod", "-c", "gt.yml"]);
    assert!(
        outcome.code == Some(2) && outcome.err.contains("there are reload"),
        "{}",
        outcome.err
    );
    let outcome = gt(&["reload", "-c", "nobody-runs-this.yml"]);
    assert!(
        outcome.code == Some(1) && outcome.err.contains("no gt runs for"),
        "{}",
        outcome.err
    );
}

#[test]
fn completions_know_the_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let outcome = gt(&["completions", shell]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.err);
        assert!(
            outcome.out.contains("remoteTCPRandom") && outcome.out.contains("sniAddr"),
            "{shell}"
        );
    }
}

#[test]
fn the_schema_is_json() {
    let outcome = gt(&["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_str(&outcome.out).expect("JSON");
    assert!(schema["$defs"]["server-options"]["properties"]["sniAddr"]["description"].is_string());
}
