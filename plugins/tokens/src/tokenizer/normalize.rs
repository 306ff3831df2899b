//! Normalising text before it is cut.

use crate::split::Pattern;
use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, char::is_combining_mark, is_nfc_quick};

/// The steps of a normaliser, in order.
#[derive(Default)]
pub(super) struct Normalizer(pub(super) Vec<Step>);

/// One step.
pub(super) enum Step {
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
    /// Before a text that is not empty.
    Prepend(String),
    ReplaceText(String, String),
    ReplacePattern(Pattern, String),
}

impl Normalizer {
    /// How many times shorter it can make a text, in bytes; `None` if there is no bound.
    pub(super) fn shrinks(&self) -> Option<usize> {
        self.0.iter().try_fold(1_usize, |all, step| all.checked_mul(step.shrinks()?))
    }

    /// The normalised text; borrowed if nothing changed it.
    pub(super) fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for step in &self.0 {
            if let Some(changed) = step.apply(&text) {
                text = Cow::Owned(changed);
            }
        }
        text
    }
}

impl Step {
    /// How many times shorter it can make a text, in bytes; `None` if there is no bound.
    pub(super) fn shrinks(&self) -> Option<usize> {
        match self {
            Self::Prepend(_) => Some(1),
            // The longest compositions join three characters of one length; the Kelvin sign has three bytes, `K` one.
            Self::Nfc | Self::Nfd | Self::Lowercase => Some(3),
            Self::ReplaceText(from, to) if to.len() >= from.len() => Some(1),
            Self::ReplaceText(from, to) => from.len().checked_div(to.len()).map(|times| times + 1),
            Self::Nfkc | Self::Nfkd | Self::StripAccents | Self::Strip { .. } | Self::ReplacePattern(..) => {
                None
            }
        }
    }

    /// `None` if the text stays.
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
                // Nothing here ends it early.
                let _ = pattern.each(text, |piece, matched| {
                    out.push_str(if matched { to } else { piece });
                    Ok(())
                });
                Some(out)
            }
        }
    }
}
