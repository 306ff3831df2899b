//! Content of one message as slices of its bytes, with the edits that a provider needs.

use crate::body_builder::BodyBuilder;
use crate::json_cursor::{self, JsonCursor};
use crate::messages_to_chat::ids;
use std::borrow::Cow;
use std::convert::Infallible;

/// Prefix of a system text in which coding agents send a hash of each request. With this text, no provider could cache
/// the prefix of the prompt.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

/// Content block, or text that is written as a block.
pub(super) enum RewrittenBlock<'a> {
    /// Original content block, edits of slices of it, and the value of its member `text`.
    Block { block: &'a [u8], edits: Vec<(&'a [u8], BlockEdit<'a>)>, text: Option<&'a [u8]> },
    /// JSON string with its quotes, which is written as a text block.
    Text(&'a [u8]),
    /// System text (string with its quotes) that is written in a user message.
    FoldedSystem(&'a [u8]),
}

/// Edit of a part of a block.
pub(super) enum BlockEdit<'a> {
    /// Replacement of a tool result's content by its edited form, for example without blank texts.
    Content(EditedContent<'a>),
    /// Replacement of an id by one with characters that every provider accepts.
    PortableId,
    /// Replacement of a call's input `null` by an empty object.
    EmptyInput,
    /// Insertion of an empty input after the other members of a tool call.
    AddedInput,
    /// Mark of a system text in a user message, which says that it is not from the user.
    SystemMark,
}

/// `content` of a message or a tool result, or value of `system`.
#[derive(Default)]
pub(super) struct EditedContent<'a> {
    /// JSON value as the client sent it.
    pub(super) value: &'a [u8],
    pub(super) blocks: Vec<RewrittenBlock<'a>>,
    /// True if `blocks` differs from the original bytes (`value`).
    pub(super) is_changed: bool,
    /// True if all texts are blank and are retained because there is no other content.
    pub(super) has_only_blank_text: bool,
    /// Number of `tool_use` blocks.
    pub(super) call_count: usize,
    /// Number of `tool_result` blocks.
    pub(super) result_count: usize,
    /// Number of elements of `blocks` up to and including the last tool result.
    blocks_through_results: usize,
}

impl<'a> EditedContent<'a> {
    /// Parses the next value and drops blank text blocks. If `system` is true, also drops the text block with the
    /// billing header of coding agents.
    pub(super) fn parse(cursor: &mut JsonCursor<'a>, system: bool) -> Self {
        let start = cursor.position();
        let mut content = Self::default();
        if cursor.peek_byte() == Some(b'[') {
            let Ok(()) = cursor.visit_elements::<Infallible>(|_, block| {
                content.parse_block(block);
                Ok(())
            });
        } else {
            let text = cursor.take_value();
            content.blocks.extend((!is_blank_string(text)).then_some(RewrittenBlock::Text(text)));
        }
        content.value = cursor.slice_from(start);
        if system {
            content.remove_billing_header();
        }
        content
    }

    /// Restores the original content of a message if all its texts were blank and no block is left.
    pub(super) fn restore_if_empty(mut self) -> Self {
        if !self.blocks.is_empty() {
            return self;
        }
        if json_cursor::is_array(self.value) {
            let block = |block| RewrittenBlock::Block { block, edits: Vec::new(), text: None };
            self.blocks.extend(json_cursor::elements(self.value).map(block));
        } else if !self.value.is_empty() {
            self.blocks.push(RewrittenBlock::Text(self.value));
        }
        self.is_changed = false;
        self.has_only_blank_text = true;
        self
    }

    fn parse_block(&mut self, cursor: &mut JsonCursor<'a>) {
        let start = cursor.position();
        let (mut kind, mut text, mut inner) = (Cow::Borrowed(""), None, None);
        let (mut own, mut answered, mut input) = (None, None, None);
        let Ok(()) = cursor.visit_members::<Infallible>(|key, value| {
            match key {
                "type" => kind = json_cursor::parse_string(value.take_value()).unwrap_or_default(),
                "text" => text = Some(value.take_value()),
                "id" => own = Some(value.take_value()),
                "input" => input = Some(value.take_value()),
                "tool_use_id" => answered = Some(value.take_value()),
                "content" if value.peek_byte() == Some(b'[') => inner = Some(Self::parse(value, false)),
                _ => {}
            }
            Ok(())
        });
        let block = cursor.slice_from(start);
        let id = match &*kind {
            "tool_use" => own,
            "tool_result" => answered,
            _ => None,
        };
        let odd =
            id.filter(|id| json_cursor::string_body(id).is_some_and(|id| !ids::is_portable_call_id(id)));
        let mut edits: Vec<_> = odd.map(|id| (id, BlockEdit::PortableId)).into_iter().collect();
        if &*kind == "tool_use" {
            edits.extend(missing_input(block, input));
        }
        let inner = inner.filter(|content| &*kind == "tool_result" && content.is_changed);
        edits.extend(inner.map(|content| (content.value, BlockEdit::Content(content))));
        self.is_changed |= !edits.is_empty();
        if &*kind == "text" && text.is_some_and(is_blank_string) {
            self.is_changed = true;
        } else {
            self.blocks.push(RewrittenBlock::Block { block, edits, text });
        }
        match &*kind {
            "tool_use" => self.call_count += 1,
            "tool_result" => {
                self.result_count += 1;
                self.blocks_through_results = self.blocks.len();
            }
            _ => {}
        }
    }

    /// Removes blocks with the billing header. A string with it is retained, because it is the complete prompt.
    pub(super) fn remove_billing_header(&mut self) {
        let before = self.blocks.len();
        self.blocks.retain(|block| match block {
            RewrittenBlock::Block { text: Some(text), .. } => {
                !json_cursor::string_body(text).is_some_and(|text| text.starts_with(BILLING_HEADER))
            }
            _ => true,
        });
        self.is_changed |= self.blocks.len() < before;
    }

    /// Returns true if no blocks remain.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Appends the blocks of another message's content.
    pub(super) fn append(&mut self, mut other: Self) {
        self.is_changed |= !other.blocks.is_empty();
        if other.result_count > 0 {
            self.blocks_through_results = self.blocks.len() + other.blocks_through_results;
        }
        self.result_count += other.result_count;
        self.blocks.append(&mut other.blocks);
    }

    /// Inserts system texts directly after the tool results, before all other content.
    pub(super) fn insert_system_texts(&mut self, texts: Vec<RewrittenBlock<'a>>) {
        self.is_changed |= !texts.is_empty();
        self.blocks.splice(self.blocks_through_results..self.blocks_through_results, texts);
    }

    /// Marks system texts as not from the user, so that they can move into a user message.
    pub(super) fn mark_as_system(mut self) -> Self {
        for block in &mut self.blocks {
            match block {
                RewrittenBlock::Text(text) => *block = RewrittenBlock::FoldedSystem(text),
                RewrittenBlock::Block { edits, text: Some(text), .. } => {
                    edits.push((text, BlockEdit::SystemMark))
                }
                RewrittenBlock::Block { .. } | RewrittenBlock::FoldedSystem(_) => {}
            }
        }
        self
    }

    /// Writes the content: the original value if it is unchanged, and otherwise a list of the blocks.
    pub(super) fn write(&self, out: &mut BodyBuilder<'_>) {
        if !self.is_changed {
            return out.push_source(self.value);
        }
        out.push_byte(b'[');
        for (at, block) in self.blocks.iter().enumerate() {
            if at > 0 {
                out.push_byte(b',');
            }
            block.write(out);
        }
        out.push_byte(b']');
    }
}

impl RewrittenBlock<'_> {
    fn write(&self, out: &mut BodyBuilder<'_>) {
        match self {
            Self::Block { block, edits, .. } => write_edited(block, edits, out),
            Self::Text(text) => {
                out.push_str(r#"{"type":"text","text":"#);
                out.push_source(text);
                out.push_byte(b'}');
            }
            Self::FoldedSystem(text) => {
                out.push_str(r#"{"type":"text","text":"#);
                write_system_text(text, out);
                out.push_byte(b'}');
            }
        }
    }
}

/// Writes a block with its edits applied in the order of their positions.
fn write_edited(block: &[u8], edits: &[(&[u8], BlockEdit<'_>)], out: &mut BodyBuilder<'_>) {
    let mut rest = block;
    let mut edits: Vec<_> = edits.iter().collect();
    edits.sort_by_key(|(part, _)| part.as_ptr() as usize);
    for (part, edit) in edits {
        let Some((before, after)) = split_around(rest, part) else { continue };
        out.push_source(before);
        match edit {
            BlockEdit::Content(content) => content.write(out),
            BlockEdit::PortableId => {
                out.push_byte(b'"');
                out.push_source(&ids::portable_call_id(json_cursor::string_body(part).unwrap_or_default()));
                out.push_byte(b'"');
            }
            BlockEdit::EmptyInput => out.push_str("{}"),
            BlockEdit::AddedInput => out.push_str(r#","input":{}"#),
            BlockEdit::SystemMark => write_system_text(part, out),
        }
        rest = after;
    }
    out.push_source(rest);
}

/// Returns the edit for a call whose input is null or absent; `None` for other calls.
fn missing_input<'a>(block: &'a [u8], input: Option<&'a [u8]>) -> Option<(&'a [u8], BlockEdit<'a>)> {
    match input {
        Some(null) if json_cursor::is_null(null) => Some((null, BlockEdit::EmptyInput)),
        Some(_) => None,
        None => {
            let end = block.len().checked_sub(1)?;
            Some((block.get(end..end)?, BlockEdit::AddedInput))
        }
    }
}

fn write_system_text(text: &[u8], out: &mut BodyBuilder<'_>) {
    out.push_str(r#""<system>\n"#);
    out.push_source(json_cursor::string_body(text).unwrap_or_default());
    out.push_str(r#"\n</system>""#);
}

fn is_blank_string(text: &[u8]) -> bool {
    json_cursor::string_body(text).is_some_and(json_cursor::is_blank_string_body)
}

/// Returns the bytes of `whole` before and after `part`; `None` if `part` is not a slice within `whole`.
pub(super) fn split_around<'a>(whole: &'a [u8], part: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    Some((whole.get(..start)?, whole.get(start.checked_add(part.len())?..)?))
}
