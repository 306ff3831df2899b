//! Normalisation of text before it is split.

use crate::pretokenizer_regex::SplitPattern;
use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, char::is_combining_mark, is_nfc_quick};

/// Steps of a normaliser, in order.
#[derive(Default)]
pub(super) struct TextNormalizer(pub(super) Vec<NormalizerStep>);

/// Step of a normaliser.
pub(super) enum NormalizerStep {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    StripAccents,
    Strip {
        left: bool,
        right: bool,
    },
    /// Text that is inserted at the start of a text, unless that text is empty.
    Prepend(String),
    ReplaceText(String, String),
    ReplacePattern(SplitPattern, String),
}

impl TextNormalizer {
    /// Returns the maximum factor by which all steps together shorten a text, in bytes; `None` if it is unlimited.
    pub(super) fn max_shrink_factor(&self) -> Option<usize> {
        self.0.iter().try_fold(1_usize, |all, step| all.checked_mul(step.max_shrink_factor()?))
    }

    /// Returns the normalised text; borrowed if nothing changed it.
    pub(super) fn normalize<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for step in &self.0 {
            if let Some(changed) = step.apply(&text) {
                text = Cow::Owned(changed);
            }
        }
        text
    }
}

impl NormalizerStep {
    /// Returns the maximum factor by which this step shortens a text, in bytes; `None` if it is unlimited.
    pub(super) fn max_shrink_factor(&self) -> Option<usize> {
        match self {
            Self::Prepend(_) => Some(1),
            // Factor 3: a composition joins at most three characters of equal length, and a Kelvin sign (three bytes)
            // becomes `K` (one byte).
            Self::Nfc | Self::Nfd | Self::Lowercase => Some(3),
            Self::ReplaceText(from, to) if to.len() >= from.len() => Some(1),
            Self::ReplaceText(from, to) => from.len().checked_div(to.len()).map(|times| times + 1),
            Self::Nfkc | Self::Nfkd | Self::StripAccents | Self::Strip { .. } | Self::ReplacePattern(..) => {
                None
            }
        }
    }

    /// Applies the step; `None` if the text stays unchanged.
    fn apply(&self, text: &str) -> Option<String> {
        match self {
            Self::Nfc if is_nfc_quick(text.chars()) == IsNormalized::Yes => None,
            Self::Nfc => Some(text.nfc().collect()),
            Self::Nfd | Self::Nfkc | Self::Nfkd | Self::StripAccents if text.is_ascii() => None,
            Self::Nfd => Some(text.nfd().collect()),
            Self::Nfkc => Some(text.nfkc().collect()),
            Self::Nfkd => Some(text.nfkd().collect()),
            Self::Lowercase => Some(text.to_lowercase()),
            Self::StripAccents => Some(text.chars().filter(|letter| !is_combining_mark(*letter)).collect()),
            Self::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { text };
                Some(if *right { text.trim_end() } else { text }.to_owned())
            }
            Self::Prepend(_) if text.is_empty() => None,
            Self::Prepend(before) => Some(format!("{before}{text}")),
            Self::ReplaceText(from, to) => {
                text.contains(from.as_str()).then(|| text.replace(from.as_str(), to))
            }
            Self::ReplacePattern(pattern, to) => {
                let mut out = String::with_capacity(text.len());
                // The callback never returns an error, so the result is not needed.
                let _ = pattern.for_each_piece(text, |piece, matched| {
                    out.push_str(if matched { to } else { piece });
                    Ok(())
                });
                Some(out)
            }
        }
    }
}
