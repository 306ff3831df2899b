//! Builder of the request: translates each member of the messages dialect to chat
//! completions, refuses it by name, or drops it because it has no effect on the
//! answer (`metadata`, `cache_control`, `service_tier` …).

use super::block::shown;
use super::turns::Turns;
use super::{ids, speak};
use crate::pieces::Pieces;
use crate::scan::{self, Cursor};
use crate::{parameters, shape};
use bytes::Bytes;
use penstock_contract::{Ask, Continuation, Extra, Prefill, Refusal, Target};

/// Builds the request body for a chat provider; `delivered` is the partial answer that it must continue.
///
/// # Errors
/// Returns an error with the field's name if a member cannot be translated.
pub(super) fn body(ask: &Ask, target: &Target<'_>, delivered: Option<&str>) -> Result<Vec<Bytes>, Refusal> {
    if let Some(servers) = ask.value("mcp_servers")
        && scan::elements(servers).next().is_some()
    {
        return Err(Refusal::unsupported("mcp_servers", "The gateway does not call MCP servers."));
    }
    let mut out = Pieces::over(&ask.body);
    out.put(r#"{"model":"#);
    out.string(target.model);
    out.put(r#","messages":["#);
    let continues = conversation(ask, target, delivered, &mut out)?;
    out.byte(b']');
    if continues {
        continue_last(target, delivered.is_some(), &mut out)?;
    }
    tools(ask, target, &mut out)?;
    if let Some(max) = target.max_tokens.or(ask.max_tokens) {
        out.byte(b',');
        out.string(shape::cap(target));
        out.byte(b':');
        out.number(max);
    }
    sampling(ask, target, &mut out);
    engine(ask, target, &mut out)?;
    stop(ask, target, &mut out);
    format(ask, target, &mut out)?;
    thinking(ask, target, &mut out);
    if ask.stream {
        out.put(r#","stream":true"#);
        if target.says(Extra::StreamOptions) {
            out.put(r#","stream_options":{"include_usage":true}"#);
        }
    }
    out.byte(b'}');
    Ok(out.finish())
}

/// Writes the messages; returns true if the last one is of the assistant.
fn conversation<'a>(
    ask: &'a Ask,
    target: &Target<'a>,
    delivered: Option<&str>,
    out: &mut Pieces<'_>,
) -> Result<bool, Refusal> {
    let mut turns = Turns::new(target, ask.value("system"))?;
    Cursor::new(ask.value("messages").unwrap_or_default())
        .elements(|index, message| turns.message(index, message, out))?;
    turns.end(delivered.map(speak::escaped), out)
}

/// Writes the members that make the provider continue the last message instead of answering it.
fn continue_last(target: &Target<'_>, rescue: bool, out: &mut Pieces<'_>) -> Result<(), Refusal> {
    let by_switch = match (rescue, target.continuation(), target.prefill()) {
        (true, Some(Continuation::ContinueFinalMessage), _) | (false, _, Prefill::ContinueFinalMessage) => {
            true
        }
        (true, Some(Continuation::Prefill), _) | (false, _, Prefill::Prefix | Prefill::Automatic) => false,
        (true, None, _) | (false, _, Prefill::None) => {
            return Err(Refusal::unsupported(
                "messages",
                "This model does not continue a last message of the assistant; end with a user message.",
            ));
        }
    };
    if by_switch {
        out.put(r#","add_generation_prompt":false,"continue_final_message":true"#);
    }
    Ok(())
}

fn tools(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) -> Result<(), Refusal> {
    let mut any = false;
    Cursor::new(ask.value("tools").unwrap_or_default()).elements(|index, tool| {
        out.put(if any { "," } else { r#","tools":["# });
        any = true;
        self::tool(index, tool, out)
    })?;
    if !any {
        return Ok(());
    }
    out.byte(b']');
    let choice = ask.value("tool_choice").unwrap_or_default();
    let kind = scan::member(choice, "type").and_then(scan::string).unwrap_or_default();
    match &*kind {
        "" | "auto" if !target.says(Extra::ToolChoice) => {}
        "" | "auto" => out.put(r#","tool_choice":"auto""#),
        "any" => out.put(r#","tool_choice":"required""#),
        "none" => out.put(r#","tool_choice":"none""#),
        "tool" => {
            let name = scan::member(choice, "name").and_then(scan::inner).ok_or_else(|| {
                Refusal::invalid("tool_choice.name", "A choice of type `tool` needs the tool's name.")
            })?;
            out.put(r#","tool_choice":{"type":"function","function":{"name":""#);
            out.raw(&ids::name(name));
            out.put(r#""}}"#);
        }
        _ => {
            return Err(Refusal::invalid(
                "tool_choice.type",
                "A tool choice must be `auto`, `any`, `tool` or `none`.",
            ));
        }
    }
    let parallel = target.abilities.accepts("parallel_tool_calls") && target.says(Extra::ParallelTools);
    if !ask.parallel_tools && parallel {
        out.put(r#","parallel_tool_calls":false"#);
    }
    Ok(())
}

fn tool(index: usize, tool: &mut Cursor<'_>, out: &mut Pieces<'_>) -> Result<(), Refusal> {
    let (mut name, mut description, mut schema, mut strict) = (None, None, None, None);
    tool.members(|key, value| {
        let value = value.value();
        match key {
            _ if scan::is_null(value) => {}
            "name" => name = scan::inner(value),
            "description" => description = Some(value),
            "input_schema" => schema = Some(value),
            "strict" => strict = Some(value),
            "type" => {
                let kind = scan::string(value).unwrap_or_default();
                if kind != "custom" {
                    let why = format!(
                        "Tools of type `{}` run on another vendor's servers and are not supported here.",
                        shown(&kind)
                    );
                    return Err(Refusal::unsupported(format!("tools.{index}.type"), why));
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    let name =
        name.ok_or_else(|| Refusal::invalid(format!("tools.{index}.name"), "A tool needs a string `name`."))?;
    out.put(r#"{"type":"function","function":{"name":""#);
    out.raw(&ids::name(name));
    out.byte(b'"');
    for (key, value) in
        [(r#","description":"#, description), (r#","parameters":"#, schema), (r#","strict":"#, strict)]
    {
        if let Some(value) = value {
            out.put(key);
            out.raw(value);
        }
    }
    out.put("}}");
    Ok(())
}

fn sampling(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) {
    // `top_k` is not part of the chat dialect: it is sent only to engines that list it.
    let abilities = target.abilities;
    let takes =
        |name: &str| if name == "top_k" { abilities.accepts(name) } else { shape::takes(abilities, name) };
    for name in ["temperature", "top_p", "top_k"] {
        if let Some(value) = ask.value(name).filter(|_| takes(name)) {
            out.byte(b',');
            out.string(name);
            out.byte(b':');
            out.raw(value);
        }
    }
    for (name, value) in shape::preset(ask, target) {
        out.byte(b',');
        out.string(name);
        out.byte(b':');
        out.raw(value);
    }
}

/// Writes the engine parameters, except `top_k`, that the offer lists.
fn engine(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) -> Result<(), Refusal> {
    for field in &ask.fields.0 {
        let name = &*field.name;
        let Some(value) = ask.value(name).filter(|_| name != "top_k") else { continue };
        if parameters::passes(target.abilities, name, value)? {
            out.byte(b',');
            out.string(name);
            out.byte(b':');
            out.raw(value);
        }
    }
    Ok(())
}

/// Writes as many stop sequences as the provider accepts; the reply enforces all of them.
fn stop(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) {
    let mut any = false;
    for stop in shape::given(&ask.stop, target) {
        out.put(if any { "," } else { r#","stop":["# });
        out.string(stop);
        any = true;
    }
    if any {
        out.byte(b']');
    }
}

/// Writes the response format from `output_config.format` or the older `output_format`.
fn format(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) -> Result<(), Refusal> {
    let nested = ask.value("output_config").and_then(|config| scan::member(config, "format"));
    let Some((at, format)) = nested
        .map(|format| ("output_config.format", format))
        .or_else(|| Some(("output_format", ask.value("output_format")?)))
    else {
        return Ok(());
    };
    let kind = scan::member(format, "type").and_then(scan::string).unwrap_or_default();
    let schema = scan::member(format, "schema").filter(|schema| scan::is_object(schema));
    match (&*kind, schema) {
        ("json_schema", Some(schema)) => {
            out.put(r#","response_format":{"type":"json_schema","json_schema":{"name":"output","schema":"#);
            out.raw(schema);
            out.put(if target.says(Extra::Strict) { r#","strict":true}}"# } else { "}}" });
            Ok(())
        }
        ("json_schema", None) => Err(Refusal::invalid(
            format!("{at}.schema"),
            "A format of type `json_schema` needs an object `schema`.",
        )),
        _ => {
            Err(Refusal::unsupported(format!("{at}.type"), "An output format must be of type `json_schema`."))
        }
    }
}

/// Writes the thinking switch and the reasoning effort in the form that the offer accepts.
fn thinking(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) {
    let thinking = ask.value("thinking").unwrap_or_default();
    let kind = scan::member(thinking, "type").and_then(scan::string).unwrap_or_default();
    let disabled = kind == "disabled";
    if target.abilities.thinking_switch && target.says(Extra::ThinkingSwitch) && !kind.is_empty() {
        out.put(r#","chat_template_kwargs":{"enable_thinking":"#);
        out.put(if disabled { "false}" } else { "true}" });
        if disabled {
            // An effort would contradict the switch.
            return;
        }
    }
    if !target.abilities.accepts("reasoning_effort") || !target.says(Extra::Effort) {
        return;
    }
    let effort =
        ask.value("output_config").and_then(|config| scan::member(config, "effort")).and_then(scan::string);
    let budget = scan::member(thinking, "budget_tokens").and_then(scan::number);
    let word = match (disabled, effort.as_deref(), budget) {
        (true, ..) => "low",
        (_, Some(word @ ("low" | "medium" | "high")), _) => word,
        (_, Some("minimal"), _) => "low",
        (_, Some(_), _) => "high",
        (_, None, Some(0..2_000u64)) => "low",
        (_, None, Some(2_000..8_000)) => "medium",
        (_, None, Some(_)) => "high",
        (_, None, None) => return,
    };
    out.put(r#","reasoning_effort":""#);
    out.put(word);
    out.byte(b'"');
}
