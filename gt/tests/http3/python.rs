//! curl_cffi, which is curl with a browser's greeting and HTTP/3 by ngtcp2, and aioquic.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::Site;

/// A file of `testing/interop/quic/python`.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../testing/interop/quic/python")
        .join(name)
}

/// Runs a script with the packages of a list, in a folder of that name.
fn run(packages: &str, script: &str, args: &[&str]) -> String {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(packages);
    let list = match packages {
        "aioquic" => "requirements.txt",
        _ => "curl.txt",
    };
    let python = e2e::tools::python(&home, &file(list));
    let output = Command::new(python)
        .arg(file(script))
        .args(args)
        .output()
        .expect("Python");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{why}");
    said
}

#[test]
fn curl_as_a_browser_asks_over_http3() {
    let site = Site::start();
    let said = run("curl", "curl.py", &[&site.address.port().to_string()]);
    for step in ["get", "large", "post", "head", "browsers", "upgrade"] {
        assert!(said.contains(&format!("ok {step}\n")), "{said}");
    }
}

#[test]
fn a_websocket_of_aioquic_goes_through() {
    let site = Site::start();
    let port = site.address.port().to_string();
    let said = run("aioquic", "aio.py", &["client", &port, "websocket"]);
    assert_eq!(said, "ok websocket\n");
}
