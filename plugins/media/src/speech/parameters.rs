//! Members of a speech request that are sent only to the providers whose offer lists them.

use penstock_core::{ApiError, InferenceRequest, InferenceTask, ModelKind, OfferCapabilities};

/// Members that every provider receives.
pub(super) const ALWAYS_FORWARDED_MEMBERS: &[&str] =
    &["input", "voice", "response_format", "speed", "instructions", "language"];

/// Members that change the voice or the audio at vLLM-Omni, Kokoro, Chatterbox, Fish Speech and hosts of these models.
/// An offer can answer a request with one of these members only if its `supported_parameters` list the member.
pub const OFFER_DEPENDENT_PARAMETERS: &[&str] = &[
    "audio_prompt",
    "cfg_scale",
    "cfg_weight",
    "emotion",
    "exaggeration",
    "instruct",
    "lang_code",
    "max_new_tokens",
    "min_p",
    "normalization_options",
    "normalize",
    "pitch",
    "ref_audio",
    "ref_text",
    "reference_audio",
    "reference_id",
    "reference_text",
    "references",
    "repetition_penalty",
    "sample_rate",
    "seed",
    "speaker",
    "speaker_embedding",
    "speaker_id",
    "task_type",
    "temperature",
    "top_k",
    "top_p",
    "voice_id",
    "voice_settings",
    "volume_multiplier",
    "x_vector_only_mode",
];

/// Returns true if a member of a speech request is sent to an offer.
pub(super) fn is_forwarded_to_offer(name: &str, abilities: &OfferCapabilities) -> bool {
    ALWAYS_FORWARDED_MEMBERS.contains(&name)
        || (OFFER_DEPENDENT_PARAMETERS.contains(&name) && abilities.accepts_parameter(name))
}

/// Returns the error for a speech request with a member of [`OFFER_DEPENDENT_PARAMETERS`] that the offer does not
/// list; `None` without such a member. Members that are off or empty are ignored.
#[must_use]
pub fn unsupported_parameter_error(
    ask: &InferenceRequest,
    abilities: &OfferCapabilities,
) -> Option<ApiError> {
    if ask.kind != ModelKind::Speech || !matches!(ask.task, InferenceTask::Passthrough(_)) {
        return None;
    }
    let refused =
        |name: &&&str| !abilities.accepts_parameter(name) && ask.member_value(name).is_some_and(has_effect);
    let name = OFFER_DEPENDENT_PARAMETERS.iter().find(refused)?;
    Some(ApiError::unsupported(*name, format!("This model does not support `{name}`.")))
}

/// Returns true for every value but `false` and empty texts, lists and objects.
fn has_effect(value: &[u8]) -> bool {
    let is_hollow = match value {
        [b'"' | b'[' | b'{', inside @ .., _] => inside.trim_ascii().is_empty(),
        _ => false,
    };
    !is_hollow && value != b"false"
}
