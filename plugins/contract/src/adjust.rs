//! What an offer's own answers have shown of it, and how a request to it is adjusted.
//!
//! A provider may refuse a member that no client sent: the gateway's own mismatch. One table names
//! those members and the words by which a provider's sentence is recognised.

/// Member of a request that is the gateway's to add, to rename or to leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Extra {
    /// `stream_options`; without it the gateway counts the usage.
    StreamOptions,
    /// `n` above 1; without it each choice is a request of its own.
    Many,
    /// The name of the cap on generated tokens; without the usual one it is the other one.
    CapName,
    /// The name of replayed reasoning; without the usual one it is the other one.
    ReasoningName,
    /// Replayed reasoning under any name.
    Reasoning,
    /// `chat_template_kwargs` that switches thinking.
    ThinkingSwitch,
    /// `reasoning_effort` out of another dialect's words or a preset.
    Effort,
    /// `thinking` and `output_config.effort` out of another dialect's words.
    Thinking,
    /// `tool_choice` that says what is meant anyway.
    ToolChoice,
    /// `parallel_tool_calls` out of another dialect's words; the gateway enforces it.
    ParallelTools,
    /// `strict` of a schema.
    Strict,
    /// Stop sequences under another dialect's name; the gateway enforces them.
    Stop,
    /// `continue_final_message` and `add_generation_prompt`.
    ContinueFinal,
    /// `prefix` of a message.
    Prefix,
    /// `encoding_format` of vectors.
    EncodingFormat,
    /// `return_documents` of rerank.
    ReturnDocuments,
    /// `raw_scores` of rerank.
    RawScores,
    /// `response_format` and granularities of images and transcriptions.
    MediaFormat,
    /// `temperature` of a preset.
    Temperature,
    /// `top_p` of a preset.
    TopP,
    /// `top_k` of a preset.
    TopK,
    /// `min_p` of a preset.
    MinP,
    /// `presence_penalty` of a preset.
    PresencePenalty,
    /// `frequency_penalty` of a preset.
    FrequencyPenalty,
    /// `repetition_penalty` of a preset.
    RepetitionPenalty,
    /// `seed` of a preset.
    Seed,
    /// `verbosity` of a preset.
    Verbosity,
    /// The header `anthropic-version`.
    AnthropicVersion,
    /// The header `accept-encoding`.
    AcceptEncoding,
    /// The header `user-agent`.
    UserAgent,
    /// The headers `traceparent` and `tracestate`, which are passed on.
    TraceContext,
}

use Extra as E;

/// Each member with the words that name it in a provider's sentence or path, in lower case.
pub const EXTRAS: &[(Extra, &[&str])] = &[
    (E::StreamOptions, &["stream_options", "stream options", "include_usage"]),
    (E::Many, &["n", "n_cmpl", "best_of", "num_choices", "multiple choices", "number of choices"]),
    (E::CapName, &["max_tokens", "max_completion_tokens"]),
    (E::ReasoningName, &["reasoning_content", "reasoning"]),
    (E::ThinkingSwitch, &["chat_template_kwargs", "enable_thinking"]),
    (E::Effort, &["reasoning_effort"]),
    (E::Thinking, &["thinking", "output_config", "effort"]),
    (E::ToolChoice, &["tool_choice"]),
    (E::ParallelTools, &["parallel_tool_calls", "disable_parallel_tool_use"]),
    (E::Strict, &["strict"]),
    (E::Stop, &["stop", "stop_sequences"]),
    (E::ContinueFinal, &["continue_final_message", "add_generation_prompt"]),
    (E::Prefix, &["prefix"]),
    (E::EncodingFormat, &["encoding_format"]),
    (E::ReturnDocuments, &["return_documents"]),
    (E::RawScores, &["raw_scores"]),
    (E::MediaFormat, &["response_format", "verbose_json", "timestamp_granularities", "b64_json"]),
    (E::Temperature, &["temperature"]),
    (E::TopP, &["top_p"]),
    (E::TopK, &["top_k"]),
    (E::MinP, &["min_p"]),
    (E::PresencePenalty, &["presence_penalty"]),
    (E::FrequencyPenalty, &["frequency_penalty"]),
    (E::RepetitionPenalty, &["repetition_penalty"]),
    (E::Seed, &["seed"]),
    (E::Verbosity, &["verbosity"]),
    (E::AnthropicVersion, &["anthropic-version"]),
    (E::AcceptEncoding, &["accept-encoding"]),
    (E::UserAgent, &["user-agent"]),
    (E::TraceContext, &["traceparent", "tracestate"]),
];

impl Extra {
    /// Names of the headers that it stands for; none if it is a member of the body.
    #[must_use]
    pub const fn headers(self) -> &'static [&'static str] {
        match self {
            E::AnthropicVersion => &["anthropic-version"],
            E::AcceptEncoding => &["accept-encoding"],
            E::UserAgent => &["user-agent"],
            E::TraceContext => &["traceparent", "tracestate"],
            _ => &[],
        }
    }
}

/// Set of [`Extra`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras(u32);

impl Extras {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// Set from the number that [`Extras::bits`] gave.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The set as a number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Set of one.
    #[must_use]
    pub const fn of(extra: Extra) -> Self {
        Self(1 << extra as u32)
    }

    /// Those that the words of a sentence name; `names` tells of one word.
    #[must_use]
    pub fn named(mut names: impl FnMut(&str) -> bool) -> Self {
        let rows = EXTRAS.iter().filter(|(_, words)| words.iter().any(|word| names(word)));
        rows.fold(Self::NONE, |all, (extra, _)| all.with(Self::of(*extra)))
    }

    /// Whether one is in it.
    #[must_use]
    pub const fn has(self, extra: Extra) -> bool {
        self.0 & Self::of(extra).0 != 0
    }

    /// Whether there is none in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both sets.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are not in the other set.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What more is left out when a provider names these: a name that was exchanged already means that the engine
    /// takes the reasoning under neither.
    #[must_use]
    pub const fn beyond(self, left_out: Self) -> Self {
        let fresh = self.without(left_out).without(Self::of(E::Many));
        if fresh.is_empty() && self.has(E::ReasoningName) && !left_out.has(E::Reasoning) {
            return Self::of(E::Reasoning);
        }
        fresh
    }

    /// Names of the headers among them.
    pub fn headers(self) -> impl Iterator<Item = &'static str> {
        let rows = EXTRAS.iter().filter(move |(extra, _)| self.has(*extra));
        rows.flat_map(|(extra, _)| extra.headers().iter().copied())
    }

    /// The word of each in a log.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let rows = EXTRAS.iter().filter(move |(extra, _)| self.has(*extra));
        rows.filter_map(|(_, words)| words.first().copied())
    }
}

/// Name under which an engine takes and gives reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningName {
    /// `reasoning_content`: DeepSeek, SGLang, llama.cpp and most others.
    #[default]
    Content,
    /// `reasoning`: newer vLLM.
    Short,
}

impl ReasoningName {
    /// The member's name.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Content => "reasoning_content",
            Self::Short => "reasoning",
        }
    }

    /// The other name.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Content => Self::Short,
            Self::Short => Self::Content,
        }
    }
}

/// Which of the client's choices a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choices {
    /// All of them.
    #[default]
    All,
    /// One of several that are asked for one by one, by its number from 0. What is said once for all of them, such as
    /// roles and usage, is not in its answer.
    One(u32),
}

/// How a request to an offer differs from what the configuration alone says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adjust {
    /// Members that are left out.
    pub without: Extras,
    /// The name of reasoning in the offer's answers.
    pub reasoning: Option<ReasoningName>,
    /// Which choices are asked for.
    pub choices: Choices,
}

/// What an answer showed of its offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// The name of its reasoning.
    pub reasoning: Option<ReasoningName>,
    /// Its usage is of one choice, though it gave several; the gateway's own count stands instead.
    pub miscounted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_has_a_bit_of_its_own_and_a_word_that_names_it() {
        let mut all = Extras::NONE;
        for (extra, words) in EXTRAS {
            assert!(!all.has(*extra), "{extra:?} twice");
            all = all.with(Extras::of(*extra));
            let first = words.first().copied().unwrap_or_default();
            assert!(Extras::named(|word| word == first).has(*extra), "{extra:?}");
            assert!(words.iter().all(|word| *word == word.to_lowercase() && !word.is_empty()));
        }
        assert_eq!(all.words().count(), EXTRAS.len());
        assert_eq!(all.headers().count(), 5);
        assert_eq!(Extras::of(E::Seed).headers().count(), 0);
        assert_eq!(Extras::from_bits(all.bits()), all);
        assert!(Extras::named(|_| false).is_empty());
    }

    #[test]
    fn reasoning_that_is_refused_under_both_names_is_left_out() {
        let named = Extras::of(E::ReasoningName);
        assert_eq!(named.beyond(Extras::NONE), named);
        let dropped = named.beyond(named);
        assert_eq!(dropped, Extras::of(E::Reasoning));
        assert!(named.beyond(named.with(dropped)).is_empty());
        let many = Extras::of(E::Many).with(Extras::of(E::Seed));
        assert_eq!(many.beyond(Extras::NONE), Extras::of(E::Seed), "`n` is no member to leave out");
        assert!(many.beyond(Extras::of(E::Seed)).is_empty());
    }
}
