//! Function call whose arguments arrive before its name, because the engine sends no event that adds its item.

use super::{ItemKind, OutputItemDecoder, call_name};
use crate::decode::responses::context::OutputContext;
use crate::decode::responses::malformed_error;
use crate::decode::responses::part::{OutputPartDecoder, PartKind};
use crate::decode::responses::text_record::FinalTextComparison;
use crate::event::EscapedText;
use crate::json_cursor;
use penstock_core::UpstreamError;
use penstock_json_scan::json;

impl OutputItemDecoder {
    /// Returns true if the item is a call without a name so far.
    pub(in crate::decode::responses) fn is_unnamed_call(&self) -> bool {
        self.kind == ItemKind::UnnamedCall
    }

    /// Emits the start of an unnamed call that the complete item `item` names, and its arguments if the item states
    /// none. Returns `Malformed` if the item contradicts the arguments so far.
    pub(super) fn name_call(
        &mut self,
        item: &[u8],
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        if self.kind != ItemKind::UnnamedCall {
            return Ok(());
        }
        self.kind = ItemKind::Call(context.start_call(item)?);
        self.name = call_name(item);
        let parts = std::mem::take(&mut self.parts);
        let Some(part) = parts.into_iter().next() else { return Ok(()) };
        let stored = part.text.arguments().map_or(0, str::len);
        context.subtract_stored_bytes(size_of::<OutputPartDecoder>() + stored);
        let whole = json_cursor::member_value(item, "arguments").and_then(json_cursor::string_body);
        match whole.filter(|whole| !whole.is_empty()) {
            Some(whole) => {
                let whole = json::unescape_lossy(whole).ok_or_else(malformed_error)?;
                let is_other = part.text.compare(&whole) == FinalTextComparison::Contradicts;
                if is_other { Err(malformed_error()) } else { Ok(()) }
            }
            None => {
                let arguments = part.text.arguments().ok_or_else(malformed_error)?;
                let at = self.add_part((PartKind::Arguments, 0), context)?;
                self.emit(at, EscapedText::new(arguments), None, context);
                Ok(())
            }
        }
    }
}
