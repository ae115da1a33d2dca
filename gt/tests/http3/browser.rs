//! Chromium without a window, driven over a pipe by the DevTools protocol: messages in JSON, each with a zero byte behind it. It ends when the pipe
//! does.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use e2e::TempDir;
use serde_json::{Value, json};

/// A browser takes its time where twenty other programs run.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running browser with one page.
pub(crate) struct Browser {
    child: Child,
    /// `None` when it is to end.
    to: Option<ChildStdin>,
    from: Receiver<Value>,
    next: u64,
    page: String,
    dir: TempDir,
}

impl Browser {
    /// A new one, with a folder of its own and more `flags`. It finds `host` on this machine, and trusts the key with that digest.
    pub(crate) fn start(chromium: &Path, host: &str, key: &str, flags: &[String]) -> Self {
        let dir = TempDir::new();
        let log = File::create(dir.path().join("stderr")).expect("a file");
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(chromium)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", dir.path().display()))
            .arg(format!("--host-resolver-rules=MAP {host} 127.0.0.1"))
            .arg(format!("--ignore-certificate-errors-spki-list={key}"))
            .args(flags)
            .arg("about:blank")
            .env("HOME", dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("sh");
        let (tell, from) = channel();
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else {
                    return;
                };
                if tell.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Self {
            to: child.stdin.take(),
            child,
            from,
            next: 0,
            page: String::new(),
            dir,
        };
        let made = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let joined = browser.ask(
            "Target.attachToTarget",
            json!({"targetId": made["targetId"], "flatten": true}),
        );
        browser.page = joined["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Loads a page to its end.
    pub(crate) fn open(&mut self, url: &str) {
        let answer = self.ask("Page.navigate", json!({"url": url}));
        assert_eq!(answer["errorText"], Value::Null, "{url}: {}", self.log());
        let loaded = format!("document.readyState == 'complete' && location.href == '{url}'");
        let deadline = Instant::now() + PATIENCE;
        while self.run(&loaded) != json!(true) {
            assert!(Instant::now() < deadline, "{url} is not loaded");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the page was loaded over: `h3`, `h2`, `http/1.1`.
    pub(crate) fn protocol(&mut self) -> String {
        let value = self.run("performance.getEntriesByType('navigation')[0].nextHopProtocol");
        value.as_str().expect("a name").to_owned()
    }

    /// What a script comes to, promises awaited.
    pub(crate) fn run(&mut self, script: &str) -> Value {
        let mut answer = self.ask(
            "Runtime.evaluate",
            json!({"expression": script, "awaitPromise": true, "returnByValue": true}),
        );
        // A page that is being left takes its scripts along; whoever waits for the next one asks again.
        if answer["exceptionDetails"] != Value::Null {
            panic!("{script}: {}", answer["exceptionDetails"]);
        }
        answer["result"]["value"].take()
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if !self.page.is_empty() {
            message["sessionId"] = json!(self.page);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let to = self.to.as_mut().expect("a running browser");
        if let Err(error) = to.write_all(&bytes) {
            panic!("Chromium has gone: {error}\n{}", self.log());
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(mut value) = self.from.recv_timeout(left) else {
                panic!("{method}: no answer\n{}", self.log());
            };
            if value["id"] == json!(self.next) {
                return value["result"].take();
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.to = None;
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

const FLAGS: [&str; 11] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-extensions",
];
