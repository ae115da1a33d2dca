//! What changes in place, what a new worker is needed for, what is refused; under load.

use std::{fs, net::TcpListener};

use e2e::{Cert, TempDir, http, tls, wait};

use crate::{
    load::{Load, Stayer},
    rig::{Gt, Rig, SECRET},
};

#[test]
fn users_change_in_place_and_the_others_do_not_notice() {
    let rig = Rig::start();
    let load = Load::start(&rig);
    let mut stayer = Stayer::new(&rig);
    let before = rig.server.serving();
    let more = format!("  other: {{secret: \"{SECRET}\"}}\n");
    rig.server.write(&rig.server_text("", &more));
    let plan = rig.server.done(&["reload", "--plan"]);
    assert!(plan.contains("in place: user other is new"), "{plan}");
    load.wait(20);
    let other = e2e::ClientSpec::new("other")
        .option("secret", format!("\"{SECRET}\""))
        .option("remote", format!("tcp://{}", rig.address))
        .service(format!("http://{}", rig.origin.address()), "")
        .start();
    // A plan changes nothing.
    other.process.wait_log(&["refuses this client"]);
    drop(other);
    let said = rig.server.done(&["reload"]);
    assert!(said.contains("user other is new"), "{said}");
    let other = e2e::ClientSpec::new("other")
        .option("secret", format!("\"{SECRET}\""))
        .option("remote", format!("tcp://{}", rig.address))
        .service(format!("http://{}", rig.origin.address()), "")
        .start_up();
    assert_eq!(
        http::get(rig.address, "other.test", "/")
            .expect("served")
            .status,
        200
    );
    // A user that is taken out is sent away at once.
    rig.server.write(&rig.server_text("", ""));
    rig.server.done(&["-s", "reload"]);
    other
        .process
        .wait_log(&["the server says goodbye", "no longer allowed"]);
    stayer.talk();
    load.wait(100);
    load.finish(&rig);
    assert_eq!(rig.server.serving(), before, "the same worker");
    assert!(rig.server.done(&["reload"]).contains("nothing has changed"));
}

#[test]
fn another_number_of_threads_needs_a_new_worker_and_nobody_notices() {
    let rig = Rig::start();
    let load = Load::start(&rig);
    let mut stayer = Stayer::new(&rig);
    let (pid, generation) = rig.server.serving();
    for (n, workers) in [(1, 1), (2, 3)] {
        load.wait(100);
        let options = format!("  workers: {workers}\n");
        let text = rig.server_text("", "").replace("  workers: 2\n", &options);
        rig.server.write(&text);
        let plan = rig.server.done(&["reload", "--plan"]);
        assert!(plan.contains("needs a new process: workers"), "{plan}");
        let said = rig.server.done(&["reload"]);
        assert!(said.contains("a new worker serves"), "{said}");
        let (now, number) = rig.server.serving();
        assert!(now != pid && number == generation + n);
        stayer.talk();
    }
    load.wait(200);
    load.finish(&rig);
    // The first worker still carries the one who stays.
    let first = || {
        rig.server
            .workers()
            .into_iter()
            .find(|(other, ..)| *other == pid)
    };
    assert_eq!(
        first().map(|(.., state)| state),
        Some("draining".to_owned())
    );
    stayer.talk();
    drop(stayer);
    wait::until("the old worker ends", || first().is_none().then_some(()));
}

#[test]
fn a_new_certificate_of_the_api_is_taken_at_reload() {
    let rig = Rig::start();
    let certs = [(); 2].map(|()| Cert::self_signed(&["localhost"]));
    let dir = TempDir::new();
    let (cert, key) = (dir.path().join("api.pem"), dir.path().join("api.key"));
    let put = |which: &Cert| {
        fs::copy(which.cert_file(), &cert).expect("copied");
        fs::copy(which.key_file(), &key).expect("copied");
    };
    let shows = |which: &Cert| {
        let status = rig.server.status();
        let listeners = status["units"][0]["listeners"].as_array().cloned();
        let listeners = listeners.expect("listeners");
        let api = listeners.iter().find(|one| one["option"] == "apiAddr");
        let address = api.and_then(|api| api["address"].as_str()?.parse().ok());
        let config = tls::client_config(&[which.der().clone()], &[]);
        tls::connect(address.expect("the API"), "localhost", config).is_ok()
    };
    put(&certs[0]);
    let options = format!(
        "  apiAddr: \"127.0.0.1:0\"\n  apiCertFile: {}\n  apiKeyFile: {}\n",
        cert.display(),
        key.display()
    );
    rig.server.write(&rig.server_text(&options, ""));
    rig.server.done(&["reload"]);
    assert!(shows(&certs[0]));
    assert!(rig.server.done(&["reload"]).contains("nothing has changed"));
    // The same names, and something else in the files.
    put(&certs[1]);
    assert!(!shows(&certs[1]), "before it was asked to");
    let said = rig.server.done(&["reload"]);
    assert!(said.contains("the API"), "{said}");
    assert!(shows(&certs[1]) && !shows(&certs[0]));
}

#[test]
fn a_listener_can_be_added_and_moved() {
    let rig = Rig::start();
    let load = Load::start(&rig);
    rig.server
        .write(&rig.server_text("  sniAddr: \"127.0.0.1:0\"\n", ""));
    rig.server.done(&["reload"]);
    let listeners = rig.server.status()["units"][0]["listeners"].clone();
    let named: Vec<&str> = listeners
        .as_array()
        .expect("listeners")
        .iter()
        .filter_map(|listener| listener["option"].as_str())
        .collect();
    assert_eq!(named, ["addr", "sniAddr"]);
    let sni = listeners[1]["address"]
        .as_str()
        .expect("an address")
        .to_owned();
    std::net::TcpStream::connect(&sni).expect("open");
    rig.server.write(&rig.server_text("", ""));
    rig.server.done(&["reload"]);
    wait::until("the listener is closed", || {
        std::net::TcpStream::connect(&sni).is_err().then_some(())
    });
    load.finish(&rig);
}

#[test]
fn a_bad_configuration_is_refused_with_its_error_and_nothing_changes() {
    let rig = Rig::start();
    let load = Load::start(&rig);
    let before = rig.server.serving();
    rig.server.write(&rig.server_text("  tcpRnage: 1-2\n", ""));
    let why = rig.server.refused(&["reload"]);
    assert!(
        why.contains("tcpRnage") && why.contains("did you mean"),
        "{why}"
    );
    // SIGHUP has nobody to tell, so the log says it.
    rig.server.process.signal("HUP");
    rig.server.process.wait_log_times(&["tcpRnage"], 2);
    fs::remove_file(&rig.server.file).expect("removed");
    let why = rig.server.refused(&["reload"]);
    assert!(why.contains("cannot be read"), "{why}");
    rig.server.write(&rig.server_text("", ""));
    assert!(rig.server.done(&["reload"]).contains("nothing has changed"));
    load.finish(&rig);
    assert_eq!(rig.server.serving(), before);
}

#[test]
fn an_address_that_is_taken_is_refused_and_the_old_worker_goes_on() {
    let rig = Rig::start();
    let load = Load::start(&rig);
    let before = rig.server.serving();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    rig.server
        .write(&rig.server_text(&format!("  sniAddr: \"{address}\"\n"), ""));
    let why = rig.server.refused(&["reload"]);
    assert!(
        why.contains("sniAddr") && why.contains(&address.to_string()),
        "{why}"
    );
    load.wait(50);
    assert_eq!(rig.server.serving(), before);
    drop(taken);
    rig.server.done(&["reload"]);
    assert_ne!(rig.server.serving(), before);
    load.finish(&rig);
}

#[test]
fn two_old_workers_at_most_and_a_further_change_waits_for_one_to_end() {
    let rig = Rig::start();
    let mut stayers = Vec::new();
    for workers in [1, 3] {
        stayers.push(Stayer::new(&rig));
        let options = format!("  workers: {workers}\n");
        let text = rig.server_text("", "").replace("  workers: 2\n", &options);
        rig.server.write(&text);
        rig.server.done(&["reload"]);
    }
    let draining = || {
        let workers = rig.server.workers();
        workers
            .iter()
            .filter(|(.., state)| state == "draining")
            .count()
    };
    assert_eq!(draining(), 2);
    let serving = rig.server.serving();
    rig.server
        .write(&rig.server_text("  sniAddr: \"127.0.0.1:0\"\n", ""));
    let said = rig.server.done(&["reload"]);
    assert!(
        said.contains("the change is made when one of them has"),
        "{said}"
    );
    assert_eq!((draining(), rig.server.serving()), (2, serving));
    stayers.iter_mut().for_each(Stayer::talk);
    stayers.remove(0);
    wait::until("the change is made", || {
        (rig.server.serving() != serving).then_some(())
    });
    stayers.iter_mut().for_each(Stayer::talk);
}

#[test]
fn a_clients_services_change_in_place() {
    let rig = Rig::start();
    let load = Load::start(&rig);
    let mut stayer = Stayer::new(&rig);
    let before = rig.client.serving();
    let more = format!(
        "- {{name: more, local: \"http://{}\", hostPrefix: more}}\n",
        rig.origin.address()
    );
    rig.client.write(&rig.client_text("", &more));
    let said = rig.client.done(&["reload"]);
    assert!(said.contains("in place: service more is new"), "{said}");
    http::get_until(rig.address, "more.test", "/", 200);
    rig.client.write(&rig.client_text("", ""));
    rig.client.done(&["reload"]);
    http::get_until(rig.address, "more.test", "/", 404);
    stayer.talk();
    load.wait(100);
    load.finish(&rig);
    assert_eq!(rig.client.serving(), before, "the same worker");
}

#[test]
fn a_client_is_replaced_without_a_visitor_noticing() {
    let rig = Rig::start();
    let load = Load::start(&rig);
    let mut stayer = Stayer::new(&rig);
    let (before, _) = rig.client.serving();
    for seconds in [40, 41] {
        load.wait(100);
        let options = format!("  remoteTimeout: {seconds}s\n");
        rig.client.write(&rig.client_text(&options, ""));
        rig.client.done(&["reload"]);
        stayer.talk();
    }
    assert_ne!(rig.client.serving().0, before);
    load.wait(200);
    load.finish(&rig);
    drop(stayer);
    wait::until("the old workers end", || {
        (rig.client.workers().len() == 1).then_some(())
    });
}

#[test]
fn who_is_not_running_is_not_reached() {
    let idle = Gt::start(
        "idle",
        "type: server\noptions: {addr: \"127.0.0.1:0\", id: a, secret: change-me-now}\n",
    );
    idle.process.wait_log(&["a worker serves"]);
    let elsewhere = idle.process.dir().file("other.yml", "");
    let output = idle.process.ask(&[
        "-s".as_ref(),
        "reload".as_ref(),
        "-c".as_ref(),
        elsewhere.as_os_str(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(why.contains("no gt runs for"), "{why}");
    // And a second one for the same file is refused.
    let again = idle.process.ask(&["-c".as_ref(), idle.file.as_os_str()]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("running already"));
}

#[test]
fn a_quic_client_comes_to_the_new_worker_and_visitors_wait_for_it() {
    let origin = e2e::Service::text("hello");
    let cert = e2e::Cert::self_signed(&["127.0.0.1"]);
    let text = |bbr: bool| {
        format!(
            "type: server\noptions:\n  addr: \"127.0.0.1:0\"\n  quicAddr: \"127.0.0.1:0\"\n  certFile: {}\n  keyFile: {}\n  workers: 2\n  bbr: {bbr}\n\
             users:\n  web: {{secret: \"{SECRET}\"}}\n",
            cert.cert_file().display(),
            cert.key_file().display()
        )
    };
    let server = Gt::start("server", &text(false));
    let address = |option: &str| {
        let line = server
            .process
            .wait_log(&["listening", &format!("option=\"{option}\"")]);
        let address = e2e::relay::field(&line, "address").and_then(|address| address.parse().ok());
        let address: std::net::SocketAddr = address.expect("an address");
        address
    };
    let (plain, quic) = (address("addr"), address("quicAddr"));
    let client = e2e::ClientSpec::new("web")
        .option("secret", format!("\"{SECRET}\""))
        .option("remote", format!("quic://{quic}"))
        .option("remoteCert", cert.cert_file().display())
        .service(origin.url("http"), "")
        .start_up();
    assert_eq!(
        http::get(plain, "web.test", "/").expect("served").status,
        200
    );
    for bbr in [true, false] {
        let before = server.serving();
        server.write(&text(bbr));
        let said = server.done(&["reload"]);
        assert!(said.contains("bbr"), "{said}");
        let began = std::time::Instant::now();
        let answer = http::get(plain, "web.test", "/").expect("served");
        println!("answered after {:?}", began.elapsed());
        assert_eq!(answer.status, 200);
        wait::until("another worker serves", || {
            (server.serving() != before).then_some(())
        });
    }
    drop(client);
}
