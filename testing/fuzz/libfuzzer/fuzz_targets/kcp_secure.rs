//! Drives `fuzz_checks::kcp_secure::check`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::kcp_secure::check(data));
