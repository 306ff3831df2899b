//! The unigram model: of all ways to cut a word into tokens, the likeliest.

use ahash::{HashMap, HashMapExt};

/// How much less likely than the least likely token something unknown is (natural logarithm).
const PENALTY: f64 = 10.0;

/// What a file says about its model.
pub(super) struct Parts {
    /// Tokens with the logarithm of their probability.
    pub(super) tokens: Vec<(String, f64)>,
    pub(super) unknown: Option<usize>,
    pub(super) byte_fallback: bool,
}

/// The model.
pub(super) struct Unigram {
    /// Children of the prefix tree's nodes, by node and byte. Node 0 is the root.
    children: HashMap<u64, u32>,
    /// The token that ends at a node: number and score.
    ends: Vec<Option<(u32, f64)>>,
    unknown: Option<u32>,
    unknown_score: f64,
    fallback: bool,
}

/// The best way to a place in the word.
#[derive(Clone, Copy)]
struct Way {
    score: f64,
    from: usize,
    token: Option<u32>,
}

impl Unigram {
    pub(super) fn new(parts: Parts) -> Result<Self, String> {
        if parts.unknown.is_some_and(|unknown| unknown >= parts.tokens.len()) {
            return Err("unk_id of the model is beyond its vocabulary".to_owned());
        }
        let names: ahash::HashSet<_> = parts.tokens.iter().map(|(token, _)| token.as_str()).collect();
        let fallback =
            parts.byte_fallback && (0..=255u8).all(|byte| names.contains(format!("<0x{byte:02X}>").as_str()));
        let least = parts.tokens.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
        let mut unigram = Self {
            children: HashMap::with_capacity(parts.tokens.len() * 4),
            ends: vec![None],
            unknown: parts.unknown.map(|unknown| unknown as u32),
            unknown_score: least - PENALTY,
            fallback,
        };
        for (number, (token, score)) in parts.tokens.iter().enumerate() {
            unigram.insert(token.as_bytes(), number as u32, *score);
        }
        Ok(unigram)
    }

    fn insert(&mut self, token: &[u8], number: u32, score: f64) {
        let mut node = 0;
        for byte in token {
            let next = self.ends.len() as u32;
            node = *self.children.entry(key(node, *byte)).or_insert(next);
            if node == next {
                self.ends.push(None);
            }
        }
        if let Some(end) = self.ends.get_mut(node as usize) {
            *end = Some((number, score));
        }
    }

    /// The tokens of a word.
    pub(super) fn count(&self, word: &str) -> u64 {
        let ways = self.ways(word);
        let (mut tokens, mut at, mut unknown) = (0, word.len(), 0);
        while at > 0 {
            let Some(Some(way)) = ways.get(at) else { break };
            if way.token == self.unknown {
                unknown += at - way.from;
            } else {
                tokens += self.unknown_tokens(unknown) + 1;
                unknown = 0;
            }
            at = way.from;
        }
        tokens + self.unknown_tokens(unknown)
    }

    /// A run of unknown bytes is one token, or its bytes.
    fn unknown_tokens(&self, bytes: usize) -> u64 {
        if self.fallback { bytes as u64 } else { u64::from(bytes > 0) }
    }

    fn ways(&self, word: &str) -> Vec<Option<Way>> {
        let mut ways: Vec<Option<Way>> = vec![None; word.len() + 1];
        let improve = |ways: &mut Vec<Option<Way>>, to: usize, way: Way| {
            if let Some(best) = ways.get_mut(to)
                && best.is_none_or(|best| way.score > best.score)
            {
                *best = Some(way);
            }
        };
        for (at, letter) in word.char_indices() {
            let so_far =
                if at == 0 { 0.0 } else { ways.get(at).copied().flatten().map_or(0.0, |way| way.score) };
            let (mut node, mut alone) = (0, false);
            for (length, byte) in word.as_bytes().iter().skip(at).enumerate() {
                let Some(next) = self.children.get(&key(node, *byte)) else { break };
                node = *next;
                if let Some((token, score)) = self.ends.get(node as usize).copied().flatten() {
                    alone |= length + 1 == letter.len_utf8();
                    improve(
                        &mut ways,
                        at + length + 1,
                        Way { score: so_far + score, from: at, token: Some(token) },
                    );
                }
            }
            if !alone {
                let way = Way { score: so_far + self.unknown_score, from: at, token: self.unknown };
                improve(&mut ways, at + letter.len_utf8(), way);
            }
        }
        ways
    }
}

fn key(node: u32, byte: u8) -> u64 {
    u64::from(node) << 8 | u64::from(byte)
}
