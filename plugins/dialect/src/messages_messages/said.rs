//! What one message says, as slices of it.

use crate::body_builder::BodyBuilder;
use crate::json_cursor::{self, JsonCursor};
use crate::messages_chat::ids;
use std::borrow::Cow;
use std::convert::Infallible;

/// Coding agents put a hash of each request here, which would defeat every prefix cache.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

/// One block, or what becomes one.
pub(super) enum Said<'a> {
    /// A block as it came, less some parts that are told otherwise.
    Block { block: &'a [u8], edits: Vec<(&'a [u8], Edit<'a>)>, text: Option<&'a [u8]> },
    /// A string with its quotes, to be said as a text block.
    Text(&'a [u8]),
    /// A string with its quotes, a system text that is said in a turn of the user.
    Folded(&'a [u8]),
}

/// Change of a part of a block.
pub(super) enum Edit<'a> {
    /// Content of a tool result, less idle texts.
    Content(Content<'a>),
    /// An id in characters that every provider takes.
    Id,
    /// A system text, marked as not from the user.
    Mark,
}

/// The `content` of a message or a tool result, or a `system`.
#[derive(Default)]
pub(super) struct Content<'a> {
    /// As it came.
    pub(super) value: &'a [u8],
    pub(super) said: Vec<Said<'a>>,
    /// What is said differs from what came.
    pub(super) changed: bool,
    /// Nothing but idle texts, kept because nothing else is said.
    pub(super) idle: bool,
    /// Blocks that call a tool.
    pub(super) calls: usize,
    /// Blocks that are a tool's result.
    pub(super) results: usize,
    /// How many of `said` come up to the last result.
    behind_results: usize,
}

impl<'a> Content<'a> {
    /// Reads the value that comes, without idle texts; `system` leaves the billing header out.
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

    /// The same with its idle texts, where nothing else is said.
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

    /// A block with that header goes, and only a block: a string would be the whole prompt.
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

    /// Adds what another one says.
    pub(super) fn append(&mut self, mut other: Self) {
        self.changed |= !other.said.is_empty();
        if other.results > 0 {
            self.behind_results = self.said.len() + other.behind_results;
        }
        self.results += other.results;
        self.said.append(&mut other.said);
    }

    /// Adds system texts: behind the tool results, before everything else.
    pub(super) fn insert(&mut self, texts: Vec<Said<'a>>) {
        self.changed |= !texts.is_empty();
        self.said.splice(self.behind_results..self.behind_results, texts);
    }

    /// System texts on their way into a turn of the user, marked as not from the user.
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

/// A block with its edits, in the order of where they stand.
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

/// What stands before and behind `part` in `whole`; none if it does not stand there.
pub(super) fn around<'a>(whole: &'a [u8], part: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    Some((whole.get(..start)?, whole.get(start.checked_add(part.len())?..)?))
}
