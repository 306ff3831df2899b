//! Builder of the request: translates each member of the messages dialect to the chat dialect, refuses it by name, or
//! drops it because it is only a hint (`top_k`) or has no effect on the answer (`metadata`, `cache_control`,
//! `service_tier` …).

use super::block::printable_word;
use super::conversation::ConversationWriter;
use super::{ids, serialize};
use crate::body_builder::BodyBuilder;
use crate::continuation_mark::ContinuationMark;
use crate::json_cursor::{self, JsonCursor};
use crate::output_constraint::SelectedConstraint;
use crate::reasoning_effort::ReasoningEffort;
use crate::{parameters, reasoning_switch, response_constraints, structured_output, system_messages};
use bytes::Bytes;
use penstock_core::{AdjustableMember, ApiError, AttemptTarget, InferenceRequest};

/// Builds the request body for a chat provider; `delivered` is the partial answer that it must continue.
///
/// # Errors
/// Returns an error with the field's name if a member cannot be translated.
pub(super) fn build_request(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
) -> Result<Vec<Bytes>, ApiError> {
    if let Some(servers) = ask.member_value("mcp_servers")
        && json_cursor::elements(servers).next().is_some()
    {
        return Err(ApiError::unsupported("mcp_servers", "The gateway does not call MCP servers."));
    }
    let selected = SelectedConstraint::of_messages_request(ask, target)?;
    let mut out = BodyBuilder::with_source(&ask.body);
    out.push_str(r#"{"model":"#);
    out.push_json_string(target.model);
    out.push_str(r#","messages":["#);
    let mark = write_messages(ask, target, delivered, &mut out)?;
    out.push_byte(b']');
    if let Some(mark) = mark {
        mark.write_request_members(&mut out);
    }
    write_tools(ask, target, &mut out)?;
    if let Some(max) = target.max_tokens.or(ask.max_tokens) {
        out.push_byte(b',');
        out.push_json_string(response_constraints::token_cap_name(target));
        out.push_byte(b':');
        out.push_integer(max);
    }
    let effort = ReasoningEffort::from_messages_request(ask);
    write_sampling(ask, target, effort, &mut out);
    write_engine_parameters(ask, target, effort, &selected, &mut out)?;
    write_stop(ask, target, &mut out);
    write_response_format(ask, target, &mut out)?;
    reasoning_switch::write_reasoning_parameters(ask, target, effort, &mut out);
    if ask.stream {
        out.push_str(r#","stream":true"#);
        if target.allows_member(AdjustableMember::StreamOptions) {
            out.push_str(r#","stream_options":{"include_usage":true}"#);
        }
    }
    out.push_byte(b'}');
    Ok(out.finish())
}

/// Writes the messages. If the last one is of the assistant, so that the provider must continue it, returns its mark.
fn write_messages<'a>(
    ask: &'a InferenceRequest,
    target: &AttemptTarget<'a>,
    delivered: Option<&str>,
    out: &mut BodyBuilder<'_>,
) -> Result<Option<ContinuationMark>, ApiError> {
    system_messages::check_no_message_effort(ask)?;
    let mut turns = ConversationWriter::new(ask, target)?;
    JsonCursor::new(ask.member_value("messages").unwrap_or_default())
        .visit_elements(|index, message| turns.add_message(index, message, out))?;
    let mark = ContinuationMark::for_target(target, delivered.is_some());
    let is_continued = turns.finish(delivered.map(serialize::escape_text), mark, out)?;
    if is_continued && mark.is_none() {
        return Err(ApiError::unsupported(
            "messages",
            "This model does not continue a last message of the assistant; end with a user message.",
        ));
    }
    Ok(mark.filter(|_| is_continued))
}

/// Writes the tools, the tool choice and the limit to one call. Writes nothing if the request has no tools.
fn write_tools(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    let mut any = false;
    JsonCursor::new(ask.member_value("tools").unwrap_or_default()).visit_elements(|index, tool| {
        out.push_str(if any { "," } else { r#","tools":["# });
        any = true;
        self::write_tool(index, tool, out)
    })?;
    if !any {
        return Ok(());
    }
    out.push_byte(b']');
    let choice = ask.member_value("tool_choice").unwrap_or_default();
    let kind =
        json_cursor::member_value(choice, "type").and_then(json_cursor::parse_string).unwrap_or_default();
    match &*kind {
        "" | "auto" if !target.allows_member(AdjustableMember::ToolChoice) => {}
        "" | "auto" => out.push_str(r#","tool_choice":"auto""#),
        "any" => out.push_str(r#","tool_choice":"required""#),
        "none" => out.push_str(r#","tool_choice":"none""#),
        "tool" => {
            let name = json_cursor::member_value(choice, "name")
                .and_then(json_cursor::string_body)
                .ok_or_else(|| {
                    ApiError::invalid("tool_choice.name", "A choice of type `tool` needs the tool's name.")
                })?;
            out.push_str(r#","tool_choice":{"type":"function","function":{"name":""#);
            out.push_source(&ids::shorten_tool_name(name));
            out.push_str(r#""}}"#);
        }
        _ => {
            return Err(ApiError::invalid(
                "tool_choice.type",
                "A tool choice must be `auto`, `any`, `tool` or `none`.",
            ));
        }
    }
    let parallel = target.capabilities.accepts_parameter("parallel_tool_calls")
        && target.allows_member(AdjustableMember::ParallelTools);
    if !ask.parallel_tools && parallel {
        out.push_str(r#","parallel_tool_calls":false"#);
    }
    Ok(())
}

fn write_tool(index: usize, tool: &mut JsonCursor<'_>, out: &mut BodyBuilder<'_>) -> Result<(), ApiError> {
    let (mut name, mut description, mut schema, mut strict) = (None, None, None, None);
    tool.visit_members(|key, value| {
        let value = value.take_value();
        match key {
            _ if json_cursor::is_null(value) => {}
            "name" => name = json_cursor::string_body(value),
            "description" => description = Some(value),
            "input_schema" => schema = Some(value),
            "strict" => strict = Some(value),
            "type" => {
                let kind = json_cursor::parse_string(value).unwrap_or_default();
                if kind != "custom" {
                    let why = format!(
                        "Tools of type `{}` run on another vendor's servers and are not supported here.",
                        printable_word(&kind)
                    );
                    return Err(ApiError::unsupported(format!("tools.{index}.type"), why));
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    let name = name
        .ok_or_else(|| ApiError::invalid(format!("tools.{index}.name"), "A tool needs a string `name`."))?;
    out.push_str(r#"{"type":"function","function":{"name":""#);
    out.push_source(&ids::shorten_tool_name(name));
    out.push_byte(b'"');
    for (key, value) in
        [(r#","description":"#, description), (r#","parameters":"#, schema), (r#","strict":"#, strict)]
    {
        if let Some(value) = value {
            out.push_str(key);
            out.push_source(value);
        }
    }
    out.push_str("}}");
    Ok(())
}

/// Writes the sampling members of the request, and those members of the preset that the client did not set and no other
/// function writes.
fn write_sampling(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    effort: ReasoningEffort,
    out: &mut BodyBuilder<'_>,
) {
    // The chat dialect does not define `top_k`, so it is sent only to engines that list it.
    let abilities = target.capabilities;
    let takes = |name: &str| {
        if name == "top_k" {
            abilities.accepts_parameter(name)
        } else {
            response_constraints::accepts_sampling_parameter(abilities, name)
        }
    };
    for name in ["temperature", "top_p", "top_k"] {
        if let Some(value) = ask.member_value(name).filter(|_| takes(name)) {
            out.push_byte(b',');
            out.push_json_string(name);
            out.push_byte(b':');
            out.push_source(value);
        }
    }
    let is_written = |name: &str| {
        (name == "reasoning_effort" && effort != ReasoningEffort::default())
            || reasoning_switch::is_replaced_by_switch(ask, target, effort, name)
    };
    let preset = response_constraints::preset_members(ask, target);
    for (name, value) in preset.filter(|(name, _)| !is_written(name)) {
        out.push_byte(b',');
        out.push_json_string(name);
        out.push_byte(b':');
        out.push_source(value);
    }
}

/// Writes the engine parameters that the offer lists, except those that other functions write: for example the
/// constraints on the output, if the offer gets the response format in one of their members.
fn write_engine_parameters(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    effort: ReasoningEffort,
    selected: &SelectedConstraint,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    let has_format = requested_format(ask).is_some();
    for field in &ask.members.0 {
        let name = &*field.name;
        let is_written = name == "top_k"
            || selected.is_redundant(name)
            || (has_format && structured_output::is_replaced_by_format(target, name))
            || reasoning_switch::is_replaced_by_switch(ask, target, effort, name);
        let Some(value) = ask.member_value(name).filter(|_| !is_written) else { continue };
        if parameters::should_forward(target.capabilities, name, value)? {
            out.push_byte(b',');
            out.push_json_string(name);
            out.push_byte(b':');
            out.push_source(value);
        }
    }
    Ok(())
}

/// Writes as many stop sequences as the provider accepts; the response constraints enforce the others.
fn write_stop(ask: &InferenceRequest, target: &AttemptTarget<'_>, out: &mut BodyBuilder<'_>) {
    let mut any = false;
    for stop in response_constraints::upstream_stop_sequences(&ask.stop, target) {
        out.push_str(if any { "," } else { r#","stop":["# });
        out.push_json_string(stop);
        any = true;
    }
    if any {
        out.push_byte(b']');
    }
}

/// Returns the path and the value of the response format: `output_config.format`, or the older `output_format`.
fn requested_format(ask: &InferenceRequest) -> Option<(&'static str, &[u8])> {
    let nested =
        ask.member_value("output_config").and_then(|config| json_cursor::member_value(config, "format"));
    nested
        .map(|format| ("output_config.format", format))
        .or_else(|| Some(("output_format", ask.member_value("output_format")?)))
}

/// Writes the response format that the client requests, as `response_format` or in the member that the offer lists
/// instead; writes nothing if the client requests none.
///
/// # Errors
/// Returns `InvalidRequest` if the schema is missing or no object. Returns `Unsupported` for a type other than
/// `json_schema`, and for a second constraint on the output if the offer gets the format in another member.
fn write_response_format(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    let Some((at, format)) = requested_format(ask) else { return Ok(()) };
    let kind =
        json_cursor::member_value(format, "type").and_then(json_cursor::parse_string).unwrap_or_default();
    let schema = json_cursor::member_value(format, "schema").filter(|schema| json_cursor::is_object(schema));
    match (&*kind, schema) {
        ("json_schema", Some(schema)) if structured_output::write_schema(Some(schema), target, out) => Ok(()),
        ("json_schema", Some(schema)) => {
            out.push_str(
                r#","response_format":{"type":"json_schema","json_schema":{"name":"output","schema":"#,
            );
            out.push_source(schema);
            out.push_str(if target.allows_member(AdjustableMember::Strict) {
                r#","strict":true}}"#
            } else {
                "}}"
            });
            Ok(())
        }
        ("json_schema", None) => Err(ApiError::invalid(
            format!("{at}.schema"),
            "A format of type `json_schema` needs an object `schema`.",
        )),
        _ => Err(ApiError::unsupported(
            format!("{at}.type"),
            "An output format must be of type `json_schema`.",
        )),
    }
}
