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
}
