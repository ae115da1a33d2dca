//! Seeds of a random test: many in a run, one when it is replayed.

use std::{env, ops::Range, thread};

/// The seed in `GT_SEED`, or each from 0 up to `GT_SEEDS` or `count`. Where the loop over them panics, what replays it is printed.
///
/// # Panics
///
/// Where one of the variables is no number: a run of other seeds than those asked for would show nothing.
pub fn seeds(count: u64) -> Seeds {
    let left = match number("GT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GT_SEEDS").unwrap_or(count),
    };
    Seeds {
        left,
        current: None,
    }
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name} is {text}, which is no number"),
    }
}

/// See [`seeds`].
#[derive(Debug)]
pub struct Seeds {
    left: Range<u64>,
    current: Option<u64>,
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.current = self.left.next();
        self.current
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        if let Some(seed) = self.current
            && thread::panicking()
        {
            let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
            let thread = thread::current();
            let test = thread.name().unwrap_or_default();
            eprintln!("replay: GT_SEED={seed} cargo test -p {package} {test}");
        }
    }
}
