//! Drives `fuzz_checks::tunnel::check`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::tunnel::check(data));
