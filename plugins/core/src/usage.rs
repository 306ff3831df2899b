//! Usage of an answer in tokens or other units, and energy measured by the provider.

use crate::traits::OfferCapabilities;
use rust_decimal::Decimal;

/// Source of the numbers in a [`TokenUsage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageSource {
    /// Reported by the provider.
    #[default]
    Provider,
    /// Counted by the gateway from the data passed through; marked as such in all output.
    Gateway,
    /// Counted by the gateway, because the provider reported more than [`UsageBounds`] allow, or more cached tokens
    /// than prompt tokens.
    Overstated,
    /// Counted by the gateway, because the provider reported less than [`UsageBounds`] allow.
    Understated,
}

impl UsageSource {
    /// Returns true if the gateway counted the tokens itself.
    #[must_use]
    pub const fn is_gateway_count(self) -> bool {
        matches!(self, Self::Gateway) || self.is_implausible()
    }

    /// Returns true if the provider reported a usage that the gateway does not believe.
    #[must_use]
    pub const fn is_implausible(self) -> bool {
        matches!(self, Self::Overstated | Self::Understated)
    }
}

/// Bounds of the usage that a provider may report for one answer, from the request and the delivered data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageBounds {
    /// Maximum number of prompt tokens.
    pub input: u64,
    /// Maximum number of generated tokens by the limits of the request, all choices together.
    pub output: u64,
    /// Maximum number of generated tokens that the delivered bytes can contain.
    pub max_delivered: u64,
    /// Maximum number of generated tokens in texts that are not delivered, because `best_of` requests more texts than
    /// are returned.
    pub max_undelivered: u64,
    /// Minimum number of prompt tokens.
    pub least_input: u64,
    /// Minimum number of generated tokens; 0 before the end of an answer.
    pub least_output: u64,
}

/// Amount of an answer that its client has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveredUsage {
    /// True if the client has received no text, no reasoning and no tool call.
    pub is_empty: bool,
    /// Bytes of generated text that the client has received: without an echo of the prompt, and without reasoning
    /// that the answer does not show.
    pub bytes: usize,
    /// The gateway's own count of the delivered bytes and of the prompt.
    pub usage: TokenUsage,
}

impl OfferCapabilities {
    /// Returns the upper bound of the prompt tokens for one image.
    #[must_use]
    pub fn image_token_bound(&self) -> u64 {
        self.max_image_tokens.unwrap_or(UsageBounds::MAX_IMAGE_TOKENS)
    }
}

impl UsageBounds {
    /// Maximum number of tokens of a chat template around the messages, or of the template of a moderation model around
    /// each text.
    pub const MAX_TEMPLATE_TOKENS: u64 = 1_024;
    /// Maximum number of prompt tokens for one image of a model without an image rule.
    pub const MAX_IMAGE_TOKENS: u64 = 16_384;
    /// Maximum number of tokens that a model adds to each prompt, input text or reranked document.
    pub const MAX_ADDED_TOKENS_PER_INPUT: u64 = 128;
    /// Maximum number of generated tokens without text for each choice (end of text, reasoning marks).
    pub const MAX_SPECIAL_TOKENS_PER_CHOICE: u64 = 64;
    /// Maximum number of generated tokens without text for each tool call, such as the marks around it.
    pub const MAX_SPECIAL_TOKENS_PER_CALL: u64 = 32;

    /// Bytes of the longest tokens of known vocabularies: runs of spaces and of dashes.
    pub const MAX_TOKEN_BYTES: usize = 128;
    /// Bytes that an answer may have beyond the bytes of its tokens, for providers that count some tokens differently.
    const EXTRA_OUTPUT_BYTES: usize = 16 << 10;

    /// Returns the maximum bytes of generated text that the allowed tokens can have, with a margin. A provider that
    /// sends more ignores the limit of the request.
    #[must_use]
    pub fn max_output_bytes(&self) -> usize {
        usize::try_from(self.output)
            .unwrap_or(usize::MAX)
            .saturating_mul(Self::MAX_TOKEN_BYTES)
            .saturating_add(Self::EXTRA_OUTPUT_BYTES)
    }

    /// Divisor of the bytes of a text for its minimum number of tokens: no known vocabulary has a token of that many
    /// bytes.
    const MIN_TOKENS_DIVISOR: usize = 256;

    /// Returns the minimum number of tokens in `bytes` bytes of text: at least 1 for a text that is not empty.
    #[must_use]
    pub fn min_tokens(bytes: usize) -> u64 {
        u64::try_from(bytes.div_ceil(Self::MIN_TOKENS_DIVISOR)).unwrap_or(u64::MAX)
    }

    /// Returns the maximum number of generated tokens in `bytes` bytes of text, in `candidates` choices and `calls`
    /// tool calls: a token has at least one byte.
    #[must_use]
    pub fn max_delivered_tokens(candidates: usize, bytes: usize, calls: usize) -> u64 {
        let of = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        of(bytes)
            .saturating_add(of(candidates).saturating_mul(Self::MAX_SPECIAL_TOKENS_PER_CHOICE))
            .saturating_add(of(calls).saturating_mul(Self::MAX_SPECIAL_TOKENS_PER_CALL))
    }
}

/// Token usage of one answer.
///
/// `input` includes `cached`; `output` includes `reasoning`. The messages dialect, whose `input_tokens` excludes cached
/// tokens, is converted when it is read and written.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Prompt tokens, cached ones included.
    pub input: u64,
    /// Prompt tokens read from the provider's cache.
    pub cached: u64,
    /// Generated tokens, reasoning included.
    pub output: u64,
    /// Generated reasoning tokens.
    pub reasoning: u64,
    /// Mean length of the prompts in tokens, each prompt weighted by its length; `None` if `input` is a single prompt.
    /// Energy depends on it, because the work of attention grows with the length of each prompt.
    pub mean_prompt_length: Option<u64>,
    /// Source of the numbers.
    pub source: UsageSource,
}

/// Bytes of text per token for estimates. With most tokenizers a token of prose has fewer bytes, so an estimate of
/// tokens is too low rather than too high.
const BYTES_PER_TOKEN: usize = 4;

impl TokenUsage {
    /// Plausible maximum of tokens, above any context window or answer.
    pub const MAX_PLAUSIBLE_TOKENS: u64 = 1 << 31;

    /// Returns the gateway's estimate from bytes of text, marked as such: any non-empty text has at least one token.
    #[must_use]
    pub fn estimate(prompt_bytes: usize, output_bytes: usize) -> Self {
        let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX);
        Self {
            input: tokens(prompt_bytes),
            output: tokens(output_bytes),
            source: UsageSource::Gateway,
            ..Self::default()
        }
    }
}

impl TokenUsage {
    /// Limits the input and output tokens to the maxima of the request; the customer does not pay for more.
    #[must_use]
    pub fn clamp_to(self, bounds: &UsageBounds) -> Self {
        let (input, output) = (self.input.min(bounds.input), self.output.min(bounds.output));
        Self { input, output, ..self }
    }
}

/// Usage reported by a provider, which may omit one half: the input counts or the output counts. The gateway counts a
/// missing or implausible half itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Prompt tokens, cached ones included.
    pub input: Option<u64>,
    /// Prompt tokens read from the provider's cache; part of the input half.
    pub cached: u64,
    /// Generated tokens, reasoning included.
    pub output: Option<u64>,
    /// Generated reasoning tokens; part of the output half.
    pub reasoning: u64,
}

impl ReportedUsage {
    /// Returns the report itself, or `None` if it has neither input nor output tokens.
    #[must_use]
    pub fn non_empty(self) -> Option<Self> {
        (self.input.is_some() || self.output.is_some()).then_some(self)
    }

    /// Returns this report updated by a later one. Each half (input or output) of the later report replaces the same
    /// half of this report, unless the later half is 0 tokens and this report has that half.
    #[must_use]
    pub fn updated_by(self, later: Self) -> Self {
        let (input, cached) = match later.input {
            Some(input) if input > 0 || self.input.is_none() => (Some(input), later.cached),
            _ => (self.input, self.cached),
        };
        let (output, reasoning) = match later.output {
            Some(output) if output > 0 || self.output.is_none() => (Some(output), later.reasoning),
            _ => (self.output, self.reasoning),
        };
        Self { input, cached, output, reasoning }
    }

    /// Replaces a half (input or output) that is missing or outside of its bounds by the gateway's count, and marks the
    /// source. An input half with more cached tokens than prompt tokens is replaced too.
    #[must_use]
    pub fn to_plausible_usage(self, bounds: &UsageBounds, counted: &TokenUsage) -> TokenUsage {
        let most = bounds.output.min(bounds.max_delivered.saturating_add(bounds.max_undelivered));
        let least = (bounds.least_input.min(bounds.input), bounds.least_output.min(most));
        let is_low = self.input.is_some_and(|input| input < least.0)
            || self.output.is_some_and(|output| output < least.1);
        // Cached tokens are a part of the prompt tokens, so more of them are impossible.
        let is_cached = |input: &u64| self.cached <= *input;
        let input = self.input.filter(|input| (least.0..=bounds.input).contains(input)).filter(is_cached);
        let output = self.output.filter(|output| (least.1..=most).contains(output));
        let is_doubted = input != self.input || output != self.output;
        let source = match (input, output) {
            _ if is_doubted && is_low => UsageSource::Understated,
            _ if is_doubted => UsageSource::Overstated,
            (Some(_), Some(_)) => UsageSource::Provider,
            _ => counted.source,
        };
        let counted = counted.clamp_to(bounds);
        // If a token count is rejected, its detail counts are rejected too.
        let cached = if input == self.input { self.cached } else { 0 };
        let reasoning = if output == self.output { self.reasoning } else { 0 };
        let (input, output) = (input.unwrap_or(counted.input), output.unwrap_or(counted.output));
        TokenUsage {
            input,
            cached: cached.min(input),
            output,
            reasoning: reasoning.min(output),
            mean_prompt_length: None,
            source,
        }
    }
}

/// Work done by a provider, in the units of energy and billing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkDone {
    /// Tokens in and out (chat), or in only (embedding, rerank, moderation).
    Tokens(TokenUsage),
    /// Generated images.
    Images {
        /// Number of images.
        count: u32,
        /// Diffusion steps per image; `None` if they are unknown.
        steps: Option<u32>,
        /// Pixels per image; `None` means the reference size.
        pixels: Option<u64>,
    },
    /// Transcribed or generated audio.
    Audio {
        /// Length in seconds.
        seconds: Decimal,
    },
    /// Unknown amount of work, of which only the duration is known.
    Unknown,
}

impl WorkDone {
    /// Returns the token usage, if the work is counted in tokens.
    #[must_use]
    pub const fn usage(&self) -> Option<&TokenUsage> {
        match self {
            Self::Tokens(usage) => Some(usage),
            Self::Images { .. } | Self::Audio { .. } | Self::Unknown => None,
        }
    }
}

/// Boundary of a provider's energy meter; other consumption is added by formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterBoundary {
    /// Meter that covers only the accelerators (GPUs).
    Gpu,
    /// Meter that covers the complete server.
    It,
    /// Meter that covers the complete building of the data centre.
    Facility,
}

/// Energy that a provider measured for one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredEnergy {
    /// Measured energy in joules, within `boundary`.
    pub joules: Decimal,
    /// Boundary stated by the provider; `None` if it states none (the provider's configuration then decides).
    pub boundary: Option<MeterBoundary>,
}

/// Finish reason of a generation, independent of the dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// End of the answer, or a stop sequence.
    Stop,
    /// Limit `max_tokens` reached.
    Length,
    /// Context window full before `max_tokens`.
    ContextWindow,
    /// Tool calls requested by the model.
    ToolCalls,
    /// Answer cut by a content filter.
    ContentFilter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_at_least_one_token_and_nothing_is_none() {
        let counted = |bytes| TokenUsage::estimate(bytes, bytes);
        for (bytes, tokens) in [(0, 0), (1, 1), (4, 1), (5, 2)] {
            assert_eq!((counted(bytes).input, counted(bytes).output), (tokens, tokens), "{bytes} bytes");
        }
        assert_eq!(counted(1).source, UsageSource::Gateway);
    }

    #[test]
    fn a_half_below_its_bound_is_counted_and_says_so() {
        let counted = TokenUsage::estimate(600, 300);
        let bounds = UsageBounds {
            input: 700,
            output: 500,
            max_delivered: 400,
            max_undelivered: 0,
            least_input: UsageBounds::min_tokens(600),
            least_output: UsageBounds::min_tokens(300),
        };
        let usage = |input, output| {
            let reported =
                ReportedUsage { input: Some(input), output: Some(output), cached: 0, reasoning: 0 };
            let usage = reported.to_plausible_usage(&bounds, &counted);
            (usage.input, usage.output, usage.source)
        };
        assert_eq!(usage(3, 2), (3, 2, UsageSource::Provider));
        assert_eq!(usage(0, 0), (150, 75, UsageSource::Understated));
        assert_eq!(usage(2, 75), (150, 75, UsageSource::Understated));
        assert_eq!(usage(150, 1), (150, 75, UsageSource::Understated));
        assert_eq!(usage(701, 75), (150, 75, UsageSource::Overstated));
        let empty = UsageBounds { output: 1, least_input: 0, least_output: 0, ..bounds };
        let none = ReportedUsage { input: Some(0), output: Some(0), cached: 0, reasoning: 0 };
        assert_eq!(none.to_plausible_usage(&empty, &counted).source, UsageSource::Provider);
        let one = ReportedUsage { input: Some(5), output: Some(1), ..none };
        let bounds = UsageBounds { output: 1, ..bounds };
        assert_eq!(one.to_plausible_usage(&bounds, &counted).source, UsageSource::Provider);
        assert_eq!([0, 256, 257].map(UsageBounds::min_tokens), [0, 1, 2]);
    }

    #[test]
    fn a_missing_half_is_counted_and_nothing_of_nothing_stays() {
        let counted = TokenUsage::estimate(40, 8);
        let bounds = UsageBounds {
            input: 50,
            output: 50,
            max_delivered: 50,
            max_undelivered: 0,
            least_input: 0,
            least_output: 0,
        };
        let filled = |input, output| {
            let cached = u64::from(input != Some(0));
            let usage =
                ReportedUsage { input, cached, output, reasoning: 3 }.to_plausible_usage(&bounds, &counted);
            (usage.input, usage.cached, usage.output, usage.reasoning, usage.source)
        };
        assert_eq!(filled(Some(7), None), (7, 1, 2, 2, UsageSource::Gateway));
        assert_eq!(filled(None, Some(0)), (10, 1, 0, 0, UsageSource::Gateway));
        assert_eq!(filled(Some(0), Some(0)), (0, 0, 0, 0, UsageSource::Provider));
        assert_eq!(ReportedUsage { cached: 3, reasoning: 3, ..ReportedUsage::default() }.non_empty(), None);
    }

    #[test]
    fn a_half_beyond_its_bound_is_counted_and_says_so() {
        let counted = TokenUsage::estimate(40, 8);
        let usage = |bounds: UsageBounds, input, output| {
            let usage =
                ReportedUsage { input: Some(input), cached: input, output: Some(output), reasoning: output };
            let usage = usage.to_plausible_usage(&bounds, &counted);
            (usage.input, usage.cached, usage.output, usage.reasoning, usage.source)
        };
        let bounds = UsageBounds {
            input: 100,
            output: 50,
            max_delivered: 40,
            max_undelivered: 0,
            least_input: 0,
            least_output: 0,
        };
        assert_eq!(usage(bounds, 100, 40), (100, 100, 40, 40, UsageSource::Provider));
        assert_eq!(usage(bounds, 101, 40), (10, 0, 40, 40, UsageSource::Overstated));
        assert_eq!(usage(bounds, 100, 41), (100, 100, 2, 0, UsageSource::Overstated));
        let cached = |cached| {
            let usage = ReportedUsage { input: Some(11), cached, output: Some(2), reasoning: 0 };
            let usage = usage.to_plausible_usage(&bounds, &counted);
            (usage.input, usage.cached, usage.source)
        };
        assert_eq!(cached(11), (11, 11, UsageSource::Provider));
        assert_eq!(cached(12), (10, 0, UsageSource::Overstated));
        assert_eq!(cached(u64::MAX), (10, 0, UsageSource::Overstated));
        let bounds = UsageBounds { output: 39, ..bounds };
        assert_eq!(usage(bounds, 100, 39), (100, 100, 39, 39, UsageSource::Provider));
        assert_eq!(usage(bounds, u64::MAX, u64::MAX), (10, 0, 2, 0, UsageSource::Overstated));
        // Candidates of `best_of` that are not delivered are charged too, within the bound of the request.
        let bounds = UsageBounds { output: 300, max_undelivered: 250, ..bounds };
        assert_eq!(usage(bounds, 100, 290), (100, 100, 290, 290, UsageSource::Provider));
        assert_eq!(usage(bounds, 100, 291), (100, 100, 2, 0, UsageSource::Overstated));
        // The gateway's own token count is limited to the allowed amount like the provider's count.
        let bounds = UsageBounds {
            input: 9,
            output: 1,
            max_delivered: u64::MAX,
            max_undelivered: 0,
            least_input: 0,
            least_output: 0,
        };
        assert_eq!(usage(bounds, 10, 2), (9, 0, 1, 0, UsageSource::Overstated));
        assert_eq!(UsageBounds::max_delivered_tokens(2, 5, 3), 5 + 128 + 96);
        assert_eq!(UsageBounds::max_delivered_tokens(usize::MAX, usize::MAX, usize::MAX), u64::MAX);
    }

    #[test]
    fn a_later_override_replaces_only_its_own_half() {
        let first = ReportedUsage { input: Some(7), cached: 2, output: Some(1), reasoning: 0 };
        let later = ReportedUsage { output: Some(9), reasoning: 4, ..ReportedUsage::default() };
        let both = ReportedUsage { input: Some(7), cached: 2, output: Some(9), reasoning: 4 };
        assert_eq!(first.updated_by(later), both);
        let none = ReportedUsage { input: Some(0), cached: 0, output: Some(0), reasoning: 0 };
        assert_eq!((both.updated_by(none), none.updated_by(both)), (both, both));
        assert_eq!(later.updated_by(first), first);
    }
}
