//! Editor of the messages of a chat request, for providers that accept less than the dialect allows.
//!
//! - If system messages are accepted only at the beginning: joins the leading ones into one, in which the texts of
//!   different authors begin with their names. Moves the text of each
//!   later one, marked as not from the user, into the next user message, or else into the previous one or a new one,
//!   but never between a tool call and its results.
//! - If tool results may have no images: moves the images into a user message after the results.
//! - Drops the reasoning of earlier answers, or writes it under the name that the engine reads.
//! - Shortens tool call ids, if the provider requires short ones.

use crate::body_builder::BodyBuilder;
use crate::continuation_mark::ContinuationMark;
use crate::json_cursor;
use crate::messages_to_chat::ids;
use crate::speakers::has_several_authors;
use penstock_core::{ApiError, AttemptTarget, OfferCapabilities};
use penstock_json_scan::json;
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChatRole {
    System,
    User,
    Assistant,
    Tool,
}

/// Message of the request: its original bytes, and its contents after the changes for the provider.
#[derive(Debug)]
struct RewrittenMessage<'a> {
    role: ChatRole,
    /// Original bytes; empty for a message that the gateway adds.
    raw: &'a [u8],
    /// Contents (strings or lists of parts) in order. Empty if the message has no content; more than one element if
    /// content was added or a list was split into its texts.
    contents: Vec<Cow<'a, [u8]>>,
    is_changed: bool,
    /// True if the contents begin with the names of their authors, so that the message itself has no name.
    names_authors: bool,
}

/// Messages of a chat request, edited for the provider.
pub(super) struct ChatConversation<'a>(Vec<RewrittenMessage<'a>>);

impl<'a> ChatConversation<'a> {
    /// Parses the messages; the request's edits must be applied already.
    pub(super) fn parse(messages: &'a [u8]) -> Self {
        let turn = |raw| {
            let role =
                match json_cursor::member_value(raw, "role").and_then(json_cursor::parse_string).as_deref() {
                    Some("system" | "developer") => ChatRole::System,
                    Some("assistant") => ChatRole::Assistant,
                    Some("tool") => ChatRole::Tool,
                    _ => ChatRole::User,
                };
            let contents = json_cursor::member_value(raw, "content").map(Cow::Borrowed).into_iter().collect();
            RewrittenMessage { role, raw, contents, is_changed: false, names_authors: false }
        };
        Self(json_cursor::elements(messages).map(turn).collect())
    }

    /// Moves content that the offer does not accept at its position: images in tool results, and system messages that
    /// are not at the beginning. Joins the system messages at the beginning into one.
    pub(super) fn relocate_unsupported_content(&mut self, abilities: &OfferCapabilities) {
        if !abilities.tool_images {
            self.move_tool_images();
        }
        if !abilities.system_anywhere {
            self.fold_system_messages();
        }
    }

    /// Appends the delivered text as a new assistant message. If `prefilled` is true and the client's last message is
    /// of the assistant, appends the text to that message instead.
    ///
    /// # Errors
    /// Returns `Unsupported` if that message is not plain text.
    pub(super) fn append_delivered_text(&mut self, delivered: &str, prefilled: bool) -> Result<(), ApiError> {
        let mut content = Vec::with_capacity(delivered.len() + 2);
        json::write_str(&mut content, delivered);
        let last = self.0.last_mut().filter(|turn| prefilled && turn.role == ChatRole::Assistant);
        match last {
            Some(last) => {
                // The prefill and the delivered text become a single text, so that the model sees no boundary between
                // them.
                let [Cow::Borrowed(begun)] = last.contents.as_slice() else { return Err(not_text_error()) };
                let begun = begun.strip_suffix(b"\"").filter(|begun| begun.first() == Some(&b'"'));
                let joined =
                    [begun.ok_or_else(not_text_error)?, content.get(1..).unwrap_or_default()].concat();
                last.contents = vec![Cow::Owned(joined)];
                last.is_changed = true;
            }
            None => self.0.push(RewrittenMessage {
                role: ChatRole::Assistant,
                raw: b"",
                contents: vec![Cow::Owned(content)],
                is_changed: true,
                names_authors: false,
            }),
        }
        Ok(())
    }

    fn fold_system_messages(&mut self) {
        let leading = self.0.iter().take_while(|turn| turn.role == ChatRole::System).count();
        let systems = self.0.iter().filter(|turn| turn.role == ChatRole::System);
        let names_authors = has_several_authors(systems.map(RewrittenMessage::name));
        let mut folded: Vec<RewrittenMessage<'a>> = Vec::with_capacity(self.0.len());
        // System texts that wait for the next user message.
        let mut moving: Vec<Cow<'a, [u8]>> = Vec::new();
        for (at, mut turn) in std::mem::take(&mut self.0).into_iter().enumerate() {
            if turn.role == ChatRole::System && names_authors {
                turn.prefix_author();
            }
            match turn.role {
                ChatRole::System if at >= leading => {
                    moving.extend(turn.contents.drain(..).flat_map(instruction_texts).map(mark_as_system))
                }
                // Each leading message is read only once, because a request may have 200,000 of them.
                ChatRole::System if leading > 1 => match folded.first_mut() {
                    Some(first) => first.contents.extend(turn.contents.drain(..).flat_map(instruction_texts)),
                    None => {
                        turn.contents = turn.contents.into_iter().flat_map(instruction_texts).collect();
                        turn.is_changed = true;
                        folded.push(turn);
                    }
                },
                ChatRole::User if !moving.is_empty() => {
                    moving.append(&mut turn.contents);
                    turn.contents = std::mem::take(&mut moving);
                    turn.is_changed = true;
                    folded.push(turn);
                }
                ChatRole::Assistant if !moving.is_empty() => {
                    flush_system_texts(&mut folded, &mut moving);
                    folded.push(turn);
                }
                _ => folded.push(turn),
            }
        }
        flush_system_texts(&mut folded, &mut moving);
        self.0 = folded;
    }

    fn move_tool_images(&mut self) {
        let mut moved: Vec<RewrittenMessage<'a>> = Vec::with_capacity(self.0.len());
        let mut moving: Vec<Cow<'a, [u8]>> = Vec::new();
        for mut turn in std::mem::take(&mut self.0) {
            if turn.role == ChatRole::Tool {
                extract_images(&mut turn, &mut moving);
            } else if !moving.is_empty() {
                if turn.role == ChatRole::User {
                    moving.append(&mut turn.contents);
                    turn.contents = std::mem::take(&mut moving);
                    turn.is_changed = true;
                } else {
                    moved.push(generated_user_message(std::mem::take(&mut moving)));
                }
            }
            moved.push(turn);
        }
        if !moving.is_empty() {
            moved.push(generated_user_message(moving));
        }
        self.0 = moved;
    }

    /// Writes the messages; `mark` is set if the provider must continue the last message.
    pub(super) fn write(
        &self,
        target: &AttemptTarget<'_>,
        mark: Option<ContinuationMark>,
        out: &mut BodyBuilder<'_>,
    ) {
        out.push_byte(b'[');
        for (at, turn) in self.0.iter().enumerate() {
            if at > 0 {
                out.push_byte(b',');
            }
            turn.write(target, mark.filter(|_| at + 1 == self.0.len()), out);
        }
        out.push_byte(b']');
    }
}

fn not_text_error() -> ApiError {
    ApiError::unsupported("messages", "Only a last message of plain text can be continued.")
}

/// Adds the waiting system texts to the last message if it is a user message, and otherwise to a new user message.
fn flush_system_texts<'a>(folded: &mut Vec<RewrittenMessage<'a>>, moving: &mut Vec<Cow<'a, [u8]>>) {
    if moving.is_empty() {
        return;
    }
    match folded.last_mut().filter(|turn| turn.role == ChatRole::User) {
        Some(turn) => {
            turn.contents.append(moving);
            turn.is_changed = true;
        }
        None => folded.push(generated_user_message(std::mem::take(moving))),
    }
}

/// Returns the texts of a system message's content as separate strings, because templates expect strings, not parts.
fn instruction_texts(content: Cow<'_, [u8]>) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let (list, whole) = match content {
        Cow::Borrowed(list) if json_cursor::is_array(list) => (list, None),
        other => (&[][..], Some(other)),
    };
    let parts = json_cursor::elements(list)
        .filter_map(|part| json_cursor::member_value(part, "text"))
        .map(Cow::Borrowed);
    whole.into_iter().chain(parts)
}

/// Marks a system text that moves into a user message as not from the user. An empty text stays empty.
fn mark_as_system(content: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match json_cursor::string_body(&content) {
        Some(text) if !text.is_empty() => Cow::Owned([br#""<system>\n"#, text, br#"\n</system>""#].concat()),
        _ => content,
    }
}

/// Creates a user message that the client did not send.
fn generated_user_message(contents: Vec<Cow<'_, [u8]>>) -> RewrittenMessage<'_> {
    RewrittenMessage { role: ChatRole::User, raw: b"", contents, is_changed: true, names_authors: false }
}

/// Retains the texts of a tool result as one string, with a placeholder for each image, and moves the images to
/// `moving`.
fn extract_images<'a>(turn: &mut RewrittenMessage<'a>, moving: &mut Vec<Cow<'a, [u8]>>) {
    let [Cow::Borrowed(list)] = turn.contents.as_slice() else { return };
    let is_text = |part: &&[u8]| {
        json_cursor::member_value(part, "type").is_some_and(|kind| json::json_string_equals(kind, "text"))
    };
    if !json_cursor::is_array(list) || json_cursor::elements(list).all(|part| is_text(&part)) {
        return;
    }
    let list = *list;
    let (mut texts, mut images) = (b"\"".to_vec(), b"[".to_vec());
    for part in json_cursor::elements(list) {
        let text = json_cursor::member_value(part, "text")
            .and_then(json_cursor::string_body)
            .filter(|_| is_text(&part));
        if texts.len() > 1 {
            texts.extend_from_slice(b"\\n");
        }
        texts.extend_from_slice(text.unwrap_or(b"[image: see next message]"));
        if text.is_none() {
            if images.len() > 1 {
                images.push(b',');
            }
            images.extend_from_slice(part);
        }
    }
    texts.push(b'"');
    images.push(b']');
    turn.contents = vec![Cow::Owned(texts)];
    turn.is_changed = true;
    moving.push(Cow::Owned(images));
}

impl<'a> RewrittenMessage<'a> {
    /// Returns the name of the author, as the body of a JSON string; `None` if it is absent or blank.
    fn name(&self) -> Option<&'a [u8]> {
        let name = json_cursor::member_value(self.raw, "name").and_then(json_cursor::string_body);
        name.filter(|name| !json_cursor::is_blank_string_body(name))
    }

    /// Writes the author's name at the beginning of the first text, and separates the texts.
    fn prefix_author(&mut self) {
        self.contents = std::mem::take(&mut self.contents).into_iter().flat_map(instruction_texts).collect();
        (self.is_changed, self.names_authors) = (true, true);
        let text = self.contents.first().and_then(|text| json_cursor::string_body(text));
        if let (Some(name), Some(text)) = (self.name(), text.filter(|text| !text.is_empty())) {
            let named = [b"\"", name, b": ", text, b"\""].concat();
            self.contents.splice(..1, [Cow::Owned(named)]);
        }
    }
}

impl RewrittenMessage<'_> {
    fn write(&self, target: &AttemptTarget<'_>, mark: Option<ContinuationMark>, out: &mut BodyBuilder<'_>) {
        let role = match self.role {
            ChatRole::System => "system",
            ChatRole::User => "user",
            ChatRole::Assistant => "assistant",
            ChatRole::Tool => "tool",
        };
        out.push_str(r#"{"role":""#);
        out.push_str(role);
        out.push_byte(b'"');
        if self.is_changed {
            self.write_content(out);
        }
        let shortens_ids = target.capabilities.short_tool_ids;
        for (key, value) in json_cursor::members(self.raw) {
            let dropped = match &*key {
                "role" => true,
                "content" => self.is_changed,
                "name" => self.names_authors,
                "reasoning" | "reasoning_content" => true,
                _ => false,
            };
            if dropped {
                continue;
            }
            out.push_byte(b',');
            out.push_json_string(&key);
            out.push_byte(b':');
            match &*key {
                "tool_calls" if shortens_ids => write_tool_calls(value, out),
                "tool_call_id" if shortens_ids => write_call_id(value, out),
                _ => out.push_source(value),
            }
        }
        if let Some((name, thought)) = target.reasoning_replay_member().zip(reasoning_value(self.raw)) {
            out.push_byte(b',');
            out.push_json_string(name.as_str());
            out.push_byte(b':');
            out.push_source(thought);
        }
        if let Some(mark) = mark {
            mark.write_message_member(out);
        }
        out.push_byte(b'}');
    }

    /// Writes the contents as one: texts joined by an empty line, or one list of parts if any of them is a list.
    fn write_content(&self, out: &mut BodyBuilder<'_>) {
        out.push_str(r#","content":"#);
        let texts = self.contents.iter().all(|content| !json_cursor::is_array(content));
        out.push_byte(if texts { b'"' } else { b'[' });
        for (at, content) in self.contents.iter().enumerate() {
            match (texts, json_cursor::string_body(content)) {
                (true, inner) => {
                    out.push_str(if at > 0 { r"\n\n" } else { "" });
                    out.push_source(inner.unwrap_or_default());
                }
                (false, None) => {
                    out.push_str(if at > 0 { "," } else { "" });
                    out.push_source(content.get(1..content.len() - 1).unwrap_or_default());
                }
                (false, Some(inner)) => {
                    out.push_str(if at > 0 { "," } else { "" });
                    out.push_str(r#"{"type":"text","text":""#);
                    out.push_source(inner);
                    out.push_str(r#""}"#);
                }
            }
        }
        out.push_byte(if texts { b'"' } else { b']' });
    }
}

/// Returns the reasoning of a message: `reasoning_content`, or else `reasoning`. Empty values count as absent.
fn reasoning_value(message: &[u8]) -> Option<&[u8]> {
    let has_text = |value: &&[u8]| !matches!(*value, b"null" | b"\"\"");
    let under = |name| json_cursor::member_value(message, name).filter(has_text);
    under("reasoning_content").or_else(|| under("reasoning"))
}

fn write_tool_calls(list: &[u8], out: &mut BodyBuilder<'_>) {
    out.push_byte(b'[');
    for (at, call) in json_cursor::elements(list).enumerate() {
        out.push_str(if at > 0 { ",{" } else { "{" });
        for (at, (key, value)) in json_cursor::members(call).enumerate() {
            out.push_str(if at > 0 { "," } else { "" });
            out.push_json_string(&key);
            out.push_byte(b':');
            if key == "id" { write_call_id(value, out) } else { out.push_source(value) }
        }
        out.push_byte(b'}');
    }
    out.push_byte(b']');
}

fn write_call_id(value: &[u8], out: &mut BodyBuilder<'_>) {
    out.push_byte(b'"');
    out.push_source(&ids::nine_char_call_id(json_cursor::string_body(value).unwrap_or_default()));
    out.push_byte(b'"');
}
