//! Cap on the tokens of each choice. A choice that has reached the cap has ended, even if its provider states no
//! finish reason.

use penstock_core::{AttemptTarget, InferenceRequest, TokenUsage, UsageSource};

/// Cap on the tokens that a provider generates for each choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenCap {
    /// Maximum tokens of each choice; `None` if it is unknown.
    tokens: Option<u64>,
    /// Number of texts whose tokens the usage counts: all that the provider generates, also those that `best_of` drops.
    generations: u64,
}

impl TokenCap {
    /// Returns the cap for a request at this target.
    pub(crate) fn new(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Self {
        let tokens = target.max_tokens.or(ask.max_tokens).filter(|cap| *cap > 0);
        Self { tokens, generations: ask.generation_count() }
    }

    /// Returns true if the usage shows that each choice has as many tokens as it may have.
    pub(crate) fn is_reached(self, usage: Option<&TokenUsage>) -> bool {
        let all = self.tokens.and_then(|cap| cap.checked_mul(self.generations));
        all.zip(usage).is_some_and(|(all, usage)| usage.output >= all)
    }

    /// Returns the same as [`TokenCap::is_reached`], for usage that the provider has reported and that fits the output.
    pub(crate) fn is_reached_by_reported_usage(self, usage: Option<&TokenUsage>) -> bool {
        self.is_reached(usage.filter(|usage| usage.source == UsageSource::Provider))
    }
}
