//! Translation table of all texts: English (the key), German and French. A test reports every text of the code and of
//! the templates that is not in the table.

mod countries;
mod dashboard;
mod labels;
mod operators;
mod reference;
pub(crate) mod refusals;
mod reports;
mod routing;
#[cfg(test)]
mod tests;
mod usage;
mod words;

use crate::language::Language;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Row of the table: English, German, French.
pub(crate) type Translation = (&'static str, &'static str, &'static str);

const TABLES: [&[Translation]; 9] = [
    countries::TRANSLATIONS,
    labels::TRANSLATIONS,
    usage::TRANSLATIONS,
    dashboard::TRANSLATIONS,
    operators::TRANSLATIONS,
    reference::TRANSLATIONS,
    reports::TRANSLATIONS,
    routing::TRANSLATIONS,
    words::TRANSLATIONS,
];

static BY_ENGLISH: LazyLock<HashMap<&'static str, Translation>> = LazyLock::new(|| {
    let shown =
        refusals::TRANSLATIONS.iter().map(|(_, english, german, french)| (*english, *german, *french));
    TABLES.into_iter().flatten().copied().chain(shown).map(|row| (row.0, row)).collect()
});

/// Returns the English text of the table that equals `text`, with static lifetime; `None` if there is none.
#[must_use]
pub fn find_english_text(text: &str) -> Option<&'static str> {
    BY_ENGLISH.get(text).map(|row| row.0)
}

/// Returns the English name of the country with this ISO 3166-1 code; `None` if the table does not have it.
pub(crate) fn country_name(code: &str) -> Option<&'static str> {
    countries::NAMES_BY_CODE.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// Returns a text in a language; the text itself if it is not in the table, such as the name of a unit.
pub(crate) fn translate(text: &str, language: Language) -> &str {
    if language == Language::English {
        return text;
    }
    match (BY_ENGLISH.get(text), language) {
        (Some(row), Language::German) => row.1,
        (Some(row), Language::French) => row.2,
        _ => text,
    }
}
