//! Decoding of token ids into text. Some clients send the ids of a published vocabulary instead of text, although the
//! requested model has another vocabulary.

use crate::o200k::O200kTokenizer;
use crate::packed_vocabulary;
use crate::vocabulary::Vocabulary;
use std::sync::OnceLock;

/// Packed vocabulary of `cl100k_base`; `assets/README.md` describes the format.
static CL100K: &[u8] = include_bytes!("../assets/cl100k.pairs");
/// Number of tokens of ordinary text in `cl100k_base`.
const CL100K_TOKENS: usize = 100_256;

/// Published vocabulary. It is unpacked once, when it is first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedEncoding {
    /// `cl100k_base`, the default of client libraries for model names that are unknown to them.
    Cl100k,
    /// `o200k_base`.
    O200k,
}

impl PublishedEncoding {
    /// Returns the name under which the vocabulary is published, such as `cl100k_base`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cl100k => "cl100k_base",
            Self::O200k => "o200k_base",
        }
    }

    /// Decodes token ids. Clients may cut a long text inside a character; U+FFFD then replaces each part of that
    /// character.
    ///
    /// # Errors
    /// Returns the index of the first id that is no token of ordinary text.
    pub fn decode_token_ids(self, ids: &[u32]) -> Result<String, usize> {
        let vocabulary = self.vocabulary();
        let mut bytes = Vec::with_capacity(ids.len().saturating_mul(4));
        for (index, id) in ids.iter().enumerate() {
            let token = vocabulary.bytes(*id);
            if token.is_empty() {
                return Err(index);
            }
            bytes.extend_from_slice(token);
        }
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    fn vocabulary(self) -> &'static Vocabulary {
        static SHARED: OnceLock<Vocabulary> = OnceLock::new();
        match self {
            Self::Cl100k => SHARED.get_or_init(|| packed_vocabulary::unpack(CL100K, CL100K_TOKENS)),
            Self::O200k => O200kTokenizer::shared().vocabulary(),
        }
    }
}

#[cfg(test)]
mod tests;
