//! Drives `fuzz_checks::route::check`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::route::check(data));
