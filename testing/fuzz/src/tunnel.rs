//! Fuzz checks of crate `tunnel`.

/// Runs one input; panics on a finding.
pub fn check(data: &[u8]) {
    let _ = data;
}
