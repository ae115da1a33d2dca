//! `forward LISTEN TO [ACCESS_LOG]`: a proxy with one route and one server, for trying and measuring.

use std::{net::SocketAddr, time::Duration};

use proxy::{
    AccessLogSpec, Address, Check, KeepAlive, Listener, Options, Protocol, Proxy, Site,
    UpstreamServer, UpstreamSpec,
};
use route::{
    Action, BreakerSpec, HealthSpec, IpSet, Match, Policy, RetryBudgetSpec, Route, Routes,
    ServerSpec, ToUpstream, UpstreamId,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let listen: SocketAddr = args.next().ok_or("where to listen?")?.parse()?;
    let to: SocketAddr = args.next().ok_or("where to forward?")?.parse()?;
    let log = args.next().map(AccessLogSpec::new);
    let route = Route::new("all", Action::Upstream(ToUpstream::new(UpstreamId(0))));
    let upstream = UpstreamSpec {
        name: "app".into(),
        servers: vec![UpstreamServer {
            spec: ServerSpec::new(&to.to_string()),
            address: Address::Tcp(to.ip().to_string().into(), to.port()),
            authority: to.to_string().into(),
            tls: None,
            send_proxy: None,
        }],
        policy: Policy::default(),
        hash_key: None,
        sticky: None,
        slow_start: Duration::ZERO,
        health: HealthSpec::default(),
        check: Check::default(),
        check_port: None,
        breaker: BreakerSpec::default(),
        retry: RetryBudgetSpec::default(),
        keep_alive: KeepAlive::default(),
        protocol: proxy::ServerProtocol::default(),
    };
    let proxy = Proxy::start(Options {
        workers: std::env::var("WORKERS").ok().and_then(|n| n.parse().ok()),
        listeners: vec![Listener {
            address: listen,
            protocol: Protocol::Http { http2: true },
            proxy_from: IpSet::default(),
            http3: false,
        }],
        site: Site {
            routes: std::sync::Arc::new(Routes::new(vec![(Match::default(), route)])?),
            upstreams: vec![upstream],
            ..Site::default()
        },
        access_log: log,
    })?;
    println!("http://{}", proxy.addresses()[0]);
    loop {
        std::thread::park();
    }
}
