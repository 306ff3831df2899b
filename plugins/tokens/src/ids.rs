//! Token ids back to text: some clients send the ids of a published vocabulary
//! where others send texts, whatever the model's own vocabulary is.

use crate::o200k::O200k;
use crate::pairs;
use crate::vocabulary::Vocabulary;
use std::sync::OnceLock;

/// See `assets/README.md`.
static CL100K: &[u8] = include_bytes!("../assets/cl100k.pairs");
/// How many tokens ordinary text can give in `cl100k_base`.
const CL100K_TOKENS: usize = 100_256;

/// A published vocabulary. Unpacked once, on first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `cl100k_base`, which clients fall back to for models that they do not know.
    Cl100k,
    /// `o200k_base`.
    O200k,
}

impl Encoding {
    /// Its published name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cl100k => "cl100k_base",
            Self::O200k => "o200k_base",
        }
    }

    /// The text of these tokens. Where a text was cut within a character, as
    /// clients do with long texts, U+FFFD stands for each half.
    ///
    /// # Errors
    /// The place of the first id that is no token of ordinary text.
    pub fn decode(self, ids: &[u32]) -> Result<String, usize> {
        let vocabulary = self.vocabulary();
        let mut bytes = Vec::with_capacity(ids.len().saturating_mul(4));
        for (place, id) in ids.iter().enumerate() {
            let token = vocabulary.bytes(*id);
            if token.is_empty() {
                return Err(place);
            }
            bytes.extend_from_slice(token);
        }
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    fn vocabulary(self) -> &'static Vocabulary {
        static SHARED: OnceLock<Vocabulary> = OnceLock::new();
        match self {
            Self::Cl100k => SHARED.get_or_init(|| pairs::unpack(CL100K, CL100K_TOKENS)),
            Self::O200k => O200k::shared().vocabulary(),
        }
    }
}

#[cfg(test)]
mod tests;
