//! Languages of the pages.

/// Language of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// German.
    German,
    /// French.
    French,
}

impl Language {
    /// All languages, in the order of the language switch.
    pub const ALL: [Self; 3] = [Self::English, Self::German, Self::French];

    /// Returns the code of the language, for the attribute `lang` and the cookie.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::German => "de",
            Self::French => "fr",
        }
    }

    /// Returns the name of the language in that language.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::German => "Deutsch",
            Self::French => "Français",
        }
    }

    /// Returns the language with this code, such as `de`; `None` if it is not supported.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.code() == code)
    }

    /// Returns the supported language with the highest quality in an `Accept-Language` header, the first one if several
    /// have the same; English if there is none.
    #[must_use]
    pub fn from_accept_language(header: &str) -> Self {
        let mut best = (0, Self::English);
        for range in header.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let primary = parts.next().and_then(|tag| tag.split('-').next()).unwrap_or_default();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(1_000, thousandths);
            if let Some(language) = Self::from_code(&primary.to_ascii_lowercase())
                && quality > best.0
            {
                best = (quality, language);
            }
        }
        best.1
    }

    /// Returns the mark between the whole and the decimal digits of a number.
    pub(crate) const fn decimal_mark(self) -> char {
        match self {
            Self::English => '.',
            Self::German | Self::French => ',',
        }
    }
}

/// Returns a quality value in thousandths; 0 if it is invalid.
fn thousandths(quality: &str) -> u32 {
    let value = quality.trim().parse::<f64>().unwrap_or(0.0);
    // The number is between 0 and 1000; a NaN becomes 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
    let thousandths = (value.clamp(0.0, 1.0) * 1_000.0) as u32;
    thousandths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_of_the_highest_quality_is_chosen() {
        for (header, language) in [
            ("", Language::English),
            ("de", Language::German),
            ("DE-at,de;q=0.9,en;q=0.8", Language::German),
            ("fr-CH, fr;q=0.9, en;q=0.8, de;q=0.7, *;q=0.5", Language::French),
            ("en;q=0.3, fr;q=0.5", Language::French),
            ("nl, de;q=0.5", Language::German),
            ("de;q=0, fr;q=0", Language::English),
            ("de;q=nan, fr;q=2", Language::French),
            ("*", Language::English),
            ("deutsch", Language::English),
            (";;,,q=1", Language::English),
        ] {
            assert_eq!(Language::from_accept_language(header), language, "{header}");
        }
    }
}
