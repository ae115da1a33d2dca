//! Visitors who ask for a name while its client comes over from the process before.

use std::{sync::Barrier, time::Duration};

use super::Registry;
use crate::{
    routing::{Found, Kind},
    scene::{come, server},
};

/// Asks for `name` until it is there; panics if it is ever said not to be.
fn ask(registry: &Registry, name: &str, began: &Barrier) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        began.wait();
        let host = format!("{name}.test");
        match registry.find(Kind::Http, &host, Some(name)).await {
            Found::Service(_) => {}
            other => panic!("{name}: {other:?} while its client came"),
        }
    });
}

/// The last client that is awaited must not be, for a moment, neither awaited nor there. The moment was some microseconds long: many rounds.
#[test]
fn a_name_is_awaited_until_it_is_there() {
    let server = server(1);
    let registry = &server.shared.registry;
    for round in 0..20_000 {
        let name = format!("web{round}");
        let ids = [name.clone()].into_iter().collect();
        let patience = Duration::from_secs(20);
        registry.expect_arrivals(Some(ids), patience);
        let began = Barrier::new(2);
        let session = std::thread::scope(|scope| {
            scope.spawn(|| ask(registry, &name, &began));
            began.wait();
            come(registry, &name, None)
        });
        assert!(registry.end_if_away(&session));
    }
}

/// Whoever asks for a name that nobody has is answered as soon as the last client that is awaited has come.
#[test]
fn a_name_of_nobody_is_not_waited_for_longer_than_the_clients() {
    let server = server(1);
    let registry = &server.shared.registry;
    let ids = ["web".to_owned()].into_iter().collect();
    registry.expect_arrivals(Some(ids), Duration::from_secs(20));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let asked = registry.find(Kind::Http, "nobody.test", Some("nobody"));
            let soon = async { tokio::time::timeout(Duration::from_secs(10), asked).await };
            runtime.block_on(soon)
        });
        std::thread::sleep(Duration::from_millis(200));
        assert!(!asking.is_finished(), "answered while a client is awaited");
        come(registry, "web", None);
        let found = asking.join().expect("no panic").expect("in time");
        assert!(matches!(found, Found::Nothing | Found::Away), "{found:?}");
    });
}
