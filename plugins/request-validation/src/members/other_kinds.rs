//! Members that change the answer of speech and moderation, and that no provider's request format of the gateway has.

use super::RefusedMember;
use super::RefusedValues::{NonEmpty, Present, ProviderConstraints, SeveralChoices};

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

/// Members of a moderation request that change the result.
pub const REFUSED_MODERATION_MEMBERS: &[RefusedMember] = &[
    ("categories", NonEmpty, "the categories are the model's"),
    ("messages", NonEmpty, "this endpoint reads `input`"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("threshold", Present, "the thresholds are the model's"),
    ("thresholds", NonEmpty, "the thresholds are the model's"),
];
