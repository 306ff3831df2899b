//! Continuation of an answer that begins with the delivered text again: some engines ignore the request to continue, and
//! generate the whole answer anew. The repeated text is removed.

use crate::delivered::with_text;
use crate::event::AnswerEvent;

/// Minimum number of bytes of delivered text, without surrounding blanks, that count as repeated.
const MIN_BYTES: usize = 2;

/// Filter that removes the delivered text from a continuation that begins with it again.
#[derive(Debug)]
pub(crate) struct RepetitionFilter {
    delivered: String,
    /// Number of delivered bytes that the continuation has repeated so far.
    matched: usize,
    /// Texts that are a repetition so far.
    held: Vec<AnswerEvent>,
}

impl RepetitionFilter {
    /// Creates the filter; `None` for delivered text that a continuation may begin with: too little of it, or text that
    /// repeats itself, such as rows of zeros.
    pub(crate) fn new(delivered: String) -> Option<Self> {
        let is_usable = delivered.trim().len() >= MIN_BYTES && !is_periodic(delivered.as_bytes());
        is_usable.then(|| Self { delivered, matched: 0, held: Vec::new() })
    }

    /// Returns the number of bytes that are held back.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.matched
    }

    /// Passes an event through. Returns the events for the client, and true if the comparison has ended, so that all
    /// further events are for the client.
    pub(crate) fn filter(&mut self, event: AnswerEvent) -> (Vec<AnswerEvent>, bool) {
        match &event {
            AnswerEvent::Text { text, .. } => {
                let text = text.decoded();
                let due = self.delivered.get(self.matched..).unwrap_or_default();
                if text.len() < due.len() && due.starts_with(&*text) {
                    self.matched += text.len();
                    self.held.push(event);
                    return (Vec::new(), false);
                }
                match text.strip_prefix(due) {
                    Some("") => (Vec::new(), true),
                    Some(rest) => (vec![with_text(&event, rest)], true),
                    None => (self.release(event), true),
                }
            }
            AnswerEvent::Reasoning { .. } if self.held.is_empty() => (vec![event], false),
            AnswerEvent::Reasoning { .. }
            | AnswerEvent::Refusal { .. }
            | AnswerEvent::ToolCallStart { .. }
            | AnswerEvent::ToolCallArguments { .. }
            | AnswerEvent::Finish { .. } => (self.release(event), true),
            _ => (vec![event], false),
        }
    }

    /// Returns the texts that are no repetition, and the event behind them.
    fn release(&mut self, event: AnswerEvent) -> Vec<AnswerEvent> {
        let mut events = std::mem::take(&mut self.held);
        events.push(event);
        events
    }
}

/// Returns true if bytes consist of two or more equal pieces, perhaps with a part of a further one.
fn is_periodic(bytes: &[u8]) -> bool {
    // Lengths of the longest proper prefixes that are also suffixes.
    let mut borders = vec![0_u32; bytes.len()];
    let mut border = 0_usize;
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        while border > 0 && bytes.get(border) != Some(byte) {
            border = borders.get(border - 1).map_or(0, |shorter| *shorter as usize);
        }
        border += usize::from(bytes.get(border) == Some(byte));
        if let Some(slot) = borders.get_mut(at) {
            *slot = u32::try_from(border).unwrap_or(u32::MAX);
        }
    }
    let period = bytes.len() - border;
    border > 0 && period * 2 <= bytes.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::EscapedText;
    use penstock_core::FinishReason;

    fn text(text: &str) -> AnswerEvent {
        AnswerEvent::Text { choice: 0, text: EscapedText::new(text), logprobs: None }
    }

    /// Returns the text for the client if the continuation comes in these pieces, followed by a finish reason.
    fn filtered(delivered: &str, pieces: &[&str]) -> String {
        let mut filter = RepetitionFilter::new(delivered.to_owned());
        let finish = AnswerEvent::Finish { choice: 0, reason: FinishReason::Stop, stop_sequence: None };
        let (mut out, mut finishes) = (String::new(), 0);
        for event in pieces.iter().map(|piece| text(piece)).chain([finish]) {
            let (events, ended) = match &mut filter {
                Some(filter) => filter.filter(event),
                None => (vec![event], true),
            };
            if ended {
                filter = None;
            }
            for event in events {
                match event {
                    AnswerEvent::Text { text, .. } => out.push_str(&text.decoded()),
                    _ => finishes += 1,
                }
            }
        }
        assert_eq!(finishes, 1);
        out
    }

    /// Checks a continuation as a whole, at each split in two, and in single characters.
    fn check(delivered: &str, continuation: &str, expected: &str) {
        let mut cuts: Vec<usize> = continuation.char_indices().map(|(at, _)| at).collect();
        cuts.push(continuation.len());
        for at in cuts {
            let (one, other) = continuation.split_at(at);
            assert_eq!(filtered(delivered, &[one, other]), expected, "{delivered:?} {at}");
        }
        let single: Vec<String> = continuation.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(filtered(delivered, &single), expected, "{delivered:?}");
    }

    #[test]
    fn repeated_text_is_removed_and_other_text_kept() {
        check("One two ", "One two three", "three");
        check("One two ", "One two ", "");
        check("One two ", "three", "three");
        check("One two ", "One three", "One three");
        check("One two ", "One ", "One ");
        check("Größe: ", "Größe: 5 m", "5 m");
        check("Größe: ", "Größe? 5 m", "Größe? 5 m");
        check("One two ", "", "");
    }

    #[test]
    fn text_that_a_continuation_may_repeat_is_not_compared() {
        check("0, 0, 0, ", "0, 0, 0, 1", "0, 0, 0, 1");
        check("aa", "aab", "aab");
        check(" a ", " a b", " a b");
        check("\n\n", "\n\nb", "\n\nb");
        for (bytes, expected) in [
            ("", false),
            ("a", false),
            ("aa", true),
            ("ab", false),
            ("abab", true),
            ("ababa", true),
            ("abcab", false),
            ("abcabcab", true),
            ("One two ", false),
        ] {
            assert_eq!(is_periodic(bytes.as_bytes()), expected, "{bytes}");
        }
    }
}
