//! Validation of text completion requests: a prompt without roles, as text or token ids.

use crate::body::{RootObject, validate_body};
use crate::field_path::{FieldPath, PathStyle};
use crate::filters::read_offer_filters;
use crate::limits::RequestLimits;
use crate::scalars::{self, IntegerRanges, NumberRanges};
use crate::vectors::{count_token_ids, require_bounded_array};
use crate::{chat, read};
use bytes::Bytes;
use penstock_core::{
    ApiError, CompletionTask, Dialect, InferenceRequest, InferenceTask, ModelKind, RequiredCapabilities,
};
use penstock_json_scan::tape::{JsonTape, JsonValue, ValueKind};
use std::ops::Range;

const NUMBERS: NumberRanges = &[
    ("temperature", 0.0, 2.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("frequency_penalty", -2.0, 2.0),
    ("presence_penalty", -2.0, 2.0),
    ("repetition_penalty", 0.0, 10.0),
];
const INTEGERS: IntegerRanges = &[
    ("top_k", -1, i64::MAX),
    ("seed", i64::MIN, i64::MAX),
    ("n", 1, 10),
    ("best_of", 1, 20),
    ("logprobs", 0, 20),
];
const BOOLEANS: &[&str] = &["stream", "echo"];

/// Maximum number of choices of one request: prompts times `n`.
const MAX_CHOICES: usize = 1024;
/// Default of `max_tokens`, as clients of this endpoint expect it.
const DEFAULT_MAX_TOKENS: u64 = 16;
/// Assumed number of bytes of text for each token id, because the text of an id is not known here.
const BYTES_PER_ID: usize = 4;

const EXPECTED: &str = "a string, an array of strings, or token ids";

/// Prompts of a completion request, as byte ranges of its body.
#[derive(Default)]
struct FoundPrompts {
    values: Vec<Range<usize>>,
    bytes: usize,
    has_token_ids: bool,
}

/// Validates a request of `/v1/completions`.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the path of the invalid field, if any, in `param`.
pub fn validate_text_completion_request(
    body: Bytes,
    limits: &RequestLimits,
) -> Result<InferenceRequest, ApiError> {
    let (text, nodes) = validate_body(&body, limits, PathStyle::Brackets)?;
    let tape = JsonTape { text, nodes: &nodes };
    let top = RootObject::new(&tape, limits, PathStyle::Brackets)?;
    let model = scalars::read_model(&top)?;
    crate::members::refuse_completion_members(&top)?;
    let path = top.member_path("prompt");
    let prompts = read_prompts(read::require_member(top.get("prompt"), &path, EXPECTED)?, &path)?;
    scalars::validate_scalars(&top, NUMBERS, INTEGERS, BOOLEANS)?;
    chat::check_response_format(&top)?;
    top.get("suffix").map(|suffix| read::require_string(suffix, &top.member_path("suffix"))).transpose()?;
    let echo = scalars::read_bool_or_false(&top, "echo")?;
    let stream = scalars::read_bool_or_false(&top, "stream")?;
    let number = |name| top.get(name).and_then(|value| value.raw().parse::<u32>().ok());
    let n = number("n").unwrap_or(1);
    let best_of = number("best_of");
    check_best_of(&top, n, best_of, stream)?;
    let choices = prompts.values.len().saturating_mul(usize::try_from(n).unwrap_or(usize::MAX));
    if choices > MAX_CHOICES {
        return Err(path.invalid_error(format_args!("expected at most {MAX_CHOICES} prompts times `n`")));
    }
    let max_tokens = read_token_cap(&top, echo)?;
    let required = RequiredCapabilities {
        logprobs: top.get("logprobs").is_some(),
        logit_bias: scalars::has_logit_bias(&top)?,
        ..RequiredCapabilities::default()
    };
    let task = InferenceTask::Complete(CompletionTask {
        prompts: prompts.values.into_iter().map(|range| body.slice(range)).collect(),
        has_token_ids: prompts.has_token_ids,
        echo,
        choices_per_prompt: n,
        generations_per_prompt: n.max(best_of.unwrap_or(n)),
    });
    Ok(InferenceRequest {
        dialect: Dialect::Chat,
        stream,
        include_usage: chat::read_include_usage(&top)?,
        max_tokens,
        n: u32::try_from(choices).unwrap_or(u32::MAX),
        stop: scalars::read_stop_sequences(&top, "stop", true, limits)?,
        required,
        filters: read_offer_filters(&top, ModelKind::Chat)?,
        prompt_bytes: prompts.bytes,
        ..InferenceRequest::from_non_chat_task(
            ModelKind::Chat,
            body.clone(),
            top.to_body_members(),
            model,
            task,
        )
    })
}

/// Reads the cap on generated tokens: `max_tokens`, or else its name at other endpoints, or else
/// [`DEFAULT_MAX_TOKENS`]. Returns `None` for no cap: the value -1, or -2 in `num_predict`. The value 0 requires
/// `echo`.
fn read_token_cap(top: &RootObject<'_>, echo: bool) -> Result<Option<u64>, ApiError> {
    let mut first = None;
    for name in ["max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict"]
    {
        let Some(value) = top.get(name) else { continue };
        let is_open = value.raw() == "-1" || name == "num_predict" && value.raw() == "-2";
        let cap = if is_open { None } else { scalars::read_token_count(top, name, 0)? };
        if cap == Some(0) && !echo {
            return Err(top.member_path(name).invalid_error("expected at least 1; 0 needs `echo`"));
        }
        first = first.or(Some(cap));
    }
    Ok(first.unwrap_or(Some(DEFAULT_MAX_TOKENS)))
}

/// Validates `best_of`, which must be at least `n`. In a stream it must equal `n`, because the best text cannot be
/// chosen after the texts were sent.
fn check_best_of(top: &RootObject<'_>, n: u32, best_of: Option<u32>, stream: bool) -> Result<(), ApiError> {
    match best_of {
        Some(best_of) if best_of < n => {
            Err(top.member_path("best_of").invalid_error(format_args!("expected at least `n`, which is {n}")))
        }
        Some(best_of) if best_of > n && stream => Err(top
            .member_path("best_of")
            .unsupported_error("the best of several answers cannot be streamed")),
        _ => Ok(()),
    }
}

fn read_prompts(prompt: JsonValue<'_>, prompt_path: &FieldPath<'_>) -> Result<FoundPrompts, ApiError> {
    let mut found = FoundPrompts::default();
    if prompt.is_string() {
        found.add_text(prompt);
        return Ok(found);
    }
    if !prompt.is_array() {
        return Err(prompt_path.unexpected_type_error(EXPECTED, prompt.kind()));
    }
    if prompt.items().next().is_some_and(|first| first.kind() == ValueKind::Number) {
        found.add_ids(prompt, prompt_path)?;
        return Ok(found);
    }
    for (index, item) in
        require_bounded_array(prompt, prompt_path, MAX_CHOICES, "prompt")?.items().enumerate()
    {
        let path = prompt_path.item(index);
        if item.is_array() {
            found.add_ids(item, &path)?;
        } else {
            found.add_text(read::require_string(item, &path)?);
        }
    }
    Ok(found)
}

impl FoundPrompts {
    fn add_text(&mut self, text: JsonValue<'_>) {
        self.bytes += text.string_bytes().len();
        self.values.push(text.range());
    }

    fn add_ids(&mut self, ids: JsonValue<'_>, path: &FieldPath<'_>) -> Result<(), ApiError> {
        self.bytes += count_token_ids(ids, path)? * BYTES_PER_ID;
        self.has_token_ids = true;
        self.values.push(ids.range());
        Ok(())
    }
}
