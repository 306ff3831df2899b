//! Fit of a request into the limits of an offer: its context window, and the maximum length of its answers.

use crate::upstream::offer::OfferState;
use penstock_core::InferenceRequest;
use penstock_dialect::DEFAULT_MAX_TOKENS;
use penstock_tokens::{CountMethod, TokenCount};
use std::cmp::Reverse;
use std::time::Duration;

/// Number of tokens that a context window leaves for the answer after the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputTokenBudget {
    /// Number of tokens that may be requested.
    pub left: u64,
    /// Number of tokens that certainly fit; `None` if `left` is certain, or if no number is certain to fit. If a
    /// provider refuses `left`, the request is sent again with this number.
    pub certain_tokens: Option<u64>,
}

/// Fit of a request into the limits of an offer. A better fit is less than a worse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WindowFit {
    /// The request fits with the full length of the answer.
    Full,
    /// The request fits only with a reduced length of the answer, at most this number of tokens. An offer that allows
    /// more tokens fits better.
    Truncated(Reverse<u64>),
    /// The input does not fit together with one token of the answer; with `max_tokens: 0`, the input alone does not
    /// fit.
    TooLong,
}

impl WindowFit {
    /// Returns true if the answer may be shorter than requested.
    #[must_use]
    pub const fn is_truncated(self) -> bool {
        matches!(self, Self::Truncated(_))
    }
}

/// Returns the fit of a request into an offer; `count` is the token count of the prompt. Without a count, the prompt
/// counts as empty.
pub fn window_fit(
    count: Option<&TokenCount>,
    offer: &OfferState,
    ask: &InferenceRequest,
    now: Duration,
) -> WindowFit {
    if !ask.kind.generates_tokens() {
        return WindowFit::Full;
    }
    let window = offer.offer.context_length;
    // A text completion without output (`max_tokens: 0`) may fill the window.
    let least_output = ask.max_tokens.unwrap_or(1).min(1);
    if minimum_tokens(count).saturating_add(least_output) > window {
        return WindowFit::TooLong;
    }
    let learned = offer.learned.max_output_tokens(|| now);
    let max_output = [offer.offer.max_output, learned].into_iter().flatten().min();
    let wanted = match ask.max_tokens {
        // The default of the gateway is not requested by the client, so a lower maximum shortens nothing.
        None => requested_output_tokens(ask, offer).map(|wanted| wanted.min(max_output.unwrap_or(u64::MAX))),
        wanted => wanted,
    };
    wanted.map_or(WindowFit::Full, |wanted| output_fit(window, max_output, count, wanted))
}

/// Returns the fit of an answer of `wanted_tokens` tokens after the prompt. `max_output` is the maximum length of an
/// answer; `None` without a maximum.
fn output_fit(
    window: u64,
    max_output: Option<u64>,
    count: Option<&TokenCount>,
    wanted_tokens: u64,
) -> WindowFit {
    let max_output = max_output.unwrap_or(u64::MAX);
    let fitting = match count {
        Some(count) => {
            limited_output_budget(window, count, wanted_tokens).map_or(wanted_tokens, |budget| budget.left)
        }
        None => window,
    };
    if fitting.min(max_output) >= wanted_tokens {
        return WindowFit::Full;
    }
    // The number depends on the window alone and not on `fitting`, so that a larger window never fits worse.
    WindowFit::Truncated(Reverse(window.saturating_sub(minimum_tokens(count)).min(max_output)))
}

/// Returns the minimum number of tokens of a prompt; 0 without a count. An estimate is about 1.2 times the real count of
/// prose, and about 1.5 times that of code, JSON and logs. So the real count is assumed to be at least the estimate
/// divided by 1.6.
#[must_use]
pub fn minimum_tokens(count: Option<&TokenCount>) -> u64 {
    let Some(count) = count else { return 0 };
    match count.method {
        CountMethod::Estimate => count.tokens / 8 * 5,
        CountMethod::Exact | CountMethod::Engine => count.tokens,
    }
}

/// Returns the cap on output tokens that is sent to an offer: the client's number, or else the default if the dialect
/// of the offer requires a cap; `None` without either.
pub fn requested_output_tokens(ask: &InferenceRequest, offer: &OfferState) -> Option<u64> {
    let requires_cap =
        || offer.dialect_for(ask.dialect).is_some_and(|dialect| dialect.spec().requires_max_tokens);
    ask.max_tokens.or_else(|| requires_cap().then_some(DEFAULT_MAX_TOKENS))
}

/// Returns the output budget if a window leaves fewer than `wanted_tokens` tokens after the prompt; `None` if
/// `wanted_tokens` fits, or if no tokens are left. An estimate may be far too high: of a prompt that almost fills the
/// window, it may leave a tenth of the tokens that are really left, or none, and the answer would be truncated. So if
/// the estimate leaves less than three quarters of what the minimum count of the prompt leaves, the latter number is
/// requested, at most `wanted_tokens`; the provider refuses it if it does not fit.
pub fn limited_output_budget(
    window: u64,
    count: &TokenCount,
    wanted_tokens: u64,
) -> Option<OutputTokenBudget> {
    let left = window.saturating_sub(count.tokens);
    if wanted_tokens <= left {
        return None;
    }
    let budget = match count.method {
        CountMethod::Estimate => {
            let likely = window.saturating_sub(minimum_tokens(Some(count)));
            if left.saturating_mul(4) >= likely.saturating_mul(3) {
                OutputTokenBudget { left, certain_tokens: None }
            } else {
                OutputTokenBudget {
                    left: likely.min(wanted_tokens),
                    certain_tokens: Some(left).filter(|left| *left > 0),
                }
            }
        }
        CountMethod::Exact | CountMethod::Engine => OutputTokenBudget { left, certain_tokens: None },
    };
    // If no tokens are left, the request is sent unchanged, and the provider reports the error.
    Some(budget).filter(|budget| budget.left > 0)
}

/// Returns the cap for a provider that refused `asked_tokens` because they exceed its window together with an input that
/// it has not counted; `None` if no tokens are left. If `asked_tokens` fits by the gateway's count, the provider counts
/// more tokens, and an eighth less is requested.
#[must_use]
pub fn lowered_output_tokens(window: u64, count: &TokenCount, asked_tokens: u64) -> Option<u64> {
    let budget = limited_output_budget(window, count, asked_tokens);
    let left = match budget {
        Some(budget) => budget.certain_tokens.unwrap_or(budget.left),
        None => window.saturating_sub(count.tokens),
    };
    let lowered = if left < asked_tokens { left } else { asked_tokens - asked_tokens.div_ceil(8) };
    Some(lowered).filter(|lowered| *lowered > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget_of(window: u64, tokens: u64, method: CountMethod, wanted: u64) -> Option<(u64, Option<u64>)> {
        limited_output_budget(window, &TokenCount { tokens, method }, wanted)
            .map(|remaining| (remaining.left, remaining.certain_tokens))
    }

    #[test]
    fn a_count_determines_the_remaining_tokens() {
        assert_eq!(budget_of(131_072, 87_347, CountMethod::Exact, 32_000), None);
        assert_eq!(budget_of(131_072, 120_000, CountMethod::Engine, 32_000), Some((11_072, None)));
        assert_eq!(budget_of(4_096, 4_096, CountMethod::Exact, 1), None, "the provider says");
    }

    #[test]
    fn an_estimate_close_to_the_context_window_truncates_no_answer() {
        // For a small prompt, the error of the estimate is small compared to the window.
        assert_eq!(budget_of(32_768, 2_400, CountMethod::Estimate, 64_000), Some((30_368, None)));
        // Estimates of prompts that have 83,695, 87,347 and 88,717 tokens by the tokenizer.
        assert_eq!(budget_of(131_072, 124_905, CountMethod::Estimate, 32_000), Some((32_000, Some(6_167))));
        assert_eq!(budget_of(131_072, 130_350, CountMethod::Estimate, 32_000), Some((32_000, Some(722))));
        assert_eq!(budget_of(131_072, 132_388, CountMethod::Estimate, 32_000), Some((32_000, None)));
        assert_eq!(budget_of(131_072, 209_800, CountMethod::Estimate, 32_000), None, "the provider says");
    }

    #[test]
    fn a_refused_cap_is_lowered_to_what_the_count_leaves() {
        let lowered =
            |tokens, method, asked| lowered_output_tokens(8_192, &TokenCount { tokens, method }, asked);
        assert_eq!(lowered(20, CountMethod::Exact, 8_192), Some(8_172));
        assert_eq!(lowered(40, CountMethod::Estimate, 20_000), Some(8_152));
        assert_eq!(lowered(7_000, CountMethod::Estimate, 8_192), Some(1_192));
        assert_eq!(lowered(9_000, CountMethod::Estimate, 8_192), Some(2_567), "the estimate may be too high");
        assert_eq!(lowered(20, CountMethod::Exact, 8_000), Some(7_000), "the provider counts more");
        assert_eq!(lowered(20, CountMethod::Exact, 1), None);
        assert_eq!(lowered(8_192, CountMethod::Exact, 100), None);
    }

    fn fit_of(window: u64, most: Option<u64>, tokens: Option<u64>, wanted: u64) -> WindowFit {
        let count = tokens.map(|tokens| TokenCount { tokens, method: CountMethod::Exact });
        output_fit(window, most, count.as_ref(), wanted)
    }

    #[test]
    fn an_offer_that_truncates_less_fits_better() {
        let (large, small) = (32_768, 2_048);
        for wanted in [32_768, 40_000, 1_000_000] {
            let fits = [
                fit_of(large, None, Some(160), wanted),
                fit_of(large, Some(8_192), Some(160), wanted),
                fit_of(small, None, Some(160), wanted),
                fit_of(large, Some(100), Some(160), wanted),
            ];
            assert!(fits.is_sorted_by(|better, worse| better < worse), "{wanted}: {fits:?}");
            assert!(fits.iter().all(|fit| fit.is_truncated()), "{wanted}: {fits:?}");
        }
        assert_eq!(fit_of(large, None, Some(160), 30_000), WindowFit::Full);
        assert!(WindowFit::Full < fit_of(large, None, Some(160), 40_000));
        assert!(fit_of(small, None, Some(160), 40_000) < WindowFit::TooLong);
    }

    #[test]
    fn a_maximum_output_truncates_without_a_token_count() {
        assert_eq!(fit_of(131_072, Some(100), None, 4_000), WindowFit::Truncated(Reverse(100)));
        assert_eq!(fit_of(131_072, Some(100), None, 100), WindowFit::Full);
        assert_eq!(fit_of(131_072, None, None, 4_000), WindowFit::Full);
        assert_eq!(fit_of(2_048, None, None, 4_000), WindowFit::Truncated(Reverse(2_048)));
        assert_eq!(fit_of(131_072, Some(100), None, 0), WindowFit::Full, "no output");
    }

    #[test]
    fn a_larger_window_never_fits_worse() {
        for method in [CountMethod::Exact, CountMethod::Estimate, CountMethod::Engine] {
            for wanted in [1, 50, 150, 1_000] {
                let count = TokenCount { tokens: 100, method };
                let fits: Vec<WindowFit> =
                    (101..1_500).map(|window| output_fit(window, None, Some(&count), wanted)).collect();
                let truncated: Vec<_> = fits.iter().filter(|fit| fit.is_truncated()).collect();
                assert!(truncated.is_sorted_by(|smaller, larger| larger < smaller), "{method:?} {wanted}");
            }
        }
    }
}
