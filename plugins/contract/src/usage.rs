//! What an answer used: tokens or other units, and the energy a provider says it measured.

use rust_decimal::Decimal;

/// Whose count a [`Usage`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageSource {
    /// The provider said so.
    #[default]
    Provider,
    /// The gateway counted what passed through; marked wherever it is shown.
    Gateway,
    /// The gateway counted, because the provider stated more than [`UsageBounds`] allow.
    Overstated,
}

impl UsageSource {
    /// Whether the gateway counted, for whatever reason.
    #[must_use]
    pub const fn is_gateway(self) -> bool {
        matches!(self, Self::Gateway | Self::Overstated)
    }
}

/// Upper bounds of what a provider may state for one answer, from what was sent, asked for and delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageBounds {
    /// Prompt tokens.
    pub input: u64,
    /// Generated tokens that the ask allows, all candidates together.
    pub output: u64,
    /// Generated tokens that the delivered bytes can hold.
    pub delivered: u64,
}

impl UsageBounds {
    /// Tokens of a chat template around the messages.
    pub const TEMPLATE: u64 = 1_024;
    /// Tokens of an image.
    pub const IMAGE: u64 = 16_384;
    /// Tokens that a model reads beside each input of an embedding or document of a reranking.
    pub const EACH: u64 = 128;
    /// Generated tokens without text: of each candidate (end of text, marks of reasoning) …
    pub const CANDIDATE: u64 = 64;
    /// … and of each tool call (the marks around it).
    pub const CALL: u64 = 32;

    /// Generated tokens that so many bytes of text can hold: a token has at least one byte.
    #[must_use]
    pub fn delivered(candidates: usize, bytes: usize, calls: usize) -> u64 {
        let of = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        of(bytes)
            .saturating_add(of(candidates).saturating_mul(Self::CANDIDATE))
            .saturating_add(of(calls).saturating_mul(Self::CALL))
    }
}

/// Tokens of one answer.
///
/// `input` includes `cached`; `output` includes `reasoning`. The messages
/// dialect, whose `input_tokens` leaves cached tokens out, converts at its edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub input: u64,
    /// Prompt tokens read from the provider's cache.
    pub cached: u64,
    /// Generated tokens, reasoning included.
    pub output: u64,
    /// Generated tokens that were reasoning.
    pub reasoning: u64,
    /// Who counted.
    pub source: UsageSource,
}

/// Bytes of text per token where nobody counted: more than most tokenizers
/// reach on prose, so that the guess does not charge too much.
const BYTES_PER_TOKEN: usize = 4;

impl Usage {
    /// More tokens than any window holds or any answer has: who says so has
    /// counted wrong, and is taken to have said nothing.
    pub const MOST: u64 = 1 << 31;

    /// The gateway's own count, and marked as that: any text is at least one token.
    #[must_use]
    pub fn counted(prompt_bytes: usize, output_bytes: usize) -> Self {
        let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX);
        Self {
            input: tokens(prompt_bytes),
            output: tokens(output_bytes),
            source: UsageSource::Gateway,
            ..Self::default()
        }
    }
}

impl Usage {
    /// No more than an ask allows: what a provider sent beyond it is nobody's to pay.
    #[must_use]
    pub fn within(self, bounds: &UsageBounds) -> Self {
        let (input, output) = (self.input.min(bounds.input), self.output.min(bounds.output));
        Self { input, output, ..self }
    }
}

/// What a provider says was used, of which it may leave out a half. Zero is a
/// word too; what is left out is the gateway's to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// Prompt tokens, cached ones included.
    pub input: Option<u64>,
    /// Those read from the provider's cache; of the prompt's half.
    pub cached: u64,
    /// Generated tokens, reasoning included.
    pub output: Option<u64>,
    /// Those that were reasoning; of the output's half.
    pub reasoning: u64,
}

impl Stated {
    /// The same, or `None` where neither half is stated.
    #[must_use]
    pub fn some(self) -> Option<Self> {
        (self.input.is_some() || self.output.is_some()).then_some(self)
    }

    /// With what is stated later: each half of it replaces the earlier one.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        let (input, cached) = match later.input {
            Some(input) => (Some(input), later.cached),
            None => (self.input, self.cached),
        };
        let (output, reasoning) = match later.output {
            Some(output) => (Some(output), later.reasoning),
            None => (self.output, self.reasoning),
        };
        Self { input, cached, output, reasoning }
    }

    /// With the gateway's own count, marked as that, for a half that is missing or beyond its bound.
    #[must_use]
    pub fn within(self, bounds: &UsageBounds, counted: &Usage) -> Usage {
        let most = bounds.output.min(bounds.delivered);
        let input = self.input.filter(|input| *input <= bounds.input);
        let output = self.output.filter(|output| *output <= most);
        let doubted = [input != self.input, output != self.output];
        let source = match (input, output) {
            _ if doubted.contains(&true) => UsageSource::Overstated,
            (Some(_), Some(_)) => UsageSource::Provider,
            _ => counted.source,
        };
        let counted = counted.within(bounds);
        // A half that is not believed is not believed in its details either.
        let cached = if input == self.input { self.cached } else { 0 };
        let reasoning = if output == self.output { self.reasoning } else { 0 };
        let (input, output) = (input.unwrap_or(counted.input), output.unwrap_or(counted.output));
        Usage { input, cached: cached.min(input), output, reasoning: reasoning.min(output), source }
    }
}

/// What was done, in the units that energy and money are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Tokens in and out (chat), or in alone (embedding, rerank).
    Tokens(Usage),
    /// Images drawn.
    Images {
        /// How many.
        count: u32,
        /// Steps of each, where known.
        steps: Option<u32>,
        /// Pixels of each, where known; else those of the reference.
        pixels: Option<u64>,
    },
    /// Speech written down.
    Audio {
        /// Its length in seconds.
        seconds: Decimal,
    },
    /// Something, and nobody says how much: only its time is known.
    Unknown,
}

impl Done {
    /// The tokens, where it is counted in tokens.
    #[must_use]
    pub const fn usage(&self) -> Option<&Usage> {
        match self {
            Self::Tokens(usage) => Some(usage),
            Self::Images { .. } | Self::Audio { .. } | Self::Unknown => None,
        }
    }
}

/// Where a provider's energy meter sits; what it leaves out is added by formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Accelerators only.
    Gpu,
    /// The whole server.
    It,
    /// The whole building.
    Facility,
}

/// Energy that a provider measured for this answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Joules, at the boundary below.
    pub joules: Decimal,
    /// What the provider itself says of its boundary; `None` when it is silent
    /// (the provider's configuration decides then).
    pub boundary: Option<Boundary>,
}

/// Why a generation ended, in neither dialect's spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model was done, or a stop sequence was met.
    Stop,
    /// `max_tokens` was reached.
    Length,
    /// The context window was full before `max_tokens`.
    Window,
    /// The model asks for tools.
    ToolCalls,
    /// A content filter cut it.
    ContentFilter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_at_least_one_token_and_nothing_is_none() {
        let counted = |bytes| Usage::counted(bytes, bytes);
        for (bytes, tokens) in [(0, 0), (1, 1), (4, 1), (5, 2)] {
            assert_eq!((counted(bytes).input, counted(bytes).output), (tokens, tokens), "{bytes} bytes");
        }
        assert_eq!(counted(1).source, UsageSource::Gateway);
    }

    #[test]
    fn a_missing_half_is_counted_and_a_stated_nought_stays() {
        let counted = Usage::counted(40, 8);
        let bounds = UsageBounds { input: 50, output: 50, delivered: 50 };
        let filled = |input, output| {
            let usage = Stated { input, cached: 1, output, reasoning: 3 }.within(&bounds, &counted);
            (usage.input, usage.cached, usage.output, usage.reasoning, usage.source)
        };
        assert_eq!(filled(Some(7), None), (7, 1, 2, 2, UsageSource::Gateway));
        assert_eq!(filled(None, Some(0)), (10, 1, 0, 0, UsageSource::Gateway));
        assert_eq!(filled(Some(0), Some(0)), (0, 0, 0, 0, UsageSource::Provider));
        assert_eq!(Stated { cached: 3, reasoning: 3, ..Stated::default() }.some(), None);
    }

    #[test]
    fn a_half_beyond_its_bound_is_counted_and_says_so() {
        let counted = Usage::counted(40, 8);
        let usage = |bounds: UsageBounds, input, output| {
            let usage = Stated { input: Some(input), cached: input, output: Some(output), reasoning: output };
            let usage = usage.within(&bounds, &counted);
            (usage.input, usage.cached, usage.output, usage.reasoning, usage.source)
        };
        let bounds = UsageBounds { input: 100, output: 50, delivered: 40 };
        assert_eq!(usage(bounds, 100, 40), (100, 100, 40, 40, UsageSource::Provider));
        assert_eq!(usage(bounds, 101, 40), (10, 0, 40, 40, UsageSource::Overstated));
        assert_eq!(usage(bounds, 100, 41), (100, 100, 2, 0, UsageSource::Overstated));
        let bounds = UsageBounds { output: 39, ..bounds };
        assert_eq!(usage(bounds, 100, 39), (100, 100, 39, 39, UsageSource::Provider));
        assert_eq!(usage(bounds, u64::MAX, u64::MAX), (10, 0, 2, 0, UsageSource::Overstated));
        // The gateway's own count keeps to what was allowed too.
        let bounds = UsageBounds { input: 9, output: 1, delivered: u64::MAX };
        assert_eq!(usage(bounds, 10, 2), (9, 0, 1, 0, UsageSource::Overstated));
        assert_eq!(UsageBounds::delivered(2, 5, 3), 5 + 128 + 96);
        assert_eq!(UsageBounds::delivered(usize::MAX, usize::MAX, usize::MAX), u64::MAX);
    }

    #[test]
    fn a_later_word_replaces_its_half_alone() {
        let first = Stated { input: Some(7), cached: 2, output: Some(1), reasoning: 0 };
        let later = Stated { output: Some(9), reasoning: 4, ..Stated::default() };
        let both = Stated { input: Some(7), cached: 2, output: Some(9), reasoning: 4 };
        assert_eq!(first.then(later), both);
        assert_eq!(later.then(first), first);
    }
}
