//! Drives `fuzz_checks::smux::check`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::smux::check(data));
