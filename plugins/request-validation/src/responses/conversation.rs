//! Conversation in the chat form: the items of one answer of the model become one assistant message.

use super::chat_body::ChatBodyWriter;
use super::content::{ContentPart, write_parts};
use penstock_core::{ChatMessageOrigin, EarlierAnswerMessage, MappedTool, ResponsesRequestPart};
use penstock_json_scan::tape::JsonValue;
use std::borrow::Cow;
use std::collections::HashSet;

/// Tool call of an earlier answer.
#[derive(Debug)]
pub(super) struct PreviousToolCall<'d> {
    pub(super) id: JsonValue<'d>,
    /// Name of the function, as sent to the provider.
    pub(super) function_name: Cow<'d, str>,
    pub(super) arguments: CallArguments<'d>,
}

/// Arguments of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallArguments<'d> {
    /// No arguments.
    Empty,
    /// JSON string whose text is JSON.
    Json(JsonValue<'d>),
    /// JSON object, which is written as a string.
    Object(JsonValue<'d>),
    /// JSON string whose text is no JSON object, because the call was cut.
    Invalid(JsonValue<'d>),
    /// String with the input of a custom tool.
    Input(JsonValue<'d>),
}

/// Member of the arguments that are written for a call whose arguments were cut; its value is their text.
const INVALID_JSON_MEMBER: &str = "INVALID_JSON";

/// Items of one answer of the model, collected for one assistant message of the chat form.
#[derive(Debug, Default)]
struct AssistantMessage<'d> {
    reasoning: Vec<Cow<'d, str>>,
    /// Messages with their phase and texts.
    messages: Vec<(Option<&'static str>, Vec<JsonValue<'d>>)>,
    calls: Vec<PreviousToolCall<'d>>,
    /// Item of the first message with text; `None` if no message has text.
    content_origin: Option<ResponsesRequestPart>,
    call_origins: Vec<ResponsesRequestPart>,
}

/// Origins of the written messages: the input items from which they were made.
#[derive(Debug)]
pub(super) struct WrittenMessageOrigins {
    /// For each written assistant message, the earlier messages that it joins.
    pub(super) joined: Vec<Vec<EarlierAnswerMessage>>,
    /// Items from which each message was made.
    pub(super) origins: Vec<ChatMessageOrigin>,
}

/// Writer of the member `messages` of a chat request.
#[derive(Debug)]
pub(super) struct ConversationWriter<'d, 'o> {
    out: &'o mut ChatBodyWriter,
    is_empty: bool,
    assistant: AssistantMessage<'d>,
    /// For each written assistant message, the earlier messages that it joins.
    joined: Vec<Vec<EarlierAnswerMessage>>,
    /// Item that is being written.
    item: ResponsesRequestPart,
    /// Items from which each written message was made.
    origins: Vec<ChatMessageOrigin>,
    call_ids: HashSet<Cow<'d, str>>,
}

impl<'d, 'o> ConversationWriter<'d, 'o> {
    /// Writes the start of `messages` and returns the writer.
    pub(super) fn new(out: &'o mut ChatBodyWriter) -> Self {
        out.write_member("messages", "[");
        Self {
            out,
            is_empty: true,
            assistant: AssistantMessage::default(),
            joined: Vec::new(),
            item: ResponsesRequestPart::Instructions,
            origins: Vec::new(),
            call_ids: HashSet::new(),
        }
    }

    /// Records `item` as the origin of the messages and calls that are added next.
    pub(super) const fn set_message_origin(&mut self, item: ResponsesRequestPart) {
        self.item = item;
    }

    /// Returns true while the items of the previous response are written.
    pub(super) fn is_in_previous_response(&self) -> bool {
        self.item == ResponsesRequestPart::Previous
    }

    /// Returns true if no message was written or is being collected.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty && self.assistant.content_origin.is_none() && self.assistant.call_origins.is_empty()
    }

    /// Writes a message of the role `user` without text.
    pub(super) fn write_empty_message(&mut self) {
        self.flush();
        self.origins.push(ChatMessageOrigin { content: self.item, is_output: false, calls: Vec::new() });
        self.start_message("user");
        self.out.write_raw_json(r#","content":""}"#);
    }

    /// Adds reasoning text to the assistant message that is being collected.
    pub(super) fn push_reasoning(&mut self, text: Cow<'d, str>) {
        if !text.is_empty() {
            self.assistant.reasoning.push(text);
        }
    }

    /// Adds the text of a message to the assistant message that is being collected.
    pub(super) fn push_assistant_text(&mut self, parts: &[ContentPart<'d>], phase: Option<&'static str>) {
        let text = |part: &ContentPart<'d>| match part {
            ContentPart::Text(text) => Some(*text),
            ContentPart::Image { .. } | ContentPart::Audio(_) => None,
        };
        let texts: Vec<_> = parts.iter().filter_map(text).collect();
        if !texts.is_empty() {
            self.assistant.content_origin.get_or_insert(self.item);
            self.assistant.messages.push((phase, texts));
        }
    }

    /// Adds a tool call of an answer.
    pub(super) fn push_tool_call(&mut self, call: PreviousToolCall<'d>) {
        self.call_ids.insert(call.id.text());
        self.assistant.call_origins.push(self.item);
        self.assistant.calls.push(call);
    }

    /// Returns true if a call with this id was added before.
    pub(super) fn has_tool_call(&self, id: JsonValue<'d>) -> bool {
        self.call_ids.contains(&id.text())
    }

    /// Writes the output of a tool.
    pub(super) fn write_tool_output(&mut self, call_id: JsonValue<'d>, parts: &[ContentPart<'d>]) {
        self.flush();
        self.origins.push(ChatMessageOrigin { content: self.item, is_output: true, calls: Vec::new() });
        self.start_message("tool");
        self.out.write_raw_json(r#","tool_call_id":"#);
        self.out.write_raw_json(call_id.raw());
        self.write_content(parts);
    }

    /// Writes a message of the role `user` or `system`.
    pub(super) fn write_message(&mut self, role: &str, parts: &[ContentPart<'d>]) {
        self.flush();
        self.origins.push(ChatMessageOrigin { content: self.item, is_output: false, calls: Vec::new() });
        self.start_message(role);
        self.write_content(parts);
    }

    fn write_content(&mut self, parts: &[ContentPart<'d>]) {
        self.out.write_raw_json(r#","content":"#);
        write_parts(parts, self.out);
        self.out.write_raw_json("}");
    }

    fn start_message(&mut self, role: &str) {
        self.out.write_raw_json(if self.is_empty { "" } else { "," });
        self.is_empty = false;
        self.out.write_raw_json(r#"{"role":""#);
        self.out.write_raw_json(role);
        self.out.write_raw_json("\"");
    }

    /// Writes the items of an answer as one message. Reasoning without text or calls is dropped, because the answer was
    /// interrupted.
    fn flush(&mut self) {
        let AssistantMessage { reasoning, messages, calls, content_origin, call_origins } =
            std::mem::take(&mut self.assistant);
        let Some(content) = content_origin.or(call_origins.first().copied()) else { return };
        self.origins.push(ChatMessageOrigin { content, is_output: false, calls: call_origins });
        self.start_message("assistant");
        if messages.is_empty() {
            self.out.write_raw_json(r#","content":null"#);
            self.joined.push(Vec::new());
        } else {
            self.write_texts(&messages);
        }
        if !reasoning.is_empty() {
            self.out.write_raw_json(r#","reasoning_content":""#);
            for (at, text) in reasoning.iter().enumerate() {
                self.out.write_raw_json(if at == 0 { "" } else { r"\n" });
                self.out.write_escaped(text);
            }
            self.out.write_raw_json("\"");
        }
        if !calls.is_empty() {
            self.out.write_raw_json(r#","tool_calls":["#);
            for (at, call) in calls.iter().enumerate() {
                self.out.write_raw_json(if at == 0 { "" } else { "," });
                write_call(call, self.out);
            }
            self.out.write_raw_json("]");
        }
        self.out.write_raw_json("}");
    }

    /// Writes the texts of messages, joined by blank lines. Messages without text are left out.
    fn write_texts(&mut self, messages: &[(Option<&'static str>, Vec<JsonValue<'d>>)]) {
        self.out.write_raw_json(r#","content":""#);
        let mut joined: Vec<EarlierAnswerMessage> = Vec::new();
        for (phase, texts) in messages {
            let bytes = texts.iter().map(|text| text.raw_inner_text().len()).sum();
            if bytes == 0 {
                continue;
            }
            self.out.write_raw_json(if joined.is_empty() { "" } else { EarlierAnswerMessage::SEPARATOR });
            texts.iter().for_each(|text| self.out.write_raw_json(text.raw_inner_text()));
            joined.push(EarlierAnswerMessage { phase: *phase, bytes });
        }
        self.out.write_raw_json("\"");
        self.joined.push(joined);
    }

    /// Writes the pending assistant message and the end of `messages`.
    pub(super) fn finish(mut self) -> WrittenMessageOrigins {
        self.flush();
        self.out.write_raw_json("]");
        WrittenMessageOrigins { joined: self.joined, origins: self.origins }
    }
}

fn write_call(call: &PreviousToolCall<'_>, out: &mut ChatBodyWriter) {
    out.write_raw_json(r#"{"id":"#);
    out.write_raw_json(call.id.raw());
    out.write_raw_json(r#","type":"function","function":{"name":"#);
    out.write_string(&call.function_name);
    out.write_raw_json(r#","arguments":"#);
    match call.arguments {
        CallArguments::Empty => out.write_string("{}"),
        CallArguments::Json(arguments) => out.write_raw_json(arguments.raw()),
        CallArguments::Object(object) => out.write_string(object.raw()),
        CallArguments::Invalid(text) => write_text_argument(INVALID_JSON_MEMBER, text, out),
        CallArguments::Input(input) => write_text_argument(MappedTool::INPUT_MEMBER, input, out),
    }
    out.write_raw_json("}}");
}

/// Writes a string with the JSON text of an object, whose only member is a text.
fn write_text_argument(name: &str, text: JsonValue<'_>, out: &mut ChatBodyWriter) {
    out.write_raw_json(r#""{\""#);
    out.write_raw_json(name);
    out.write_raw_json(r#"\":"#);
    out.write_escaped(text.raw());
    out.write_raw_json(r#"}""#);
}
