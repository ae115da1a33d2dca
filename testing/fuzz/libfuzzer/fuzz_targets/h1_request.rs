//! Drives `fuzz_checks::h1::check_request`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::h1::check_request(data));
