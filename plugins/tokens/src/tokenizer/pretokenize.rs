//! Cutting normalised text into the words a model encodes one by one.
//!
//! Promises: the cuts of the `tokenizers` library, applied in order, without copying unless a cut
//! changes the text.

use crate::split::Pattern;
use std::borrow::Cow;

/// One step.
pub(super) enum Cut {
    /// By a pattern.
    Split { pattern: Pattern, keep: Keep, invert: bool },
    /// A space before the text unless it has one.
    PrefixSpace,
    /// Spaces become a mark, and words begin with it.
    Metaspace { mark: char, prepend: Prepend, split: bool },
    /// Runs of letters for which a test holds.
    Letters { test: fn(char) -> bool, keep: Keep },
}

/// What becomes of the matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Isolated,
    Removed,
    WithPrevious,
    WithNext,
    Contiguous,
}

/// Where the mark is put before the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prepend {
    Always,
    First,
    Never,
}

/// Applies the cuts; each word comes with whether it begins where the text begins.
pub(super) fn run(cuts: &[Cut], text: &str, at_start: bool, each: &mut dyn FnMut(&str, bool)) {
    let Some((cut, rest)) = cuts.split_first() else {
        if !text.is_empty() {
            each(text, at_start);
        }
        return;
    };
    let mut first = at_start;
    let mut onwards = |piece: &str| {
        run(rest, piece, first, each);
        first = false;
    };
    match cut {
        Cut::Split { pattern, keep: Keep::Isolated, .. } => pattern.each(text, |piece, _| onwards(piece)),
        Cut::Split { pattern, keep, invert } => {
            let mut pieces = Vec::new();
            pattern.each(text, |piece, matched| pieces.push((piece.len(), matched != *invert)));
            regroup(text, pieces, *keep, &mut onwards);
        }
        Cut::Letters { test, keep } => {
            let pieces = text.chars().map(|letter| (letter.len_utf8(), test(letter))).collect();
            regroup(text, join_others(pieces), *keep, &mut onwards);
        }
        Cut::PrefixSpace => {
            onwards(&if text.starts_with(' ') { Cow::Borrowed(text) } else { format!(" {text}").into() })
        }
        Cut::Metaspace { mark, prepend, split } => {
            let text =
                marked(text, *mark, *prepend == Prepend::Always || (*prepend == Prepend::First && at_start));
            if *split {
                let pieces = text.chars().map(|letter| (letter.len_utf8(), letter == *mark)).collect();
                regroup(&text, join_others(pieces), Keep::WithNext, &mut onwards);
            } else {
                onwards(&text);
            }
        }
    }
}

fn marked(text: &str, mark: char, prepend: bool) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    if prepend && !text.starts_with([' ', mark]) {
        out.push(mark);
    }
    out.extend(text.chars().map(|letter| if letter == ' ' { mark } else { letter }));
    out
}

/// Letters that do not match stand together; matches stay apart.
fn join_others(letters: Vec<(usize, bool)>) -> Vec<(usize, bool)> {
    let mut pieces: Vec<(usize, bool)> = Vec::new();
    for (length, matched) in letters {
        match pieces.last_mut() {
            Some((total, false)) if !matched => *total += length,
            _ => pieces.push((length, matched)),
        }
    }
    pieces
}

/// Joins neighbours as `keep` says. `pieces` are lengths with whether they matched.
fn regroup(text: &str, pieces: Vec<(usize, bool)>, keep: Keep, each: &mut impl FnMut(&str)) {
    let mut groups: Vec<(usize, bool)> = Vec::new();
    let mut before = false;
    let joins = |matched: bool, before: bool| match keep {
        Keep::Isolated | Keep::Removed => false,
        Keep::Contiguous => matched == before,
        Keep::WithPrevious | Keep::WithNext => matched && !before,
    };
    let mut add = |(length, matched): (usize, bool)| {
        match groups.last_mut() {
            Some((total, _)) if joins(matched, before) => *total += length,
            _ => groups.push((length, matched)),
        }
        before = matched;
    };
    if keep == Keep::WithNext {
        pieces.into_iter().rev().for_each(&mut add);
        groups.reverse();
    } else {
        pieces.into_iter().for_each(&mut add);
    }
    let mut at = 0;
    for (length, matched) in groups {
        if keep != Keep::Removed || !matched {
            each(text.get(at..at + length).unwrap_or_default());
        }
        at += length;
    }
}
