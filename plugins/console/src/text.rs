//! Text of a page: a translatable text, or data. Its language is chosen when it is written.

use crate::format::{format_exact, group_thousands, localize_timestamp, quantity_parts};
use crate::language::Language;
use crate::texts;
use std::borrow::Cow;

/// Text, written in the language of the page.
#[derive(Clone, Debug, PartialEq)]
pub enum Text {
    /// Text of the translation table, named by its English form, with the values of its placeholders `{0}`, `{1}`.
    Template(&'static str, Vec<Text>),
    /// Word or sentence of the API, such as a state; translated if the table has it.
    Word(String),
    /// Data, such as a name; never translated.
    Data(String),
    /// Number that is rounded for people, and its unit.
    Quantity(f64, &'static str),
    /// Exact number as text, and its unit.
    Exact(String, &'static str),
    /// Time in RFC 3339.
    Time(String),
    /// Day, such as `2026-11-26`.
    Day(String),
    /// Day, such as `2026-11-26`, shown without its year.
    MonthDay(String),
    /// Month, such as `2026-11`.
    Month(String),
    /// Texts, with the same separator between them.
    List(Vec<Text>, &'static str),
}

impl Default for Text {
    fn default() -> Self {
        Self::Data(String::new())
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self::Template(text, Vec::new())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Data(text)
    }
}

impl Text {
    /// Creates a text of the translation table, with the values of its placeholders.
    #[must_use]
    pub fn with_values<const N: usize>(text: &'static str, values: [Self; N]) -> Self {
        Self::Template(text, values.into())
    }

    /// Creates the text of a sentence of the API. If the sentence was made from one of the templates `texts`, it can be
    /// translated with its values; otherwise it becomes a [`Text::Word`].
    #[must_use]
    pub fn from_sentence(sentence: &str, texts: &[&'static str]) -> Self {
        let found = texts.iter().find_map(|text| Some(Self::Template(text, parse_values(text, sentence)?)));
        found.unwrap_or_else(|| Self::Word(sentence.to_owned()))
    }

    /// Creates the text of a number with all its digits, and its unit.
    #[must_use]
    pub(crate) fn exact_number(number: f64, unit: &'static str) -> Self {
        Self::Exact(format_exact(number), unit)
    }

    /// Returns the exact value of a rounded number; empty for other texts.
    #[must_use]
    pub(crate) fn exact_value(&self) -> Self {
        match self {
            Self::Quantity(number, unit) if number.is_finite() => Self::exact_number(*number, unit),
            _ => Self::default(),
        }
    }

    /// Returns true if nothing is shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Template(text, _) => text.is_empty(),
            Self::Word(text)
            | Self::Data(text)
            | Self::Day(text)
            | Self::MonthDay(text)
            | Self::Month(text) => text.is_empty(),
            Self::List(texts, _) => texts.is_empty(),
            Self::Quantity(..) | Self::Exact(..) | Self::Time(_) => false,
        }
    }

    /// Returns the text for a narrow element, with an ordinary space between a number and its unit, so that the line
    /// can be wrapped there.
    pub(crate) fn render_wrapping(&self, language: Language) -> Cow<'_, str> {
        let rendered = self.render(language);
        let parts = match self {
            Self::Quantity(_, unit) | Self::Exact(_, unit) if !unit.is_empty() => {
                rendered.rsplit_once('\u{202f}')
            }
            _ => None,
        };
        parts.map(|(number, unit)| [number, " ", unit].concat().into()).unwrap_or(rendered)
    }

    /// Returns the text, translated and formatted for a language.
    #[must_use]
    pub fn render(&self, language: Language) -> Cow<'_, str> {
        match self {
            Self::Template(text, values) if values.is_empty() => texts::translate(text, language).into(),
            Self::Template(text, values) => fill(texts::translate(text, language), values, language).into(),
            Self::Word(text) => texts::translate(text, language).into(),
            Self::Data(text) => text.as_str().into(),
            Self::Quantity(number, unit) => {
                let (number, unit) = quantity_parts(*number, unit);
                with_unit(&number, unit, language).into()
            }
            Self::Exact(number, unit) => with_unit(number, unit, language).into(),
            Self::Time(time) => localize_timestamp(time, language),
            Self::Day(day) => format_day(day, language, true),
            Self::MonthDay(day) => format_day(day, language, false),
            Self::Month(month) => format_month(month, language),
            Self::List(texts, separator) => {
                let texts: Vec<_> = texts.iter().map(|text| text.render(language)).collect();
                texts.join(separator).into()
            }
        }
    }
}

/// Separates the thousands of a plain number by narrow spaces; any other text is returned unchanged.
fn group_number(text: &str) -> Cow<'_, str> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole.strip_prefix('-').unwrap_or(whole)) || !fraction.is_none_or(digits) {
        return text.into();
    }
    let whole = group_thousands(whole);
    fraction.map_or_else(|| whole.clone(), |fraction| format!("{whole}.{fraction}")).into()
}

/// Returns the number with the decimal mark of the language, and its translated unit.
fn with_unit(number: &str, unit: &str, language: Language) -> String {
    let number = group_number(number).into_owned();
    let is_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    let mut out = match language.decimal_mark() {
        '.' => number,
        // Only ASCII characters are examined, because the thousands separator is a narrow space, which is not ASCII.
        _ if !number.bytes().filter(u8::is_ascii).all(is_number) => number,
        mark => number.replace('.', mark.encode_utf8(&mut [0; 4])),
    };
    if !unit.is_empty() {
        out.push('\u{202f}');
        out.push_str(texts::translate(unit, language));
    }
    out
}

fn format_day(day: &str, language: Language, with_year: bool) -> Cow<'_, str> {
    let mut parts = day.split('-');
    let (Some(year), Some(month), Some(date), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return day.into();
    };
    match (language, with_year) {
        (Language::English, true) => day.into(),
        (Language::English, false) => format!("{month}-{date}").into(),
        (Language::German, true) => format!("{date}.{month}.{year}").into(),
        (Language::German, false) => format!("{date}.{month}.").into(),
        (Language::French, true) => format!("{date}/{month}/{year}").into(),
        (Language::French, false) => format!("{date}/{month}").into(),
    }
}

fn format_month(text: &str, language: Language) -> Cow<'_, str> {
    let parts = text.split_once('-').filter(|(_, month)| !month.contains('-'));
    match (parts, language) {
        (None, _) | (_, Language::English) => text.into(),
        (Some((year, month)), Language::German) => format!("{month}.{year}").into(),
        (Some((year, month)), Language::French) => format!("{month}/{year}").into(),
    }
}

/// Returns the values of the placeholders in the order of the template; `None` if the sentence was not made from the
/// template, or if the template has no placeholder.
pub(crate) fn parse_values(template: &str, sentence: &str) -> Option<Vec<Text>> {
    let (first, mut rest) = template.split_once('{')?;
    let mut sentence = sentence.strip_prefix(first)?;
    let mut values = Vec::new();
    loop {
        let (_, behind) = rest.split_once('}')?;
        let (between, next) =
            behind.split_once('{').map_or((behind, None), |(text, next)| (text, Some(next)));
        let (value, after) = match next {
            Some(_) => sentence.split_once(between)?,
            None => (sentence.strip_suffix(between)?, ""),
        };
        values.push(Text::Data(value.to_owned()));
        match next {
            Some(next) => (rest, sentence) = (next, after),
            None => return Some(values),
        }
    }
}

/// Replaces the placeholders by their values. Placeholders inside a value are not replaced.
pub(crate) fn fill(template: &str, values: &[Text], language: Language) -> String {
    let mut out = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((index, behind)) = after.split_once('}') else { break };
        let value = index.parse::<usize>().ok().and_then(|index| values.get(index));
        out.push_str(&value.map(|value| value.render(language)).unwrap_or_default());
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_days_are_those_of_the_language() {
        for (text, english, german, french) in [
            (Text::Quantity(1250.0, "kWh"), "1.25\u{202f}MWh", "1,25\u{202f}MWh", "1,25\u{202f}MWh"),
            (
                Text::Quantity(12_345.6, "EUR"),
                "12\u{202f}346\u{202f}EUR",
                "12\u{202f}346\u{202f}EUR",
                "12\u{202f}346\u{202f}EUR",
            ),
            (
                Text::Quantity(1.5, "credits"),
                "1.5\u{202f}credits",
                "1,5\u{202f}Credits",
                "1,5\u{202f}crédits",
            ),
            (Text::Exact("0.125".into(), ""), "0.125", "0,125", "0,125"),
            (
                Text::Exact("1043920.5".into(), ""),
                "1\u{202f}043\u{202f}920.5",
                "1\u{202f}043\u{202f}920,5",
                "1\u{202f}043\u{202f}920,5",
            ),
            (Text::Exact("–".into(), ""), "–", "–", "–"),
            (Text::Exact("1.2.3 beta".into(), ""), "1.2.3 beta", "1.2.3 beta", "1.2.3 beta"),
            (Text::Day("2026-11-05".into()), "2026-11-05", "05.11.2026", "05/11/2026"),
            (Text::MonthDay("2026-11-05".into()), "11-05", "05.11.", "05/11"),
            (Text::Day("soon".into()), "soon", "soon", "soon"),
            (Text::Month("2026-11".into()), "2026-11", "11.2026", "11/2026"),
            (Text::Month("soon".into()), "soon", "soon", "soon"),
            (
                Text::Time("2026-10-26T07:33:20Z".into()),
                "2026-10-26 07:33:20 UTC",
                "26.10.2026, 07:33:20 UTC",
                "26/10/2026 07:33:20 UTC",
            ),
        ] {
            assert_eq!(text.render(Language::English), english);
            assert_eq!(text.render(Language::German), german);
            assert_eq!(text.render(Language::French), french);
        }
    }

    #[test]
    fn a_line_of_a_narrow_element_may_end_before_a_unit_only() {
        let text = Text::Exact("995911".to_owned(), "credits");
        assert_eq!(text.render_wrapping(Language::German), "995\u{202f}911 Credits");
        assert_eq!(Text::Exact("995911".to_owned(), "").render_wrapping(Language::German), "995\u{202f}911");
        assert_eq!(Text::Data("a b".to_owned()).render_wrapping(Language::German), "a b");
    }

    #[test]
    fn a_sentence_is_translated_with_the_values_in_it() {
        let texts = &["Period {0} to {1}", "Methodology: {0}"];
        for (sentence, german) in [
            ("Period a to b", "Leistungszeitraum a bis b"),
            ("Methodology: x. y", "Methodik: x. y"),
            ("Period a", "Period a"),
            ("Keys", "Schlüssel"),
            ("", ""),
        ] {
            assert_eq!(Text::from_sentence(sentence, texts).render(Language::German), german);
        }
    }

    #[test]
    fn data_is_neither_translated_nor_searched_for_placeholders() {
        let name = || Text::Data("Keys {1} {0}".to_owned());
        let text = Text::with_values("{0} to {1}", [name(), Text::from("Keys")]);
        assert_eq!(text.render(Language::German), "Keys {1} {0} bis Schlüssel");
        assert_eq!(Text::Data("Keys".to_owned()).render(Language::German), "Keys");
        assert_eq!(Text::Word("unheard of".to_owned()).render(Language::German), "unheard of");
    }
}
