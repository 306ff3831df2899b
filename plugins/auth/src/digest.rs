//! Digests of key secrets: computation and comparison.

use crate::key::ApiKey;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Keyed hash function (HMAC-SHA-256) for digests of API keys under one pepper. The pepper is hashed once, and not for
/// each key.
#[derive(Clone)]
pub struct KeyDigester(Hmac<Sha256>);

impl KeyDigester {
    /// Creates the hash function of a pepper.
    #[must_use]
    pub fn new(pepper: &[u8; 32]) -> Self {
        // RFC 2104: a key shorter than the block is padded with zeros.
        let mut block = [0_u8; 64];
        block.iter_mut().zip(pepper).for_each(|(slot, byte)| *slot = *byte);
        Self(<Hmac<Sha256> as hmac::digest::KeyInit>::new(&block.into()))
    }

    /// Returns the digest of a key, as [`key_digest`] does.
    #[must_use]
    pub fn digest(&self, key: &ApiKey) -> [u8; 32] {
        self.mac(key.secret())
    }

    fn mac(&self, message: &[u8]) -> [u8; 32] {
        let mut mac = self.0.clone();
        mac.update(message);
        mac.finalize().into_bytes().into()
    }
}

/// Returns the HMAC-SHA-256 (RFC 2104) of the key's secret part under the pepper.
///
/// A slow password hash would add nothing: the secret has 238 bits and cannot be guessed, and a slow hash would let
/// strangers exhaust our CPU.
#[must_use]
pub fn key_digest(pepper: &[u8; 32], key: &ApiKey) -> [u8; 32] {
    KeyDigester::new(pepper).digest(key)
}

/// Returns the fingerprint of a pepper, by which a later start recognises the same pepper. The pepper cannot be
/// computed from it.
#[must_use]
pub fn pepper_fingerprint(pepper: &[u8; 32]) -> [u8; 32] {
    // The hashed text cannot be the secret of a key, because a secret has 40 letters and digits.
    KeyDigester::new(pepper).mac(b"penstock: check of the pepper")
}

/// Returns true if two digests are equal. The comparison takes constant time, so that it does not reveal where they
/// differ.
#[must_use]
pub fn digests_equal(stored: &[u8; 32], presented: &[u8; 32]) -> bool {
    stored.ct_eq(presented).into()
}
