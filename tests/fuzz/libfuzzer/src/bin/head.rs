#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| penstock_fuzz::targets::head::check(bytes));
