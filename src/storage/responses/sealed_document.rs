//! Encryption of stored responses: AES-256-GCM with a key for each API key, which is derived from the pepper. The
//! format of a file is:
//!
//! ```text
//! "PSR1" | start of the retention, Unix seconds, 8 bytes, big-endian | nonce, 12 bytes | ciphertext | tag, 16 bytes
//! ```
//!
//! The associated data are the first two fields, the API key and the id. So a file is rejected if it was copied over
//! another file, or if its time was changed. Nonces are random, and one key encrypts far fewer than 2^32 responses.

use crate::storage::stores::Pepper;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use std::io::{Error, ErrorKind, Result};

const MAGIC: &[u8; 4] = b"PSR1";
const TIME_BYTES: usize = 8;
/// Length of the fields before the nonce, in bytes.
pub(super) const HEAD_BYTES: usize = MAGIC.len() + TIME_BYTES;
/// Salt and label from which the keys are derived. Another label gives independent keys.
const SALT: &[u8] = b"penstock";
const LABEL: &[u8] = b"stored responses 1";

/// Cipher of documents. Its debug output has no secret.
pub(super) struct DocumentCipher {
    secret: Prk,
}

impl std::fmt::Debug for DocumentCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DocumentCipher(***)")
    }
}

impl DocumentCipher {
    pub(super) fn new(pepper: &Pepper) -> Self {
        Self { secret: Salt::new(HKDF_SHA256, SALT).extract(&pepper.0) }
    }

    /// Derives the encryption key of an API key.
    fn key(&self, key: &str) -> Result<LessSafeKey> {
        let info = [LABEL, key.as_bytes()];
        let derived = self.secret.expand(&info, &AES_256_GCM).map_err(|_| failed())?;
        Ok(LessSafeKey::new(UnboundKey::from(derived)))
    }

    /// Encrypts a document of a response whose retention starts at `retained_since`, Unix seconds.
    pub(super) fn encrypt(
        &self,
        key: &str,
        id: &str,
        retained_since: u64,
        document: &[u8],
    ) -> Result<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = rand::random();
        let head = [&MAGIC[..], &retained_since.to_be_bytes()].concat();
        let mut sealed = Vec::with_capacity(head.len() + NONCE_LEN + document.len() + AES_256_GCM.tag_len());
        sealed.extend_from_slice(&head);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(document);
        let data = associated_data(&head, key, id);
        let (_, text) = sealed.split_at_mut(head.len() + NONCE_LEN);
        let tag = self
            .key(key)?
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(data), text)
            .map_err(|_| failed())?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// Decrypts a file; returns the start of its retention, Unix seconds, and the document.
    pub(super) fn decrypt(&self, key: &str, id: &str, mut sealed: Vec<u8>) -> Result<(u64, Vec<u8>)> {
        let (head, rest) = sealed.split_at_mut_checked(HEAD_BYTES).ok_or_else(failed)?;
        let (nonce, text) = rest.split_first_chunk_mut::<NONCE_LEN>().ok_or_else(failed)?;
        let retained_since = start_of_retention(head).ok_or_else(failed)?;
        let data = associated_data(head, key, id);
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key(key)?.open_in_place(nonce, Aad::from(data), text).map_err(|_| failed())?.len();
        sealed.drain(..HEAD_BYTES + NONCE_LEN);
        sealed.truncate(length);
        Ok((retained_since, sealed))
    }
}

/// Returns the start of the retention, Unix seconds, in the first [`HEAD_BYTES`] of a file; `None` if they are no head.
/// The head is not authenticated before the file is decrypted.
pub(super) fn start_of_retention(head: &[u8]) -> Option<u64> {
    head.strip_prefix(MAGIC)?.try_into().ok().map(u64::from_be_bytes)
}

fn associated_data(head: &[u8], key: &str, id: &str) -> Vec<u8> {
    [head, key.as_bytes(), b"/", id.as_bytes()].concat()
}

fn failed() -> Error {
    Error::new(ErrorKind::InvalidData, "a stored response cannot be decrypted")
}
