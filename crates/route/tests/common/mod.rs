//! What the tests share: short ways to write rules, and seeds.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "helpers of tests; each test binary uses a part"
)]

use rand::{SeedableRng, rngs::StdRng};
use route::{Action, HostPattern, Match, PathPattern, Respond, Route, Routes};

pub(crate) type Rule = (Match, Route);

/// A rule of a host pattern and a path: `*`, `=EXACT`, `~REGEX` or a prefix.
pub(crate) fn rule(name: &str, host: &str, path: &str) -> Rule {
    let path = match path.split_at(1) {
        ("*", "") => PathPattern::default(),
        ("=", exact) => PathPattern::exact(exact).unwrap(),
        ("~", regex) => PathPattern::regex(regex).unwrap(),
        _ => PathPattern::prefix(path).unwrap(),
    };
    let rule = Match {
        host: HostPattern::new(host).unwrap(),
        path,
        ..Match::default()
    };
    (
        rule,
        Route::new(name, Action::Respond(Respond::text(200, name))),
    )
}

pub(crate) fn routes(rules: Vec<Rule>) -> Routes {
    Routes::new(rules).unwrap()
}

/// Runs `check` with some seeds, or with the one in `ROUTE_SEED`; a failure says how to run it again.
pub(crate) fn seeded(runs: u64, check: impl Fn(&mut StdRng)) {
    let given = std::env::var("ROUTE_SEED")
        .ok()
        .map(|seed| seed.parse().unwrap());
    let seeds = match given {
        Some(seed) => seed..=seed,
        None => 1..=runs,
    };
    for seed in seeds {
        let shown = Replay(seed);
        check(&mut StdRng::seed_from_u64(seed));
        std::mem::forget(shown);
    }
}

struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        eprintln!("replay with ROUTE_SEED={}", self.0);
    }
}
