//! Complete item: from the event that ends the item, or from the last event.

use super::{ItemKind, MAX_PARTS, OutputItemDecoder, call_name};
use crate::decode::responses::context::OutputContext;
use crate::decode::responses::malformed_error;
use crate::decode::responses::part::{OutputPartDecoder, PartKey, PartKind, part_kind_and_text};
use crate::decode::responses::text_record::FinalTextComparison;
use crate::event::AnswerEvent;
use crate::json_cursor;
use penstock_core::UpstreamError;
use penstock_json_scan::json;
use std::borrow::Cow;

/// Complete text of a part.
struct CompleteText<'a> {
    key: PartKey,
    /// JSON string.
    value: &'a [u8],
    text: Cow<'a, str>,
    logprobs: Option<&'a [u8]>,
}

/// Relation between the complete texts of a kind and the emitted ones.
#[derive(Clone, Copy)]
enum Alignment {
    /// The complete texts one after the other begin with the emitted ones. Contains the number of bytes, from the
    /// start of the complete texts, that were emitted.
    Consecutive(usize),
    /// Each part with emitted text has a complete text with its index.
    ByIndex,
}

impl OutputItemDecoder {
    /// Closes the item and emits the missing ends of its texts. Returns `Malformed` for an item without content if no
    /// earlier event had any.
    pub(in crate::decode::responses) fn close(
        &mut self,
        item: &[u8],
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        self.is_open = false;
        let required = match self.kind {
            ItemKind::Call(_) | ItemKind::UnnamedCall => Some("arguments"),
            ItemKind::Message => Some("content"),
            ItemKind::Reasoning | ItemKind::Other => None,
        };
        let has_text = !self.parts.is_empty() || !self.announced.is_empty();
        if !has_text && required.is_some_and(|name| json_cursor::member_value(item, name).is_none()) {
            return Err(malformed_error());
        }
        self.emit_missing_texts(item, context)?;
        self.emit_initial_texts(context)
    }

    /// Emits the rest of each text of a complete item, beyond what the deltas had.
    pub(in crate::decode::responses) fn emit_missing_texts(
        &mut self,
        item: &[u8],
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        self.name_call(item, context)?;
        if let Some(arguments) = json_cursor::member_value(item, "arguments")
            && matches!(self.kind, ItemKind::Call(_))
        {
            return self.push_complete_text((PartKind::Arguments, 0), arguments, None, context);
        }
        if self.kind == ItemKind::Reasoning {
            self.record_sealed(item, context);
        }
        self.part_lists().iter().try_for_each(|name| {
            json_cursor::member_value(item, name).map_or(Ok(()), |parts| self.push_parts(parts, context))
        })
    }

    /// Returns the names of the members that have the item's parts.
    const fn part_lists(&self) -> &'static [&'static str] {
        match self.kind {
            ItemKind::Call(_) | ItemKind::UnnamedCall | ItemKind::Other => &[],
            ItemKind::Message => &["content"],
            ItemKind::Reasoning => &["content", "summary"],
        }
    }

    /// Returns true if a complete item of the same type does not contradict what was emitted from this one.
    pub(in crate::decode::responses) fn agrees_with(&self, item: &[u8]) -> bool {
        if self.is_call() {
            if self.name.is_some() && self.name != call_name(item) {
                return false;
            }
            let arguments = json_cursor::member_value(item, "arguments").and_then(json_cursor::string_body);
            let arguments = arguments.and_then(json::unescape_lossy).unwrap_or_default();
            let agrees =
                |part: &OutputPartDecoder| part.text.compare(&arguments) != FinalTextComparison::Contradicts;
            return arguments.is_empty() || self.parts.iter().all(agrees);
        }
        self.part_lists().iter().filter_map(|name| json_cursor::member_value(item, name)).all(|parts| {
            let Ok(complete) = self.complete_texts(parts) else { return false };
            let mut kinds =
                PartKind::OF_LISTS.iter().filter(|kind| complete.iter().any(|text| text.key.0 == **kind));
            kinds.all(|kind| self.ignores(*kind) || self.align(*kind, &complete).is_ok())
        })
    }

    /// Emits the size of the encrypted reasoning of an item, without the bytes that were emitted before.
    fn record_sealed(&mut self, item: &[u8], context: &mut OutputContext<'_>) {
        let sealed = json_cursor::member_value(item, "encrypted_content").and_then(json_cursor::string_body);
        let bytes = sealed.map_or(0, <[u8]>::len).saturating_sub(self.sealed_bytes);
        self.sealed_bytes += bytes;
        context.events.extend((bytes > 0).then_some(AnswerEvent::SealedReasoning { bytes }));
    }

    /// Emits the rest of each text of complete parts, beyond what the deltas had. Parts of unknown types are ignored.
    fn push_parts(&mut self, parts: &[u8], context: &mut OutputContext<'_>) -> Result<(), UpstreamError> {
        let complete = self.complete_texts(parts)?;
        let mut alignments: Vec<(PartKind, Alignment)> = Vec::new();
        for text in &complete {
            let kind = text.key.0;
            if self.ignores(kind) {
                continue;
            }
            let at = match alignments.iter().position(|(known, _)| *known == kind) {
                Some(at) => at,
                None => {
                    self.drop_initial_texts(|known| known.0 == kind, context);
                    alignments.push((kind, self.align(kind, &complete)?));
                    alignments.len() - 1
                }
            };
            if let Some((_, alignment)) = alignments.get_mut(at) {
                self.push_aligned(text, alignment, context)?;
            }
        }
        Ok(())
    }

    /// Emits the rest of a complete text of a list. Returns `Malformed` if later text was emitted before it.
    fn push_aligned(
        &mut self,
        complete: &CompleteText<'_>,
        alignment: &mut Alignment,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        let (kind, text) = (complete.key.0, &*complete.text);
        let missing = match alignment {
            Alignment::Consecutive(emitted) if *emitted >= text.len() => {
                *emitted -= text.len();
                return Ok(());
            }
            Alignment::Consecutive(emitted) => {
                let rest = text.get(std::mem::take(emitted)..).filter(|rest| rest.len() < text.len());
                rest.zip(self.parts.iter().rposition(|part| part.kind == kind))
            }
            Alignment::ByIndex => {
                let own = self.parts.iter().enumerate().find(|(_, part)| part.has_key(complete.key));
                match own.map(|(at, part)| (at, part.text.compare(text))) {
                    None if self.parts.iter().any(|part| part.is_after(complete.key)) => {
                        return Err(malformed_error());
                    }
                    None => None,
                    Some((at, FinalTextComparison::Continues(rest))) => Some((rest, at)),
                    Some((_, FinalTextComparison::Emitted)) => return Ok(()),
                    Some((_, FinalTextComparison::Contradicts)) => return Err(malformed_error()),
                }
            }
        };
        match missing {
            Some((rest, at)) => self.emit_rest(at, rest, context),
            None => self.push_whole(complete.key, complete.value, complete.logprobs, context),
        }
    }

    /// Returns the texts of complete parts that are not empty. Parts of unknown types are ignored.
    fn complete_texts<'a>(&self, parts: &'a [u8]) -> Result<Vec<CompleteText<'a>>, UpstreamError> {
        if !json_cursor::is_array(parts) {
            return Err(malformed_error());
        }
        let mut texts = Vec::new();
        for (index, part) in (0_u64..).zip(json_cursor::elements(parts)) {
            let Some((kind, value)) = complete_part(part)? else { continue };
            let inside = json_cursor::string_body(value).filter(|_| self.fits(kind));
            let text = inside.and_then(json::unescape_lossy).ok_or_else(malformed_error)?;
            if text.is_empty() {
                continue;
            }
            if texts.len() >= MAX_PARTS {
                return Err(UpstreamError::invalid_model_output());
            }
            let logprobs = json_cursor::member_value(part, "logprobs");
            texts.push(CompleteText { key: (kind, index), value, text, logprobs });
        }
        Ok(texts)
    }

    /// Returns the relation between the complete texts of this kind and the emitted ones. The texts are compared one
    /// after the other first, because some engines give a part another index in the deltas than its position in the
    /// complete item. Returns `Malformed` if the texts contradict each other.
    fn align(&self, kind: PartKind, complete: &[CompleteText<'_>]) -> Result<Alignment, UpstreamError> {
        if !self.parts.iter().any(|part| part.kind == kind) {
            return Ok(Alignment::Consecutive(0));
        }
        let texts = || complete.iter().filter(|text| text.key.0 == kind);
        let whole: Vec<&str> = texts().map(|text| &*text.text).collect();
        let whole = match whole.as_slice() {
            [one] => Cow::Borrowed(*one),
            several => Cow::Owned(several.concat()),
        };
        match self.compare_kind(kind, &whole) {
            FinalTextComparison::Emitted => return Ok(Alignment::Consecutive(usize::MAX)),
            FinalTextComparison::Continues(rest) => {
                return Ok(Alignment::Consecutive(whole.len() - rest.len()));
            }
            FinalTextComparison::Contradicts => {}
        }
        let agrees = |part: &OutputPartDecoder| {
            let mut own = texts().filter(|text| part.has_key(text.key)).peekable();
            own.peek().is_some()
                && own.all(|text| part.text.compare(&text.text) != FinalTextComparison::Contradicts)
        };
        let is_by_index = self.parts.iter().filter(|part| part.kind == kind).all(agrees);
        is_by_index.then_some(Alignment::ByIndex).ok_or_else(malformed_error)
    }

    /// Emits the rest of the text of the part in an event that ends the part, beyond what the deltas had. `index`
    /// returns the index of the part, given its kind; `None` for an invalid index. A part that the item cannot have is
    /// ignored, because other events have its text.
    pub(in crate::decode::responses) fn push_complete_part(
        &mut self,
        part: &[u8],
        index: impl Fn(PartKind) -> Option<u64>,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        let Some((kind, value)) = complete_part(part)?.filter(|(kind, _)| self.fits(*kind)) else {
            return Ok(());
        };
        let logprobs = json_cursor::member_value(part, "logprobs");
        self.push_complete_text((kind, index(kind).ok_or_else(malformed_error)?), value, logprobs, context)
    }
}

/// Returns the kind and the text of a complete part; `None` for unknown types. The text is a JSON value.
///
/// # Errors
/// Returns `Malformed` for a part without a type, and for one of a known type without text.
fn complete_part(part: &[u8]) -> Result<Option<(PartKind, &[u8])>, UpstreamError> {
    json_cursor::member_value(part, "type")
        .and_then(json_cursor::parse_string)
        .ok_or_else(malformed_error)?;
    let found = part_kind_and_text(part);
    found.map(|(kind, text)| Ok((kind, text.ok_or_else(malformed_error)?))).transpose()
}
