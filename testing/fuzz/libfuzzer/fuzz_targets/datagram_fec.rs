//! Drives `fuzz_checks::datagram_fec::check`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_checks::datagram_fec::check(data));
