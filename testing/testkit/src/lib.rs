//! What the tests of several crates share: [`seeds`] are gone through and can be replayed, [`Random`] makes numbers of one,
//! [`Go`] builds a peer written in Go.

mod go;
mod random;
mod seeds;

pub use go::Go;
pub use random::Random;
pub use seeds::{Seeds, seeds};
