//! Text as it arrives, mended where an engine cut a surrogate pair in two.

use crate::event::Text;
use bytes::Bytes;
use penstock_wire::json::{self, Surrogate};

/// Which of a candidate's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    Reasoning,
    Answer,
    Refusal,
    Arguments(usize),
}

/// The first half of a pair whose second half is to come.
#[derive(Debug, Default)]
pub(super) struct Half(Option<(Voice, [u8; 6])>);

impl Half {
    /// Nothing is waiting, so text may be read without looking here.
    pub(super) const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// What comes out for the inside of a JSON string (taken from `source`) that
    /// was added to this voice. `None` where it is no string's inside at all.
    pub(super) fn join(&mut self, voice: Voice, source: &Bytes, inside: &[u8]) -> Option<Text> {
        if self.0.is_none()
            && let Some(text) = Text::from_json(source.slice_ref(inside))
        {
            return Some(text);
        }
        let waiting = self.0.take().filter(|(waiting, _)| *waiting == voice);
        let mut whole = waiting.map(|(_, half)| half.to_vec()).unwrap_or_default();
        whole.extend_from_slice(inside);
        if let Some(half) = open_half(&whole) {
            whole.truncate(whole.len() - half.len());
            self.0 = Some((voice, half));
        }
        json::unescape_lossy(&whole).map(|text| Text::new(&text))
    }
}

/// A first half at the very end.
fn open_half(inside: &[u8]) -> Option<[u8; 6]> {
    let last: [u8; 6] = *inside.last_chunk()?;
    // A backslash before would make the escape's own backslash a letter.
    let before = inside.get(..inside.len() - 6)?;
    let slashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
    (json::surrogate(&last) == Surrogate::High && slashes % 2 == 0).then_some(last)
}
