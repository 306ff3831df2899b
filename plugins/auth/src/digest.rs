//! What is stored of a key's secret, and how it is compared.

use crate::key::Key;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// HMAC-SHA-256 (RFC 2104) of the key's secret part under the pepper.
///
/// No slow hash: the secret has 238 bits and cannot be guessed; a slow hash
/// would only let strangers burn our processor.
#[must_use]
pub fn digest(pepper: &[u8; 32], key: &Key) -> [u8; 32] {
    // RFC 2104: a key shorter than the block is padded with zeros.
    let mut block = [0_u8; 64];
    block.iter_mut().zip(pepper).for_each(|(place, byte)| *place = *byte);
    let mut mac = <Hmac<Sha256> as hmac::digest::KeyInit>::new(&block.into());
    mac.update(key.secret());
    mac.finalize().into_bytes().into()
}

/// Whether two digests are equal, in a time that does not tell where they differ.
#[must_use]
pub fn verify(stored: &[u8; 32], presented: &[u8; 32]) -> bool {
    stored.ct_eq(presented).into()
}
