//! Validation of `instructions` and `input`, and their conversion to messages.

use super::chat_body::ChatBodyWriter;
use super::content::{AllowedParts, ContentPart, read_parts};
use super::conversation::{CallArguments, ConversationWriter, PreviousToolCall, WrittenMessageOrigins};
use super::tools::DeclaredTools;
use crate::body::RootObject;
use crate::field_path::{FieldPath, quotable_name};
use crate::read;
use penstock_core::{ApiError, ResponsesRequestPart, decode_opaque_reasoning};
use penstock_json_scan::json;
use penstock_json_scan::tape::{JsonTape, JsonValue};
use std::borrow::Cow;

const ROLES: &[&str] = &["user", "assistant", "system", "developer"];
const PHASES: &[&str] = &["commentary", "final_answer"];
const EXPECTED: &str = "a string or an array of input items";
const REQUIRED: &str = "expected one of `input` and `previous_response_id`";
const STORED: &str =
    "this API key stores no responses; send the item itself (clients do so with `store: false`)";

/// Writes the conversation as `messages`, in this order: instructions, items of the previous response, `input`.
/// `needs_input` is true if the request has nothing that makes up for an absent or empty `input`.
pub(super) fn write_messages<'d>(
    top: &RootObject<'d>,
    previous: &JsonTape<'d>,
    tools: &DeclaredTools<'d>,
    needs_input: bool,
    out: &mut ChatBodyWriter,
) -> Result<WrittenMessageOrigins, ApiError> {
    let mut messages = ConversationWriter::new(out);
    if let Some(instructions) = top.get("instructions") {
        let instructions = read::require_string(instructions, &top.member_path("instructions"))?;
        if !instructions.string_bytes().is_empty() {
            messages.write_message("system", &[ContentPart::Text(instructions)]);
        }
    }
    let path = top.member_path("previous_response_id");
    messages.set_message_origin(ResponsesRequestPart::Previous);
    for (index, item) in previous.root().iter().flat_map(JsonValue::items).enumerate() {
        write_item(item, &path.item(index), tools, &mut messages)?;
    }
    write_input(top, tools, needs_input, &mut messages)?;
    if !needs_input && previous.root().is_none() && messages.is_empty() {
        // Only tools are counted; a chat request has at least one message.
        messages.write_empty_message();
    }
    Ok(messages.finish())
}

/// Writes `input`. If it is not needed, an absent or empty one adds nothing.
fn write_input<'d>(
    top: &RootObject<'d>,
    tools: &DeclaredTools<'d>,
    needs_input: bool,
    messages: &mut ConversationWriter<'d, '_>,
) -> Result<(), ApiError> {
    let path = top.member_path("input");
    let input = match top.get("input") {
        None if needs_input => return Err(path.invalid_error(REQUIRED)),
        Some(input) if needs_input || !is_empty(input) => input,
        _ => return Ok(()),
    };
    if input.is_string() {
        messages.set_message_origin(ResponsesRequestPart::Text);
        messages.write_message("user", &[ContentPart::Text(input)]);
        return Ok(());
    }
    if !input.is_array() {
        return Err(path.unexpected_type_error(EXPECTED, input.kind()));
    }
    if input.has_no_entries() {
        return Err(path.invalid_error("expected at least one item, or `previous_response_id`"));
    }
    for (index, item) in input.items().enumerate() {
        messages.set_message_origin(ResponsesRequestPart::Item(u32::try_from(index).unwrap_or(u32::MAX)));
        write_item(item, &path.item(index), tools, messages)?;
    }
    Ok(())
}

/// Returns true for an empty string and an empty list.
pub(super) fn is_empty(input: JsonValue<'_>) -> bool {
    if input.is_string() {
        input.string_bytes().is_empty()
    } else {
        input.is_array() && input.has_no_entries()
    }
}

/// Names of the members that are read from an item: the type, and the members of [`InputItem`].
const ITEM_MEMBERS: [&str; 12] = [
    "type",
    "role",
    "content",
    "phase",
    "call_id",
    "name",
    "namespace",
    "arguments",
    "input",
    "output",
    "summary",
    "encrypted_content",
];

/// Members of an item that are read.
struct InputItem<'d, 'p> {
    path: &'p FieldPath<'p>,
    role: Option<JsonValue<'d>>,
    content: Option<JsonValue<'d>>,
    phase: Option<JsonValue<'d>>,
    call_id: Option<JsonValue<'d>>,
    name: Option<JsonValue<'d>>,
    namespace: Option<JsonValue<'d>>,
    arguments: Option<JsonValue<'d>>,
    input: Option<JsonValue<'d>>,
    output: Option<JsonValue<'d>>,
    summary: Option<JsonValue<'d>>,
    encrypted_content: Option<JsonValue<'d>>,
}

fn write_item<'d>(
    item: JsonValue<'d>,
    path: &FieldPath<'_>,
    tools: &DeclaredTools<'d>,
    messages: &mut ConversationWriter<'d, '_>,
) -> Result<(), ApiError> {
    let [
        kind,
        role,
        content,
        phase,
        call_id,
        name,
        namespace,
        arguments,
        input,
        output,
        summary,
        encrypted_content,
    ] = read::read_named_members(item, path, ITEM_MEMBERS)?;
    let item = InputItem {
        path,
        role,
        content,
        phase,
        call_id,
        name,
        namespace,
        arguments,
        input,
        output,
        summary,
        encrypted_content,
    };
    let path = path.member("type");
    let Some(kind) = kind.map(|kind| read::require_string(kind, &path)).transpose()? else {
        // An item without a type is a message if it has a role; any other item without a type is refused.
        return if role.is_some() { item.write_message(messages) } else { Err(item.missing_type(&path)) };
    };
    match &*kind.text() {
        "message" => item.write_message(messages),
        "function_call" => item.push_function_call(tools, messages),
        "custom_tool_call" => item.push_custom_call(tools, messages),
        "function_call_output" | "custom_tool_call_output" => item.write_output(messages),
        "reasoning" => item.push_reasoning(messages),
        "item_reference" => Err(path.unsupported_error(STORED)),
        _ => Err(match quotable_name(&kind) {
            Some(name) => path.unsupported_error(format_args!("items of type \"{name}\" are not supported")),
            None => path.unsupported_error("items of this type are not supported"),
        }),
    }
}

fn is_json_object(text: &str) -> bool {
    let text = json::trim(text.as_bytes());
    text.starts_with(b"{") && json::value_end(text, 0) == Some(text.len())
}

impl<'d> InputItem<'d, '_> {
    fn missing_type(&self, path: &FieldPath<'_>) -> ApiError {
        match self.content {
            None => path.missing_error("the type of an item"),
            Some(_) => self.path.member("role").missing_error(read::QuotedAlternatives(ROLES)),
        }
    }

    fn write_message(&self, messages: &mut ConversationWriter<'d, '_>) -> Result<(), ApiError> {
        let path = self.path.member("role");
        let role = read::read_keyword(
            read::require_member(self.role, &path, read::QuotedAlternatives(ROLES))?,
            &path,
            ROLES,
        )?;
        let path = self.path.member("content");
        let content = read::require_member(self.content, &path, "a string or an array of content parts")?;
        let allowed = match role {
            "user" => AllowedParts::TextAndMedia,
            "assistant" => AllowedParts::TextOrRefusal,
            _ => AllowedParts::Text,
        };
        let parts = read_parts(content, &path, allowed)?;
        match role {
            "assistant" => {
                let path = self.path.member("phase");
                let phase = self.phase.map(|word| read::read_keyword(word, &path, PHASES)).transpose()?;
                messages.push_assistant_text(&parts, phase);
            }
            _ if parts.is_empty() => return Err(path.invalid_error("expected at least one content part")),
            "user" => messages.write_message("user", &parts),
            _ => messages.write_message("system", &parts),
        }
        Ok(())
    }

    /// Adds a call of a function. The arguments may be absent, or an object instead of a string with JSON text.
    fn push_function_call(
        &self,
        tools: &DeclaredTools<'d>,
        messages: &mut ConversationWriter<'d, '_>,
    ) -> Result<(), ApiError> {
        let path = self.path.member("arguments");
        let arguments = match self.arguments {
            Some(object) if object.is_object() => CallArguments::Object(object),
            Some(arguments) if read::has_call_arguments(read::require_string(arguments, &path)?) => {
                // A client cannot correct a call of a stored response, which the limit on its output may have cut.
                if messages.is_in_previous_response() && !is_json_object(&arguments.text()) {
                    CallArguments::Invalid(arguments)
                } else {
                    CallArguments::Json(arguments)
                }
            }
            _ => CallArguments::Empty,
        };
        self.push_call(arguments, tools, messages)
    }

    fn push_custom_call(
        &self,
        tools: &DeclaredTools<'d>,
        messages: &mut ConversationWriter<'d, '_>,
    ) -> Result<(), ApiError> {
        let path = self.path.member("input");
        let input = read::require_string(read::require_member(self.input, &path, "a string")?, &path)?;
        self.push_call(CallArguments::Input(input), tools, messages)
    }

    fn push_call(
        &self,
        arguments: CallArguments<'d>,
        tools: &DeclaredTools<'d>,
        messages: &mut ConversationWriter<'d, '_>,
    ) -> Result<(), ApiError> {
        let id = read::require_text_member(self.call_id, &self.path.member("call_id"))?;
        let name = read::require_text_member(self.name, &self.path.member("name"))?;
        let path = self.path.member("namespace");
        let namespace = self.namespace.map(|namespace| read::require_string(namespace, &path)).transpose()?;
        let function_name = tools.function_name(namespace, name);
        messages.push_tool_call(PreviousToolCall { id, function_name, arguments });
        Ok(())
    }

    fn write_output(&self, messages: &mut ConversationWriter<'d, '_>) -> Result<(), ApiError> {
        let path = self.path.member("call_id");
        let id = read::require_text_member(self.call_id, &path)?;
        if !messages.has_tool_call(id) {
            return Err(path.invalid_error("expected the `call_id` of a tool call earlier in `input`"));
        }
        let path = self.path.member("output");
        let output = read::require_member(self.output, &path, "a string or an array of content parts")?;
        let parts = read_parts(output, &path, AllowedParts::TextAndImages)?;
        messages.write_tool_output(id, &parts);
        Ok(())
    }

    /// Adds reasoning: the text in `encrypted_content`, or nothing if another vendor than the gateway encrypted it. An
    /// item without this member adds its content, or else its summary, which holds the reasoning if the client
    /// requested summaries.
    fn push_reasoning(&self, messages: &mut ConversationWriter<'d, '_>) -> Result<(), ApiError> {
        let path = self.path.member("encrypted_content");
        let content = self.reasoning_texts(self.content, "content")?;
        let summary = self.reasoning_texts(self.summary, "summary")?;
        match self.encrypted_content {
            Some(sealed) => {
                if let Some(text) = decode_opaque_reasoning(&read::require_string(sealed, &path)?.text()) {
                    messages.push_reasoning(Cow::Owned(text));
                }
            }
            None if content.is_empty() => summary.into_iter().for_each(|text| messages.push_reasoning(text)),
            None => content.into_iter().for_each(|text| messages.push_reasoning(text)),
        }
        Ok(())
    }

    /// Reads the texts of a list of `{type, text}` objects; none if the list is absent.
    fn reasoning_texts(
        &self,
        list: Option<JsonValue<'d>>,
        name: &'static str,
    ) -> Result<Vec<Cow<'d, str>>, ApiError> {
        let path = self.path.member(name);
        let Some(list) = list else { return Ok(Vec::new()) };
        let mut texts = Vec::new();
        for (index, part) in read::require_array(list, &path)?.items().enumerate() {
            let part_path = path.item(index);
            let [text] = read::read_named_members(part, &part_path, ["text"])?;
            let path = part_path.member("text");
            texts.push(read::require_string(read::require_member(text, &path, "a string")?, &path)?.text());
        }
        Ok(texts)
    }
}
