//! Clients with several ways to one server: what they show of them, and how soon they find the one that works.

use std::{
    net::SocketAddr,
    process::Command,
    time::{Duration, Instant},
};

use e2e::{
    Client, PortRange, Server, ServerSpec, Service, Transport, http,
    netns::{Cable, SERVER},
    relay::field,
    wait,
};

use crate::{
    moving::{clear_path, key, two_ways},
    server_with_ports,
};

fn api(client: &Client) -> SocketAddr {
    let line = client
        .process
        .wait_log(&["listening", "option=\"apiAddr\""]);
    let address = field(&line, "address").and_then(|address| address.parse().ok());
    address.unwrap_or_else(|| panic!("no address in {line:?}"))
}

/// Waits until the page has all of it.
fn shows(api: SocketAddr, page: &str, wanted: &[String]) {
    wait::until(&format!("{wanted:?} on {page}"), || {
        let text = http::get(api, "localhost", page).ok()?.text();
        wanted.iter().all(|part| text.contains(part)).then_some(())
    });
}

#[test]
fn status_and_metrics_show_the_ways_and_why_the_links_go_where_they_do() {
    let service = Service::echo();
    let (_ports, server) = server_with_ports(1);
    let path = clear_path(server.quic());
    let client = two_ways(&server, &path, &service, &[("apiAddr", "\"127.0.0.1:0\"")]);
    client.wait_up();
    let api = api(&client);
    let quic = format!("quic://{}", path.address());
    let tls = format!("tls://{}", server.https());
    let parts = |in_use: &str, other: &str| {
        vec![
            format!("{{\"remote\":\"{in_use}\",\"in_use\":true,\"works\":true,\"rtt_seconds\":0."),
            format!("{{\"remote\":\"{other}\",\"in_use\":false"),
        ]
    };
    // Where they began; a busy machine may have made them begin elsewhere.
    shows(
        api,
        "/metrics",
        &[format!("gt_way_works{{way=\"{tls}\"}} 1")],
    );
    path.block(true);
    let mut status = parts(&tls, &quic);
    status.push("\"last_move\":{\"seconds_ago\":".to_owned());
    status.push("\"reason\":\"".to_owned());
    shows(api, "/status", &status);
    let metrics = [
        format!("gt_way_in_use{{way=\"{tls}\"}} 1"),
        format!("gt_way_in_use{{way=\"{quic}\"}} 0"),
        format!("gt_way_works{{way=\"{quic}\"}} 0"),
        format!("gt_way_rtt_seconds{{way=\"{tls}\"}} 0."),
    ];
    shows(api, "/metrics", &metrics);
    let text = http::get(api, "localhost", "/metrics")
        .expect("metrics")
        .text();
    let moves = text
        .lines()
        .find_map(|line| line.strip_prefix("gt_way_moves_total "));
    let moves: u64 = moves.and_then(|n| n.parse().ok()).expect("a number");
    assert!(moves >= 1, "{text}");
    let page = [
        tls,
        quic,
        "in use".to_owned(),
        "does not work".to_owned(),
        "Moved ".to_owned(),
    ];
    shows(api, "/", &page);
}

/// The server's answers over a protocol are lost from now on, or not any more.
fn lose(cable: &Cable, protocol: &str, lost: bool) {
    let change = if lost { "add" } else { "del" };
    let rule = [
        "rule",
        change,
        "pref",
        "100",
        "ipproto",
        protocol,
        "blackhole",
    ];
    let status = cable.at_server(|| Command::new("ip").args(rule).status());
    assert!(status.is_ok_and(|status| status.success()), "ip {rule:?}");
}

#[test]
fn when_tcp_is_lost_and_udp_works_again_that_is_found_soon() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let ports = PortRange::claim(1);
    let any = format!("\"{SERVER}:0\"");
    let server: Server = cable.at_server(|| {
        let spec = ServerSpec::new().user("web").ports(&ports);
        spec.option("quicAddr", &any)
            .option("tlsAddr", &any)
            .start()
    });
    lose(&cable, "udp", true);
    let began = Instant::now();
    let (service, client) = cable.at_client(|| {
        let service = Service::echo();
        let (quic, https) = (server.quic(), server.https());
        let ways = format!("[\"quic://{quic}\", \"tls://{https}\", \"wss://{https}\"]");
        let client = server
            .client(Transport::Quic, "web")
            .option("remote", ways)
            .option("remoteChoice", "best")
            .option("logLevel", "debug")
            .option("remoteConnections", 1)
            .service(service.url("tcp"), "name: echo, remoteTCPRandom: true")
            .start_up();
        (service, client)
    });
    println!("up after {:?}", began.elapsed());
    let address = server.port(client.port_of("echo"));
    cable.at_server(|| {
        let mut visitor = http::connect(address).expect("a connection");
        key(&mut visitor, 1);
        // All ways over TCP were seen to work.
        client.process.wait_log(&["a way works", "server=wss://"]);
        let left = server.process.count_log(&["a client leaves a link"]);
        lose(&cable, "udp", false);
        lose(&cable, "tcp", true);
        let began = Instant::now();
        server
            .process
            .wait_log(&["a client's link is up", "transport=quic"]);
        // Said on the new link: a visitor that came before it was heard could be given to the dead one.
        server
            .process
            .wait_log_times(&["a client leaves a link"], left + 1);
        let took = began.elapsed();
        println!("over QUIC after {took:?}");
        // Silence shows after 2.5 s at the most; a dial of the way that was thought to work would have waited for ten.
        assert!(took < Duration::from_secs(6), "{took:?}");
        let mut visitor = http::connect(address).expect("a connection");
        key(&mut visitor, 2);
    });
    assert!(service.accepted() >= 2);
}
