//! Names of generated images, which are the last segment of their URLs: 48 hexadecimal digits of 128 random bits and a
//! 64-bit authentication code that is computed with the pepper. A gateway of a fleet looks for images of the other
//! gateways only under names with a valid code, so that requests with random names cause no request to the bucket.

use crate::storage::stores::Pepper;
use penstock_core::hex;
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;

/// Random bytes of a name.
const RANDOM_BYTES: usize = 16;
/// Bytes of the authentication code.
const CODE_BYTES: usize = 8;
/// Salt and label from which the key is derived. Another label gives an independent key.
const SALT: &[u8] = b"penstock";
const LABEL: &[u8] = b"image names 1";

/// Generator of names. Its debug output contains no secret.
#[derive(Debug)]
pub(super) struct ImageNameGenerator(hmac::Key);

impl ImageNameGenerator {
    pub(super) fn new(pepper: &Pepper) -> Self {
        let secret = Salt::new(HKDF_SHA256, SALT).extract(&pepper.0);
        let derived = secret.expand(&[LABEL], hmac::HMAC_SHA256).map(hmac::Key::from);
        // HKDF fails only if the derived key is longer than 255 digests, which is not the case here.
        Self(derived.unwrap_or_else(|_| hmac::Key::new(hmac::HMAC_SHA256, &pepper.0)))
    }

    /// Returns a new name.
    pub(super) fn generate(&self) -> String {
        let random = rand::random::<[u8; RANDOM_BYTES]>();
        let code = hmac::sign(&self.0, &random);
        let code = code.as_ref().get(..CODE_BYTES).unwrap_or_default();
        hex::encode(&[&random[..], code].concat())
    }

    /// Returns true if a gateway with this pepper has made the name.
    pub(super) fn is_valid(&self, name: &str) -> bool {
        let decoded = decode(name);
        let Some((random, code)) = decoded.as_ref().map(|bytes| bytes.split_at(RANDOM_BYTES)) else {
            return false;
        };
        let expected = hmac::sign(&self.0, random);
        expected.as_ref().get(..CODE_BYTES) == Some(code)
    }
}

/// Returns true if a name has the form of the names of images, whatever its authentication code is.
pub(super) fn is_well_formed_name(name: &str) -> bool {
    decode(name).is_some()
}

/// Returns the random bytes and the authentication code of a name; `None` if the name is not hexadecimal or has another
/// length.
fn decode(name: &str) -> Option<[u8; RANDOM_BYTES + CODE_BYTES]> {
    hex::decode(name.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::string_slice)]
    use super::*;

    #[test]
    fn a_name_is_valid_under_its_pepper_alone_and_unchanged() {
        let (names, others) =
            (ImageNameGenerator::new(&Pepper([7; 32])), ImageNameGenerator::new(&Pepper([8; 32])));
        let name = names.generate();
        assert!(name.len() == 48 && names.is_valid(&name) && !others.is_valid(&name));
        assert_ne!(name, names.generate());
        for at in 0..name.len() {
            let mut changed = name.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert!(!names.is_valid(&String::from_utf8_lossy(&changed)), "{at}");
            assert!(!names.is_valid(&name[..at]), "{at}");
        }
        assert!(!names.is_valid(&format!("{name}0")) && !names.is_valid("../../responses/a"));
    }
}
