//! Added tokens, which are found in the text before anything else.
//!
//! Guarantees: the leftmost token is matched first, and among tokens at one position the longest. Tokens that match raw
//! text come before those that match normalised text. `single_word`, `lstrip` and `rstrip` have the same effect as in
//! the library.

use crate::budget::CountHalt;
use aho_corasick::{AhoCorasick, MatchKind};

/// Token that a tokenizer file adds to the vocabulary, found in the text before the text is split.
#[derive(Clone, Debug)]
pub(super) struct AddedToken {
    /// Text that the token matches; it is normalised already if the token matches normalised text.
    pub(super) content: String,
    pub(super) single_word: bool,
    pub(super) lstrip: bool,
    pub(super) rstrip: bool,
}

/// All added tokens of a tokenizer.
pub(super) struct AddedTokens {
    raw: Option<TokenMatcher>,
    normalized: Option<TokenMatcher>,
}

struct TokenMatcher {
    automaton: AhoCorasick,
    tokens: Vec<AddedToken>,
}

impl AddedTokens {
    /// Creates the matchers of tokens found in the raw text, and of those found in the normalised text.
    pub(super) fn new(raw: Vec<AddedToken>, normalized: Vec<AddedToken>) -> Result<Self, String> {
        Ok(Self { raw: TokenMatcher::new(raw)?, normalized: TokenMatcher::new(normalized)? })
    }

    /// Calls `each` for each part of the text in order: `Some` with a text between added tokens, or `None` for an
    /// added token. The flag is true for the part at the start of the text.
    pub(super) fn split_raw<'t>(
        &self,
        text: &'t str,
        each: impl FnMut(Option<&'t str>, bool) -> Result<(), CountHalt>,
    ) -> Result<(), CountHalt> {
        split(self.raw.as_ref(), text, each)
    }

    /// Splits normalised text at added tokens, as [`AddedTokens::split_raw`] splits the raw text.
    pub(super) fn split_normalized<'t>(
        &self,
        text: &'t str,
        each: impl FnMut(Option<&'t str>, bool) -> Result<(), CountHalt>,
    ) -> Result<(), CountHalt> {
        split(self.normalized.as_ref(), text, each)
    }

    /// Returns the length of the longest token in bytes; `None` if a token includes white space around it, which may
    /// have any length.
    pub(super) fn max_text_bytes_per_token(&self) -> Option<usize> {
        let tokens =
            || [&self.raw, &self.normalized].into_iter().flatten().flat_map(|matcher| &matcher.tokens);
        if tokens().any(|token| token.lstrip || token.rstrip) {
            return None;
        }
        Some(tokens().map(|token| token.content.len()).max().unwrap_or(0))
    }
}

impl TokenMatcher {
    fn new(mut tokens: Vec<AddedToken>) -> Result<Option<Self>, String> {
        tokens.retain(|token| !token.content.is_empty());
        if tokens.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|token| &token.content))
            .map_err(|error| format!("added_tokens cannot be searched for ({error})"))?;
        Ok(Some(Self { automaton, tokens }))
    }
}

fn split<'t>(
    matcher: Option<&TokenMatcher>,
    text: &'t str,
    mut each: impl FnMut(Option<&'t str>, bool) -> Result<(), CountHalt>,
) -> Result<(), CountHalt> {
    let mut done = 0;
    let hits = matcher.into_iter().flat_map(|m| m.automaton.find_iter(text).map(move |hit| (m, hit)));
    for (matcher, hit) in hits {
        let Some(token) = matcher.tokens.get(hit.pattern().as_usize()) else { continue };
        let (before, after) = (text.get(..hit.start()).unwrap_or(""), text.get(hit.end()..).unwrap_or(""));
        let in_word =
            before.chars().next_back().is_some_and(is_word) || after.chars().next().is_some_and(is_word);
        if hit.start() < done || (token.single_word && in_word) {
            continue;
        }
        let start = if token.lstrip { before.trim_end().len().max(done) } else { hit.start() };
        let end = if token.rstrip { text.len() - after.trim_start().len() } else { hit.end() };
        if done < start {
            each(text.get(done..start), done == 0)?;
        }
        each(None, start == 0)?;
        done = end;
    }
    if done < text.len() { each(text.get(done..), done == 0) } else { Ok(()) }
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}
