//! Builders of the provider's request for a text completion: for providers with the endpoint, and for those with only
//! chat.

use crate::body_builder::BodyBuilder;
use crate::output_constraint::SelectedConstraint;
use crate::{json_cursor, parameters, response_constraints};
use bytes::Bytes;
use penstock_core::{
    AdjustableMember, ApiError, AttemptTarget, BodyMember, CompletionTask, InferenceRequest, InferenceTask,
    OfferCapabilities,
};

/// Members that are not copied. Some are written from the parsed request; others are written only for a provider that
/// has the completions endpoint itself.
const OWN_MEMBERS: &[&str] = &[
    "model",
    "prompt",
    "max_tokens",
    "max_new_tokens",
    "num_predict",
    "n",
    "best_of",
    "echo",
    "logprobs",
    "suffix",
    "stop",
    "stream",
    "stream_options",
    "filters",
    "preset",
];
/// Members that are forwarded unless the catalogue lists the model's parameters without them.
const FORWARDED_BY_DEFAULT: &[&str] =
    &["temperature", "top_p", "seed", "frequency_penalty", "presence_penalty"];

/// Returns the error for the first feature of a request that an offer with these capabilities does not support; `None`
/// if the offer supports the request.
#[must_use]
pub fn missing_capability_error(
    task: &CompletionTask,
    ask: &InferenceRequest,
    abilities: &OfferCapabilities,
) -> Option<ApiError> {
    let has_suffix = ask.member_value("suffix").is_some_and(|suffix| suffix != b"\"\"");
    if abilities.completions {
        let refused = has_suffix && !abilities.accepts_parameter("suffix");
        return refused.then(|| ApiError::unsupported("suffix", "This model does not take a suffix."));
    }
    let says = |field: &str, what: &str| {
        let sentence =
            format!("The providers of this model have no text completions, only chat, without {what}.");
        Some(ApiError::unsupported(field, sentence))
    };
    match () {
        () if has_suffix => says("suffix", "a suffix"),
        () if task.has_token_ids => says("prompt", "token ids"),
        () if task.prompts.len() > 1 => says("prompt", "several prompts in one request"),
        () if task.echo => says("echo", "an echo of the prompt"),
        () if ask.member_value("logprobs").is_some() => says("logprobs", "log probabilities of this format"),
        () if task.generations_per_prompt > 1 => {
            says(if task.choices_per_prompt > 1 { "n" } else { "best_of" }, "several answers to a prompt")
        }
        () => None,
    }
}

/// Builds the request for a provider with the completions endpoint; `delivered` is the text that the answer must
/// continue.
pub(super) fn build_completions_request(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
) -> Result<Vec<Bytes>, ApiError> {
    let task = completion_task(ask)?;
    let mut out = start(ask, target)?;
    out.push_str(",\"prompt\":");
    match (delivered, task.prompts.first()) {
        (None, _) => out.push_source(ask.member_value("prompt").unwrap_or_default()),
        (Some(delivered), Some(prompt)) if task.prompts.len() == 1 && !task.has_token_ids && !task.echo => {
            let prompt = json_cursor::string_body(prompt).unwrap_or_default();
            out.push_byte(b'"');
            out.push_source(prompt);
            out.push_str(&escaped(delivered));
            out.push_byte(b'"');
        }
        (Some(_), _) => return Err(ApiError::unsupported("prompt", "This answer cannot be continued.")),
    }
    for name in ["echo", "logprobs", "best_of", "suffix"] {
        if let Some(value) = ask.member_value(name) {
            out.push_str(&format!(",\"{name}\":"));
            out.push_source(value);
        }
    }
    if task.choices_per_prompt > 1 {
        out.push_str(",\"n\":");
        out.push_integer(task.choices_per_prompt.into());
    }
    write_limits(ask, target, "max_tokens", &mut out);
    finish(ask, target, out)
}

/// Builds the request for a provider that has only chat. An answer of such a provider cannot be continued.
pub(super) fn build_chat_request(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
) -> Result<Vec<Bytes>, ApiError> {
    let task = completion_task(ask)?;
    if delivered.is_some() {
        return Err(ApiError::unsupported("prompt", "This answer cannot be continued."));
    }
    let mut out = start(ask, target)?;
    out.push_str(",\"messages\":[{\"role\":\"user\",\"content\":");
    out.push_source(task.prompts.first().map_or(&b"\"\""[..], |prompt| prompt));
    out.push_str("}]");
    write_limits(ask, target, response_constraints::token_cap_name(target), &mut out);
    finish(ask, target, out)
}

fn completion_task(ask: &InferenceRequest) -> Result<&CompletionTask, ApiError> {
    match &ask.task {
        InferenceTask::Complete(task) => Ok(task),
        _ => Err(ApiError::new(penstock_core::ErrorCode::Internal)),
    }
}

/// Writes the model and the members that are forwarded unchanged.
fn start<'a>(ask: &'a InferenceRequest, target: &AttemptTarget<'_>) -> Result<BodyBuilder<'a>, ApiError> {
    let given = response_constraints::upstream_stop_sequences(&ask.stop, target);
    if given.len() < ask.stop.len() && response_constraints::requests_logprobs(ask) {
        let most = given.len();
        let sentence = format!("With `logprobs` this model takes at most {most} stop sequences.");
        return Err(ApiError::unsupported("stop", sentence));
    }
    let selected = SelectedConstraint::new(ask, |given| target.capabilities.accepts_parameter(given.member))?;
    let mut out = BodyBuilder::with_source(&ask.body);
    out.push_str("{\"model\":");
    out.push_json_string(target.model);
    for field in &ask.members.0 {
        if !selected.is_redundant(&field.name) && should_forward(ask, target, field)? {
            out.push_byte(b',');
            out.push_source(ask.body.get(field.member_range.clone()).unwrap_or_default());
        }
    }
    Ok(out)
}

fn should_forward(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    field: &BodyMember,
) -> Result<bool, ApiError> {
    let name = &*field.name;
    let abilities = target.capabilities;
    let Some(value) = ask.member_value(name).filter(|_| !OWN_MEMBERS.contains(&name)) else {
        return Ok(false);
    };
    if FORWARDED_BY_DEFAULT.contains(&name) {
        return Ok(response_constraints::accepts_sampling_parameter(abilities, name));
    }
    if name == "response_format" {
        let kind = json_cursor::member_value(value, "type").unwrap_or_default();
        return match abilities.accepts_parameter(name) {
            _ if penstock_json_scan::json::json_string_equals(kind, "text") => Ok(false),
            true => Ok(true),
            false => Err(ApiError::unsupported(name, "This model does not support `response_format`.")),
        };
    }
    if name == "logit_bias" {
        let is_empty = json_cursor::is_empty_object(value);
        return match abilities.accepts_parameter(name) || is_empty {
            true => Ok(!is_empty),
            false => Err(ApiError::unsupported(name, "logit_bias: this model takes no bias of tokens.")),
        };
    }
    parameters::should_forward(abilities, name, value)
}

/// Writes the limit on generated tokens as the member `name`, and as many stop sequences as the provider accepts.
fn write_limits(ask: &InferenceRequest, target: &AttemptTarget<'_>, name: &str, out: &mut BodyBuilder<'_>) {
    if let Some(max) = target.max_tokens.or(ask.max_tokens) {
        out.push_str(&format!(",\"{name}\":"));
        out.push_integer(max);
    }
    for (at, stop) in response_constraints::upstream_stop_sequences(&ask.stop, target).iter().enumerate() {
        out.push_str(if at == 0 { ",\"stop\":[" } else { "," });
        out.push_json_string(stop);
    }
    if !response_constraints::upstream_stop_sequences(&ask.stop, target).is_empty() {
        out.push_byte(b']');
    }
}

/// Writes the members of the preset and the request for a stream, and ends the body.
fn finish(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    mut out: BodyBuilder<'_>,
) -> Result<Vec<Bytes>, ApiError> {
    for (name, value) in response_constraints::preset_members(ask, target) {
        out.push_byte(b',');
        out.push_json_string(name);
        out.push_byte(b':');
        out.push_source(value);
    }
    if ask.stream {
        out.push_str(",\"stream\":true");
        if target.allows_member(AdjustableMember::StreamOptions) {
            out.push_str(",\"stream_options\":{\"include_usage\":true}");
        }
    }
    out.push_byte(b'}');
    Ok(out.finish())
}

fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    penstock_json_scan::json::write_escaped(&mut out, text);
    String::from_utf8_lossy(&out).into_owned()
}
