//! Numbers of tokens in an error message: the context window, the input, and the excess of the input.

use super::compared_numbers::{ExceededLimit, exceeded_limit};
use super::error_signals::{ErrorSignals, find_word, word_positions};
use super::number_phrases::{
    CONTEXT_WINDOW_NAMES, EXCEEDING_PHRASES, INPUT_LENGTH_NAMES, INPUT_NUMBER_PREFIXES,
    INPUT_NUMBER_SUFFIXES, LIMIT_NAME_PREFIXES, LOWER_BOUND_PHRASES, WINDOW_NUMBER_PREFIXES,
};
use super::phrases::OUTPUT_CAP_NAMES;
use super::request_echo;
use crate::json_cursor;

/// Maximum bytes between a name and the number that belongs to it, and between two numbers that are compared.
const MAX_DISTANCE: usize = 100;
/// Words and signs between a name and its number.
const CONNECTORS: [&str; 12] =
    [" ", "(", ":", "=", "`", "'", "is ", "of ", "only ", "limit ", "up to ", "than "];

impl ErrorSignals {
    /// Returns the size of the context window that the error states, in the provider's tokens.
    pub(super) fn context_window(&self) -> Option<u64> {
        let of_name = |name: &&str| {
            let after = |at: usize| Some(connected_number(self.text.get(at + name.len()..)?)?.0);
            word_positions(&self.text, name).find_map(after)
        };
        self.reported_window
            .or_else(|| self.exceeded_input_limit().map(|numbers| numbers.limit))
            .or_else(|| WINDOW_NUMBER_PREFIXES.iter().find_map(|phrase| number_after(&self.text, phrase)))
            .or_else(|| CONTEXT_WINDOW_NAMES.iter().find_map(of_name))
            // A bound of 0 or 1 in the error text belongs to the limit on generated tokens.
            .or_else(|| number_after(&self.text, " > ").filter(|window| *window > 1))
            .or_else(|| self.stated_input_and_limit().map(|(_, window)| window))
    }

    /// Returns the tokens of the input that the error states, as the provider counts them. `None` if the error states
    /// the tokens over the window instead, see [`Self::input_tokens_from_excess`].
    pub(super) fn input_tokens(&self) -> Option<u64> {
        if self.tokens_over_window().is_some() {
            return None;
        }
        self.reported_input
            .or_else(|| self.exceeded_input_limit().map(|numbers| numbers.sent))
            .or_else(|| INPUT_NUMBER_SUFFIXES.iter().find_map(|phrase| number_before(&self.text, phrase)))
            .or_else(|| INPUT_NUMBER_PREFIXES.iter().find_map(|phrase| number_after(&self.text, phrase)))
            .or_else(|| self.stated_inputs().next().map(|(input, _)| input))
    }

    /// Returns the tokens of the input and of its limit if the error compares these two numbers and does not mention the
    /// answer.
    fn exceeded_input_limit(&self) -> Option<ExceededLimit> {
        if self.is_about_answer() { None } else { exceeded_limit(&self.text) }
    }

    /// Returns the tokens of the input, computed from the window and the reported tokens over it; `None` if the window is
    /// unknown (0) or no such number was reported.
    pub(super) fn input_tokens_from_excess(&self, window: u64) -> Option<u64> {
        self.tokens_over_window().filter(|_| window > 0).map(|more| window.saturating_add(more))
    }

    /// Returns the number of tokens by which the input exceeds the window. Some engines state it; others compute the
    /// limit on generated tokens as the window minus the input, and refuse the limit because it is not positive.
    /// Returns `None` without such a number, and for a limit of 0 that the request itself sets.
    pub(super) fn tokens_over_window(&self) -> Option<u64> {
        let negative = |name: &&str| {
            word_positions(&self.text, name).find_map(|at| refused_cap(self.text.get(at + name.len()..)?))
        };
        let by = number_after(&self.text, "context length by ");
        let overflow = by.or_else(|| OUTPUT_CAP_NAMES.iter().find_map(negative));
        overflow.filter(|tokens| *tokens > 0 || !self.is_zero_requested)
    }

    /// Returns the signals without the text that the error repeats from the request. Records if the request itself sets
    /// the limit on generated tokens to 0, because a refused 0 is then no sign of a full window.
    pub(super) fn without_request_echo(mut self, request: &[u8]) -> Self {
        self.text = request_echo::remove_echo(&self.text, request);
        let is_zero = |name: &&str| json_cursor::member_value(request, name) == Some(b"0");
        self.is_zero_requested = self.tokens_over_window() == Some(0) && OUTPUT_CAP_NAMES.iter().any(is_zero);
        self
    }

    /// Returns the tokens of an input and of the smaller limit that the message compares it with; `None` without such a
    /// comparison.
    pub(super) fn stated_input_and_limit(&self) -> Option<(u64, u64)> {
        self.stated_inputs().find_map(|(input, rest)| {
            let rest = clause(rest);
            let exceeds = |phrase: &&str| rest.find(*phrase).map(|at| at + phrase.len());
            let rest = rest.get(EXCEEDING_PHRASES.iter().find_map(exceeds)?..)?;
            let start = rest.find(|letter: char| letter.is_ascii_digit())?;
            let (limit, _) = leading_number(rest.get(start..)?)?;
            (limit > 0 && limit < input).then_some((input, limit))
        })
    }

    /// Returns the numbers that follow a name of the input, each with the text after it.
    fn stated_inputs(&self) -> impl Iterator<Item = (u64, &str)> {
        INPUT_LENGTH_NAMES.iter().flat_map(move |name| {
            word_positions(&self.text, name).filter_map(move |at| {
                let before = self.text.get(..at)?;
                let is_limit = LIMIT_NAME_PREFIXES.iter().any(|prefix| before.ends_with(prefix));
                connected_number(self.text.get(at + name.len()..)?).filter(|_| !is_limit)
            })
        })
    }
}

/// Returns the start of a text up to the end of its line, at most [`MAX_DISTANCE`] bytes.
fn clause(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    let end = (0..=MAX_DISTANCE.min(line.len())).rev().find(|end| line.is_char_boundary(*end));
    line.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// Parses the end of a message such as "max_tokens must be at least 1, got -5", after the name. Returns the absolute
/// value of the refused number, here 5; `None` if the text does not refuse a number below 1.
fn refused_cap(rest: &str) -> Option<u64> {
    let rest = clause(rest);
    let bound = |phrase: &&str| refused_number(rest.get(find_word(rest, phrase)? + phrase.len()..)?);
    LOWER_BOUND_PHRASES.iter().find_map(bound)
}

/// Returns the absolute value of the first number in a text that is 0 or negative and was refused. A part of a name
/// such as "gpt-4o", and an accepted value as in "or -1", do not count.
fn refused_number(text: &str) -> Option<u64> {
    text.match_indices(['-', '0'])
        .find_map(|(at, sign)| {
            let before = text.get(..at)?;
            let number = text.get(at..)?;
            let words = before.trim_end_matches(NUMBER_QUOTES).trim_end();
            if sign == "0" {
                let is_reported = REPORTING_ENDINGS.iter().any(|ending| words.ends_with(ending));
                return leading_number(number).filter(|(number, _)| is_reported && *number == 0);
            }
            let is_separate = before.is_empty() || before.ends_with(|letter: char| !is_name_letter(letter));
            let is_accepted = ALTERNATIVE_WORDS.iter().any(|word| words.ends_with(word));
            leading_number(number.get(1..)?).filter(|_| is_separate && !is_accepted)
        })
        .map(|(number, _)| number)
}

/// Endings of the words before a number that was received.
const REPORTING_ENDINGS: [&str; 6] = ["got", "received", "given", "(", ":", "="];
/// Endings of the words before a number that would be accepted, or that ends a range.
const ALTERNATIVE_WORDS: [&str; 3] = [" or", " to", " from"];
const NUMBER_QUOTES: [char; 4] = ['`', '\'', '"', ' '];

/// Returns true for a letter that continues a name with hyphens.
fn is_name_letter(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/')
}

/// Returns the number after words such as "is" and "of" at the start of a text, and the text after the number.
fn connected_number(mut rest: &str) -> Option<(u64, &str)> {
    while let Some(shorter) = CONNECTORS.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = shorter;
    }
    leading_number(rest)
}

/// Returns the number at the start of a text, and the text after it.
pub(super) fn leading_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b',').count();
    Some((parse_number(text.get(..digits)?)?, text.get(digits..)?))
}

/// Returns the number that directly follows a phrase.
pub(super) fn number_after(text: &str, phrase: &str) -> Option<u64> {
    let positions = text.match_indices(phrase);
    positions.map(|(at, _)| at + phrase.len()).find_map(|end| Some(leading_number(text.get(end..)?)?.0))
}

fn number_before(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| {
        let rest = text.get(..at)?;
        let digits = rest.bytes().rev().take_while(|byte| byte.is_ascii_digit() || *byte == b',').count();
        parse_number(rest.get(rest.len() - digits..)?)
    })
}

/// Parses digits with optional thousands separators.
fn parse_number(digits: &str) -> Option<u64> {
    digits.replace(',', "").parse().ok()
}
