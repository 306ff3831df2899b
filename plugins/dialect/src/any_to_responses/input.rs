//! Writer of the conversation as `instructions` and `input`: messages, reasoning and tool calls become items.

use crate::body_builder::BodyBuilder;
use crate::chat_to_messages::parsed_message::ParsedMessage;
use crate::json_cursor::{self, JsonCursor};
use crate::repeated_call_ids::{RepeatedCallIds, responses_call_id};
use crate::speakers::{has_several_authors, has_several_names};
use crate::tool_names::portable_tool_name;
use penstock_core::{AdjustableMember, ApiError, AttemptTarget, Dialect, EarlierAnswerMessage};
use penstock_json_scan::json;

/// Writes the conversation as items. A system message of plain text at the start becomes `instructions`, if other
/// messages follow and the provider accepts that member. `earlier` lists for each message of the assistant the messages
/// of a responses client that were joined to form it; they become separate items again.
///
/// # Errors
/// Returns an error with the path of a value that cannot be translated.
pub(super) fn write_input(
    messages: &[u8],
    earlier: &[Vec<EarlierAnswerMessage>],
    target: &AttemptTarget<'_>,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    let mut parsed = Vec::new();
    JsonCursor::new(messages).visit_elements::<ApiError>(|_, message| {
        parsed.push(ParsedMessage::parse(message));
        Ok(())
    })?;
    let has_instructions = parsed.len() > 1 && target.allows_member(AdjustableMember::Instructions);
    let named = NamedRoles::new(&parsed);
    let first = parsed.first().filter(|message| is_system(message) && has_instructions);
    let instructions = first.and_then(|message| json_cursor::string_body(message.content?));
    if let (Some(first), Some(instructions)) = (first, instructions) {
        out.push_str(r#","instructions":""#);
        if let Some(name) = named.written_name(first) {
            out.push_source(name);
            out.push_str(": ");
        }
        out.push_source(instructions);
        out.push_byte(b'"');
    }
    let mut items = InputItems {
        out,
        count: 0,
        earlier: earlier.iter(),
        reasoning_count: 0,
        call_ids: RepeatedCallIds::default(),
        named,
        adds_image_detail: target.allows_member(AdjustableMember::ImageDetail),
    };
    items.out.push_str(r#","input":["#);
    for (index, message) in parsed.iter().enumerate().skip(usize::from(instructions.is_some())) {
        items.write_message(index, message)?;
    }
    items.out.push_byte(b']');
    Ok(())
}

fn is_system(message: &ParsedMessage<'_>) -> bool {
    matches!(&*message.role, "system" | "developer")
}

/// Roles whose speakers have different names. Their texts begin with the names, because items have none.
#[derive(Clone, Copy)]
struct NamedRoles {
    users: bool,
    assistants: bool,
    systems: bool,
}

impl NamedRoles {
    fn new(messages: &[ParsedMessage<'_>]) -> Self {
        let of = |role: &'static str| messages.iter().filter(move |one| one.role == role).map(|one| one.name);
        let systems = messages.iter().filter(|message| is_system(message)).map(|message| message.name);
        Self {
            users: has_several_names(of("user")),
            assistants: has_several_names(of("assistant")),
            systems: has_several_authors(systems),
        }
    }

    /// Returns the name with which the text of a message begins; `None` if it has none.
    fn written_name<'a>(self, message: &ParsedMessage<'a>) -> Option<&'a [u8]> {
        let is_written = match &*message.role {
            "user" => self.users,
            "assistant" => self.assistants,
            _ => self.systems && is_system(message),
        };
        message.name.filter(|_| is_written)
    }
}

/// Writer of the items in `input` of a responses request.
struct InputItems<'o, 'b> {
    out: &'o mut BodyBuilder<'b>,
    count: usize,
    /// Messages that were joined to form each remaining message of the assistant.
    earlier: std::slice::Iter<'o, Vec<EarlierAnswerMessage>>,
    reasoning_count: u64,
    call_ids: RepeatedCallIds<'o>,
    named: NamedRoles,
    /// True if `detail` is written for images whose `detail` the client left out.
    adds_image_detail: bool,
}

impl<'o> InputItems<'o, '_> {
    fn start(&mut self, text: &str) {
        self.out.push_str(if self.count > 0 { "," } else { "" });
        self.count += 1;
        self.out.push_str(text);
    }

    fn write_message(&mut self, index: usize, message: &ParsedMessage<'o>) -> Result<(), ApiError> {
        let at = || format!("messages[{index}].content");
        match &*message.role {
            "assistant" => self.write_answer(index, message),
            "tool" | "function" => {
                self.start(r#"{"type":"function_call_output","call_id":""#);
                let id = message.tool_call_id.unwrap_or_default();
                let repetition = self.call_ids.add_result(id);
                self.out.push_source(&responses_call_id(id, repetition));
                self.out.push_str(r#"","output":"#);
                self.write_content(message.content, None, at)?;
                self.out.push_byte(b'}');
                Ok(())
            }
            role => {
                let name = self.named.written_name(message);
                let Some(content) = message.content else { return Ok(()) };
                self.start(r#"{"role":"#);
                self.out.push_json_string(role);
                self.out.push_str(r#","content":"#);
                self.write_content(Some(content), name, at)?;
                self.out.push_byte(b'}');
                Ok(())
            }
        }
    }

    /// Writes an earlier answer of the model: its reasoning, if the client sent it back, its text and its calls.
    fn write_answer(&mut self, index: usize, message: &ParsedMessage<'o>) -> Result<(), ApiError> {
        if let Some(reasoning) = message.reasoning.filter(|text| !text.is_empty()) {
            self.start(r#"{"type":"reasoning","id":"rs_"#);
            self.out.push_integer(self.reasoning_count);
            self.reasoning_count += 1;
            self.out.push_str(r#"","summary":[],"content":[{"type":"reasoning_text","text":""#);
            self.out.push_source(reasoning);
            self.out.push_str(r#""}]}"#);
        }
        self.write_answer_text(index, message)?;
        for (position, call) in message.tool_calls.iter().enumerate() {
            let at = |name: &str| format!("messages[{index}].tool_calls[{position}].{name}");
            let id =
                call.id.ok_or_else(|| ApiError::invalid(at("id"), "A tool call needs a string `id`."))?;
            let name = call.function.name.ok_or_else(|| {
                ApiError::invalid(at("function.name"), "A function call needs a string `name`.")
            })?;
            self.start(r#"{"type":"function_call","call_id":""#);
            let repetition = self.call_ids.add_call(id, index);
            self.out.push_source(&responses_call_id(id, repetition));
            self.out.push_str(r#"","name":""#);
            self.out.push_source(&portable_tool_name(Dialect::Responses, name));
            self.out.push_str(r#"","arguments":""#);
            self.out.push_source(call.function.arguments.filter(|text| !text.is_empty()).unwrap_or(b"{}"));
            self.out.push_str(r#""}"#);
        }
        Ok(())
    }

    /// Writes the texts of an answer as one string; writes nothing if it has no text.
    fn write_answer_text(&mut self, index: usize, message: &ParsedMessage<'_>) -> Result<(), ApiError> {
        let mut texts = Vec::new();
        let joined = self.earlier.next().map(Vec::as_slice).unwrap_or_default();
        if let Some(content) = message.content {
            match json_cursor::string_body(content) {
                Some(text) => texts.push(text),
                None => texts.extend(answer_parts(index, content)?),
            }
        }
        texts.extend(message.refusal);
        texts.retain(|text| !text.is_empty());
        if let [text] = texts[..]
            && let Some(messages) = split_messages(text, joined)
        {
            for (phase, text) in messages {
                self.start(r#"{"role":"assistant""#);
                if let Some(phase) = phase {
                    self.out.push_str(r#","phase":"#);
                    self.out.push_json_string(phase);
                }
                self.out.push_str(r#","content":""#);
                self.out.push_source(text);
                self.out.push_str(r#""}"#);
            }
            return Ok(());
        }
        if texts.is_empty() {
            return Ok(());
        }
        self.start(r#"{"role":"assistant","content":""#);
        if let Some(name) = self.named.written_name(message) {
            self.out.push_source(name);
            self.out.push_str(": ");
        }
        texts.iter().for_each(|text| self.out.push_source(text));
        self.out.push_str(r#""}"#);
        Ok(())
    }

    /// Writes content of text and media. `name` is written at the beginning of the first text, or as a text of its own.
    fn write_content(
        &mut self,
        content: Option<&[u8]>,
        name: Option<&[u8]>,
        path: impl Fn() -> String,
    ) -> Result<(), ApiError> {
        let content = content.unwrap_or(br#""""#);
        let mut prefix = name;
        if let Some(text) = json_cursor::string_body(content) {
            self.out.push_byte(b'"');
            self.write_text(text, &mut prefix);
            self.out.push_byte(b'"');
            return Ok(());
        }
        self.out.push_byte(b'[');
        let has_text = json_cursor::elements(content).any(is_text_part);
        if !has_text && prefix.is_some() {
            self.out.push_str(r#"{"type":"input_text","text":""#);
            self.write_text(b"", &mut prefix);
            self.out.push_str(if json_cursor::elements(content).next().is_some() {
                r#""},"#
            } else {
                r#""}"#
            });
        }
        for (index, part) in json_cursor::elements(content).enumerate() {
            self.out.push_str(if index > 0 { "," } else { "" });
            self.write_part(part, &mut prefix, || format!("{}[{index}]", path()))?;
        }
        self.out.push_byte(b']');
        Ok(())
    }

    fn write_text(&mut self, text: &[u8], prefix: &mut Option<&[u8]>) {
        if let Some(name) = prefix.take() {
            self.out.push_source(name);
            self.out.push_str(": ");
        }
        self.out.push_source(text);
    }

    fn write_part(
        &mut self,
        part: &[u8],
        prefix: &mut Option<&[u8]>,
        path: impl Fn() -> String,
    ) -> Result<(), ApiError> {
        let member = |name| json_cursor::member_value(part, name);
        let kind = member("type").and_then(json_cursor::parse_string).unwrap_or_default();
        match &*kind {
            "text" => {
                self.out.push_str(r#"{"type":"input_text","text":""#);
                self.write_text(
                    member("text").and_then(json_cursor::string_body).unwrap_or_default(),
                    prefix,
                );
                self.out.push_str(r#""}"#);
            }
            "image_url" => {
                let image = member("image_url").unwrap_or_default();
                let url = json_cursor::member_value(image, "url").unwrap_or(image);
                let url = json_cursor::string_body(url)
                    .ok_or_else(|| ApiError::invalid(path(), "An image needs a string `url`."))?;
                self.out.push_str(r#"{"type":"input_image","image_url":""#);
                self.out.push_source(url);
                self.out.push_byte(b'"');
                let default = self.adds_image_detail.then_some(&br#""auto""#[..]);
                if let Some(detail) = json_cursor::member_value(image, "detail").or(default) {
                    self.out.push_str(r#","detail":"#);
                    self.out.push_source(detail);
                }
                self.out.push_byte(b'}');
            }
            "input_audio" => self.out.push_source(part),
            "file" => {
                self.out.push_str(r#"{"type":"input_file""#);
                for (name, value) in json_cursor::members(member("file").unwrap_or_default()) {
                    self.out.push_byte(b',');
                    self.out.push_json_string(&name);
                    self.out.push_byte(b':');
                    self.out.push_source(value);
                }
                self.out.push_byte(b'}');
            }
            _ => {
                return Err(ApiError::unsupported(
                    format!("{}.type", path()),
                    "Only parts of text, images, audio and files are supported with this model.",
                ));
            }
        }
        Ok(())
    }
}

fn is_text_part(part: &[u8]) -> bool {
    json_cursor::member_value(part, "type").is_some_and(|kind| json::json_string_equals(kind, "text"))
}

/// Splits the text of an answer into the messages that were joined to form it, with their phases. Returns `None` if
/// `joined` is empty, or if the recorded lengths and the separators do not match the text.
fn split_messages<'t>(
    text: &'t [u8],
    joined: &[EarlierAnswerMessage],
) -> Option<Vec<(Option<&'static str>, &'t [u8])>> {
    let mut rest = text;
    let mut found = Vec::with_capacity(joined.len());
    for message in joined {
        if !found.is_empty() {
            rest = rest.strip_prefix(EarlierAnswerMessage::SEPARATOR.as_bytes())?;
        }
        let (own, after) = rest.split_at_checked(message.bytes)?;
        found.push((message.phase, own));
        rest = after;
    }
    (rest.is_empty() && !found.is_empty()).then_some(found)
}

/// Returns the texts of an answer's parts.
fn answer_parts(index: usize, content: &[u8]) -> Result<Vec<&[u8]>, ApiError> {
    let mut texts = Vec::new();
    for (part_index, part) in json_cursor::elements(content).enumerate() {
        let text =
            json_cursor::member_value(part, "text").or_else(|| json_cursor::member_value(part, "refusal"));
        let text = text.and_then(json_cursor::string_body).ok_or_else(|| {
            let at = format!("messages[{index}].content[{part_index}].type");
            ApiError::unsupported(at, "Only text of earlier answers is supported with this model.")
        })?;
        texts.push(text);
    }
    Ok(texts)
}
