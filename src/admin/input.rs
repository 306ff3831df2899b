//! Strict parser of admin request bodies. An error names the invalid field; a request with an error changes nothing.

use crate::http::field_errors::FieldErrors;
use penstock_core::{ApiError, MicroCredits};
use penstock_storage::keys::KeyLimits;
use rust_decimal::Decimal;
use serde_json::{Map, Value};

/// Maximum length of a display text, such as a name, in bytes.
pub const MAX_NAME_BYTES: usize = 200;
/// Maximum number of entries in a list.
const MAX_LIST_ENTRIES: usize = 1_000;
/// Maximum total size of a list, in bytes. The row of a key contains two lists, and has to fit into the size limit of
/// a store row.
const MAX_LIST_BYTES: usize = 16 << 10;
/// Maximum value of a limit on requests or tokens per minute.
const MAX_LIMIT_VALUE: u64 = 1_000_000_000_000;
/// Last second of the year 9999, as Unix seconds.
const MAX_UNIX_SECONDS: u64 = 253_402_300_799;

/// Members of a JSON object, checked against the known names.
pub struct RequestFields<'b> {
    members: &'b Map<String, Value>,
    path_prefix: &'static str,
}

/// Parses an exact decimal number, also with an exponent, such as `12.5` or `1e3`; `None` for any other text, and for a
/// number with more than 28 digits.
pub fn parse_decimal(text: &str) -> Option<Decimal> {
    Decimal::from_str_exact(text).or_else(|_| Decimal::from_scientific(text)).ok()
}

/// Value of a field in a request that changes a stored object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PatchValue<T> {
    /// Absent field: the stored value stays.
    #[default]
    Absent,
    /// `null`: the stored value is removed, or replaced by its default.
    Null,
    /// New value, which replaces the stored value.
    Some(T),
}

impl<T> PatchValue<T> {
    /// Returns the value, if there is one.
    pub fn into_option(self) -> Option<T> {
        match self {
            Self::Some(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    /// Applies the field to the stored value: a new value replaces it, `null` removes it, and an absent field leaves
    /// it unchanged.
    pub fn apply_to(self, stored: &mut Option<T>) {
        match self {
            Self::Absent => {}
            Self::Null => *stored = None,
            Self::Some(value) => *stored = Some(value),
        }
    }
}

impl<'b> RequestFields<'b> {
    /// Reads the members of a request body.
    ///
    /// # Errors
    /// Returns 400 if the body is not an object or a member is unknown.
    pub fn parse(body: &'b Value, member_names: &[&str]) -> Result<Self, ApiError> {
        let members =
            body.as_object().ok_or_else(|| ApiError::invalid("body", "The body has to be a JSON object."))?;
        Self { members, path_prefix: "" }.check_known(member_names)
    }

    fn check_known(self, member_names: &[&str]) -> Result<Self, ApiError> {
        match self.members.keys().find(|name| !member_names.contains(&name.as_str())) {
            None => Ok(self),
            Some(name) => {
                let shown: String = name.chars().take(MAX_NAME_BYTES).collect();
                let message = format!("This field is not known; known are {}.", member_names.join(", "));
                Err(ApiError::invalid(format!("{}{shown}", self.path_prefix), message))
            }
        }
    }

    fn invalid_field(&self, name: &str, expected: &str) -> ApiError {
        let path = format!("{}{name}", self.path_prefix);
        let message = format!("{path} has to be {expected}.");
        ApiError::invalid(path, message)
    }

    fn read_field<T>(
        &self,
        name: &str,
        expected: &str,
        parse_value: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<PatchValue<T>, ApiError> {
        match self.members.get(name) {
            None => Ok(PatchValue::Absent),
            Some(Value::Null) => Ok(PatchValue::Null),
            Some(value) => {
                parse_value(value).map(PatchValue::Some).ok_or_else(|| self.invalid_field(name, expected))
            }
        }
    }

    /// Reads a display text, such as a name.
    ///
    /// # Errors
    /// Returns 400 if the value is not a text, is too long or contains control characters.
    pub fn text_value(&self, name: &str) -> Result<PatchValue<String>, ApiError> {
        self.read_field(name, &format!("a text of at most {MAX_NAME_BYTES} bytes on one line"), |value| {
            value.as_str().filter(|text| is_display_text(text)).map(str::to_owned)
        })
    }

    /// Reads an id: a text like those of [`RequestFields::text_value`] that is not empty. An empty id is often a
    /// variable without a value in a script, so it is not taken for an absent one.
    ///
    /// # Errors
    /// Returns 400 if the value is not such a text.
    pub fn id_value(&self, name: &str) -> Result<PatchValue<String>, ApiError> {
        let expected = format!("a text of 1 to {MAX_NAME_BYTES} bytes on one line, or left out");
        self.read_field(name, &expected, |value| {
            value.as_str().filter(|text| !text.is_empty() && is_display_text(text)).map(str::to_owned)
        })
    }

    /// Reads a list of names.
    ///
    /// # Errors
    /// Returns 400 if the value is not a list of names, is too long or contains an empty name or control characters.
    pub fn text_list(&self, name: &str) -> Result<PatchValue<Vec<String>>, ApiError> {
        let fits = |text: &&str| !text.is_empty() && is_display_text(text);
        let expected = format!("a list of at most {MAX_LIST_ENTRIES} names, {MAX_LIST_BYTES} bytes together");
        self.read_field(name, &expected, |value| {
            let items = value.as_array().filter(|items| items.len() <= MAX_LIST_ENTRIES)?;
            let texts = items.iter().map(|item| item.as_str().filter(fits).map(str::to_owned));
            let texts: Vec<String> = texts.collect::<Option<_>>()?;
            (texts.iter().map(String::len).sum::<usize>() <= MAX_LIST_BYTES).then_some(texts)
        })
    }

    /// Reads a text that must be one of the given words; returns the value that is paired with the word.
    ///
    /// # Errors
    /// Returns 400 if the value is none of the words.
    pub fn choice<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<PatchValue<T>, ApiError> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.read_field(name, &names.join(" or "), |value| {
            let text = value.as_str()?;
            words.iter().find(|(word, _)| *word == text).map(|(_, meant)| *meant)
        })
    }

    /// Reads a Boolean value.
    ///
    /// # Errors
    /// Returns 400 if the value is neither true nor false.
    pub fn bool(&self, name: &str) -> Result<PatchValue<bool>, ApiError> {
        self.read_field(name, "true or false", Value::as_bool)
    }

    /// Reads a Boolean value, which a form sends as the word `true` or `false`.
    ///
    /// # Errors
    /// Returns 400 if the value is neither true nor false.
    pub fn bool_or_word(&self, name: &str) -> Result<PatchValue<bool>, ApiError> {
        self.read_field(name, "true or false", |value| {
            value.as_bool().or_else(|| value.as_str().and_then(|word| word.parse().ok()))
        })
    }

    /// Reads an integer from `min` to `max`.
    ///
    /// # Errors
    /// Returns 400 if the value is not an integer or out of range.
    pub fn number_in_range(&self, name: &str, min: u64, max: u64) -> Result<PatchValue<u64>, ApiError> {
        self.read_field(name, &format!("a whole number from {min} to {max}"), |value| {
            value.as_u64().filter(|number| (min..=max).contains(number))
        })
    }

    /// Reads a future time in Unix seconds.
    ///
    /// # Errors
    /// Returns 400 if the value is not a time or in the past.
    pub fn future_time(&self, name: &str, now: u64) -> Result<PatchValue<u64>, ApiError> {
        self.read_field(name, "a future Unix time in seconds", |value| {
            value.as_u64().filter(|at| *at > now && *at <= MAX_UNIX_SECONDS)
        })
    }

    /// Reads an amount of credits above zero, a number or text with at most six decimals, and returns it in
    /// micro-credits.
    ///
    /// # Errors
    /// Returns 400 if the value is not such an amount.
    pub fn credit_amount(&self, name: &str) -> Result<PatchValue<u64>, ApiError> {
        let text = match self.members.get(name) {
            None => return Ok(PatchValue::Absent),
            Some(Value::Null) => return Ok(PatchValue::Null),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => return Err(self.invalid_field(name, "an amount of credits")),
        };
        let Some(amount) = parse_decimal(&text) else {
            return Err(self.invalid_field(name, "an amount of credits, such as 12.5"));
        };
        if amount <= Decimal::ZERO {
            return Err(self.invalid_field(name, "more than 0 credits; leave it out, or null, for no limit"));
        }
        if amount.normalize().scale() > 6 {
            return Err(self.invalid_field(name, "an amount with at most six decimals"));
        }
        let micro = MicroCredits::from_credits(amount).and_then(|micro| u64::try_from(micro.0).ok());
        micro
            .map(PatchValue::Some)
            .ok_or_else(|| self.invalid_field(name, "an amount of at most 9000000000000 credits"))
    }

    /// Applies the member `limits` to stored limits.
    ///
    /// # Errors
    /// Returns 400 with all limits that are invalid.
    pub fn apply_limits(&self, onto: &mut KeyLimits) -> Result<(), ApiError> {
        let members = match self.members.get("limits") {
            None => return Ok(()),
            Some(Value::Null) => {
                *onto = KeyLimits::default();
                return Ok(());
            }
            Some(value) => value.as_object().ok_or_else(|| self.invalid_field("limits", "an object"))?,
        };
        let limits = RequestFields { members, path_prefix: "limits." }.check_known(&LIMIT_MEMBERS)?;
        let mut errors = FieldErrors::default();
        let mut limit = |name, most| errors.unwrap_or_record(limits.limit(name, most));
        limit("requests_per_minute", MAX_LIMIT_VALUE).apply_to(&mut onto.requests_per_minute);
        limit("tokens_per_minute", MAX_LIMIT_VALUE).apply_to(&mut onto.tokens_per_minute);
        match limit("concurrent", u32::MAX.into()) {
            PatchValue::Absent => {}
            PatchValue::Null => onto.concurrent = None,
            PatchValue::Some(most) => onto.concurrent = u32::try_from(most).ok(),
        }
        errors.unwrap_or_record(limits.credit_amount("budget_per_day")).apply_to(&mut onto.budget_per_day);
        errors
            .unwrap_or_record(limits.credit_amount("budget_per_month"))
            .apply_to(&mut onto.budget_per_month);
        errors.into_result()
    }

    fn limit(&self, name: &str, max: u64) -> Result<PatchValue<u64>, ApiError> {
        let expected = format!("a whole number from 1 to {max}; leave it out, or null, for no limit");
        self.read_field(name, &expected, |value| value.as_u64().filter(|number| (1..=max).contains(number)))
    }
}

/// Members of the object `limits` of keys and accounts.
pub const LIMIT_MEMBERS: [&str; 5] =
    ["requests_per_minute", "tokens_per_minute", "concurrent", "budget_per_day", "budget_per_month"];

/// Returns true for a text of one line without invisible control characters, at most [`MAX_NAME_BYTES`] long.
fn is_display_text(text: &str) -> bool {
    text.len() <= MAX_NAME_BYTES && !text.chars().any(is_invisible_control)
}

/// Returns true for a control character, or for a character that changes the writing direction and so can make one
/// name look like another.
fn is_invisible_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
