//! Channels of the texts in a stream, and the repair of surrogate pairs that an engine has split between two chunks.

use crate::event::EscapedText;
use bytes::Bytes;
use penstock_json_scan::json::{self, SurrogateHalf};

/// Channel of streamed text in a choice: reasoning, answer, refusal or arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextChannel {
    Reasoning,
    Answer,
    Refusal,
    /// Arguments of a tool call, given by its number in the choice.
    Arguments(usize),
}

/// High surrogate at the end of a channel's text, until the low surrogate arrives.
#[derive(Debug, Default)]
pub(super) struct SplitSurrogate(Option<(TextChannel, [u8; 6])>);

impl SplitSurrogate {
    /// Returns true if no surrogate is pending, so that text may be read directly.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the channel of the pending surrogate.
    pub(super) fn channel(&self) -> Option<TextChannel> {
        self.0.map(|(channel, _)| channel)
    }

    /// Discards the pending surrogate of a channel whose text is complete.
    pub(super) fn discard(&mut self, channel: TextChannel) {
        self.0 = self.0.take().filter(|(waiting, _)| *waiting != channel);
    }

    /// Returns the next text of a channel: its pending surrogate followed by `inside`, the body of a JSON string, which
    /// is a slice of `source`. A high surrogate at the end becomes pending; other lone surrogates are replaced, and a
    /// pending surrogate of another channel is dropped. Returns `None` if `inside` is invalid.
    pub(super) fn join(
        &mut self,
        channel: TextChannel,
        source: &Bytes,
        inside: &[u8],
    ) -> Option<EscapedText> {
        if self.0.is_none()
            && let Some(text) = EscapedText::from_json(source.slice_ref(inside))
        {
            return Some(text);
        }
        let waiting = self.0.take().filter(|(waiting, _)| *waiting == channel);
        let mut whole = waiting.map(|(_, half)| half.to_vec()).unwrap_or_default();
        whole.extend_from_slice(inside);
        if let Some(half) = trailing_high_surrogate(&whole) {
            whole.truncate(whole.len() - half.len());
            self.0 = Some((channel, half));
        }
        json::unescape_lossy(&whole).map(|text| EscapedText::new(&text))
    }
}

/// Returns the escape of a high surrogate at the end of the text, if there is one.
fn trailing_high_surrogate(inside: &[u8]) -> Option<[u8; 6]> {
    let last: [u8; 6] = *inside.last_chunk()?;
    // If a backslash precedes, the backslash of the apparent escape is itself escaped.
    let before = inside.get(..inside.len() - 6)?;
    let slashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
    (json::surrogate_half(&last) == SurrogateHalf::High && slashes % 2 == 0).then_some(last)
}
