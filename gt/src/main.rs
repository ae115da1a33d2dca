//! The gt binary: command line only.
fn main() {}
