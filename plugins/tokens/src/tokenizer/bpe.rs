//! Byte-pair encoding by a list of merges.

use super::alphabet;
use crate::budget::{CountHalt, TokenMeter};
use crate::merge::{MergeRules, MergeSymbol, merge_pairs};
use crate::vocabulary::Vocabulary;
use crate::windows::{self, PieceEncoder, WINDOW_BYTES};
use ahash::{HashMap, HashMapExt};

/// Mark of a space in SentencePiece tokenizers.
const MARK: char = '▁';

/// Parameters of a byte-pair encoding model, as read from a tokenizer file.
pub(super) struct BpeParams {
    pub(super) tokens: Vec<(String, u32)>,
    pub(super) merges: Vec<(String, String)>,
    pub(super) unknown: Option<String>,
    pub(super) fuse_unknown: bool,
    pub(super) byte_fallback: bool,
    pub(super) ignore_merges: bool,
    /// True if tokens are written in the byte alphabet.
    pub(super) byte_level: bool,
}

/// Byte-pair encoding model.
pub(super) struct BpeModel {
    vocabulary: Vocabulary,
    pairs: HashMap<u64, (u32, u32)>,
    byte_level: bool,
    /// True if a word that is a token is encoded as this token without merging.
    ignore_merges: bool,
    unknown: Option<u32>,
    fuse_unknown: bool,
    /// Token of each byte value: the token of its letter in the byte alphabet, or a byte-fallback token such as
    /// `<0x00>`.
    bytes: Vec<Option<u32>>,
    fallback: bool,
    /// For each token, true if merging its own bytes results in this token. A word that equals such a token needs no
    /// merging.
    whole: Vec<bool>,
    /// True if no merge joins symbols across the start of a word, so that words can be encoded separately.
    by_words: bool,
}

impl BpeModel {
    /// Creates a model from its parameters, or returns the reason why they are invalid.
    pub(super) fn new(parts: BpeParams) -> Result<Self, String> {
        let mut vocabulary = Vocabulary::with_capacity(parts.tokens.len());
        for (token, _) in &parts.tokens {
            if !parts.byte_level {
                vocabulary.add(token.as_bytes());
            } else if let Some(bytes) = alphabet::decode_token(token) {
                vocabulary.add(&bytes);
            }
        }
        let bytes = (0..=255u8).map(|byte| {
            let written = format!("<0x{byte:02X}>");
            vocabulary.find(if parts.byte_level { std::slice::from_ref(&byte) } else { written.as_bytes() })
        });
        let bytes: Vec<_> = bytes.collect();
        let pairs = pairs(&vocabulary, &parts)?;
        let unknown = parts.unknown.as_ref().and_then(|token| vocabulary.find(token.as_bytes()));
        let by_words = !parts.byte_level && !parts.ignore_merges && words_are_separate(&vocabulary, &parts);
        let mut bpe = Self {
            whole: Vec::new(),
            fallback: parts.byte_fallback && bytes.iter().all(Option::is_some),
            byte_level: parts.byte_level,
            ignore_merges: parts.ignore_merges,
            fuse_unknown: parts.fuse_unknown,
            vocabulary,
            pairs,
            unknown,
            bytes,
            by_words,
        };
        bpe.whole = bpe.find_whole();
        Ok(bpe)
    }

    /// Adds the tokens of a word to a meter.
    pub(super) fn count_into(
        &self,
        word: &str,
        symbols: &mut Vec<MergeSymbol>,
        meter: &mut TokenMeter<'_>,
    ) -> Result<(), CountHalt> {
        if !self.by_words {
            return self.count_word(word, symbols, meter);
        }
        let (mut from, mut before) = (0, MARK);
        for (at, letter) in word.char_indices() {
            if letter == MARK && before != MARK {
                self.count_word(word.get(from..at).unwrap_or_default(), symbols, meter)?;
                from = at;
            }
            before = letter;
        }
        self.count_word(word.get(from..).unwrap_or_default(), symbols, meter)
    }

    fn count_word(
        &self,
        word: &str,
        symbols: &mut Vec<MergeSymbol>,
        meter: &mut TokenMeter<'_>,
    ) -> Result<(), CountHalt> {
        if let Some(token) = self.vocabulary.find(word.as_bytes())
            && self.whole.get(token as usize) == Some(&true)
        {
            return meter.add(1);
        }
        if word.len() > WINDOW_BYTES {
            return self.count_long(word, symbols, meter);
        }
        self.encode(word.as_bytes(), symbols);
        meter.add(symbols.len() as u64)
    }

    /// Counts a word that is longer than a window. No merge reaches across an unknown character, so the text between
    /// two unknown characters is cut into windows separately.
    fn count_long(
        &self,
        word: &str,
        symbols: &mut Vec<MergeSymbol>,
        meter: &mut TokenMeter<'_>,
    ) -> Result<(), CountHalt> {
        if self.unknown.is_none() {
            // Without an unknown token, unknown characters are dropped, so that the symbols on both sides of one may
            // merge.
            let mut known = word.as_bytes().to_vec();
            if self.byte_level {
                known.retain(|byte| self.bytes.get(*byte as usize).copied().flatten().is_some());
            } else if !self.fallback {
                known = word.chars().filter(|letter| self.is_known(*letter)).collect::<String>().into_bytes();
            }
            return windows::count_piece(self, &known, symbols, meter);
        }
        let (mut from, mut unknown) = (0, 0);
        for (at, letter) in word.char_indices() {
            if self.is_known(letter) {
                if unknown > 0 {
                    meter.add(self.unknown_tokens(std::mem::take(&mut unknown)))?;
                    from = at;
                }
                continue;
            }
            if unknown == 0 {
                self.count_known(word.get(from..at).unwrap_or_default(), symbols, meter)?;
            }
            unknown += if self.byte_level { letter.len_utf8() as u64 } else { 1 };
        }
        if unknown > 0 {
            return meter.add(self.unknown_tokens(unknown));
        }
        self.count_known(word.get(from..).unwrap_or_default(), symbols, meter)
    }

    fn count_known(
        &self,
        word: &str,
        symbols: &mut Vec<MergeSymbol>,
        meter: &mut TokenMeter<'_>,
    ) -> Result<(), CountHalt> {
        if word.is_empty() { Ok(()) } else { windows::count_piece(self, word.as_bytes(), symbols, meter) }
    }

    /// Returns true if a character has tokens: for its bytes in the byte alphabet; otherwise for itself, or by byte
    /// fallback.
    fn is_known(&self, letter: char) -> bool {
        let (mut buffer, known) = ([0; 4], |byte: &u8| self.bytes.get(*byte as usize).copied().flatten());
        let letter = letter.encode_utf8(&mut buffer).as_bytes();
        match self.byte_level {
            true => letter.iter().all(|byte| known(byte).is_some()),
            false => self.fallback || self.vocabulary.find(letter).is_some(),
        }
    }

    /// Returns the number of tokens for a run of unknown characters (of unknown bytes in the byte alphabet).
    const fn unknown_tokens(&self, run: u64) -> u64 {
        if self.fuse_unknown { 1 } else { run }
    }

    /// Returns the length of the longest token in bytes; `None` if a run of unknown characters of any length is one
    /// token or none.
    pub(super) fn max_text_bytes_per_token(&self) -> Option<usize> {
        let all = if self.byte_level { self.bytes.iter().all(Option::is_some) } else { self.fallback };
        let each = self.unknown.is_some() && !self.fuse_unknown;
        (all || each).then(|| self.vocabulary.max_text_bytes_per_token().max(char::MAX.len_utf8()))
    }

    fn split_bytes(&self, word: &[u8], symbols: &mut Vec<MergeSymbol>) {
        let mut fused = false;
        for (at, byte) in word.iter().enumerate() {
            let at = at as u32;
            let known = self.bytes.get(*byte as usize).copied().flatten();
            self.add(known, at, at + 1, &mut fused, symbols);
        }
    }

    fn split_letters(&self, word: &[u8], symbols: &mut Vec<MergeSymbol>) {
        let text = std::str::from_utf8(word).unwrap_or_default();
        let mut fused = false;
        for (at, letter) in text.char_indices() {
            let (start, end) = (at as u32, (at + letter.len_utf8()) as u32);
            let known = self.vocabulary.find(letter.encode_utf8(&mut [0; 4]).as_bytes());
            if known.is_none() && self.fallback {
                for (at, byte) in (start..end).zip(letter.encode_utf8(&mut [0; 4]).bytes()) {
                    let token = self.bytes.get(byte as usize).copied().flatten();
                    self.add(token, at, at + 1, &mut fused, symbols);
                }
            } else {
                self.add(known, start, end, &mut fused, symbols);
            }
        }
    }

    /// Adds a symbol. An unknown symbol becomes the unknown token; it is dropped if the model has none, or if it
    /// follows another unknown symbol and the model fuses them.
    fn add(
        &self,
        token: Option<u32>,
        start: u32,
        end: u32,
        fused: &mut bool,
        symbols: &mut Vec<MergeSymbol>,
    ) {
        match (token, self.unknown) {
            (Some(token), _) => {
                symbols.push(MergeSymbol::new(token, start, end));
                *fused = false;
            }
            (None, Some(unknown)) if !(*fused && self.fuse_unknown) => {
                symbols.push(MergeSymbol::new(unknown, start, end));
                *fused = true;
            }
            (None, _) => {}
        }
    }

    fn find_whole(&self) -> Vec<bool> {
        let mut symbols = Vec::new();
        let whole = (0..self.vocabulary.len() as u32).map(|token| {
            let word = self.vocabulary.bytes(token);
            if self.ignore_merges {
                return true;
            }
            self.encode(word, &mut symbols);
            matches!(symbols.as_slice(), [only] if only.token == token)
        });
        whole.collect()
    }
}

impl PieceEncoder for BpeModel {
    fn encode(&self, word: &[u8], symbols: &mut Vec<MergeSymbol>) {
        symbols.clear();
        if self.byte_level {
            self.split_bytes(word, symbols);
        } else {
            self.split_letters(word, symbols);
        }
        merge_pairs(self, word, symbols);
    }
}

impl MergeRules for BpeModel {
    #[inline]
    fn find_merge(&self, left: u32, right: u32, _: &[u8], _: u32, _: u32) -> Option<(u32, u32)> {
        self.pairs.get(&key(left, right)).copied()
    }
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

fn pairs(vocabulary: &Vocabulary, parts: &BpeParams) -> Result<HashMap<u64, (u32, u32)>, String> {
    let mut pairs = HashMap::with_capacity(parts.merges.len());
    let bytes = |token: &str| match parts.byte_level {
        true => alphabet::decode_token(token),
        false => Some(token.as_bytes().to_vec()),
    };
    for (rank, (left, right)) in parts.merges.iter().enumerate() {
        let joined = format!("{left}{right}");
        let find = |token: &str| bytes(token).and_then(|bytes| vocabulary.find(&bytes));
        let (Some(l), Some(r), Some(both)) = (find(left), find(right), find(&joined)) else {
            return Err(format!("merge {rank} of the model joins tokens that are not in its vocabulary"));
        };
        pairs.insert(key(l, r), (rank as u32, both));
    }
    Ok(pairs)
}

/// Returns true if no merge joins the end of a word with the mark that begins the next word.
fn words_are_separate(vocabulary: &Vocabulary, parts: &BpeParams) -> bool {
    vocabulary.find(MARK.encode_utf8(&mut [0; 4]).as_bytes()).is_some()
        && parts.merges.iter().all(|(left, right)| left.ends_with(MARK) || !right.starts_with(MARK))
}
