//! Splitting of normalised text into the words that a model encodes separately.
//!
//! Guarantees: the same cuts as in the `tokenizers` library, applied in order; the text is copied only if a step
//! changes it.

use crate::budget::CountHalt;
use crate::pretokenizer_regex::SplitPattern;
use std::borrow::Cow;

/// Step of a pre-tokenizer.
pub(super) enum PretokenizerStep {
    /// Cut of the text at the matches of a pattern.
    Split { pattern: SplitPattern, keep: MatchTreatment, invert: bool },
    /// Insertion of a space at the start of the text, unless it begins with one.
    PrefixSpace,
    /// Replacement of each space by a mark, at which a new word begins if `split` is true.
    Metaspace { mark: char, prepend: PrependScheme, split: bool },
    /// Cut of the text at characters that satisfy a test.
    SplitAtCharacters { test: fn(char) -> bool, keep: MatchTreatment },
}

impl PretokenizerStep {
    /// Returns true if the step removes text.
    pub(super) const fn removes_text(&self) -> bool {
        matches!(
            self,
            Self::Split { keep: MatchTreatment::Removed, .. }
                | Self::SplitAtCharacters { keep: MatchTreatment::Removed, .. }
        )
    }
}

/// Treatment of the text that a pattern or a test matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchTreatment {
    Isolated,
    Removed,
    WithPrevious,
    WithNext,
    Contiguous,
}

/// Condition for inserting the mark at the start of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrependScheme {
    Always,
    First,
    Never,
}

/// Callback that gets a word, and true if it is at the start of the text.
type WordCallback<'e> = dyn FnMut(&str, bool) -> Result<(), CountHalt> + 'e;

/// Applies the steps and passes each word on, with a flag that is true at the start of the text.
pub(super) fn apply_steps(
    cuts: &[PretokenizerStep],
    text: &str,
    at_start: bool,
    each: &mut WordCallback<'_>,
) -> Result<(), CountHalt> {
    let Some((cut, rest)) = cuts.split_first() else {
        return if text.is_empty() { Ok(()) } else { each(text, at_start) };
    };
    let mut first = at_start;
    let mut onwards = |piece: &str| {
        apply_steps(rest, piece, first, each)?;
        first = false;
        Ok(())
    };
    match cut {
        PretokenizerStep::Split { pattern, keep: MatchTreatment::Isolated, .. } => {
            pattern.for_each_piece(text, |piece, _| onwards(piece))
        }
        PretokenizerStep::Split { pattern, keep, invert } => {
            let mut groups = PieceGroups::new(text, *keep);
            pattern.for_each_piece(text, |piece, matched| {
                groups.add(piece.len(), matched != *invert, &mut onwards)
            })?;
            groups.end(&mut onwards)
        }
        PretokenizerStep::SplitAtCharacters { test, keep } => cut_at_letters(text, test, *keep, &mut onwards),
        PretokenizerStep::PrefixSpace => {
            onwards(&if text.starts_with(' ') { Cow::Borrowed(text) } else { format!(" {text}").into() })
        }
        PretokenizerStep::Metaspace { mark, prepend, split } => {
            let text = mark_spaces(
                text,
                *mark,
                *prepend == PrependScheme::Always || (*prepend == PrependScheme::First && at_start),
            );
            if *split {
                cut_at_letters(&text, |letter| letter == *mark, MatchTreatment::WithNext, &mut onwards)
            } else {
                onwards(&text)
            }
        }
    }
}

fn mark_spaces(text: &str, mark: char, prepend: bool) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    if prepend && !text.starts_with([' ', mark]) {
        out.push(mark);
    }
    out.extend(text.chars().map(|letter| if letter == ' ' { mark } else { letter }));
    out
}

/// Cuts a text at characters that satisfy a test: each of them is a piece, and so is each run of other characters.
fn cut_at_letters(
    text: &str,
    test: impl Fn(char) -> bool,
    keep: MatchTreatment,
    each: &mut impl FnMut(&str) -> Result<(), CountHalt>,
) -> Result<(), CountHalt> {
    let mut groups = PieceGroups::new(text, keep);
    let mut others = 0;
    for letter in text.chars() {
        if !test(letter) {
            others += letter.len_utf8();
            continue;
        }
        if others > 0 {
            groups.add(std::mem::take(&mut others), false, each)?;
        }
        groups.add(letter.len_utf8(), true, each)?;
    }
    if others > 0 {
        groups.add(others, false, each)?;
    }
    groups.end(each)
}

/// Groups of neighbouring pieces of a text that are joined according to a [`MatchTreatment`]. Only the last group is
/// stored, however many pieces there are.
struct PieceGroups<'t> {
    text: &'t str,
    keep: MatchTreatment,
    /// Begin and end of the last group.
    from: usize,
    to: usize,
    /// True if the last piece matched; `None` before the first piece.
    matched: Option<bool>,
}

impl<'t> PieceGroups<'t> {
    const fn new(text: &'t str, keep: MatchTreatment) -> Self {
        Self { text, keep, from: 0, to: 0, matched: None }
    }

    /// Adds the next piece of `length` bytes.
    fn add(
        &mut self,
        length: usize,
        matched: bool,
        each: &mut impl FnMut(&str) -> Result<(), CountHalt>,
    ) -> Result<(), CountHalt> {
        let joins = self.matched.is_some_and(|before| match self.keep {
            MatchTreatment::Isolated | MatchTreatment::Removed => false,
            MatchTreatment::Contiguous => matched == before,
            MatchTreatment::WithPrevious => matched && !before,
            MatchTreatment::WithNext => before && !matched,
        });
        if !joins {
            self.end(each)?;
            self.from = self.to;
        }
        self.to += length;
        self.matched = Some(matched);
        Ok(())
    }

    /// Passes the last group of pieces to `each`, unless the group is empty or has to be removed.
    fn end(&self, each: &mut impl FnMut(&str) -> Result<(), CountHalt>) -> Result<(), CountHalt> {
        let removed = self.keep == MatchTreatment::Removed && self.matched == Some(true);
        if self.matched.is_none() || removed {
            return Ok(());
        }
        each(self.text.get(self.from..self.to).unwrap_or_default())
    }
}
