//! Maximum of output tokens that a provider states when it refuses a higher one.

use super::compared_numbers::exceeded_limit;
use super::error_signals::{ErrorSignals, contains_word};
use super::number_phrases::MINIMUM_PHRASES;
use super::phrases::{OUTPUT_CAP_NAMES, OUTPUT_LIMIT_NUMBER_PREFIXES};
use super::token_numbers::number_after;

/// Further phrases directly before the largest limit that a model accepts.
const MAXIMUM_PREFIXES: [&str; 8] = [
    "<= ",
    "not exceed ",
    "exceeds the limit of ",
    "exceeds the maximum of ",
    "exceeds maximum of ",
    "exceeds the maximum value of ",
    "smaller than or equal to ",
    "limited to ",
];
/// Phrases directly before a number that the limit must be below.
const UPPER_BOUND_PREFIXES: [&str; 5] =
    ["less than ", "smaller than ", "lower than ", "be below ", "must be < "];

impl ErrorSignals {
    /// Returns the model's maximum of output tokens that the message states. `None` for a message about the context
    /// window, whose maximum depends on the input, and for refused content.
    pub(super) fn max_output_tokens(&self) -> Option<u64> {
        if self.is_context_window_exceeded() || self.is_content_refused() {
            return None;
        }
        let param = self.param.as_deref().unwrap_or_default();
        let of_cap = OUTPUT_CAP_NAMES.iter().any(|name| contains_word(&self.text, name) || *name == param);
        let after = |phrase: &&str| number_after(&self.text, phrase);
        let most = || {
            let maximum = OUTPUT_LIMIT_NUMBER_PREFIXES.iter().chain(&MAXIMUM_PREFIXES).find_map(after);
            maximum.or_else(|| UPPER_BOUND_PREFIXES.iter().find_map(after)?.checked_sub(1))
        };
        let is_minimum = || self.contains_any(MINIMUM_PHRASES);
        let compared = || Some(exceeded_limit(&self.text)?.limit).filter(|_| !is_minimum());
        of_cap.then(|| most().or_else(compared)).flatten().filter(|most| *most > 0)
    }
}
