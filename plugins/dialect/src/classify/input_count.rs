//! Number of input tokens that an error states: the whole input, or only as much of it as the engine counted.

use super::error_signals::ErrorSignals;
use super::phrases::OUTPUT_CAP_NAMES;
use super::token_numbers::number_after;

/// Number of input tokens that an error states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputCount {
    /// Tokens of the whole input.
    Exact(u64),
    /// Lower bound of the tokens: the engine stopped counting as soon as the requested answer no longer fitted.
    AtLeast(u64),
    /// No number.
    Unstated,
}

/// Phrases directly before the number of input tokens that fit beside the requested answer.
const FITTING_INPUT_PREFIXES: [&str; 2] = ["upper bound for ", "resulting in a maximum input length of "];
/// Phrase about a requested answer that exceeds the window even without an input.
const OUTPUT_ABOVE_WINDOW_PHRASE: &str = "cannot be greater than max_model_len";
/// Words about the answer, in addition to [`OUTPUT_CAP_NAMES`].
const ANSWER_WORDS: [&str; 4] = ["completion", "output", "generated", "max_new"];

impl ErrorSignals {
    /// Returns the number of input tokens that the error states; `window` is the size of the context window, 0 if it is
    /// unknown.
    pub(super) fn input_count(&self, window: u64) -> InputCount {
        if let Some(input) = self.input_tokens_from_excess(window) {
            return InputCount::Exact(input);
        }
        let fitting = FITTING_INPUT_PREFIXES.iter().find_map(|phrase| number_after(&self.text, phrase));
        if let Some(fitting) = fitting {
            return InputCount::AtLeast(fitting.saturating_add(1));
        }
        if self.text.contains(OUTPUT_ABOVE_WINDOW_PHRASE) {
            return InputCount::AtLeast(1);
        }
        match self.input_tokens() {
            Some(input) if self.text.contains(&format!("at least {input} ")) => InputCount::AtLeast(input),
            Some(input) => InputCount::Exact(input),
            None => InputCount::Unstated,
        }
    }

    /// Returns true if the limit is on the input alone, and not on the sum of input and answer.
    pub(super) fn is_input_limit(&self) -> bool {
        let names =
            ["is too large to process", "max_input_len", "maximum input length", "maximum prompt length"];
        let is_named = names.iter().any(|name| self.text.contains(name));
        let is_shared = FITTING_INPUT_PREFIXES.iter().any(|phrase| self.text.contains(phrase));
        is_named && !is_shared || !self.is_about_answer()
    }

    /// Returns true if the error mentions the answer or the limit on generated tokens.
    pub(super) fn is_about_answer(&self) -> bool {
        OUTPUT_CAP_NAMES.iter().chain(&ANSWER_WORDS).any(|word| self.text.contains(word))
    }
}
