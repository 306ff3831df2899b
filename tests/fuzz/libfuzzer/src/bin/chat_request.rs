#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| penstock_fuzz::targets::chat_request::check(bytes));
