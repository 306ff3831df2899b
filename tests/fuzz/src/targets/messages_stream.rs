//! Streams of providers that speak the messages dialect, for clients of both: the same however they are cut,
//! well-formed, nothing lost and nothing made up.

use penstock_core::Dialect;

pub fn check(bytes: &[u8]) {
    let Some((choice, stream)) = crate::choice(bytes) else { return };
    crate::stream::stream(Dialect::Messages, choice, stream);
}
