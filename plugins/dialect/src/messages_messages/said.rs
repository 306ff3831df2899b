//! Content of one message, as slices of its bytes.

use crate::body_builder::BodyBuilder;
use crate::json_cursor::{self, JsonCursor};
use crate::messages_chat::ids;
use std::borrow::Cow;
use std::convert::Infallible;

/// Start of a system text in which coding agents send a hash of each request, which would defeat every prefix cache.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

/// One block, or a text that is written as a block.
pub(super) enum Said<'a> {
    /// Original block, and edits of some of its parts.
    Block { block: &'a [u8], edits: Vec<(&'a [u8], Edit<'a>)>, text: Option<&'a [u8]> },
    /// String with its quotes, written as a text block.
    Text(&'a [u8]),
    /// System text (string with its quotes) that is written in a user message.
    Folded(&'a [u8]),
}

/// Edit of a part of a block.
pub(super) enum Edit<'a> {
    /// Content of a tool result without blank texts.
    Content(Content<'a>),
    /// Id in characters that every provider accepts.
    Id,
    /// System text, marked as not from the user.
    Mark,
}

/// `content` of a message or a tool result, or value of `system`.
#[derive(Default)]
pub(super) struct Content<'a> {
    /// Original bytes.
    pub(super) value: &'a [u8],
    pub(super) said: Vec<Said<'a>>,
    /// True if the slices differ from the original bytes.
    pub(super) changed: bool,
    /// True if all texts are blank and are retained because there is no other content.
    pub(super) idle: bool,
    /// Number of `tool_use` blocks.
    pub(super) calls: usize,
    /// Number of `tool_result` blocks.
    pub(super) results: usize,
    /// Number of slices in `said` up to and including the last tool result.
    behind_results: usize,
}

impl<'a> Content<'a> {
    /// Parses the next value without its blank texts; with `system`, also removes the billing header.
    pub(super) fn read(cursor: &mut JsonCursor<'a>, system: bool) -> Self {
        let start = cursor.at();
        let mut content = Self::default();
        if cursor.peek_byte() == Some(b'[') {
            let Ok(()) = cursor.visit_elements::<Infallible>(|_, block| {
                content.block(block);
                Ok(())
            });
        } else {
            let text = cursor.take_value();
            content.said.extend((!is_blank(text)).then_some(Said::Text(text)));
        }
        content.value = cursor.slice_from(start);
        if system {
            content.leave_out_billing();
        }
        content
    }

    /// Restores the blank texts if there is no other content.
    pub(super) fn unless_empty(mut self) -> Self {
        if !self.said.is_empty() {
            return self;
        }
        if json_cursor::is_array(self.value) {
            let block = |block| Said::Block { block, edits: Vec::new(), text: None };
            self.said.extend(json_cursor::elements(self.value).map(block));
        } else if !self.value.is_empty() {
            self.said.push(Said::Text(self.value));
        }
        self.changed = false;
        self.idle = true;
        self
    }

    fn block(&mut self, cursor: &mut JsonCursor<'a>) {
        let start = cursor.at();
        let (mut kind, mut text, mut inner) = (Cow::Borrowed(""), None, None);
        let (mut own, mut answered) = (None, None);
        let Ok(()) = cursor.visit_members::<Infallible>(|key, value| {
            match key {
                "type" => kind = json_cursor::parse_string(value.take_value()).unwrap_or_default(),
                "text" => text = Some(value.take_value()),
                "id" => own = Some(value.take_value()),
                "tool_use_id" => answered = Some(value.take_value()),
                "content" if value.peek_byte() == Some(b'[') => inner = Some(Self::read(value, false)),
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
        let odd = id.filter(|id| json_cursor::string_body(id).is_some_and(|id| !ids::is_plain(id)));
        let mut edits: Vec<_> = odd.map(|id| (id, Edit::Id)).into_iter().collect();
        let inner = inner.filter(|content| &*kind == "tool_result" && content.changed);
        edits.extend(inner.map(|content| (content.value, Edit::Content(content))));
        self.changed |= !edits.is_empty();
        if &*kind == "text" && text.is_some_and(is_blank) {
            self.changed = true;
        } else {
            self.said.push(Said::Block { block, edits, text });
        }
        match &*kind {
            "tool_use" => self.calls += 1,
            "tool_result" => {
                self.results += 1;
                self.behind_results = self.said.len();
            }
            _ => {}
        }
    }

    /// Removes blocks with the billing header; a string is retained, because it would be the complete prompt.
    pub(super) fn leave_out_billing(&mut self) {
        let before = self.said.len();
        self.said.retain(|said| match said {
            Said::Block { text: Some(text), .. } => {
                !json_cursor::string_body(text).is_some_and(|text| text.starts_with(BILLING_HEADER))
            }
            _ => true,
        });
        self.changed |= self.said.len() < before;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.said.is_empty()
    }

    /// Appends the slices of another content.
    pub(super) fn append(&mut self, mut other: Self) {
        self.changed |= !other.said.is_empty();
        if other.results > 0 {
            self.behind_results = self.said.len() + other.behind_results;
        }
        self.results += other.results;
        self.said.append(&mut other.said);
    }

    /// Inserts system texts after the tool results and before everything else.
    pub(super) fn insert(&mut self, texts: Vec<Said<'a>>) {
        self.changed |= !texts.is_empty();
        self.said.splice(self.behind_results..self.behind_results, texts);
    }

    /// Marks system texts as not from the user, so that they can move into a user message.
    pub(super) fn marked(mut self) -> Self {
        for said in &mut self.said {
            match said {
                Said::Text(text) => *said = Said::Folded(text),
                Said::Block { edits, text: Some(text), .. } => edits.push((text, Edit::Mark)),
                Said::Block { .. } | Said::Folded(_) => {}
            }
        }
        self
    }

    pub(super) fn write(&self, out: &mut BodyBuilder<'_>) {
        if !self.changed {
            return out.push_source(self.value);
        }
        out.push_byte(b'[');
        for (at, said) in self.said.iter().enumerate() {
            if at > 0 {
                out.push_byte(b',');
            }
            said.write(out);
        }
        out.push_byte(b']');
    }
}

impl Said<'_> {
    fn write(&self, out: &mut BodyBuilder<'_>) {
        match self {
            Self::Block { block, edits, .. } => write_edited(block, edits, out),
            Self::Text(text) => {
                out.push_str(r#"{"type":"text","text":"#);
                out.push_source(text);
                out.push_byte(b'}');
            }
            Self::Folded(text) => {
                out.push_str(r#"{"type":"text","text":"#);
                write_marked(text, out);
                out.push_byte(b'}');
            }
        }
    }
}

/// Writes a block with its edits applied in the order of their positions.
fn write_edited(block: &[u8], edits: &[(&[u8], Edit<'_>)], out: &mut BodyBuilder<'_>) {
    let mut rest = block;
    let mut edits: Vec<_> = edits.iter().collect();
    edits.sort_by_key(|(part, _)| part.as_ptr() as usize);
    for (part, edit) in edits {
        let Some((before, after)) = around(rest, part) else { continue };
        out.push_source(before);
        match edit {
            Edit::Content(content) => content.write(out),
            Edit::Id => {
                out.push_byte(b'"');
                out.push_source(&ids::plain(json_cursor::string_body(part).unwrap_or_default()));
                out.push_byte(b'"');
            }
            Edit::Mark => write_marked(part, out),
        }
        rest = after;
    }
    out.push_source(rest);
}

fn write_marked(text: &[u8], out: &mut BodyBuilder<'_>) {
    out.push_str(r#""<system>\n"#);
    out.push_source(json_cursor::string_body(text).unwrap_or_default());
    out.push_str(r#"\n</system>""#);
}

fn is_blank(text: &[u8]) -> bool {
    json_cursor::string_body(text).is_some_and(json_cursor::is_blank)
}

/// Returns the bytes of `whole` before and after its slice `part`; `None` if `part` is not within `whole`.
pub(super) fn around<'a>(whole: &'a [u8], part: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    Some((whole.get(..start)?, whole.get(start.checked_add(part.len())?..)?))
}
