//! Validation of requests whose results the gateway forwards without a translation: speech and moderation. The
//! request determines the maximum work that may be charged.

use crate::body::{RootObject, validate_body};
use crate::field_path::{FieldPath, PathStyle};
use crate::filters::read_offer_filters;
use crate::limits::RequestLimits;
use crate::members::{REFUSED_MODERATION_MEMBERS, REFUSED_SPEECH_MEMBERS, refuse_listed_members};
use crate::read;
use crate::scalars;
use crate::vectors::require_bounded_array;
use bytes::Bytes;
use penstock_core::{
    ApiError, InferenceRequest, InferenceTask, ModelKind, PassthroughDelivery, PassthroughTask, TokenUsage,
    UsageBounds, WorkDone,
};
use penstock_json_scan::tape::{JsonTape, JsonValue};
use rust_decimal::Decimal;
use std::ops::Range;

/// Maximum number of characters of a text to convert to speech.
const MAX_CHARACTERS: usize = 100_000;
/// Formats of speech with their content types, the default first.
const SPEECH_FORMATS: [(&str, &str); 6] = [
    ("mp3", "audio/mpeg"),
    ("opus", "audio/ogg"),
    ("aac", "audio/aac"),
    ("flac", "audio/flac"),
    ("wav", "audio/wav"),
    ("pcm", "audio/pcm"),
];
/// Characters per second of the slowest plausible speech at speed 1.
const SLOWEST_CHARACTERS_PER_SECOND: u64 = 2;
/// Seconds for pauses, in addition to the duration of the slowest speech.
const PAUSE_SECONDS: u64 = 5;

/// Validates a request of `/v1/audio/speech`.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the path of the invalid field, if any, in `param`.
pub fn validate_speech_request(body: Bytes, limits: &RequestLimits) -> Result<InferenceRequest, ApiError> {
    let (text, nodes) = validate_body(&body, limits, PathStyle::Brackets)?;
    let tape = JsonTape { text, nodes: &nodes };
    let top = RootObject::new(&tape, limits, PathStyle::Brackets)?;
    let model = scalars::read_model(&top)?;
    refuse_listed_members(&top, REFUSED_SPEECH_MEMBERS)?;
    let path = top.member_path("input");
    let input = read::require_text_member(top.get("input"), &path)?;
    let characters = input.text().chars().count();
    if characters > MAX_CHARACTERS {
        return Err(path.invalid_error(format_args!("expected at most {MAX_CHARACTERS} characters")));
    }
    scalars::validate_scalars(&top, &[("speed", 0.25, 4.0)], &[], &[])?;
    if let Some(voice) = top.get("voice").filter(|voice| !voice.is_object()) {
        read::require_non_empty_string(voice, &top.member_path("voice"))?;
    }
    top.get("instructions")
        .map(|value| read::require_string(value, &top.member_path("instructions")))
        .transpose()?;
    top.get("language")
        .map(|value| read::require_non_empty_string(value, &top.member_path("language")))
        .transpose()?;
    let names = SPEECH_FORMATS.map(|(name, _)| name);
    let format = match top.get("response_format") {
        Some(value) => read::read_keyword(value, &top.member_path("response_format"), &names)?,
        None => SPEECH_FORMATS.first().map_or("mp3", |(name, _)| name),
    };
    let delivery = match top.get("stream_format") {
        Some(value) => match read::read_keyword(value, &top.member_path("stream_format"), &["audio", "sse"])?
        {
            "sse" => PassthroughDelivery::Events,
            _ => PassthroughDelivery::Bytes,
        },
        None => PassthroughDelivery::Bytes,
    };
    let speed = top.get("speed").and_then(|speed| speed.raw().parse().ok()).unwrap_or(Decimal::ONE);
    let slowest = speed.saturating_mul(Decimal::from(SLOWEST_CHARACTERS_PER_SECOND));
    let longest = Decimal::from(characters as u64).checked_div(slowest).unwrap_or(Decimal::from(86_400));
    let task = PassthroughTask {
        texts: vec![body.slice(input.range())],
        max_work: WorkDone::Audio {
            seconds: longest.saturating_add(Decimal::from(PAUSE_SECONDS)).round_dp(3),
        },
        content_type: SPEECH_FORMATS.iter().find(|(name, _)| *name == format).map(|(_, kind)| *kind),
        delivery,
    };
    Ok(InferenceRequest {
        stream: true,
        filters: read_offer_filters(&top, ModelKind::Speech)?,
        prompt_bytes: characters,
        ..InferenceRequest::from_non_chat_task(
            ModelKind::Speech,
            body.clone(),
            top.to_body_members(),
            model,
            InferenceTask::Passthrough(task),
        )
    })
}

/// Validates a request with `input`, a text or a list of texts, for a model of this kind, such as a request of
/// `/v1/moderations`; `default` is the model of a request without `model`. An item of the list may also be an object
/// `{"type":"text","text":…}`.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the path of the invalid field, if any, in `param`.
pub fn validate_text_input_request(
    body: Bytes,
    limits: &RequestLimits,
    kind: ModelKind,
    default: Option<&str>,
) -> Result<InferenceRequest, ApiError> {
    let (text, nodes) = validate_body(&body, limits, PathStyle::Brackets)?;
    let tape = JsonTape { text, nodes: &nodes };
    let top = RootObject::new(&tape, limits, PathStyle::Brackets)?;
    let model = scalars::read_model_or_default(&top, default)?;
    refuse_listed_members(&top, REFUSED_MODERATION_MEMBERS)?;
    let path = top.member_path("input");
    const EXPECTED: &str = "a string or an array of strings";
    let input = read::require_member(top.get("input"), &path, EXPECTED)?;
    let texts: Vec<Range<usize>> = if input.is_string() {
        vec![input.range()]
    } else if input.is_array() {
        let text = |(index, item): (usize, JsonValue<'_>)| {
            let path = path.item(index);
            if item.is_object() {
                return read_text_part(item, &path);
            }
            read::require_string(item, &path).map(|item| item.range())
        };
        require_bounded_array(input, &path, limits.max_inputs, "text")?
            .items()
            .enumerate()
            .map(text)
            .collect::<Result<_, _>>()?
    } else {
        return Err(path.unexpected_type_error(EXPECTED, input.kind()));
    };
    let bytes = texts.iter().map(Range::len).sum::<usize>();
    let of = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let templates = of(texts.len()).saturating_mul(UsageBounds::MAX_TEMPLATE_TOKENS);
    let most = of(bytes).saturating_add(templates);
    let task = PassthroughTask {
        texts: texts.into_iter().map(|range| body.slice(range)).collect(),
        max_work: WorkDone::Tokens(TokenUsage { input: most, ..TokenUsage::default() }),
        content_type: None,
        delivery: PassthroughDelivery::Complete,
    };
    Ok(InferenceRequest {
        filters: read_offer_filters(&top, kind)?,
        prompt_bytes: bytes,
        ..InferenceRequest::from_non_chat_task(
            kind,
            body.clone(),
            top.to_body_members(),
            model,
            InferenceTask::Passthrough(task),
        )
    })
}

/// Returns the byte range of the text of a part.
fn read_text_part(part: JsonValue<'_>, part_path: &FieldPath<'_>) -> Result<Range<usize>, ApiError> {
    let [kind, text] = read::read_named_members(part, part_path, ["type", "text"])?;
    let path = part_path.member("type");
    if !read::require_string(read::require_member(kind, &path, "\"text\"")?, &path)?.equals_text("text") {
        return Err(path.unsupported_error("only parts of the type \"text\" are supported"));
    }
    let path = part_path.member("text");
    Ok(read::require_string(read::require_member(text, &path, "a string")?, &path)?.range())
}
