//! Autobahn's fuzzing client: each of its cases ends through the proxy as it ends with the server itself.

use std::{collections::BTreeMap, fs, net::SocketAddr, process::Command};

use e2e::{PortRange, TempDir, wait};
use serde::Deserialize;

use crate::{proxies::Proxy, tools, websocket::ws_server};

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    behavior: String,
    behavior_close: String,
    remote_close_code: Option<u16>,
}

#[test]
#[ignore = "the long form: make interop-proxy; needs Python 2.7"]
fn autobahn_sees_no_difference() {
    let (python, packages) = tools::autobahn();
    let port = PortRange::claim(1);
    let _server = ws_server(&port);
    let direct = SocketAddr::from(([127, 0, 0, 1], port.first()));
    wait::until_accepting(direct);
    let gt = Proxy::gt(&[direct]);
    let dir = TempDir::new();
    // Compression at all sizes (12, 13) takes most of the time and shows a proxy nothing that 12.1 does not.
    let spec = dir.file(
        "spec.json",
        format!(
            r#"{{"outdir": "out", "servers": [{{"agent": "direct", "url": "ws://{direct}"}}, {{"agent": "gt", "url": "ws://{}"}}],
            "cases": ["*"], "exclude-cases": ["12.2.*", "12.3.*", "12.4.*", "12.5.*", "13.*"], "exclude-agent-cases": {{}}}}"#,
            gt.address(0)
        ),
    );
    let mut client = Command::new(python);
    client
        .args([
            "-c",
            "from autobahntestsuite.wstest import run; run()",
            "-m",
            "fuzzingclient",
            "-s",
        ])
        .arg(spec)
        .env("PYTHONPATH", packages)
        .current_dir(dir.path());
    let output = client.output().expect("it runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let index = fs::read(dir.path().join("out/index.json")).expect("its verdicts");
    let verdicts: BTreeMap<String, BTreeMap<String, Verdict>> =
        serde_json::from_slice(&index).expect("its verdicts");
    let (own, through) = (&verdicts["direct"], &verdicts["gt"]);
    let differ: Vec<_> = own
        .iter()
        .filter(|(case, verdict)| through.get(*case) != Some(*verdict))
        .collect();
    assert!(differ.is_empty(), "{differ:?}");
    // What the server itself does wrong is not the proxy's: it is told, not judged.
    let failed: Vec<&String> = through
        .iter()
        .filter(|(_, verdict)| verdict.behavior == "FAILED")
        .map(|(case, _)| case)
        .collect();
    println!(
        "{} cases, failed with and without gt: {failed:?}",
        through.len()
    );
    assert!(through.len() > 200, "{} cases", through.len());
}
