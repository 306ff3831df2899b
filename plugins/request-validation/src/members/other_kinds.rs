//! Members that change the answer of speech, vectors, scores and moderation, and that no provider's request format of
//! the gateway has.

use super::RefusedMember;
use super::RefusedValues::{NonEmpty, Present, ProviderConstraints, SeveralChoices};
use crate::body::RootObject;
use penstock_core::ApiError;

/// Sentence for members that choose a provider.
const PROVIDER_ADVICE: &str = "choose providers by `filters` or a flavor";

/// Members of a speech request that are refused at every offer. Others depend on the offer.
pub const REFUSED_SPEECH_MEMBERS: &[RefusedMember] = &[
    ("messages", NonEmpty, "this endpoint reads `input`"),
    ("n", SeveralChoices, "a request has one audio"),
    ("prompt", NonEmpty, "this endpoint reads `input`"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("stream_options", NonEmpty, "send `stream_format`"),
    ("text", NonEmpty, "this endpoint reads `input`"),
];

/// Members of an embedding request that change the vectors.
pub const REFUSED_EMBEDDING_MEMBERS: &[RefusedMember] = &[
    ("embedding_type", NonEmpty, "send `encoding_format`"),
    ("embedding_types", NonEmpty, "send `encoding_format`"),
    ("input_type", NonEmpty, "write the instruction that the model expects before each text"),
    ("instruction", NonEmpty, "write the instruction before each text"),
    ("instructions", NonEmpty, "write the instruction before each text"),
    ("late_chunking", NonEmpty, "each text has its own vector"),
    ("messages", NonEmpty, "this endpoint reads `input`"),
    ("output_dimension", Present, "send `dimensions`"),
    ("output_dtype", NonEmpty, "send `encoding_format`"),
    ("prompt", NonEmpty, "this endpoint reads `input`"),
    ("prompt_name", NonEmpty, "write the instruction that the model expects before each text"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("task", NonEmpty, "write the instruction that the model expects before each text"),
    ("texts", NonEmpty, "this endpoint reads `input`"),
    ("truncate_prompt_tokens", Present, "texts are not truncated"),
];

/// Members of a rerank request that change the scores.
pub const REFUSED_RERANK_MEMBERS: &[RefusedMember] = &[
    ("instruct", NonEmpty, "write the instruction in `query`"),
    ("instruction", NonEmpty, "write the instruction in `query`"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("score_threshold", Present, "all scores are returned; leave out the low ones"),
    ("task", NonEmpty, "write the instruction in `query`"),
    ("texts", NonEmpty, "this endpoint reads `documents`"),
    ("truncate_prompt_tokens", Present, "documents are not truncated"),
];

/// Members of a moderation request that change the result.
pub const REFUSED_MODERATION_MEMBERS: &[RefusedMember] = &[
    ("categories", NonEmpty, "the categories are the model's"),
    ("messages", NonEmpty, "this endpoint reads `input`"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("threshold", Present, "the thresholds are the model's"),
    ("thresholds", NonEmpty, "the thresholds are the model's"),
];

/// Refuses the members in `rows`, which would change the answer if they were dropped.
///
/// # Errors
/// Returns `Unsupported` with the member's name.
pub(crate) fn refuse_listed(top: &RootObject<'_>, rows: &[RefusedMember]) -> Result<(), ApiError> {
    super::refuse_members(top, |name| super::find_refused(rows, name))
}
