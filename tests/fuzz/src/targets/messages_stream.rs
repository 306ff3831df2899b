//! Streams of providers that speak the messages dialect, for clients of both: the same however they are cut, well-formed,
//! nothing lost and nothing made up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_contract::Dialect;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, stream)) = penstock_fuzz::choice(bytes) else { return };
    penstock_fuzz::stream::stream(Dialect::Messages, choice, stream);
});
