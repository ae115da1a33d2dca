//! Fuzz checks of crate `sniff`.

/// Runs one input; panics on a finding.
pub fn check(data: &[u8]) {
    let _ = data;
}
