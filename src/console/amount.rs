//! Amounts in forms, with the decimal mark and the thousands separators of the page's language.

use super::request::ConsoleRequest;
use crate::http::field_errors::FieldErrors;
use penstock_console::Language;
use penstock_core::ApiError;

/// Names of the form fields with an amount.
const AMOUNT_FIELDS: [&str; 3] = ["credits", "budget_per_day", "budget_per_month"];
/// Number of digits between two thousands separators.
const GROUP_DIGITS: usize = 3;

/// Checks the amounts of a form. In a language with a decimal comma, an amount such as `1.000` is refused: it can mean
/// a thousand or one. An amount such as `0.125` or `1234.567` is clear, because no thousands begin like this.
///
/// # Errors
/// Returns 400 with the fields, and both ways to write the amount.
pub fn check_amounts(request: &ConsoleRequest) -> Result<(), ApiError> {
    if request.language == Language::English {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    for name in AMOUNT_FIELDS {
        let text = request.form_field(name).trim();
        let Some((whole, decimals)) = text.split_once('.') else { continue };
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let can_be_group = decimals.len() == GROUP_DIGITS && is_digits(decimals);
        let first = whole.strip_prefix('-').unwrap_or(whole);
        let can_have_groups =
            (1..=GROUP_DIGITS).contains(&first.len()) && is_digits(first) && !first.starts_with('0');
        // Groups that are separated by spaces are thousands already.
        let has_groups = first.contains(char::is_whitespace);
        if can_be_group && (can_have_groups || has_groups) {
            let message = format!(
                "{name}: {text} can mean thousands or decimals; write {whole}{decimals} or {whole},{decimals}."
            );
            errors.add(ApiError::invalid(name, message));
        }
    }
    errors.into_result()
}

/// Returns an amount with a decimal point and without thousands separators, which are spaces and, in languages with a
/// decimal comma, points. Other texts are returned unchanged; the admin API refuses them.
pub fn normalize_amount(text: &str, language: Language) -> String {
    plain_amount(text, language != Language::English).unwrap_or_else(|| text.to_owned())
}

fn plain_amount(text: &str, has_comma: bool) -> Option<String> {
    let with_comma = text.split_once(',').filter(|_| has_comma);
    let parts = match with_comma {
        Some(parts) => Some(parts),
        // Several points separate thousands.
        None if has_comma && text.matches('.').count() > 1 => None,
        None => text.split_once('.'),
    };
    match parts {
        Some((whole, decimals)) => {
            Some(format!("{}.{decimals}", without_groups(whole, with_comma.is_some())?))
        }
        None => without_groups(text, has_comma),
    }
}

/// Returns a whole number without its thousands separators; `None` if a separator is not between groups of three
/// digits.
fn without_groups(whole: &str, has_points: bool) -> Option<String> {
    let groups: Vec<&str> =
        whole.split(|mark: char| mark.is_whitespace() || (has_points && mark == '.')).collect();
    let (first, rest) = groups.split_first()?;
    let is_number = |group: &&str| group.bytes().all(|byte| byte.is_ascii_digit());
    let is_grouped = (1..=GROUP_DIGITS).contains(&first.len())
        && is_number(first)
        && rest.iter().all(|group| group.len() == GROUP_DIGITS && is_number(group));
    (rest.is_empty() || is_grouped).then(|| groups.concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_amount_is_read_as_its_language_writes_it() {
        for (text, english, other) in [
            ("12.5", "12.5", "12.5"),
            ("12,5", "12,5", "12.5"),
            ("1 000", "1000", "1000"),
            ("1\u{202f}000\u{a0}000", "1000000", "1000000"),
            ("1 000,50", "1 000,50", "1000.50"),
            ("1.000,50", "1.000,50", "1000.50"),
            ("1.000.000", "1.000.000", "1000000"),
            ("1.00.000", "1.00.000", "1.00.000"),
            ("1 00", "1 00", "1 00"),
            ("1,000,000", "1,000,000", "1.000,000"),
            ("-1,5", "-1,5", "-1.5"),
            ("viel", "viel", "viel"),
            ("", "", ""),
        ] {
            assert_eq!(normalize_amount(text, Language::English), english, "{text}");
            assert_eq!(normalize_amount(text, Language::German), other, "{text}");
            assert_eq!(normalize_amount(text, Language::French), other, "{text}");
        }
    }

    #[test]
    fn a_point_before_three_digits_is_refused_where_the_decimal_mark_is_a_comma() {
        let mut request = ConsoleRequest::default();
        request.language = Language::German;
        for (text, is_refused) in [
            ("1.000", true),
            ("0.125", false),
            ("012.345", false),
            ("1234.567", false),
            (".125", false),
            ("-1.000", true),
            ("999.999", true),
            ("1.5", false),
            ("1.0000", false),
            ("1.000,5", false),
            ("1000", false),
        ] {
            request.form = vec![("credits".to_owned(), text.to_owned())];
            assert_eq!(check_amounts(&request).is_err(), is_refused, "{text}");
        }
        request.form = vec![("budget_per_day".to_owned(), "1.000".to_owned())];
        let refusal = check_amounts(&request).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("budget_per_day"));
        let shown = penstock_console::Text::from_refusal(&refusal.message);
        let expected =
            "1.000 kann Tausender oder Dezimalstellen meinen: Schreiben Sie 1\u{202f}000 oder 1,000.";
        assert_eq!(shown.render(Language::German), expected);
        request.language = Language::English;
        assert!(check_amounts(&request).is_ok());
    }
}
