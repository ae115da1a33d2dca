//! Visitors through the forwarder alone: right when left alone, ended when cut, wrong when a byte is changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::acceptor::Acceptor;
use crate::forwarder::Forwarder;
use crate::service;

const LIMIT: Duration = Duration::from_secs(20);

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

struct Place {
    _services: [Acceptor; 2],
    data: Forwarder,
    route: Route,
    _http: Forwarder,
}

fn place() -> Place {
    let services = [service::data(any()).unwrap(), service::http(any()).unwrap()];
    let data = Forwarder::open(any(), services[0].at()).unwrap();
    let http = Forwarder::open(any(), services[1].at()).unwrap();
    let route = Route {
        data: data.at(),
        http: http.at(),
        host: "id0.example.com".into(),
    };
    Place {
        _services: services,
        data,
        route,
        _http: http,
    }
}

fn visit(kind: Kind) -> Visit {
    Visit { seed: 11, kind }
}

#[test]
fn every_kind_is_right_when_left_alone() {
    let place = place();
    for kind in [
        Kind::Download {
            size: 300_000,
            slow: false,
        },
        Kind::Download {
            size: 50_000,
            slow: true,
        },
        Kind::Download {
            size: 0,
            slow: false,
        },
        Kind::Upload { size: 300_001 },
        Kind::Upload { size: 0 },
        Kind::Both { size: 2_000_000 },
        Kind::Both { size: 0 },
        Kind::Abort {
            size: MOST,
            after: 1000,
            reset: true,
        },
        Kind::Abort {
            size: MOST,
            after: 0,
            reset: false,
        },
        Kind::Idle {
            hold: Duration::from_millis(20),
        },
        Kind::Requests {
            count: 9,
            most: 70_000,
        },
    ] {
        let outcome = visit(kind.clone()).make(&place.route, LIMIT);
        assert!(matches!(outcome, Outcome::Right), "{kind:?}: {outcome}");
    }
}

#[test]
fn drawn_visits_follow_from_the_seed_and_are_right() {
    let place = place();
    let mut rng = Rng::new(4);
    let mut again = rng.clone();
    for _ in 0..12 {
        let visit = Visit::draw(&mut rng);
        assert_eq!(visit, Visit::draw(&mut again));
        let outcome = visit.make(&place.route, LIMIT);
        assert!(
            matches!(outcome, Outcome::Right),
            "seed 4, {visit:?}: {outcome}"
        );
    }
}

#[test]
fn a_cut_ends_a_visit_with_a_clean_error() {
    let place = place();
    let route = place.route.clone();
    let running = std::thread::spawn(move || {
        visit(Kind::Idle {
            hold: Duration::from_millis(300),
        })
        .make(&route, LIMIT)
    });
    let end = Instant::now() + LIMIT;
    while place.data.live() == 0 && Instant::now() < end {
        std::thread::yield_now();
    }
    place.data.cut().unwrap();
    let outcome = running.join().unwrap();
    assert!(matches!(outcome, Outcome::Ended(_)), "{outcome}");
}

#[test]
fn a_frozen_way_makes_a_visit_late() {
    let place = place();
    place.data.freeze();
    let outcome = visit(Kind::Upload { size: 10 }).make(&place.route, Duration::from_millis(200));
    assert!(matches!(outcome, Outcome::Late(_)), "{outcome}");
    place.data.thaw();
}

#[test]
fn nobody_at_the_door_is_a_clean_error() {
    let mut gone = service::data(any()).unwrap();
    gone.close();
    let route = Route {
        data: gone.at(),
        http: gone.at(),
        host: String::new(),
    };
    let outcome = visit(Kind::Upload { size: 10 }).make(&route, LIMIT);
    assert!(matches!(outcome, Outcome::Ended(_)), "{outcome}");
}

#[test]
fn a_changed_byte_is_wrong_in_both_directions() {
    // A relay that changes one byte of every piece, and drops what is left on an end.
    let service = service::data(any()).unwrap();
    let target = service.at();
    let upwards = Arc::new(AtomicBool::new(false));
    let direction = upwards.clone();
    let bad = Acceptor::open(any(), move |mut near| {
        let Ok(mut far) = near.dial(target) else {
            return;
        };
        let (Ok(mut near_too), Ok(mut far_too)) = (near.try_clone(), far.try_clone()) else {
            return;
        };
        let up = direction.load(Ordering::SeqCst);
        let back = std::thread::spawn(move || spoil(&mut far_too, &mut near_too, !up));
        spoil(&mut near, &mut far, up);
        let _ = back.join();
    })
    .unwrap();
    let route = Route {
        data: bad.at(),
        http: bad.at(),
        host: String::new(),
    };
    let outcome = visit(Kind::Download {
        size: 100_000,
        slow: false,
    })
    .make(&route, LIMIT);
    assert!(matches!(outcome, Outcome::Wrong(_)), "{outcome}");
    upwards.store(true, Ordering::SeqCst);
    let outcome = visit(Kind::Upload { size: 200_000 }).make(&route, LIMIT);
    assert!(matches!(outcome, Outcome::Wrong(_)), "{outcome}");
}

fn spoil(from: &mut crate::acceptor::Guarded, to: &mut crate::acceptor::Guarded, change: bool) {
    let mut buffer = [0; 4096];
    let mut total = 0;
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        // The first line is left alone, so that the service understands it.
        if change && total > 40_000 {
            buffer[n - 1] ^= 1;
        }
        total += n;
        if to.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
    to.finish();
}
