//! Chat templates: Jinja, as `transformers` renders it.
//!
//! Guarantees: the prompt is the one that an engine builds from the same messages and tools. If a template refuses a
//! conversation, two fallback forms are tried, as in other gateways: later system messages become user messages, and
//! then all system messages. If the template drops a system text, the fallback forms are tried too, so the count
//! never lacks a system text.

mod fallback;
mod json;
mod prompt_buffer;

#[cfg(test)]
mod tests;

use crate::budget::{CountBudget, CountHalt, TokenMeter};
use crate::conversation::{PromptConversation, PromptMessage, PromptPart, SpeakerRole};
use crate::strftime::strftime;
use fallback::{SystemMessageFallback, apply_fallback};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use prompt_buffer::PromptBuffer;
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use std::cell::Cell;

thread_local! {
    /// Time of the current rendering on this thread, Unix seconds. A thread-local, because templates also read the time
    /// inside macros, which have no access to the rendering context.
    static NOW: Cell<i64> = const { Cell::new(0) };
}

/// Maximum number of template instructions for a rendering: about 200 for each of 100 000 messages, or two seconds of
/// work.
const MAX_INSTRUCTIONS: u64 = 20_000_000;
/// Maximum product of the number of system messages and their total bytes: some templates append each system text to
/// those before it, which copies about that many bytes.
const MAX_SYSTEM_COPY_BYTES: u64 = 1 << 30;
/// Maximum product of the number of messages and their total bytes: a template that appends each message to the text
/// before it copies about that many bytes.
const MAX_MESSAGE_COPY_BYTES: u64 = 32 << 30;

/// Reason why a prompt could not be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RenderError {
    /// The template refused the conversation with this message.
    Refused(String),
    /// Rendering would take too much work.
    TooLarge,
    /// The budget of the count ended the rendering.
    Halted(CountHalt),
}

/// Compiled template with the special tokens it may use.
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    /// Special tokens: `bos_token` and so on.
    tokens: Map<String, Json>,
    /// True if the template can iterate over the parts of a message's content; other templates need one string.
    takes_parts: bool,
}

impl ChatTemplate {
    /// Compiles a chat template, or returns the reason why it is invalid.
    pub(crate) fn new(source: &str, tokens: Map<String, Json>) -> Result<Self, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| error.to_string())?);
        environment.set_fuel(Some(MAX_INSTRUCTIONS));
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_formatter(python_format);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |why: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, why))
        });
        environment.add_function("strftime_now", |format: String| strftime(&format, NOW.get()));
        environment.add_filter("tojson", |value: Value, options: Kwargs| json::dumps(&value, &options));
        environment
            .add_template_owned("chat", without_generation_tags(source).into_owned())
            .map_err(|error| error.to_string())?;
        Ok(Self { environment, tokens, takes_parts: iterates_parts(source) })
    }

    /// Renders the prompt of a conversation. `mark` is written for each image if the template accepts only text.
    pub(crate) fn render(
        &self,
        conversation: &PromptConversation,
        mark: Option<&str>,
    ) -> Result<String, String> {
        let meter = TokenMeter::new(0, CountBudget::unlimited());
        self.render_within(conversation, mark, &meter, usize::MAX).map_err(|why| match why {
            RenderError::Refused(why) => why,
            RenderError::TooLarge | RenderError::Halted(_) => "the conversation is too large".to_owned(),
        })
    }

    /// Renders the prompt like [`ChatTemplate::render`], but stops after `max_bytes`, for a count that may end
    /// early.
    pub(crate) fn render_within(
        &self,
        conversation: &PromptConversation,
        mark: Option<&str>,
        meter: &TokenMeter<'_>,
        max_bytes: usize,
    ) -> Result<String, RenderError> {
        let mut why = String::new();
        for fold in [
            SystemMessageFallback::None,
            SystemMessageFallback::LaterSystem,
            SystemMessageFallback::AllSystem,
        ] {
            let Some(turns) = apply_fallback(&conversation.messages, fold) else { continue };
            if is_too_large(&turns) {
                return Err(RenderError::TooLarge);
            }
            match self.render_messages(&turns, conversation, mark, PromptBuffer::new(max_bytes, *meter)) {
                Ok(prompt)
                    if fold == SystemMessageFallback::None && !has_all_system_texts(&prompt, &turns) =>
                {
                    continue;
                }
                Err(RenderError::Refused(error)) if why.is_empty() => why = error,
                Err(RenderError::Refused(_)) => {}
                done => return done,
            }
        }
        Err(RenderError::Refused(why))
    }

    fn render_messages(
        &self,
        turns: &[PromptMessage],
        conversation: &PromptConversation,
        mark: Option<&str>,
        mut paper: PromptBuffer<'_>,
    ) -> Result<String, RenderError> {
        let mut context = self.tokens.clone();
        context.extend(conversation.template_arguments.clone());
        if let Some(effort) = conversation.effort {
            context.entry("reasoning_effort").or_insert_with(|| effort.name().into());
        }
        let messages: Vec<_> = turns.iter().map(|turn| self.message(turn, mark)).collect();
        context.insert("messages".into(), messages.into());
        context.insert("tools".into(), tools(conversation));
        context.insert("documents".into(), Json::Null);
        context.insert("add_generation_prompt".into(), (!conversation.continues).into());
        NOW.set(conversation.unix_seconds);
        let template = self.environment.get_template("chat");
        let template = template.map_err(|error| RenderError::Refused(error.to_string()))?;
        let rendered = template.render_captured_to(Value::from(Serde(context)), &mut paper).map(drop);
        if let Err(error) = rendered {
            return Err(match (paper.halt, error.kind()) {
                (Some(halt), _) => RenderError::Halted(halt),
                (None, ErrorKind::OutOfFuel) => RenderError::TooLarge,
                (None, _) => RenderError::Refused(error_message(&error)),
            });
        }
        let mut prompt = paper.into_text();
        if let Some(last) = turns.last().filter(|_| conversation.continues) {
            let text = last.join_texts("");
            let end = prompt.rfind(text.trim()).map(|at| at + text.trim().len());
            prompt.truncate(end.unwrap_or(prompt.len()));
        }
        Ok(prompt)
    }

    fn message(&self, turn: &PromptMessage, mark: Option<&str>) -> Json {
        let mut message = Map::new();
        message.insert("role".into(), turn.role.name().into());
        message.insert("content".into(), self.content(turn, mark));
        if let Some(reasoning) = &turn.reasoning {
            message.insert("reasoning_content".into(), reasoning.as_str().into());
        }
        if !turn.calls.is_empty() {
            let calls = turn.calls.iter().map(|call| {
                let arguments = match serde_json::from_str::<Json>(&call.arguments) {
                    Ok(value) => value,
                    Err(_) if call.arguments.is_empty() => json!({}),
                    Err(_) => call.arguments.as_str().into(),
                };
                json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
            });
            message.insert("tool_calls".into(), calls.collect());
        }
        for (name, value) in [("tool_call_id", &turn.call_id), ("name", &turn.name)] {
            if let Some(value) = value {
                message.insert(name.into(), value.as_str().into());
            }
        }
        message.into()
    }

    fn content(&self, turn: &PromptMessage, mark: Option<&str>) -> Json {
        if turn.has_part_list && self.takes_parts {
            let parts = turn.parts.iter().filter_map(|part| match part {
                PromptPart::Text(text) => Some(json!({"type": "text", "text": text})),
                PromptPart::Image(_) => Some(json!({"type": "image"})),
                PromptPart::Opaque { .. } => None,
            });
            return parts.collect();
        }
        // As in vLLM, the placeholders of the images come first, and then the texts, each on a line of its own.
        let images = turn.parts.iter().filter(|part| matches!(part, PromptPart::Image(_))).count();
        let mut lines = vec![mark.unwrap_or_default(); if mark.is_some() { images } else { 0 }];
        lines.extend(turn.texts());
        lines.join("\n").into()
    }
}

/// Returns true if a template that appends each message to the text before it would copy too many bytes.
fn is_too_large(turns: &[PromptMessage]) -> bool {
    let copies = |system: bool| {
        let turns = turns.iter().filter(|turn| !system || turn.role == SpeakerRole::System);
        let (count, bytes) = turns.fold((0_u64, 0_u64), |(count, bytes), turn| {
            let own =
                turn.texts().map(str::len).sum::<usize>() + turn.reasoning.as_deref().map_or(0, str::len);
            let calls = turn.calls.iter().map(|call| call.arguments.len()).sum::<usize>();
            (count + 1, bytes.saturating_add((own + calls) as u64))
        });
        count.saturating_mul(bytes)
    };
    copies(true) > MAX_SYSTEM_COPY_BYTES || copies(false) > MAX_MESSAGE_COPY_BYTES
}

fn tools(conversation: &PromptConversation) -> Json {
    if conversation.tools.is_empty() {
        return Json::Null;
    }
    let tools = conversation.tools.iter().map(|tool| {
        let mut function = Map::new();
        function.insert("name".into(), tool.name.as_str().into());
        if let Some(description) = &tool.description {
            function.insert("description".into(), description.as_str().into());
        }
        if let Some(parameters) = &tool.parameters {
            function.insert("parameters".into(), parameters.clone());
        }
        if let Some(strict) = tool.strict {
            function.insert("strict".into(), strict.into());
        }
        json!({"type": "function", "function": function})
    });
    tools.collect()
}

/// Returns true if the prompt contains, in order, the text of every system message after the leading ones. Some
/// templates drop such messages.
fn has_all_system_texts(prompt: &str, turns: &[PromptMessage]) -> bool {
    let later = turns
        .iter()
        .skip_while(|turn| turn.role == SpeakerRole::System)
        .filter(|turn| turn.role == SpeakerRole::System);
    let mut rest = prompt;
    later.flat_map(PromptMessage::texts).all(|text| match rest.split_once(text.trim()) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Returns the message that the template itself raised, or else the kind of error and its line; never content of the
/// conversation.
fn error_message(error: &Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (kind, _) => format!("{kind} in line {}", error.line().unwrap_or_default()),
    }
}

/// Formats values as Python does.
fn python_format(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_none() {
        return out.write_str("None").map_err(Error::from);
    }
    match bool::try_from(value.clone()) {
        Ok(flag) if value.kind() == minijinja::value::ValueKind::Bool => {
            out.write_str(if flag { "True" } else { "False" }).map_err(Error::from)
        }
        _ => minijinja::escape_formatter(out, state, value),
    }
}

/// Removes `{% generation %}` tags, which mark output for training and write nothing.
fn without_generation_tags(source: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(source);
    for (tag, instead) in [("generation", "if true"), ("endgeneration", "endif")] {
        for (open, close) in [("{%", "%}"), ("{%-", "%}"), ("{%", "-%}"), ("{%-", "-%}")] {
            let written = format!("{open} {tag} {close}");
            if out.contains(&written) {
                out = out.replace(&written, &format!("{open} {instead} {close}")).into();
            }
        }
    }
    out
}

/// Returns true if a loop in the template iterates over the content of a message, or over an argument of a macro that
/// gets the content.
fn iterates_parts(source: &str) -> bool {
    source.split("{%").skip(1).filter_map(|tag| tag.split("%}").next()).any(|tag| {
        let tag = tag.trim_start_matches(['-', '+']).trim();
        tag.strip_prefix("for ").and_then(|rest| rest.split_once(" in ")).is_some_and(|(_, over)| {
            let over = over.trim_end_matches('-').trim();
            over == "content"
                || over.contains(".content")
                || over.contains("['content']")
                || over.contains("[\"content\"]")
        })
    })
}
