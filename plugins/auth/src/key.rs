//! Format of an API key.
//!
//! ```text
//! sk-svc-  0123456789abcdef  0123456789abcdef0123456789abcdef01234567  01ABcd
//! prefix   public id (16)    secret (40, 238 bits)                     checksum (6)
//! ```
//!
//! All characters after the prefix are base62: `0-9`, `A-Z`, `a-z`, in this order of value. The checksum is CRC-32C
//! (Castagnoli, RFC 3720 appendix B.4) of the 56 characters of public id and secret, as a base62 number of six digits,
//! the most significant first, padded with `0`:
//!
//! ```text
//! checksum[i] = digit(crc32c(public_id ++ secret) / 62^(5 - i) mod 62),  i = 0..5
//! ```
//!
//! The checksum detects every single wrong character and every swap of two adjacent characters. A secret scanner can
//! use it offline to tell a real key from a similar string.

use std::fmt;
use std::str;

/// Regular expression of a key, for secret scanners.
pub const KEY_PATTERN: &str = "sk-svc-[0-9A-Za-z]{62}";

const PREFIX: &str = "sk-svc-";
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const PUBLIC_ID_LENGTH: usize = 16;
const SECRET_LENGTH: usize = 40;
const CHECKSUM_LENGTH: usize = 6;
const BODY_LENGTH: usize = PUBLIC_ID_LENGTH + SECRET_LENGTH;
/// Length in bytes of an API key after its prefix.
const TAIL_LENGTH: usize = BODY_LENGTH + CHECKSUM_LENGTH;

/// Well-formed API key. Only the key store knows whether such a key exists.
#[derive(Clone)]
pub struct ApiKey {
    /// Complete key in ASCII: the prefix, then public id, secret and checksum.
    text: [u8; PREFIX.len() + TAIL_LENGTH],
}

/// Error of a text that is not a key: its prefix, length, a character or the checksum is invalid. The error contains
/// neither the reason nor the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedKey;

impl fmt::Display for MalformedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a well-formed API key")
    }
}

impl std::error::Error for MalformedKey {}

impl ApiKey {
    /// Generates a key. `random` fills a buffer with random bytes of the operating system. Each character uses eight
    /// bytes, so that its bias is below 2^-58.
    pub fn generate(random: &mut impl FnMut(&mut [u8])) -> Self {
        let mut body = [0_u8; BODY_LENGTH];
        for slot in &mut body {
            let mut bytes = [0_u8; 8];
            random(&mut bytes);
            let wide = u128::from(u64::from_le_bytes(bytes)) * 62;
            *slot = digit(u64::try_from(wide >> 64).unwrap_or(0));
        }
        Self::from_body(body)
    }

    /// Generates a key with this public id and a new secret. Returns `None` if the id is not 16 letters and digits.
    pub fn generate_for_id(public_id: &str, random: &mut impl FnMut(&mut [u8])) -> Option<Self> {
        let id: [u8; PUBLIC_ID_LENGTH] = public_id.as_bytes().try_into().ok()?;
        if !id.iter().all(u8::is_ascii_alphanumeric) {
            return None;
        }
        let fresh = Self::generate(random);
        let mut body = [0_u8; BODY_LENGTH];
        body.iter_mut().zip(id.iter().chain(fresh.secret())).for_each(|(slot, byte)| *slot = *byte);
        Some(Self::from_body(body))
    }

    /// Parses a key.
    ///
    /// # Errors
    /// Returns [`MalformedKey`] if the text is not a key.
    pub fn parse(text: &str) -> Result<Self, MalformedKey> {
        let tail: &[u8; TAIL_LENGTH] =
            text.strip_prefix(PREFIX).and_then(|tail| tail.as_bytes().try_into().ok()).ok_or(MalformedKey)?;
        let (body, _) = tail.split_first_chunk::<BODY_LENGTH>().ok_or(MalformedKey)?;
        if !tail.iter().all(u8::is_ascii_alphanumeric) {
            return Err(MalformedKey);
        }
        let key = Self::from_body(*body);
        if key.text.ends_with(tail) { Ok(key) } else { Err(MalformedKey) }
    }

    fn from_body(body: [u8; BODY_LENGTH]) -> Self {
        let mut text = [0_u8; PREFIX.len() + TAIL_LENGTH];
        let sum = checksum(&body);
        let parts = PREFIX.as_bytes().iter().chain(&body).chain(&sum);
        text.iter_mut().zip(parts).for_each(|(slot, byte)| *slot = *byte);
        Self { text }
    }

    /// Returns the public part of the key, for look-ups, lists and logs.
    #[must_use]
    pub fn public_id(&self) -> &str {
        self.part(PREFIX.len(), PUBLIC_ID_LENGTH)
    }

    /// Returns the complete key with its secret. Show it only to its owner, and only when the key is created.
    #[must_use]
    pub fn reveal(&self) -> &str {
        self.part(0, self.text.len())
    }

    /// Returns the secret part of the key, of which the digest is computed.
    pub(crate) fn secret(&self) -> &[u8] {
        self.part(PREFIX.len() + PUBLIC_ID_LENGTH, SECRET_LENGTH).as_bytes()
    }

    fn part(&self, from: usize, length: usize) -> &str {
        // The slices are in range: the text is ASCII and has the length of a key.
        let bytes = self.text.get(from..from + length).unwrap_or_default();
        str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

fn checksum(body: &[u8; BODY_LENGTH]) -> [u8; CHECKSUM_LENGTH] {
    let mut left = u64::from(crc32c::crc32c(body));
    let mut sum = [0; CHECKSUM_LENGTH];
    // Six base-62 digits hold every 32-bit number, since 62^6 > 2^32.
    for slot in sum.iter_mut().rev() {
        *slot = digit(left % 62);
        left /= 62;
    }
    sum
}

fn digit(value: u64) -> u8 {
    usize::try_from(value).ok().and_then(|value| DIGITS.get(value)).copied().unwrap_or(b'0')
}
