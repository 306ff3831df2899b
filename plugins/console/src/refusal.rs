//! Texts of refusals, from the sentences of the API.

use crate::text::{Text, parse_values};
use crate::texts;

impl Text {
    /// Creates the text for a refusal of the API: from the table of refusals, or else the sentence itself, translated
    /// if the table of texts has it.
    #[must_use]
    pub fn from_refusal(message: &str) -> Self {
        let found = texts::refusals::TRANSLATIONS.iter().find_map(|(sentence, shown, ..)| {
            let values = if *sentence == message { Vec::new() } else { parse_values(sentence, message)? };
            let values = values.into_iter().map(|value| match value {
                // The numbers and roles of the API are translated, names are not, even if they have only digits.
                Self::Data(number) if is_number(&number) && !repeats_names(sentence) => {
                    Self::Exact(number, "")
                }
                Self::Data(role) if sentence.starts_with("The role ") => Self::Word(role),
                other => other,
            });
            Some(Self::Template(shown, values.collect()))
        });
        found.unwrap_or_else(|| Self::Word(message.to_owned()))
    }

    /// Creates the text for a refusal that is shown at the field that it concerns: same as [`Text::from_refusal`], but
    /// the sentence of the API lacks the name of the member if no table has the sentence.
    #[must_use]
    pub(crate) fn from_field_refusal(message: &str) -> Self {
        match Self::from_refusal(message) {
            Self::Word(sentence) if texts::find_english_text(&sentence).is_none() => {
                Self::Word(without_member_name(&sentence))
            }
            text => text,
        }
    }
}

/// Returns a sentence such as `month: expected a month` as `Expected a month`; other sentences are returned unchanged.
fn without_member_name(sentence: &str) -> String {
    let is_name =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.'));
    match sentence.split_once(": expected ") {
        Some((name, expected)) if is_name(name) => format!("Expected {expected}"),
        _ => sentence.to_owned(),
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for the sentence of a refusal whose values are names that were entered.
fn repeats_names(sentence: &str) -> bool {
    ["unknown scopes: ", "models: "].iter().any(|start| sentence.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::Language;

    #[test]
    fn a_refusal_has_its_text_without_names_of_the_api() {
        for (message, language, expected) in [
            (
                "expires has to be a future Unix time in seconds.",
                Language::German,
                "Wählen Sie einen Tag, der noch nicht vorbei ist.",
            ),
            (
                "limits.requests_per_minute has to be a whole number from 1 to 1000000; leave it out, or null, for no limit.",
                Language::French,
                "Saisissez un nombre entier de 1 à 1\u{202f}000\u{202f}000, ou rien pour ne pas limiter.",
            ),
            (
                "There is an account of this id already.",
                Language::German,
                "Es gibt bereits ein Konto mit dieser ID.",
            ),
            (
                "There is no account nosuch; make it first (penstock accounts create).",
                Language::English,
                "There is no account nosuch; create it first.",
            ),
            (
                "The role viewer may not do this; an administrator can change the role.",
                Language::German,
                "Die Rolle Betrachter darf dies nicht; ein Administrator kann die Rolle ändern.",
            ),
            ("Something else.", Language::German, "Something else."),
        ] {
            assert_eq!(Text::from_refusal(message).render(language), expected);
        }
    }

    #[test]
    fn a_refusal_at_its_field_does_not_repeat_the_name_of_the_field() {
        for (message, expected) in [
            ("key: expected a key of this account.", "Enter the name or the id of a key of this account."),
            (
                "month: expected either a month, or from and to",
                "Choose either a month, or a first and a last day.",
            ),
            ("some_member: expected a thing", "Expected a thing"),
            ("Something: expected a thing", "Something: expected a thing"),
        ] {
            assert_eq!(Text::from_field_refusal(message).render(Language::English), expected);
        }
    }
}
