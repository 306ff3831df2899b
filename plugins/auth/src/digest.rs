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
    hmac(pepper, key.secret())
}

/// A value by which a pepper is known again, and from which it cannot be computed.
#[must_use]
pub fn pepper_check(pepper: &[u8; 32]) -> [u8; 32] {
    // No secret of a key: those are 40 letters and digits.
    hmac(pepper, b"penstock: check of the pepper")
}

fn hmac(pepper: &[u8; 32], message: &[u8]) -> [u8; 32] {
    // RFC 2104: a key shorter than the block is padded with zeros.
    let mut block = [0_u8; 64];
    block.iter_mut().zip(pepper).for_each(|(place, byte)| *place = *byte);
    let mut mac = <Hmac<Sha256> as hmac::digest::KeyInit>::new(&block.into());
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// Whether two digests are equal, in a time that does not tell where they differ.
#[must_use]
pub fn verify(stored: &[u8; 32], presented: &[u8; 32]) -> bool {
    stored.ct_eq(presented).into()
}
