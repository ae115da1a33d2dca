//! Drives `fuzz_checks::h1::check_body`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::h1::check_body(data));
