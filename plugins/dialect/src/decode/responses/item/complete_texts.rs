//! Complete text of a part: the comparison with the emitted text, and the output of its missing end.

use super::OutputItemDecoder;
use crate::decode::responses::context::OutputContext;
use crate::decode::responses::malformed_error;
use crate::decode::responses::part::{OutputPartDecoder, PartKey, PartKind};
use crate::decode::responses::text_record::{FinalTextComparison, compare_all};
use crate::event::EscapedText;
use crate::json_cursor;
use penstock_core::UpstreamError;
use penstock_json_scan::json;

/// Missing end of a text.
enum MissingText<'a> {
    /// Nothing: all of the text was emitted.
    Nothing,
    /// Rest of the text of the part at this position.
    Rest(usize, &'a str),
    /// Whole text, of a part from which nothing was emitted.
    Whole,
}

impl OutputItemDecoder {
    /// Emits the rest of a part's complete text, beyond what the deltas had. Returns `Malformed` if the complete text
    /// contradicts the emitted text. Also returns `Malformed` if other text of the channel was emitted after the
    /// part, because the missing end can then no longer be emitted in order.
    pub(in crate::decode::responses) fn push_complete_text(
        &mut self,
        key: PartKey,
        value: &[u8],
        logprobs: Option<&[u8]>,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        if !self.fits(key.0) {
            return Err(malformed_error());
        }
        let inside = json_cursor::string_body(value).ok_or_else(malformed_error)?;
        if inside.is_empty() || self.ignores(key.0) {
            return Ok(());
        }
        self.give_key_to_initial_text(key);
        self.drop_initial_texts(|known| known == key, context);
        let whole = json::unescape_lossy(inside).ok_or_else(malformed_error)?;
        match self.missing_text(key, &whole)? {
            MissingText::Nothing => {}
            MissingText::Rest(at, rest) => self.emit_rest(at, rest, context)?,
            MissingText::Whole => self.push_whole(key, value, logprobs, context)?,
        }
        let own = self.parts.iter().position(|part| part.has_key(key));
        let ended = own.or_else(|| self.parts.iter().rposition(|part| part.kind == key.0));
        if let Some(part) = ended.and_then(|at| self.parts.get_mut(at)) {
            part.mark_ended();
        }
        Ok(())
    }

    /// Returns what is missing of a complete text, which some engines give another index than its deltas. Returns
    /// `Malformed` if the text contradicts the emitted text.
    fn missing_text<'a>(&self, key: PartKey, whole: &'a str) -> Result<MissingText<'a>, UpstreamError> {
        let Some(last) = self.parts.iter().rposition(|part| part.kind == key.0) else {
            return Ok(MissingText::Whole);
        };
        let own = self.parts.iter().position(|part| part.has_key(key));
        let own_part = own.and_then(|at| self.parts.get(at).map(|part| (at, part)));
        let compared = own_part.map(|(at, part)| (at, part, part.text.compare(whole)));
        if let Some((_, _, FinalTextComparison::Emitted)) = compared {
            return Ok(MissingText::Nothing);
        }
        match self.compare_kind(key.0, whole) {
            FinalTextComparison::Emitted => return Ok(MissingText::Nothing),
            FinalTextComparison::Continues(rest) => return Ok(MissingText::Rest(last, rest)),
            FinalTextComparison::Contradicts => {}
        }
        match compared {
            Some((at, _, FinalTextComparison::Continues(rest))) => Ok(MissingText::Rest(at, rest)),
            // The part may consist of several, which only the event that ends the item separates.
            Some((_, part, _)) if part.has_several_indexes() => Ok(MissingText::Nothing),
            None if self.is_added(key) || self.parts.get(last).is_some_and(OutputPartDecoder::is_ended) => {
                Ok(MissingText::Whole)
            }
            _ => Err(malformed_error()),
        }
    }

    /// Compares a complete text with all emitted text of a kind.
    pub(super) fn compare_kind<'a>(&self, kind: PartKind, whole: &'a str) -> FinalTextComparison<'a> {
        compare_all(self.parts.iter().filter(|part| part.kind == kind).map(|part| &part.text), whole)
    }

    /// Returns true if all of a complete text was emitted from this item.
    pub(in crate::decode::responses) fn has_emitted(&self, kind: PartKind, value: &[u8]) -> bool {
        let whole = json_cursor::string_body(value).and_then(json::unescape_lossy).unwrap_or_default();
        let has_kind = self.parts.iter().any(|part| part.kind == kind);
        has_kind && self.compare_kind(kind, &whole) == FinalTextComparison::Emitted
    }

    /// Returns true if the last part of this kind has text whose end no event has stated.
    pub(in crate::decode::responses) fn has_unended_part(&self, kind: PartKind) -> bool {
        self.parts.iter().rfind(|part| part.kind == kind).is_some_and(|part| !part.is_ended())
    }

    /// Returns true if other text of its channel was not emitted after that of the part at this position.
    pub(super) fn is_last_part(&self, at: usize, context: &OutputContext<'_>) -> bool {
        let channel = self.parts.get(at).map(|part| self.channel(part.kind));
        channel.is_some_and(|channel| context.texts.is_last(channel, (self.number, at)))
    }

    pub(super) fn emit_rest(
        &mut self,
        at: usize,
        rest: &str,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        let channel = self.parts.get(at).map(|part| self.channel(part.kind)).ok_or_else(malformed_error)?;
        if !self.is_last_part(at, context) {
            return Err(malformed_error());
        }
        context.split_surrogate.discard(channel);
        self.emit(at, EscapedText::new(rest), None, context);
        Ok(())
    }

    /// Emits the text of a part from which nothing was emitted.
    pub(super) fn push_whole(
        &mut self,
        key: PartKey,
        value: &[u8],
        logprobs: Option<&[u8]>,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        let Some((text, logprobs)) = self.decode_delta(key.0, value, logprobs, context)? else {
            return Ok(());
        };
        let at = self.add_part(key, context)?;
        self.emit(at, text, logprobs, context);
        Ok(())
    }

    /// Drops initial texts that a later event states.
    pub(super) fn drop_initial_texts(
        &mut self,
        is_stated: impl Fn(PartKey) -> bool,
        context: &mut OutputContext<'_>,
    ) {
        for announced in self.announced.extract_if(.., |announced| is_stated(announced.key)) {
            context.subtract_stored_bytes(announced.stored_bytes());
        }
    }
}
