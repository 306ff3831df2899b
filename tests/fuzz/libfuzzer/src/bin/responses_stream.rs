#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| penstock_fuzz::targets::responses_stream::check(bytes));
