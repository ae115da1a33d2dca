//! Clients that are stopped: the server knows at once, also of links that came up in that moment.

use std::{
    thread,
    time::{Duration, Instant},
};

use e2e::{Service, Transport, over_each_transport, wait};
use testkit::{Random, seeds};

use crate::server;

over_each_transport!(a_client_that_is_stopped_while_links_come_up_leaves_none_behind);

fn a_client_that_is_stopped_while_links_come_up_leaves_none_behind(transport: Transport) {
    let service = Service::text("here");
    let server = server();
    for seed in seeds(1) {
        let mut random = Random::new(seed);
        for _ in 0..ROUNDS {
            let mut client = server
                .client(transport, "web")
                .option("remoteConnections", LINKS)
                .service(service.url("http"), "")
                .start();
            // The first link calls the others, which come up within milliseconds: no waiting is exact enough.
            while client.process.count_log(&["connected", "link="]) == 0 {
                thread::yield_now();
            }
            let moment = Duration::from_micros(random.below(4000));
            let first = Instant::now();
            while first.elapsed() < moment {
                thread::yield_now();
            }
            client.process.signal("TERM");
            assert!(client.wait_exit().success());
            // Far sooner than links over UDP are given up that say nothing. The last one down ends the session.
            wait::until("the server has ended all links", || {
                let count = |what| server.process.count_log(&["a client's link is", what]);
                (count("up ") == count("down ")).then_some(())
            });
        }
    }
}

const LINKS: u32 = 16;
const ROUNDS: usize = 20;
