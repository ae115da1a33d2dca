//! Files of certificates that have other content under the same name: a reload takes them, and a bad one leaves everything as it is.

use std::{fs, path::Path};

use e2e::{Cert, HttpConn, PortRange, Process, Service, TempDir, process::gt_binary, tls};

struct Proxy {
    gt: Process,
    port: PortRange,
    _service: Service,
}

impl Proxy {
    fn start(dir: TempDir, more: &str) -> Self {
        let (port, service) = (PortRange::claim(1), Service::text("hello"));
        let text = format!(
            "type: proxy\nproxy:\n  listeners: [{{addr: \"127.0.0.1:{}\", certFile: cert.pem, keyFile: key.pem{more}}}]\n  routes: [{{to: \"{}\"}}]\n",
            port.first(),
            service.address()
        );
        let file = dir.file("proxy.yml", text);
        let args = ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()];
        let gt = Process::gt_supervised("proxy", &gt_binary(), args, dir);
        gt.wait_log(&["listening", "option=\"listeners\""]);
        Self {
            gt,
            port,
            _service: service,
        }
    }

    /// Whether it was done, and what was said.
    fn reload(&self, more: &[&str]) -> (bool, String) {
        let file = self.gt.dir().path().join("proxy.yml");
        let mut args = vec![std::ffi::OsStr::new("reload")];
        args.extend(more.iter().map(|word| std::ffi::OsStr::new(*word)));
        args.extend(["-c".as_ref(), file.as_os_str()]);
        let said = self.gt.ask(&args);
        let text = [said.stdout, said.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (said.status.success(), text)
    }

    /// What a visitor gets who believes `cert` only.
    fn visit(&self, cert: &Cert) -> Option<String> {
        let at = ([127, 0, 0, 1], self.port.first()).into();
        let config = tls::client_config(&[cert.der().clone()], &[b"http/1.1"]);
        let stream = tls::connect(at, "localhost", config).ok()?;
        let answer = HttpConn::new(stream).get("localhost", "/").ok()?;
        Some(answer.text())
    }
}

fn put(cert: &Cert, dir: &Path) {
    fs::copy(cert.cert_file(), dir.join("cert.pem")).expect("copied");
    fs::copy(cert.key_file(), dir.join("key.pem")).expect("copied");
}

#[test]
fn a_reload_takes_a_certificate_that_has_changed_under_its_name() {
    let (old, new) = (
        Cert::self_signed(&["localhost"]),
        Cert::self_signed(&["localhost"]),
    );
    let dir = TempDir::new();
    put(&old, dir.path());
    let proxy = Proxy::start(dir, "");
    let dir = proxy.gt.dir().path();
    let hello = Some("hello".to_owned());
    assert_eq!(proxy.visit(&old), hello);
    // Without a change nothing is replaced.
    let (good, said) = proxy.reload(&["--plan"]);
    assert!(good && !said.contains("listeners"), "{said}");
    put(&new, dir);
    let (good, said) = proxy.reload(&["--plan"]);
    assert!(good && said.contains("listeners"), "{said}");
    let (good, said) = proxy.reload(&[]);
    assert!(good, "{said}");
    assert_eq!(
        (proxy.visit(&new), proxy.visit(&old)),
        (hello.clone(), None)
    );
    // A key that is another's, and what is no certificate at all.
    fs::copy(old.key_file(), dir.join("key.pem")).expect("copied");
    let (good, said) = proxy.reload(&[]);
    assert!(!good, "{said}");
    assert_eq!(proxy.visit(&new), hello);
    fs::write(dir.join("cert.pem"), "no certificate").expect("written");
    let (good, said) = proxy.reload(&[]);
    assert!(!good, "{said}");
    assert_eq!(proxy.visit(&new), hello);
}

#[test]
fn a_reload_takes_authorities_of_visitors_that_have_changed_under_their_name() {
    let cert = Cert::self_signed(&["localhost"]);
    let (first, second) = (e2e::cert::Authority::new(), e2e::cert::Authority::new());
    let dir = TempDir::new();
    put(&cert, dir.path());
    fs::copy(first.file(), dir.path().join("ca.pem")).expect("copied");
    let proxy = Proxy::start(dir, ", clientCA: ca.pem, clientCertOptional: true");
    let ca = proxy.gt.dir().path().join("ca.pem");
    fs::write(&ca, "no certificate").expect("written");
    let (good, said) = proxy.reload(&[]);
    assert!(!good, "{said}");
    assert_eq!(proxy.visit(&cert).as_deref(), Some("hello"));
    fs::copy(second.file(), &ca).expect("copied");
    let (good, said) = proxy.reload(&["--plan"]);
    assert!(good && said.contains("listeners"), "{said}");
    let (good, said) = proxy.reload(&[]);
    assert!(good, "{said}");
    assert_eq!(proxy.visit(&cert).as_deref(), Some("hello"));
}
