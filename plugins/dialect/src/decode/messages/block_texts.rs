//! Repair of the texts of a block whose surrogate pairs are split between deltas or incomplete.

use super::delta_members::{DeltaKind, DeltaMembers};
use super::{malformed_error, without_lone_surrogates};
use crate::argument_surrogates::ArgumentSurrogates;
use crate::decode::text_channel::{SplitSurrogate, TextChannel};
use crate::document_patches::DocumentPatches;
use crate::event::EscapedText;
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;

/// State of the texts of one block.
#[derive(Default)]
pub(super) struct BlockTexts {
    split_surrogate: SplitSurrogate,
    arguments: ArgumentSurrogates,
}

impl BlockTexts {
    /// Returns true if a delta certainly needs no repair. `json` is the object that the members were parsed from.
    pub(super) fn is_unchanged(&self, json: &[u8], delta: &DeltaMembers<'_>) -> bool {
        let is_unchanged_input = || {
            let body = delta.content.and_then(json_cursor::string_body).unwrap_or_default();
            !self.arguments.may_change(body)
        };
        self.split_surrogate.is_empty()
            && !may_have_surrogate(json)
            && (delta.kind != DeltaKind::InputJson || is_unchanged_input())
    }

    /// Removes the lone surrogates from the start event `data` of a block whose text is `text`, a slice of `data`. Half
    /// of a pair at the end of the text is held back until the next delta.
    pub(super) fn repair_start(
        &mut self,
        data: &Bytes,
        text: Option<(DeltaKind, &[u8])>,
    ) -> Result<Bytes, UpstreamError> {
        let mut patches = DocumentPatches::new(data);
        if let Some((kind, value)) = text {
            let delta = DeltaMembers { kind, content: Some(value) };
            if let Some(repaired) = self.repair(data, &delta)? {
                patches.replace(value, [b"\"", repaired.escaped(), b"\""].concat());
            }
        }
        Ok(without_lone_surrogates(Bytes::from(patches.finish().concat())))
    }

    /// Returns the text of a delta of an event with the data `data`, without lone surrogates; `None` if the text is
    /// unchanged, or the delta has none. Part of the text may be held back until the next delta.
    ///
    /// # Errors
    /// Returns `Malformed` for a text that is invalid in another way.
    pub(super) fn repair(
        &mut self,
        data: &Bytes,
        delta: &DeltaMembers<'_>,
    ) -> Result<Option<EscapedText>, UpstreamError> {
        let body = delta.content.and_then(json_cursor::string_body).filter(|body| !body.is_empty());
        let Some((body, channel)) = body.zip(text_channel(delta.kind)) else { return Ok(None) };
        let mut text = self.split_surrogate.join(channel, data, body).ok_or_else(malformed_error)?;
        if delta.kind == DeltaKind::InputJson {
            text = self.arguments.repair_fragment(text);
        }
        Ok((text.escaped() != body).then_some(text))
    }

    /// Ends texts of a kind other than `next`. Returns the kind of the text that ends with half of a surrogate pair, and
    /// the replacement of the half; `None` if there is no such text.
    pub(super) fn end_other_text(&mut self, next: Option<DeltaKind>) -> Option<(DeltaKind, EscapedText)> {
        let kind = match self.split_surrogate.channel()? {
            TextChannel::Reasoning => DeltaKind::Thinking,
            TextChannel::Arguments(_) => DeltaKind::InputJson,
            TextChannel::Answer | TextChannel::Refusal => DeltaKind::Text,
        };
        if next == Some(kind) {
            return None;
        }
        self.split_surrogate = SplitSurrogate::default();
        Some((kind, EscapedText::new("\u{fffd}")))
    }
}

/// Returns true if JSON may contain the escape of a surrogate.
pub(super) fn may_have_surrogate(json: &[u8]) -> bool {
    memchr::memchr_iter(b'\\', json).any(|at| matches!(json.get(at + 1..at + 3), Some([b'u', b'd' | b'D'])))
}

fn text_channel(kind: DeltaKind) -> Option<TextChannel> {
    match kind {
        DeltaKind::Text => Some(TextChannel::Answer),
        DeltaKind::Thinking => Some(TextChannel::Reasoning),
        DeltaKind::InputJson => Some(TextChannel::Arguments(0)),
        DeltaKind::Signature | DeltaKind::Other | DeltaKind::Unknown => None,
    }
}
