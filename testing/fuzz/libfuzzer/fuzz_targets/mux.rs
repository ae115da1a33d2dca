//! Drives `fuzz_checks::mux::check`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::mux::check(data));
