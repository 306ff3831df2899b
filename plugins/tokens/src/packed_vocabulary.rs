//! Published vocabularies. Each token is packed as a pair of earlier tokens (see `assets/README.md`).

use crate::vocabulary::Vocabulary;

/// Number of bits of each number of a pair.
const HALF: u32 = 18;

/// Unpacks the first `tokens` tokens of a vocabulary, numbered by rank. A truncated file would give fewer tokens
/// without an error; tests compare every token.
pub(crate) fn unpack(packed: &[u8], tokens: usize) -> Vocabulary {
    let mut vocabulary = Vocabulary::with_capacity(tokens);
    let (bytes, pairs) = packed.split_at_checked(256).unwrap_or_default();
    for byte in bytes {
        vocabulary.add(&[*byte]);
    }
    let mut halves = halves(pairs);
    let mut joined = Vec::with_capacity(128);
    while let (Some(left), Some(right)) = (halves.next(), halves.next()) {
        if vocabulary.len() == tokens {
            break;
        }
        joined.clear();
        joined.extend_from_slice(vocabulary.bytes(left));
        joined.extend_from_slice(vocabulary.bytes(right));
        vocabulary.add(&joined);
    }
    vocabulary
}

/// Iterates over a sequence of 18-bit numbers, which are ranks of tokens.
fn halves(packed: &[u8]) -> impl Iterator<Item = u32> {
    let mut packed = packed.iter();
    let (mut pending, mut width) = (0u64, 0u32);
    std::iter::from_fn(move || {
        while width < HALF {
            pending |= u64::from(*packed.next()?) << width;
            width += 8;
        }
        let rank = pending & ((1 << HALF) - 1);
        pending >>= HALF;
        width -= HALF;
        Some(rank as u32)
    })
}
