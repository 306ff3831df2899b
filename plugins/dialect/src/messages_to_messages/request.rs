//! Builder of the request: forwards the client's members in the client's order, and changes only values that the
//! provider would reject.

use super::content::split_around;
use super::conversation::{self, RewrittenConversation};
use super::thinking_budget;
use crate::body_builder::BodyBuilder;
use crate::output_config::{OutputConfig, OutputFormat};
use crate::output_constraint::SelectedConstraint;
use crate::reasoning_effort::ReasoningEffort;
use crate::{chat_to_messages, json_cursor, output_config, parameters, response_constraints};
use bytes::Bytes;
use penstock_core::{AdjustableMember, ApiError, AttemptTarget, InferenceRequest};
use penstock_json_scan::json;

/// Members that are forwarded to a provider, in addition to engine parameters that the offer lists. All other members
/// identify the client's user, or are meant for the vendor's own servers.
const FORWARDED_MEMBERS: [&str; 12] = [
    "system",
    "messages",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "thinking",
    "cache_control",
    "max_tokens",
    "stream",
];
/// Sampling members, which some models reject.
const SAMPLING_MEMBERS: [&str; 3] = ["temperature", "top_p", "top_k"];
/// Member of a tool choice that limits the answer to one call.
const LIMIT: &str = "disable_parallel_tool_use";

/// Builds the request body for a messages provider; `delivered` is the partial answer that it must continue.
///
/// # Errors
/// Returns `Unsupported` for MCP servers, for a continuation that the provider does not support, and for settings of a
/// system message that would be lost; `InvalidRequest` for a conversation without content.
pub(super) fn build_request(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
) -> Result<Vec<Bytes>, ApiError> {
    if ask.member_value("mcp_servers").is_some_and(|servers| json_cursor::elements(servers).next().is_some())
    {
        return Err(ApiError::unsupported("mcp_servers", "The gateway does not call MCP servers."));
    }
    if delivered.is_some() && target.continuation_method().is_none() {
        return Err(ApiError::unsupported("messages", "This provider does not continue an answer."));
    }
    let selected = SelectedConstraint::of_messages_request(ask, target)?;
    let rewritten = RewrittenConversation::from_request(ask, target)?;
    let engine = engine_parameters(ask, target, &selected)?;
    let effort = translated_effort(ask, target);
    let config = output_config(ask, effort, &selected);
    let mut out = BodyBuilder::with_source(&ask.body);
    out.push_str(r#"{"model":"#);
    out.push_json_string(target.model);
    if let Some(rewritten) = &rewritten {
        rewritten.write(delivered, &mut out);
    }
    for field in &ask.members.0 {
        let name = &*field.name;
        let is_rewritten = rewritten.is_some() && matches!(name, "system" | "messages");
        let is_written = is_rewritten || selected.is_redundant(name);
        let value = ask.member_value(name).filter(|_| !is_written && should_forward(ask, target, name));
        if name == "output_config" {
            config.write(&mut out);
        } else if let Some(value) = value {
            write_forwarded_member(ask, target, delivered, (name, value), &mut out);
        }
    }
    write_missing_choice(ask, target, &mut out);
    output_config::write_thinking(effort, target, &mut out);
    if ask.members.get("output_config").is_none() {
        config.write(&mut out);
    }
    engine.into_iter().for_each(|(name, value)| write_member(name, value, &mut out));
    // The other members of a preset do not exist in the messages dialect.
    let preset = response_constraints::preset_members(ask, target);
    for (name, value) in preset.filter(|(name, _)| SAMPLING_MEMBERS.contains(name)) {
        // The client's value is in the messages dialect; a preset's value may be in the chat dialect.
        if let Some(value) = response_constraints::messages_sampling_value(name, value) {
            write_member(name, value, &mut out);
        }
    }
    out.push_byte(b'}');
    Ok(out.finish())
}

/// Writes a member of the client, with the changes that the provider needs.
fn write_forwarded_member(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
    (name, value): (&str, &[u8]),
    out: &mut BodyBuilder<'_>,
) {
    if name == "thinking" {
        return thinking_budget::write_thinking(value, target, out);
    }
    out.push_byte(b',');
    out.push_json_string(name);
    out.push_byte(b':');
    match (name, target.max_tokens, delivered) {
        ("max_tokens", Some(max), _) => out.push_integer(max),
        ("stop_sequences", ..) if needs_stop_sequence_enforcement(ask, target) => {
            write_stops(ask, target, out);
        }
        ("tool_choice", ..) => write_choice(value, ask, target, out),
        ("tools", ..) if !have_schema_types(value) => write_tools(value, out),
        ("messages", _, Some(delivered)) => {
            out.push_source(value.strip_suffix(b"]").unwrap_or(value));
            conversation::write_continuation(delivered, out);
            out.push_byte(b']');
        }
        _ => out.push_source(value),
    }
}

fn write_member(name: &str, value: &[u8], out: &mut BodyBuilder<'_>) {
    out.push_byte(b',');
    out.push_json_string(name);
    out.push_byte(b':');
    out.push_source(value);
}

/// Returns the reasoning effort that parameters of other dialects or engines set, reduced to what the offer supports. If
/// the members of the messages dialect set the effort, returns the default (nothing specified).
fn translated_effort(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> ReasoningEffort {
    if ReasoningEffort::from_messages_members(ask) != ReasoningEffort::default() {
        return ReasoningEffort::default();
    }
    output_config::supported_effort(ReasoningEffort::from_chat_request(ask), target)
}

/// Returns the client's `output_config`, with the level of a translated effort and the format of the older
/// `output_format`.
fn output_config<'a>(
    ask: &'a InferenceRequest,
    effort: ReasoningEffort,
    selected: &SelectedConstraint,
) -> OutputConfig<'a> {
    let older = ask.member_value("output_format").filter(|_| !selected.is_redundant("output_format"));
    OutputConfig {
        own: ask.member_value("output_config"),
        level: effort.level,
        format: older.map(OutputFormat::Format),
    }
}

/// Returns true if this member of the request is forwarded to the provider.
fn should_forward(ask: &InferenceRequest, target: &AttemptTarget<'_>, name: &str) -> bool {
    match name {
        "tools" => has_tools(ask),
        "tool_choice" => has_tools(ask) && !is_refused_choice(ask, target),
        "stop_sequences" => !response_constraints::upstream_stop_sequences(&ask.stop, target).is_empty(),
        _ if SAMPLING_MEMBERS.contains(&name) => {
            response_constraints::accepts_sampling_parameter(target.capabilities, name)
        }
        _ => FORWARDED_MEMBERS.contains(&name),
    }
}

/// Returns the engine parameters of the request that the offer lists.
fn engine_parameters<'a>(
    ask: &'a InferenceRequest,
    target: &AttemptTarget<'_>,
    selected: &SelectedConstraint,
) -> Result<Vec<(&'a str, &'a [u8])>, ApiError> {
    let mut passed = Vec::new();
    for field in &ask.members.0 {
        let name = &*field.name;
        let is_written = FORWARDED_MEMBERS.contains(&name) || selected.is_redundant(name);
        let Some(value) = ask.member_value(name).filter(|_| !is_written) else { continue };
        if parameters::should_forward(target.capabilities, name, value)? {
            passed.push((name, value));
        }
    }
    Ok(passed)
}

/// Returns true if every tool schema begins with its `type`, as nearly all do. The check is fast, because it does not
/// parse the tools. It may return false for tools with white space or escapes; these tools are then parsed.
fn have_schema_types(tools: &[u8]) -> bool {
    let count = |text: &[u8]| memchr::memmem::find_iter(tools, text).count();
    // The JSON Schema member `type` is a string or a list.
    let typed = count(br#""input_schema":{"type":""#) + count(br#""input_schema":{"type":["#);
    typed == count(br#""input_schema""#) && count(br"\u") == 0
}

/// Writes the tools and adds a missing type to their schemas.
fn write_tools(tools: &[u8], out: &mut BodyBuilder<'_>) {
    for (at, tool) in json_cursor::elements(tools).enumerate() {
        out.push_byte(if at == 0 { b'[' } else { b',' });
        let schema = json_cursor::member_value(tool, "input_schema").unwrap_or_default();
        match split_around(tool, schema) {
            Some((before, after)) if !schema.is_empty() => {
                out.push_source(before);
                chat_to_messages::write_object_schema(schema, out);
                out.push_source(after);
            }
            _ => out.push_source(tool),
        }
    }
    out.push_byte(b']');
}

/// Writes the tool choice, with the limit to one call if the request has it. A provider that has rejected the limit does
/// not get it; the gateway enforces it in any case.
fn write_choice(
    choice: &[u8],
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    out: &mut BodyBuilder<'_>,
) {
    let own = json_cursor::member_value(choice, LIMIT);
    let is_allowed = target.allows_member(AdjustableMember::ParallelTools);
    // With the choice `none`, providers refuse the limit.
    let is_added = !ask.parallel_tools && own != Some(b"true") && is_allowed && !has_type(choice, "none");
    if is_allowed && !is_added {
        return out.push_source(choice);
    }
    out.push_byte(b'{');
    let mut separator = "";
    for (name, value) in json_cursor::members(choice).filter(|(name, _)| name != LIMIT) {
        out.push_str(std::mem::replace(&mut separator, ","));
        out.push_json_string(&name);
        out.push_byte(b':');
        out.push_source(value);
    }
    if is_added {
        out.push_str(separator);
        out.push_json_string(LIMIT);
        out.push_str(":true");
    }
    out.push_byte(b'}');
}

/// Writes the default choice with the limit to one call, if the request has the limit and no choice.
fn write_missing_choice(ask: &InferenceRequest, target: &AttemptTarget<'_>, out: &mut BodyBuilder<'_>) {
    let is_allowed = target.allows_member(AdjustableMember::ParallelTools)
        && target.allows_member(AdjustableMember::ToolChoice);
    if ask.member_value("tool_choice").is_none() && !ask.parallel_tools && has_tools(ask) && is_allowed {
        out.push_str(r#","tool_choice":{"type":"auto","disable_parallel_tool_use":true}"#);
    }
}

/// Returns true if the tool choice is the default, and the provider has refused the member.
fn is_refused_choice(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> bool {
    let choice = ask.member_value("tool_choice").unwrap_or_default();
    !target.allows_member(AdjustableMember::ToolChoice) && has_type(choice, "auto")
}

fn has_type(choice: &[u8], name: &str) -> bool {
    json_cursor::member_value(choice, "type").is_some_and(|kind| json::json_string_equals(kind, name))
}

/// Returns true if the request has tools; without them providers answer 400 to a tool choice.
fn has_tools(ask: &InferenceRequest) -> bool {
    ask.member_value("tools").is_some_and(|tools| json_cursor::elements(tools).next().is_some())
}

/// Returns true if the provider does not get all stop sequences of the request. The gateway then enforces the others.
pub(super) fn needs_stop_sequence_enforcement(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> bool {
    response_constraints::upstream_stop_sequences(&ask.stop, target).len() < ask.stop.len()
}

fn write_stops(ask: &InferenceRequest, target: &AttemptTarget<'_>, out: &mut BodyBuilder<'_>) {
    out.push_byte(b'[');
    for (at, stop) in response_constraints::upstream_stop_sequences(&ask.stop, target).iter().enumerate() {
        if at > 0 {
            out.push_byte(b',');
        }
        out.push_json_string(stop);
    }
    out.push_byte(b']');
}
