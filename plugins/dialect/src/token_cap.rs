//! Cap on the tokens of each choice. A choice that has used it up has ended, even if its provider states no finish reason.

use penstock_core::{AttemptTarget, InferenceRequest, TokenUsage, UsageSource};

/// Cap on the tokens that a provider generates for each choice; `None` if it is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenCap(Option<u64>);

impl TokenCap {
    /// Returns the cap for a request at this target.
    pub(crate) fn new(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Self {
        Self(target.max_tokens.or(ask.max_tokens).filter(|cap| *cap > 0))
    }

    /// Returns the cap at another target.
    pub(crate) fn with_target(self, target: &AttemptTarget<'_>) -> Self {
        Self(target.max_tokens.filter(|cap| *cap > 0).or(self.0))
    }

    /// Returns true if the usage shows that each of the choices has as many tokens as it may have.
    pub(crate) fn is_reached(self, usage: Option<&TokenUsage>, choices: usize) -> bool {
        let all = self.0.and_then(|cap| cap.checked_mul(u64::try_from(choices).ok()?));
        all.zip(usage).is_some_and(|(all, usage)| usage.output >= all)
    }

    /// Same as [`TokenCap::is_filled`], for usage that the provider has reported and that fits the output.
    pub(crate) fn is_reached_by_reported_usage(self, usage: Option<&TokenUsage>, choices: usize) -> bool {
        let reported = usage.filter(|usage| usage.source == UsageSource::Provider);
        self.is_reached(reported, choices)
    }
}
