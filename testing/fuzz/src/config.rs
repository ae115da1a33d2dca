//! Fuzz checks of crate `config`.

/// Runs one input; panics on a finding.
pub fn check(data: &[u8]) {
    let _ = data;
}
