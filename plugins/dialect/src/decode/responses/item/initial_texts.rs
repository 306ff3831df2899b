//! Texts that an output item, or a part of it, has when it is added.

use super::{ItemKind, MAX_PARTS, OutputItemDecoder};
use crate::decode::responses::context::OutputContext;
use crate::decode::responses::malformed_error;
use crate::decode::responses::part::{InitialText, PartKey, PartKind, part_kind_and_text};
use crate::decode::responses::text_record::FinalTextComparison;
use crate::event::EscapedText;
use crate::json_cursor;
use penstock_core::UpstreamError;
use penstock_json_scan::json;

impl OutputItemDecoder {
    /// Stores the texts that an output item has when it is added.
    pub(in crate::decode::responses) fn store_initial_texts(
        &mut self,
        item: &[u8],
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        let arguments = json_cursor::member_value(item, "arguments");
        if let (ItemKind::Call(_), Some(arguments)) = (self.kind, arguments) {
            return self.announce_text((PartKind::Arguments, 0), arguments, context);
        }
        for name in ["content", "summary"] {
            let parts = json_cursor::member_value(item, name).unwrap_or_default();
            for (index, part) in (0_u64..).zip(json_cursor::elements(parts)) {
                self.store_initial_part_text(part, |_| Some(index), context)?;
            }
        }
        Ok(())
    }

    /// Records that an event stated the start of a part with this index.
    pub(in crate::decode::responses) fn record_added_part(&mut self, index: Option<u64>) {
        self.last_added = self.last_added.max(index);
    }

    /// Gives the key of the first text of a kind to the only initial text of this kind. Some engines state another
    /// index in the event that adds the part than in the later events.
    pub(super) fn give_key_to_initial_text(&mut self, key: PartKey) {
        let is_first = !self.parts.iter().any(|part| part.kind == key.0);
        let mut same_kind = self.announced.iter_mut().filter(|announced| announced.key.0 == key.0);
        if let (true, Some(only), None) = (is_first, same_kind.next(), same_kind.next()) {
            only.key = key;
        }
    }

    /// Stores the text that a part of an output item has when it is added. `index` returns the index of the part, given
    /// its kind; `None` for an invalid index.
    pub(in crate::decode::responses) fn store_initial_part_text(
        &mut self,
        part: &[u8],
        index: impl Fn(PartKind) -> Option<u64>,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        let Some((kind, text)) = part_kind_and_text(part) else { return Ok(()) };
        match text {
            Some(text) => {
                let index = index(kind).ok_or_else(malformed_error)?;
                self.announce_text((kind, index), text, context)
            }
            None => Ok(()),
        }
    }

    /// Stores the initial text of a part. A value that is not a string is ignored here, because the text in the event
    /// that ends the part is checked.
    fn announce_text(
        &mut self,
        key: PartKey,
        text: &[u8],
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        let text = json_cursor::string_body(text).and_then(json::unescape_lossy).unwrap_or_default();
        let is_known = || self.has_part(key) || self.announced.iter().any(|announced| announced.key == key);
        // Empty texts are dropped before the search through the known texts. Their number has no maximum, so a search
        // for each of them could take too long.
        if text.is_empty() || !self.fits(key.0) || self.kind == ItemKind::Other || is_known() {
            return Ok(());
        }
        if self.announced.len() >= MAX_PARTS {
            return Err(UpstreamError::invalid_model_output());
        }
        let announced = InitialText { key, text: text.into_owned() };
        *context.stored_bytes += announced.stored_bytes();
        self.announced.push(announced);
        Ok(())
    }

    /// Emits those texts from the start of the item or of its parts that no later event has repeated.
    pub(in crate::decode::responses) fn emit_initial_texts(
        &mut self,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        for announced in std::mem::take(&mut self.announced) {
            context.subtract_stored_bytes(announced.stored_bytes());
            let key = announced.key;
            let at = self.parts.iter().position(|part| part.has_key(key));
            let part = at.and_then(|at| self.parts.get(at));
            let rest = match part.map(|part| part.text.compare(&announced.text)) {
                None => announced.text.as_str(),
                Some(FinalTextComparison::Continues(rest)) => rest,
                Some(FinalTextComparison::Emitted | FinalTextComparison::Contradicts) => continue,
            };
            if self.ignores(key.0) {
                continue;
            }
            let at = match at {
                Some(at) if !self.is_last_part(at, context) => return Err(malformed_error()),
                Some(at) => at,
                None => self.add_part(key, context)?,
            };
            self.emit(at, EscapedText::new(rest), None, context);
        }
        Ok(())
    }
}
