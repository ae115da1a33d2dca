//! Drives `fuzz_checks::ws::check`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::ws::check(data));
