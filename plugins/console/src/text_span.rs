//! Parts of a text that the page marks: code between backticks, and days, which stay on one line.

use crate::language::Language;
use crate::text::{Text, fill};
use crate::texts;

/// Length of a day such as `2026-11-30`, in bytes.
const DAY_BYTES: usize = 10;

/// Part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextSpan {
    /// Text without a mark.
    Plain(String),
    /// Code, such as the name of a key of the configuration, without its backticks.
    Code(String),
    /// Day such as `2026-11-30`, which is not wrapped.
    Day(String),
}

impl Text {
    /// Returns the parts of the text, translated and formatted for a language. Backticks mark code in texts of the
    /// translation table and of the API, and are plain characters in data.
    pub(crate) fn spans(&self, language: Language) -> Vec<TextSpan> {
        let mut spans = Vec::new();
        self.push_spans(language, &mut spans);
        spans
    }

    fn push_spans(&self, language: Language, spans: &mut Vec<TextSpan>) {
        match self {
            Self::Template(text, values) => {
                for (is_code, part) in code_parts(texts::translate(text, language)) {
                    match is_code {
                        true => spans.push(TextSpan::Code(fill(part, values, language))),
                        false => push_template(part, values, language, spans),
                    }
                }
            }
            Self::Word(text) => {
                for (is_code, part) in code_parts(texts::translate(text, language)) {
                    match is_code {
                        true => spans.push(TextSpan::Code(part.to_owned())),
                        false => push_plain(part, spans),
                    }
                }
            }
            Self::List(texts, separator) => {
                for (index, text) in texts.iter().enumerate() {
                    push_plain(if index > 0 { separator } else { "" }, spans);
                    text.push_spans(language, spans);
                }
            }
            other => push_plain(&other.render(language), spans),
        }
    }
}

/// Splits a text at its backticks; each part is code if it is between two of them. A text with a backtick that no other
/// one closes is one part.
fn code_parts(text: &str) -> Vec<(bool, &str)> {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return vec![(false, text)];
    }
    parts.into_iter().enumerate().map(|(index, part)| (index % 2 == 1, part)).collect()
}

/// Adds a part of a template, with the parts of the values of its placeholders.
fn push_template(mut rest: &str, values: &[Text], language: Language, spans: &mut Vec<TextSpan>) {
    while let Some((before, after)) = rest.split_once('{') {
        push_plain(before, spans);
        let Some((index, behind)) = after.split_once('}') else { return };
        if let Some(value) = index.parse::<usize>().ok().and_then(|index| values.get(index)) {
            value.push_spans(language, spans);
        }
        rest = behind;
    }
    push_plain(rest, spans);
}

/// Adds a plain text, with its days as parts of their own. Plain parts next to each other are joined.
fn push_plain(mut text: &str, spans: &mut Vec<TextSpan>) {
    while let Some((before, day, after)) = split_day(text) {
        join(before, spans);
        spans.push(TextSpan::Day(day.to_owned()));
        text = after;
    }
    join(text, spans);
}

fn join(text: &str, spans: &mut Vec<TextSpan>) {
    match spans.last_mut() {
        _ if text.is_empty() => {}
        Some(TextSpan::Plain(last)) => last.push_str(text),
        _ => spans.push(TextSpan::Plain(text.to_owned())),
    }
}

/// Returns the first day of a text, with the texts before and after it.
fn split_day(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.match_indices('-').find_map(|(dash, _)| {
        let start = dash.checked_sub(4)?;
        let word = text.get(start..start.checked_add(DAY_BYTES)?)?;
        let is_day = word.bytes().enumerate().all(|(index, byte)| match index {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
        is_day.then_some(start)
    })?;
    Some((text.get(..start)?, text.get(start..start + DAY_BYTES)?, text.get(start + DAY_BYTES..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &Text, language: Language) -> String {
        let mark = |span: TextSpan| match span {
            TextSpan::Plain(text) => text,
            TextSpan::Code(text) => format!("<{text}>"),
            TextSpan::Day(text) => format!("[{text}]"),
        };
        text.spans(language).into_iter().map(mark).collect()
    }

    #[test]
    fn backticks_mark_code_but_not_in_data() {
        let hint = Text::from("Letters, digits, `.`, `_`, `-` or `@`.");
        assert_eq!(shown(&hint, Language::German), "Buchstaben, Ziffern, <.>, <_>, <-> oder <@>.");
        let word = |text: &str| Text::Word(text.to_owned());
        assert_eq!(shown(&word("Up to `n` tokens."), Language::English), "Up to <n> tokens.");
        assert_eq!(shown(&word("One ` only"), Language::English), "One ` only");
        let value = Text::Data("`{0}`".to_owned());
        assert_eq!(
            shown(&Text::with_values("{0} to {1}", [value, word("`b`")]), Language::English),
            "`{0}` to <b>"
        );
        assert_eq!(shown(&Text::List(vec![word("`a`"), word("b")], ", "), Language::English), "<a>, b");
        assert!(Text::default().spans(Language::English).is_empty());
    }

    #[test]
    fn a_day_is_a_part_of_its_own() {
        let day = |text: &str| Text::Day(text.to_owned());
        let period = Text::with_values("{0} to {1}", [day("2026-11-01"), day("2026-11-30")]);
        assert_eq!(shown(&period, Language::English), "[2026-11-01] to [2026-11-30]");
        assert_eq!(shown(&period, Language::German), "01.11.2026 bis 30.11.2026");
        let time = Text::Time("2026-10-26T07:33:20Z".to_owned());
        assert_eq!(shown(&time, Language::English), "[2026-10-26] 07:33:20 UTC");
        for text in ["-", "PS-2026-000001", "é2026-1", "2026-11-3", "a-b-c-2026-11", "9999-99-9é"] {
            assert_eq!(shown(&Text::Data(text.to_owned()), Language::English), text);
        }
        assert_eq!(shown(&Text::Data("x-2026-11-30é".to_owned()), Language::English), "x-[2026-11-30]é");
    }
}
