//! `gt -c FOLDER`: a worker for each file, under one supervisor.

use std::fs;

use e2e::{PortRange, Process, TempDir, http, process::gt_binary, wait};

use crate::rig::SECRET;

fn server(port: u16) -> String {
    format!(
        "type: server\noptions: {{addr: \"127.0.0.1:{port}\"}}\nusers: {{web: {{secret: \"{SECRET}\"}}}}\n"
    )
}

fn client(port: u16, prefix: &str) -> String {
    format!(
        "type: client\noptions: {{id: web, secret: \"{SECRET}\", remote: \"tcp://127.0.0.1:{port}\", reconnectDelay: 200ms}}\n\
         services: [{{local: \"builtin:demo\", hostPrefix: {prefix}}}]\n"
    )
}

#[test]
fn files_that_come_and_go_are_started_and_stopped_by_a_reload() {
    let ports = PortRange::claim(2);
    let (one, two) = (ports.first(), ports.last());
    let dir = TempDir::new();
    let folder = dir.path().join("conf");
    fs::create_dir_all(folder.join("clients")).expect("folders");
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
    write("one.yml", &server(one));
    write("clients/one.yaml", &client(one, "web"));
    let args = ["-c".as_ref(), folder.as_os_str()];
    let gt = Process::gt_supervised("gt folder", &gt_binary(), args, dir);
    let at = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    http::get_until(at(one), "web.test", "/", 200);
    let ask = |words: &[&str]| {
        let mut args: Vec<&std::ffi::OsStr> = words.iter().map(AsRef::as_ref).collect();
        args.extend(["-c".as_ref(), folder.as_os_str()]);
        let output = gt.ask(&args);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &err,
        )
    };
    write("two.yml", &server(two));
    write("clients/two.yml", &client(two, "web"));
    let (done, said) = ask(&["reload", "--plan"]);
    assert!(
        done && said.matches("is new; would be started").count() == 2,
        "{said}"
    );
    let (done, said) = ask(&["reload"]);
    assert!(done, "{said}");
    http::get_until(at(two), "web.test", "/", 200);
    // One file with a mistake holds all back.
    write("two.yml", "type: server\noptions: {adr: 1}\n");
    let (done, said) = ask(&["reload"]);
    assert!(
        !done && said.contains("two.yml") && said.contains("adr"),
        "{said}"
    );
    http::get_until(at(two), "web.test", "/", 200);
    fs::remove_file(folder.join("two.yml")).expect("removed");
    fs::remove_file(folder.join("clients/two.yml")).expect("removed");
    let (done, said) = ask(&["reload"]);
    assert!(done && said.matches("it is stopped").count() == 2, "{said}");
    wait::until("its server is gone", || {
        std::net::TcpStream::connect(at(two)).is_err().then_some(())
    });
    http::get_until(at(one), "web.test", "/", 200);
}
