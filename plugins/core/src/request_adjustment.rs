//! Properties of an offer observed in its own responses, and the adjustments of a request to it.
//!
//! A provider may reject a member that the gateway added and no client sent. One table lists these members with the
//! words by which they are recognised in a provider's error message.

/// Request member or header that the gateway adds, renames or may omit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AdjustableMember {
    /// `stream_options`. If it is omitted, the gateway counts the usage.
    StreamOptions,
    /// `n` above 1. If it is omitted, each choice is requested separately.
    MultipleChoices,
    /// Name of the cap on generated tokens. If this is omitted, the alternative name is used.
    CapName,
    /// Name of replayed reasoning. If this is omitted, the alternative name is used.
    ReasoningName,
    /// Replayed reasoning under any name.
    Reasoning,
    /// `chat_template_kwargs` that switches thinking.
    ThinkingSwitch,
    /// `reasoning_effort`, derived from another dialect or a preset.
    Effort,
    /// `thinking` and `output_config.effort`, derived from another dialect.
    Thinking,
    /// `tool_choice` with the value that is the default anyway.
    ToolChoice,
    /// `parallel_tool_calls`, derived from another dialect; the gateway enforces it.
    ParallelTools,
    /// `strict` of a schema.
    Strict,
    /// Stop sequences. If they are omitted, the gateway enforces them.
    Stop,
    /// `continue_final_message` and `add_generation_prompt`.
    ContinueFinal,
    /// `prefix` of a message.
    Prefix,
    /// `encoding_format` of vectors.
    EncodingFormat,
    /// `return_documents` of rerank.
    ReturnDocuments,
    /// `raw_scores` of rerank. If it is omitted, the scores are probabilities.
    RawScores,
    /// `response_format` of images and transcriptions, and `timestamp_granularities`.
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
    /// `store` of a responses request.
    Store,
    /// `instructions` of a responses request. If it is omitted, they are the first item.
    Instructions,
    /// `reasoning.summary` of a responses request.
    ReasoningSummary,
    /// Member `reasoning` of a responses request, derived from another dialect.
    ReasoningObject,
    /// `detail` of an image in a responses request.
    ImageDetail,
    /// `thinking.display`, derived from another dialect.
    ThinkingDisplay,
    /// `signature` of replayed thinking. If it is omitted, so is the thinking.
    Signature,
    /// `n` or `batch_size` of 1 in a request for images.
    ImageCount,
    /// Header `anthropic-version`.
    AnthropicVersion,
    /// Header `accept-encoding`.
    AcceptEncoding,
    /// Header `user-agent`.
    UserAgent,
    /// Forwarded headers `traceparent` and `tracestate`.
    TraceContext,
    /// Value of a reasoning effort that few providers accept, such as `none`. If it is omitted, the nearest common
    /// value is sent.
    ExactEffort,
    /// `cache_control`, derived from another dialect.
    CacheControl,
}

use AdjustableMember as E;

/// Members and headers, each with the lower-case words that identify it in the message or the field path of a
/// provider's error. [`AdjustableMember::Reasoning`] has no row: its words are those of
/// [`AdjustableMember::ReasoningName`].
pub const MEMBER_ERROR_WORDS: &[(AdjustableMember, &[&str])] = &[
    (E::StreamOptions, &["stream_options", "stream options", "include_usage"]),
    (E::MultipleChoices, &["n", "n_cmpl", "best_of", "num_choices", "multiple choices", "number of choices"]),
    (E::CapName, &["max_tokens", "max_completion_tokens"]),
    (E::ReasoningName, &["reasoning_content", "reasoning"]),
    (E::ThinkingSwitch, &["chat_template_kwargs", "enable_thinking"]),
    (E::Effort, &["reasoning_effort", "effort"]),
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
    (E::Store, &["store"]),
    (E::Instructions, &["instructions"]),
    (E::ReasoningSummary, &["summary"]),
    (E::ReasoningObject, &["reasoning"]),
    (E::ImageDetail, &["detail"]),
    (E::ThinkingDisplay, &["display"]),
    (E::Signature, &["signature"]),
    (E::ImageCount, &["n", "batch_size"]),
    (E::AnthropicVersion, &["anthropic-version"]),
    (E::AcceptEncoding, &["accept-encoding"]),
    (E::UserAgent, &["user-agent"]),
    (E::TraceContext, &["traceparent", "tracestate"]),
    (E::ExactEffort, &["effort", "reasoning_effort"]),
    (E::CacheControl, &["cache_control"]),
];

/// Pairs of an inner member and the member that contains it: an error message about the inner member also names the
/// outer one, as a part of the path. `ExactEffort`, a value of members, counts as inside of these members.
const NARROWER: &[(AdjustableMember, AdjustableMember)] = &[
    (E::ReasoningSummary, E::ReasoningObject),
    (E::Effort, E::ReasoningObject),
    (E::ExactEffort, E::ReasoningObject),
    (E::ExactEffort, E::Effort),
    (E::ThinkingDisplay, E::Thinking),
    (E::Signature, E::Thinking),
];

impl AdjustableMember {
    /// Returns the names of the headers; empty for a member of the body.
    #[must_use]
    pub const fn header_names(self) -> &'static [&'static str] {
        match self {
            E::AnthropicVersion => &["anthropic-version"],
            E::AcceptEncoding => &["accept-encoding"],
            E::UserAgent => &["user-agent"],
            E::TraceContext => &["traceparent", "tracestate"],
            _ => &[],
        }
    }
}

/// Set of [`AdjustableMember`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdjustableMemberSet(u64);

impl AdjustableMemberSet {
    /// Empty set of members.
    pub const NONE: Self = Self(0);

    /// Members that the gateway adds by itself, or passes on from another dialect, and that do not change the meaning of the
    /// answer. A provider that
    /// refuses an unknown member without naming it may mean any of these members. Switches of reasoning and `strict`
    /// are excluded, because they change the answer.
    pub const ADDED_BY_GATEWAY: Self = Self::of_all(&[
        E::StreamOptions,
        E::ToolChoice,
        E::ParallelTools,
        E::EncodingFormat,
        E::ReturnDocuments,
        E::RawScores,
        E::Temperature,
        E::TopP,
        E::TopK,
        E::MinP,
        E::PresencePenalty,
        E::FrequencyPenalty,
        E::RepetitionPenalty,
        E::Seed,
        E::Verbosity,
        E::Store,
        E::ReasoningSummary,
        E::ImageDetail,
        E::ThinkingDisplay,
        E::ImageCount,
        E::CacheControl,
    ]);

    /// Creates a set from the bits returned by [`AdjustableMemberSet::bits`].
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the set as an integer with one bit for each element.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Creates a set with one element.
    #[must_use]
    pub const fn from_member(extra: AdjustableMember) -> Self {
        Self(1 << extra as u32)
    }

    const fn of_all(mut members: &[AdjustableMember]) -> Self {
        let mut all = Self::NONE;
        while let [first, rest @ ..] = members {
            all = all.union(Self::from_member(*first));
            members = rest;
        }
        all
    }

    /// Returns the set of the members that an error message names; `names` returns true if the message contains a word.
    #[must_use]
    pub fn named_in_message(mut names: impl FnMut(&str) -> bool) -> Self {
        let rows = MEMBER_ERROR_WORDS.iter().filter(|(_, words)| words.iter().any(|word| names(word)));
        rows.fold(Self::NONE, |all, (extra, _)| all.union(Self::from_member(*extra)))
    }

    /// Returns true if the set contains this element.
    #[must_use]
    pub const fn contains(self, extra: AdjustableMember) -> bool {
        self.0 & Self::from_member(extra).0 != 0
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the union of two sets of members.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the intersection of two sets of members.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the elements of this set of members that are not in the other set.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the members to omit from the next request, after an error message has named the members of this set;
    /// `left_out` are those omitted already. If the alternative name of reasoning is refused too, the engine accepts
    /// neither name, and the reasoning itself is omitted. `MultipleChoices` is not omitted: the choices are requested
    /// separately instead.
    #[must_use]
    pub const fn next_omissions(self, left_out: Self) -> Self {
        let fresh = self.difference(left_out).difference(Self::from_member(E::MultipleChoices));
        if fresh.is_empty() && self.contains(E::ReasoningName) && !left_out.contains(E::Reasoning) {
            return Self::from_member(E::Reasoning);
        }
        fresh
    }

    /// Returns the set without each member that contains another member of the set.
    #[must_use]
    pub fn without_containing_members(self) -> Self {
        let broader = NARROWER.iter().filter(|(narrow, _)| self.contains(*narrow));
        broader.fold(self, |rest, (_, broad)| rest.difference(Self::from_member(*broad)))
    }

    /// Returns the elements of the set, in the order of [`MEMBER_ERROR_WORDS`]; [`AdjustableMember::Reasoning`] is the
    /// last one.
    pub fn iter(self) -> impl Iterator<Item = AdjustableMember> {
        let all = MEMBER_ERROR_WORDS.iter().map(|(extra, _)| *extra).chain([E::Reasoning]);
        all.filter(move |extra| self.contains(*extra))
    }

    /// Returns the header names of all elements.
    pub fn header_names(self) -> impl Iterator<Item = &'static str> {
        let rows = MEMBER_ERROR_WORDS.iter().filter(move |(extra, _)| self.contains(*extra));
        rows.flat_map(|(extra, _)| extra.header_names().iter().copied())
    }

    /// Returns the name of each element for the log; [`AdjustableMember::Reasoning`] has none.
    pub fn log_names(self) -> impl Iterator<Item = &'static str> {
        let rows = MEMBER_ERROR_WORDS.iter().filter(move |(extra, _)| self.contains(*extra));
        rows.filter_map(|(_, words)| words.first().copied())
    }
}

/// Member name under which an engine accepts and returns reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningName {
    /// `reasoning_content`: DeepSeek, SGLang, llama.cpp and most others.
    #[default]
    ReasoningContent,
    /// `reasoning`: newer vLLM.
    Reasoning,
}

impl ReasoningName {
    /// Returns the name of the JSON member.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReasoningContent => "reasoning_content",
            Self::Reasoning => "reasoning",
        }
    }

    /// Returns the other of the two names of reasoning.
    #[must_use]
    pub const fn alternative(self) -> Self {
        match self {
            Self::ReasoningContent => Self::Reasoning,
            Self::Reasoning => Self::ReasoningContent,
        }
    }
}

/// Choices of the client's request that one request to a provider covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChoiceSelection {
    /// All choices of the request.
    #[default]
    All,
    /// One of several choices that are requested separately, by its index from 0. Output that occurs once for all
    /// choices, such as the role and the usage, is left out.
    One(u32),
}

/// Changes of a request to an offer that do not follow from the configuration, but from earlier responses of the
/// offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestAdjustment {
    /// Members to omit from the request.
    pub omitted: AdjustableMemberSet,
    /// Name of reasoning that the offer accepted after it had refused the other one, or else the name in its responses;
    /// `None` if unknown, or if the configuration states the name.
    pub reasoning_name: Option<ReasoningName>,
    /// Requested choices.
    pub choices: ChoiceSelection,
}

/// Properties of an offer observed in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferObservation {
    /// Name of reasoning in the response; `None` if the response has no reasoning.
    pub reasoning_name: Option<ReasoningName>,
    /// True if the provider generated far more than the allowed tokens, so that the gateway cut the answer.
    pub exceeds_output_limit: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_has_its_own_bit_and_name() {
        let mut all = AdjustableMemberSet::NONE;
        for (extra, words) in MEMBER_ERROR_WORDS {
            assert!(!all.contains(*extra), "{extra:?} twice");
            all = all.union(AdjustableMemberSet::from_member(*extra));
            let first = words.first().copied().unwrap_or_default();
            assert!(
                AdjustableMemberSet::named_in_message(|word| word == first).contains(*extra),
                "{extra:?}"
            );
            assert!(words.iter().all(|word| *word == word.to_lowercase() && !word.is_empty()));
        }
        assert_eq!(all.log_names().count(), MEMBER_ERROR_WORDS.len());
        assert_eq!(all.header_names().count(), 5);
        assert_eq!(AdjustableMemberSet::from_member(E::Seed).header_names().count(), 0);
        assert_eq!(AdjustableMemberSet::from_bits(all.bits()), all);
        assert!(AdjustableMemberSet::named_in_message(|_| false).is_empty());
    }

    #[test]
    fn a_member_inside_another_is_left_out_alone() {
        let path = ["reasoning", "summary"];
        let named = AdjustableMemberSet::named_in_message(|word| path.contains(&word));
        assert!(named.contains(E::ReasoningObject) && named.contains(E::ReasoningSummary));
        let rest = named.without_containing_members();
        assert!(!rest.contains(E::ReasoningObject) && rest.contains(E::ReasoningSummary));
        let object = AdjustableMemberSet::from_member(E::ReasoningObject);
        assert_eq!(object.without_containing_members(), object);
    }

    #[test]
    fn reasoning_that_is_refused_under_both_names_is_left_out() {
        let named = AdjustableMemberSet::from_member(E::ReasoningName);
        assert_eq!(named.next_omissions(AdjustableMemberSet::NONE), named);
        let dropped = named.next_omissions(named);
        assert_eq!(dropped, AdjustableMemberSet::from_member(E::Reasoning));
        assert!(named.next_omissions(named.union(dropped)).is_empty());
        let many = AdjustableMemberSet::from_member(E::MultipleChoices)
            .union(AdjustableMemberSet::from_member(E::Seed));
        assert_eq!(
            many.next_omissions(AdjustableMemberSet::NONE),
            AdjustableMemberSet::from_member(E::Seed),
            "`n` is no member to leave out"
        );
        assert!(many.next_omissions(AdjustableMemberSet::from_member(E::Seed)).is_empty());
    }
}
