//! Builder of the request: translates each member of the chat dialect to the messages dialect, refuses it by name, or
//! drops it because it is only a hint (`seed`, penalties) or has no effect on the answer (`user`, `metadata` …).

use super::content_blocks::write_cache_marker;
use super::conversation::MessagesConversation;
use super::tools::write_tools;
use crate::body_builder::BodyBuilder;
use crate::event::EscapedText;
use crate::json_cursor;
use crate::output_config::{OutputConfig, OutputFormat};
use crate::output_constraint::SelectedConstraint;
use crate::reasoning_effort::ReasoningEffort;
use crate::{output_config, parameters, response_constraints, structured_output};
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, BodyMember, BodyMembers, CacheMarker, CachePosition, InferenceRequest,
};
use penstock_json_scan::json;
use std::borrow::Cow;
use std::ops::Range;

/// Value of `max_tokens` for providers of the messages dialect, which requires the member, if neither the client nor
/// the gateway limits the generated tokens.
pub const DEFAULT_MAX_TOKENS: u64 = 8192;
/// Sampling members that both dialects have.
const SAMPLING_MEMBERS: [&str; 3] = ["temperature", "top_p", "top_k"];

/// Builds the request body for a messages provider; `delivered` is the partial answer that it must continue.
///
/// # Errors
/// Returns an error with the field's name if a member cannot be translated.
pub(super) fn build_request(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
) -> Result<Vec<Bytes>, ApiError> {
    let edited = apply_edits(ask);
    let ask = edited.as_ref().unwrap_or(ask);
    check_supported(ask)?;
    if delivered.is_some() && target.continuation_method().is_none() {
        return Err(ApiError::unsupported("messages", "This provider does not continue an answer."));
    }
    let selected = SelectedConstraint::new(ask, |given| {
        structured_output::messages_provider_accepts_constraint(target.capabilities, given)
    })?;
    let markers = CacheMarker::for_target(ask, target);
    let messages = ask.member_value("messages").unwrap_or_default();
    let mut turns = MessagesConversation::parse(messages, markers, target)?;
    if let Some(delivered) = delivered {
        turns.append_delivered_text(delivered);
    }
    let mut out = BodyBuilder::with_source(&ask.body);
    out.push_str(r#"{"model":"#);
    out.push_json_string(target.model);
    out.push_byte(b',');
    turns.write(&mut out);
    out.push_str(r#","max_tokens":"#);
    out.push_integer(target.max_tokens.or(ask.max_tokens).unwrap_or(DEFAULT_MAX_TOKENS));
    let automatic = markers.iter().find(|marker| marker.position == CachePosition::Request);
    write_cache_marker(automatic.copied(), &mut out);
    write_tools(ask, target, &mut out)?;
    write_sampling(ask, target, &mut out);
    write_engine_parameters(ask, target, &selected, &mut out)?;
    write_output_config(ask, target, &selected, &mut out)?;
    if ask.stream {
        out.push_str(r#","stream":true"#);
    }
    out.push_byte(b'}');
    Ok(out.finish())
}

/// Returns the request with the edits of the validation applied: a new body, and the ranges of its members. All keys in
/// the new body are empty, because members are found by their ranges. `None` if there are no edits.
fn apply_edits(ask: &InferenceRequest) -> Option<InferenceRequest> {
    if ask.edits.is_empty() {
        return None;
    }
    let mut body = Vec::with_capacity(ask.body.len() + 64);
    let mut fields = BodyMembers::default();
    let mut edits = ask.edits.iter().peekable();
    body.push(b'{');
    for field in &ask.members.0 {
        if body.len() > 1 {
            body.push(b',');
        }
        let start = body.len();
        body.extend_from_slice(b"\"\":");
        let value_start = body.len();
        let mut at = field.value_range.start;
        while let Some(edit) = edits.next_if(|edit| edit.range.start < field.value_range.end) {
            if edit.range.start >= field.value_range.start {
                body.extend_from_slice(ask.body.get(at..edit.range.start).unwrap_or_default());
                body.extend_from_slice(&edit.replacement);
                at = edit.range.end;
            }
        }
        body.extend_from_slice(ask.body.get(at..field.value_range.end).unwrap_or_default());
        fields.0.push(BodyMember {
            name: field.name.clone(),
            member_range: start..body.len(),
            value_range: value_start..body.len(),
            long_strings: Vec::new(),
        });
    }
    body.push(b'}');
    Some(InferenceRequest { body: Bytes::from(body), members: fields, edits: Vec::new(), ..ask.clone() })
}

/// Refuses members without an equivalent that must not be dropped, because the answer would lack its log probabilities,
/// search results or audio, or ignore a bias; refuses several choices too.
fn check_supported(ask: &InferenceRequest) -> Result<(), ApiError> {
    // A responses client that sends only `top_logprobs` does not know the added `logprobs`.
    for (name, lack) in [
        ("top_logprobs", "gives no log probabilities"),
        ("logprobs", "gives no log probabilities"),
        ("logit_bias", "takes no bias of tokens"),
        ("web_search_options", "does not search the web"),
        ("audio", "does not speak"),
    ] {
        let is_asked =
            |value: &[u8]| !matches!(value, b"false" | b"0") && !json_cursor::is_empty_object(value);
        if ask.member_value(name).is_some_and(is_asked) {
            let sentence = format!("{name}: this model's provider {lack}.");
            return Err(ApiError::unsupported(name, sentence));
        }
    }
    if ask.n > 1 {
        return Err(ApiError::unsupported("n", "n: this model's provider gives one answer at a time."));
    }
    Ok(())
}

/// Writes a JSON schema. If its member `type` is absent or `null`, writes `"type":"object"`, because the messages
/// dialect requires the member.
pub(crate) fn write_object_schema(schema: &[u8], out: &mut BodyBuilder<'_>) {
    let slice = |range: Range<usize>| schema.get(range).unwrap_or_default();
    let typed = json::members(schema).find(|member| {
        let key = json_cursor::string_body(slice(member.key.clone())).unwrap_or_default();
        json::escaped_text_equals(key, "type")
    });
    if let Some(member) = typed.as_ref().filter(|member| json_cursor::is_null(slice(member.value.clone()))) {
        out.push_source(slice(0..member.value.start));
        out.push_str(r#""object""#);
        return out.push_source(slice(member.value.end..schema.len()));
    }
    let rest = schema.strip_prefix(b"{").filter(|_| typed.is_none());
    let Some(rest) = rest else { return out.push_source(schema) };
    let is_empty = json_cursor::members(schema).next().is_none();
    out.push_str(if is_empty { r#"{"type":"object""# } else { r#"{"type":"object","# });
    out.push_source(rest);
}

/// Writes the engine parameters of the request that the offer lists as supported.
fn write_engine_parameters(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    selected: &SelectedConstraint,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    for field in &ask.members.0 {
        let name = &*field.name;
        let Some(value) = ask.member_value(name).filter(|_| {
            !structured_output::is_translated_constraint(name)
                && !SAMPLING_MEMBERS.contains(&name)
                && !selected.is_redundant(name)
        }) else {
            continue;
        };
        if parameters::should_forward(target.capabilities, name, value)? {
            out.push_byte(b',');
            out.push_json_string(name);
            out.push_byte(b':');
            out.push_source(value);
        }
    }
    Ok(())
}

/// Writes the sampling members of the request and of the preset, and as many stop sequences as the provider accepts.
fn write_sampling(ask: &InferenceRequest, target: &AttemptTarget<'_>, out: &mut BodyBuilder<'_>) {
    let takes = |name: &&str| response_constraints::accepts_sampling_parameter(target.capabilities, name);
    let asked =
        SAMPLING_MEMBERS.into_iter().filter(takes).filter_map(|name| Some((name, ask.member_value(name)?)));
    // Only the sampling members of the preset are written here. `write_output_config` writes its reasoning effort; the
    // other members of a preset do not exist in the messages dialect.
    let preset =
        response_constraints::preset_members(ask, target).filter(|(name, _)| SAMPLING_MEMBERS.contains(name));
    for (name, value) in asked.chain(preset) {
        let Some(value) = response_constraints::messages_sampling_value(name, value) else { continue };
        out.push_byte(b',');
        out.push_json_string(name);
        out.push_byte(b':');
        out.push_source(value);
    }
    for (at, stop) in response_constraints::upstream_stop_sequences(&ask.stop, target).iter().enumerate() {
        out.push_str(if at == 0 { r#","stop_sequences":[""# } else { r#",""# });
        out.push_source(EscapedText::new(stop).escaped());
        out.push_byte(b'"');
    }
    if !response_constraints::upstream_stop_sequences(&ask.stop, target).is_empty() {
        out.push_byte(b']');
    }
}

/// Returns the JSON schema that the client requests for the answer, by `response_format` or by an engine parameter;
/// `None` if the client requests no schema.
fn response_schema<'a>(
    ask: &'a InferenceRequest,
    target: &AttemptTarget<'_>,
    selected: &SelectedConstraint,
) -> Result<Option<Cow<'a, [u8]>>, ApiError> {
    let format = ask.member_value("response_format").unwrap_or_default();
    let kind =
        json_cursor::member_value(format, "type").and_then(json_cursor::parse_string).unwrap_or_default();
    let engines = structured_output::engine_parameter_schema(ask, target.capabilities, selected)?;
    match &*kind {
        "" | "text" => Ok(engines),
        "json_object" => {
            let own = structured_output::schema_of_format(format);
            Ok(Some(Cow::Borrowed(own.unwrap_or(structured_output::ANY_OBJECT_SCHEMA))))
        }
        "json_schema" => {
            let schema = json_cursor::member_value(format, "json_schema")
                .and_then(|named| json_cursor::member_value(named, "schema"));
            let schema = schema.ok_or_else(|| {
                ApiError::invalid("response_format.json_schema.schema", "A schema is missing.")
            })?;
            Ok(Some(Cow::Borrowed(schema)))
        }
        _ => Err(ApiError::invalid(
            "response_format.type",
            "A format must be `text`, `json_object` or `json_schema`.",
        )),
    }
}

/// Writes thinking, its effort, and the format of the answer.
fn write_output_config(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    selected: &SelectedConstraint,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    let schema = response_schema(ask, target, selected)?;
    let effort = output_config::supported_effort(ReasoningEffort::from_chat_request(ask), target);
    output_config::write_thinking(effort, target, out);
    let format = schema.as_deref().map(OutputFormat::Schema);
    OutputConfig { own: None, level: effort.level, format }.write(out);
    Ok(())
}
