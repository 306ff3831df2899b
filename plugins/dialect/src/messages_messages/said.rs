//! What one message says, as slices of it.

use crate::pieces::Pieces;
use crate::scan::{self, Cursor};
use std::borrow::Cow;
use std::convert::Infallible;

/// Coding agents put a hash of each request here, which would defeat every prefix cache.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

/// One block, or what becomes one.
pub(super) enum Said<'a> {
    /// A block as it came.
    Block(&'a [u8]),
    /// A string with its quotes, to be said as a text block.
    Text(&'a [u8]),
    /// A tool result, less empty texts.
    Result { block: &'a [u8], content: Content<'a> },
}

/// The `content` of a message or a tool result, or a `system`.
#[derive(Default)]
pub(super) struct Content<'a> {
    /// As it came.
    pub(super) value: &'a [u8],
    pub(super) said: Vec<Said<'a>>,
    /// What is said differs from what came.
    pub(super) changed: bool,
    /// Blocks that call a tool.
    pub(super) calls: usize,
    /// Blocks that are a tool's result.
    pub(super) results: usize,
    /// How many of `said` come up to the last result.
    behind_results: usize,
}

impl<'a> Content<'a> {
    /// Reads the value that comes, without empty texts; `system` leaves the billing header out.
    pub(super) fn read(cursor: &mut Cursor<'a>, system: bool) -> Self {
        let start = cursor.at();
        let mut content = Self::default();
        if cursor.first() == Some(b'[') {
            let Ok(()) = cursor.elements::<Infallible>(|_, block| {
                content.block(block);
                Ok(())
            });
        } else {
            let text = cursor.value();
            content.said.extend((text != b"\"\"").then_some(Said::Text(text)));
        }
        content.value = cursor.since(start);
        if system {
            content.leave_out_billing();
        }
        content
    }

    fn block(&mut self, cursor: &mut Cursor<'a>) {
        let start = cursor.at();
        let (mut kind, mut text, mut inner) = (Cow::Borrowed(""), None, None);
        let Ok(()) = cursor.members::<Infallible>(|key, value| {
            match key {
                "type" => kind = scan::string(value.value()).unwrap_or_default(),
                "text" => text = Some(value.value()),
                "content" if value.first() == Some(b'[') => inner = Some(Self::read(value, false)),
                _ => {}
            }
            Ok(())
        });
        let block = cursor.since(start);
        match (&*kind, inner) {
            ("text", _) if text == Some(b"\"\"") => self.changed = true,
            ("tool_result", Some(content)) if content.changed => {
                self.said.push(Said::Result { block, content });
                self.changed = true;
            }
            _ => self.said.push(Said::Block(block)),
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
            Said::Block(block) => !scan::member(block, "text")
                .and_then(scan::inner)
                .is_some_and(|text| text.starts_with(BILLING_HEADER)),
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

    pub(super) fn write(&self, out: &mut Pieces<'_>) {
        if !self.changed {
            return out.raw(self.value);
        }
        out.byte(b'[');
        for (at, said) in self.said.iter().enumerate() {
            if at > 0 {
                out.byte(b',');
            }
            said.write(out);
        }
        out.byte(b']');
    }
}

impl Said<'_> {
    fn write(&self, out: &mut Pieces<'_>) {
        match self {
            Self::Block(block) => out.raw(block),
            Self::Text(text) => {
                out.put(r#"{"type":"text","text":"#);
                out.raw(text);
                out.byte(b'}');
            }
            Self::Result { block, content } => {
                let Some((before, after)) = around(block, content.value) else { return };
                out.raw(before);
                content.write(out);
                out.raw(after);
            }
        }
    }
}

/// What stands before and behind `part` in `whole`; none if it does not stand there.
pub(super) fn around<'a>(whole: &'a [u8], part: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    Some((whole.get(..start)?, whole.get(start.checked_add(part.len())?..)?))
}
