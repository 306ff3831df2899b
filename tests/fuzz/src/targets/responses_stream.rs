//! Streams of responses providers, for clients of every dialect: the result does not depend on the cuts, is
//! well-formed, and no content is lost or invented.

use penstock_core::Dialect;

pub fn check(bytes: &[u8]) {
    let Some((choice, stream)) = crate::choice(bytes) else { return };
    crate::stream::stream(Dialect::Responses, choice, stream);
}
