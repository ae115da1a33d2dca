//! Drives `fuzz_checks::h1::check_response`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::h1::check_response(data));
