//! Builder of the request: translates each member of the chat dialect to the messages
//! dialect, refuses it by name, or drops it because it is only a hint (`seed`, penalties)
//! or has no effect on the answer (`user`, `metadata` …).

use super::turns::Turns;
use crate::effort::Effort;
use crate::event::Text;
use crate::pieces::Pieces;
use crate::scan::{self, Cursor};
use crate::{form, parameters, shape};
use bytes::Bytes;
use penstock_contract::{Ask, Extra, Field, Fields, Refusal, Target};
use penstock_wire::json;
use std::borrow::Cow;
use std::convert::Infallible;

/// Default of `max_tokens`, which the dialect requires, if neither client nor target sets it.
pub const MAX_TOKENS: u64 = 8192;
/// Sampling members that both dialects have.
const SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];

/// Builds the request body for a messages provider; `delivered` is the partial answer that it must continue.
///
/// # Errors
/// Returns an error with the field's name if a member cannot be translated.
pub(super) fn body(ask: &Ask, target: &Target<'_>, delivered: Option<&str>) -> Result<Vec<Bytes>, Refusal> {
    let edited = edited(ask);
    let ask = edited.as_ref().unwrap_or(ask);
    refuse(ask)?;
    if delivered.is_some() && target.continuation().is_none() {
        return Err(Refusal::unsupported("messages", "This provider does not continue an answer."));
    }
    let mut turns = Turns::read(ask.value("messages").unwrap_or_default(), target.abilities)?;
    if let Some(delivered) = delivered {
        turns.said(delivered);
    }
    let mut out = Pieces::over(&ask.body);
    out.put(r#"{"model":"#);
    out.string(target.model);
    out.byte(b',');
    turns.write(&mut out);
    out.put(r#","max_tokens":"#);
    out.number(target.max_tokens.or(ask.max_tokens).unwrap_or(MAX_TOKENS));
    tools(ask, target, &mut out)?;
    sampling(ask, target, &mut out);
    engine(ask, target, &mut out)?;
    output(ask, target, &mut out)?;
    if ask.stream {
        out.put(r#","stream":true"#);
    }
    out.byte(b'}');
    Ok(out.finish())
}

/// Returns the request with admission's edits applied: its new body and member ranges; `None` without edits.
fn edited(ask: &Ask) -> Option<Ask> {
    if ask.edits.is_empty() {
        return None;
    }
    let mut body = Vec::with_capacity(ask.body.len() + 64);
    let mut fields = Fields::default();
    let mut edits = ask.edits.iter().peekable();
    body.push(b'{');
    for field in &ask.fields.0 {
        if body.len() > 1 {
            body.push(b',');
        }
        let start = body.len();
        body.extend_from_slice(b"\"\":");
        let value_start = body.len();
        let mut at = field.value.start;
        while let Some(edit) = edits.next_if(|edit| edit.range.start < field.value.end) {
            if edit.range.start >= field.value.start {
                body.extend_from_slice(ask.body.get(at..edit.range.start).unwrap_or_default());
                body.extend_from_slice(&edit.with);
                at = edit.range.end;
            }
        }
        body.extend_from_slice(ask.body.get(at..field.value.end).unwrap_or_default());
        fields.0.push(Field {
            name: field.name.clone(),
            member: start..body.len(),
            value: value_start..body.len(),
        });
    }
    body.push(b'}');
    Some(Ask { body: Bytes::from(body), fields, edits: Vec::new(), ..ask.clone() })
}

/// Refuses members that would change the answer's numbers or format if they were dropped.
fn refuse(ask: &Ask) -> Result<(), Refusal> {
    for name in ["logprobs", "top_logprobs", "logit_bias", "web_search_options", "audio"] {
        let asked = ask.value(name).is_some_and(|value| !matches!(value, b"false" | b"0" | b"{}"));
        if asked {
            return Err(Refusal::unsupported(name, "This model's provider does not support this parameter."));
        }
    }
    if ask.n > 1 {
        return Err(Refusal::unsupported("n", "This model's provider gives one answer at a time."));
    }
    Ok(())
}

fn tools(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) -> Result<(), Refusal> {
    let choice = ask.value("tool_choice").or_else(|| ask.value("function_call")).unwrap_or_default();
    let allowed = scan::member(choice, "allowed_tools");
    let read = |name| json::unescape_lossy(name);
    let allowed_names: Option<Vec<Cow<'_, str>>> = allowed.map(|allowed| {
        let tools = scan::elements(scan::member(allowed, "tools").unwrap_or_default());
        tools.filter_map(|tool| name(tool).and_then(read)).collect()
    });
    let mut any = false;
    Cursor::new(ask.value("tools").unwrap_or_default()).elements(|index, tool| {
        let tool = Tool::read(tool);
        if tool.kind.is_some_and(|kind| !json::says(kind, "function")) {
            return Err(Refusal::unsupported(
                format!("tools[{index}].type"),
                "Only tools of type `function` are supported.",
            ));
        }
        let name = tool.function.name.and_then(scan::string);
        if allowed_names.as_ref().is_some_and(|names| name.is_none_or(|name| !names.contains(&name))) {
            return Ok(());
        }
        tool.function.write(|| format!("tools[{index}].function"), &mut any, out)
    })?;
    Cursor::new(ask.value("functions").unwrap_or_default()).elements(|index, function| {
        Declared::read(function).write(|| format!("functions[{index}]"), &mut any, out)
    })?;
    if !any {
        return Ok(());
    }
    out.byte(b']');
    let mode = allowed.and_then(|allowed| scan::member(allowed, "mode")).unwrap_or(choice);
    let one = if ask.parallel_tools || !target.says(Extra::ParallelTools) {
        "}"
    } else {
        r#","disable_parallel_tool_use":true}"#
    };
    match (scan::string(mode).as_deref(), name(choice)) {
        (Some("none"), _) => out.put(r#","tool_choice":{"type":"none"}"#),
        (Some("required"), _) => {
            out.put(r#","tool_choice":{"type":"any""#);
            out.put(one);
        }
        (_, Some(name)) => {
            out.put(r#","tool_choice":{"type":"tool","name":""#);
            out.raw(name);
            out.byte(b'"');
            out.put(one);
        }
        _ if !target.says(Extra::ToolChoice) => {}
        _ => {
            out.put(r#","tool_choice":{"type":"auto""#);
            out.put(one);
        }
    }
    Ok(())
}

/// Returns the function's name in `{"function":{"name":…}}` or `{"name":…}`.
fn name(choice: &[u8]) -> Option<&[u8]> {
    scan::member(scan::member(choice, "function").unwrap_or(choice), "name").and_then(scan::inner)
}

/// Element of `tools`.
#[derive(Default)]
struct Tool<'a> {
    kind: Option<&'a [u8]>,
    function: Declared<'a>,
}

impl<'a> Tool<'a> {
    fn read(tool: &mut Cursor<'a>) -> Self {
        let mut seen = Self::default();
        let Ok(()) = tool.members::<Infallible>(|key, value| {
            match key {
                "type" => seen.kind = scan::inner(value.value()),
                "function" => seen.function = Declared::read(value),
                _ => {}
            }
            Ok(())
        });
        seen
    }
}

/// Function definition; its values as JSON slices of the request.
#[derive(Default)]
struct Declared<'a> {
    name: Option<&'a [u8]>,
    description: Option<&'a [u8]>,
    parameters: Option<&'a [u8]>,
    strict: Option<&'a [u8]>,
}

impl<'a> Declared<'a> {
    fn read(function: &mut Cursor<'a>) -> Self {
        let mut seen = Self::default();
        let Ok(()) = function.members::<Infallible>(|key, value| {
            let slot = match key {
                "name" => &mut seen.name,
                "description" => &mut seen.description,
                "parameters" => &mut seen.parameters,
                "strict" => &mut seen.strict,
                _ => return Ok(()),
            };
            *slot = Some(value.value()).filter(|value| !scan::is_null(value));
            Ok(())
        });
        seen
    }

    /// Writes the function as a tool; `at` is its path.
    fn write(&self, at: impl Fn() -> String, any: &mut bool, out: &mut Pieces<'_>) -> Result<(), Refusal> {
        let name = self
            .name
            .filter(|name| scan::inner(name).is_some())
            .ok_or_else(|| Refusal::invalid(format!("{}.name", at()), "A function needs a string `name`."))?;
        out.put(if std::mem::replace(any, true) { r#",{"name":"# } else { r#","tools":[{"name":"# });
        out.raw(name);
        if let Some(description) = self.description {
            out.put(r#","description":"#);
            out.raw(description);
        }
        out.put(r#","input_schema":"#);
        schema(self.parameters.unwrap_or(br#"{"type":"object","properties":{}}"#), out);
        if let Some(strict) = self.strict {
            out.put(r#","strict":"#);
            out.raw(strict);
        }
        out.byte(b'}');
        Ok(())
    }
}

/// Writes a schema and adds the type that this dialect requires.
pub(crate) fn schema(schema: &[u8], out: &mut Pieces<'_>) {
    let is_typed = scan::members(schema).any(|(key, _)| key == "type");
    let rest = schema.strip_prefix(b"{").filter(|_| !is_typed);
    let Some(rest) = rest else { return out.raw(schema) };
    let is_empty = scan::members(schema).next().is_none();
    out.put(if is_empty { r#"{"type":"object""# } else { r#"{"type":"object","# });
    out.raw(rest);
}

/// Writes the engine parameters of the request that the offer lists.
fn engine(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) -> Result<(), Refusal> {
    for field in &ask.fields.0 {
        let name = &*field.name;
        let Some(value) = ask.value(name).filter(|_| !form::is_form(name) && !SAMPLING.contains(&name))
        else {
            continue;
        };
        if parameters::passes(target.abilities, name, value)? {
            out.byte(b',');
            out.string(name);
            out.byte(b':');
            out.raw(value);
        }
    }
    Ok(())
}

fn sampling(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) {
    let takes = |name: &&str| shape::takes(target.abilities, name);
    let asked = SAMPLING.into_iter().filter(takes).filter_map(|name| Some((name, ask.value(name)?)));
    // A preset effort is written elsewhere; the other preset members do not exist in this dialect.
    let preset = shape::preset(ask, target).filter(|(name, _)| SAMPLING.contains(name));
    for (name, value) in asked.chain(preset) {
        let Some(value) = shape::sampling(name, value) else { continue };
        out.byte(b',');
        out.string(name);
        out.byte(b':');
        out.raw(value);
    }
    for (at, stop) in shape::given(&ask.stop, target).iter().enumerate() {
        out.put(if at == 0 { r#","stop_sequences":[""# } else { r#",""# });
        out.raw(Text::new(stop).escaped());
        out.byte(b'"');
    }
    if !shape::given(&ask.stop, target).is_empty() {
        out.byte(b']');
    }
}

/// Returns the JSON schema that the client requests for the answer.
fn format(ask: &Ask) -> Result<Option<Cow<'_, [u8]>>, Refusal> {
    let format = ask.value("response_format").unwrap_or_default();
    let kind = scan::member(format, "type").and_then(scan::string).unwrap_or_default();
    let engines = form::schema(ask)?;
    match &*kind {
        "" | "text" => Ok(engines),
        "json_object" => {
            let own = scan::member(format, "schema").filter(|schema| scan::is_object(schema));
            Ok(Some(Cow::Borrowed(own.unwrap_or(form::ANY_OBJECT))))
        }
        "json_schema" => {
            let schema = scan::member(format, "json_schema").and_then(|named| scan::member(named, "schema"));
            let schema = schema.ok_or_else(|| {
                Refusal::invalid("response_format.json_schema.schema", "A schema is missing.")
            })?;
            Ok(Some(Cow::Borrowed(schema)))
        }
        _ => Err(Refusal::invalid(
            "response_format.type",
            "A format must be `text`, `json_object` or `json_schema`.",
        )),
    }
}

/// Returns the reasoning effort of the client, or that of the preset.
fn effort(ask: &Ask, target: &Target<'_>) -> Effort {
    let abilities = target.abilities;
    if !target.says(Extra::Thinking) {
        return Effort::default();
    }
    let said = Effort::of(ask);
    let preset = || {
        let preset = target.preset.iter().find(|(name, _)| &**name == "reasoning_effort");
        preset.map(|(_, value)| crate::effort::word(value.as_bytes())).unwrap_or_default()
    };
    let effort = if said == Effort::default() { preset() } else { said };
    if abilities.accepts("reasoning_effort") {
        effort
    } else if abilities.thinking_switch {
        Effort { level: None, ..effort }
    } else {
        Effort::default()
    }
}

/// Writes thinking, its effort, and the format of the answer.
fn output(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) -> Result<(), Refusal> {
    let schema = format(ask)?;
    let effort = effort(ask, target);
    let level = effort.level.filter(|_| effort.switch != Some(false));
    if effort.switch == Some(false) {
        out.put(r#","thinking":{"type":"disabled"}"#);
    } else if effort.switch == Some(true) || level.is_some() {
        // Newer models hide their thinking unless the request asks for it.
        out.put(r#","thinking":{"type":"adaptive","display":"summarized"}"#);
    }
    if level.is_none() && schema.is_none() {
        return Ok(());
    }
    out.put(r#","output_config":{"#);
    if let Some(level) = level {
        out.put(r#""effort":""#);
        out.put(level.word());
        out.put(if schema.is_some() { r#"","# } else { "\"" });
    }
    if let Some(schema) = &schema {
        out.put(r#""format":{"type":"json_schema","schema":"#);
        out.raw(schema);
        out.byte(b'}');
    }
    out.byte(b'}');
    Ok(())
}
