//! Drives `fuzz_checks::h3::check_frames`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::h3::check_frames(data));
