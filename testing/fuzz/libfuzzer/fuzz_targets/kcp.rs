//! Drives `fuzz_checks::kcp::check`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::kcp::check(data));
