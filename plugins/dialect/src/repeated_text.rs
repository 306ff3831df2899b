//! Continuation of an answer that begins with the delivered text again: some engines ignore the request to continue,
//! and generate the whole answer anew. The repeated text is removed.

use crate::delivered::with_text;
use crate::event::{AnswerEvent, EscapedText};
use bytes::Bytes;
use std::ops::Range;

/// Minimum number of bytes of delivered text, without surrounding blanks, that count as repeated. A correct
/// continuation may begin with a shorter text again (`10` becomes `1010`).
const MIN_BYTES: usize = 16;

/// Minimum number of bytes of a prefill, without surrounding blanks, that count as repeated; fewer than [`MIN_BYTES`],
/// because some providers always begin their answer with the prefill.
const MIN_PREFILL_BYTES: usize = 4;

/// Filter that removes the delivered text from a continuation that begins with it again.
#[derive(Debug)]
pub(crate) struct RepetitionFilter {
    delivered: String,
    /// Number of delivered bytes that the continuation has repeated so far.
    matched: usize,
    /// Log probabilities of the repeated texts so far, each with the range of its text in `delivered`.
    logprobs: Vec<(Range<usize>, Bytes)>,
    /// Number of bytes of memory of the log probabilities.
    logprobs_bytes: usize,
}

impl RepetitionFilter {
    /// Creates the filter. Returns `None` for delivered text that a correct continuation may itself begin with: short
    /// text, or periodic text such as rows of zeros.
    pub(crate) fn new(delivered: String) -> Option<Self> {
        let is_usable = delivered.trim().len() >= MIN_BYTES && !is_periodic(delivered.as_bytes());
        is_usable.then(|| Self::from_text(delivered))
    }

    /// Creates the filter for a prefill, which some providers repeat and others do not. Returns `None` for a prefill that
    /// a correct continuation may itself begin with: a few characters, except the start of a JSON object, or periodic
    /// text.
    pub(crate) fn from_prefill(prefill: String) -> Option<Self> {
        let core = prefill.trim();
        let is_usable = core == "{" || (core.len() >= MIN_PREFILL_BYTES && !is_periodic(prefill.as_bytes()));
        is_usable.then(|| Self::from_text(prefill))
    }

    const fn from_text(delivered: String) -> Self {
        Self { delivered, matched: 0, logprobs: Vec::new(), logprobs_bytes: 0 }
    }

    /// Returns the number of bytes that are held back.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.matched + self.logprobs_bytes
    }

    /// Passes an event through. Returns the events for the client, and true if the comparison has ended, so that all
    /// further events are for the client.
    pub(crate) fn filter(&mut self, event: AnswerEvent) -> (Vec<AnswerEvent>, bool) {
        match &event {
            AnswerEvent::Text { text, logprobs, .. } => {
                let text = text.decoded();
                let due = self.delivered.get(self.matched..).unwrap_or_default();
                if text.len() < due.len() && due.starts_with(&*text) {
                    self.hold(text.len(), logprobs.as_ref());
                    return (Vec::new(), false);
                }
                match text.strip_prefix(due) {
                    Some("") => (Vec::new(), true),
                    Some(rest) => (vec![with_text(&event, rest)], true),
                    None => (self.release(event), true),
                }
            }
            AnswerEvent::Reasoning { .. } if self.matched == 0 && self.logprobs.is_empty() => {
                (vec![event], false)
            }
            AnswerEvent::Reasoning { .. }
            | AnswerEvent::Refusal { .. }
            | AnswerEvent::ToolCallStart { .. }
            | AnswerEvent::ToolCallArguments { .. }
            | AnswerEvent::Finish { .. } => (self.release(event), true),
            _ => (vec![event], false),
        }
    }

    /// Holds back a text of this length. The text is not stored, because it is a part of the delivered text. Log
    /// probabilities are copied, because they share the memory of the whole event.
    fn hold(&mut self, length: usize, logprobs: Option<&Bytes>) {
        let range = self.matched..self.matched + length;
        self.matched = range.end;
        if let Some(logprobs) = logprobs {
            self.logprobs_bytes += size_of::<(Range<usize>, Bytes)>() + logprobs.len();
            self.logprobs.push((range, Bytes::copy_from_slice(logprobs)));
        }
    }

    /// Returns the texts that were held back but are not a repetition, followed by `event`.
    fn release(&mut self, event: AnswerEvent) -> Vec<AnswerEvent> {
        let mut events = self.release_held(event.choice().unwrap_or_default());
        events.push(event);
        events
    }

    /// Returns the texts of a choice that were held back but are not a repetition.
    pub(crate) fn release_held(&mut self, choice: u32) -> Vec<AnswerEvent> {
        let (mut events, mut released) = (Vec::new(), 0);
        let mut push = |range: Range<usize>, logprobs: Option<Bytes>| {
            let text = self.delivered.get(range).unwrap_or_default();
            if !text.is_empty() || logprobs.is_some() {
                events.push(AnswerEvent::Text { choice, text: EscapedText::new(text), logprobs });
            }
        };
        for (range, logprobs) in std::mem::take(&mut self.logprobs) {
            push(released..range.start, None);
            released = range.end;
            push(range, Some(logprobs));
        }
        push(released..self.matched, None);
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
        let delivered = "One two three four ";
        check(delivered, "One two three four five", "five");
        check(delivered, delivered, "");
        check(delivered, "five", "five");
        check(delivered, "One two five", "One two five");
        check(delivered, "One two ", "One two ");
        check("Die Größe der Tür: ", "Die Größe der Tür: 5 m", "5 m");
        check("Die Größe der Tür: ", "Die Größe der Tür? 5 m", "Die Größe der Tür? 5 m");
        check(delivered, "", "");
    }

    #[test]
    fn held_texts_keep_no_memory_of_the_network_and_log_probabilities_are_counted() {
        let delivered = "One two three four ";
        let mut filter = RepetitionFilter::new(delivered.to_owned()).unwrap();
        let piece = Bytes::from(format!(r#"{delivered}{{"content":[]}}: padding"#));
        let events: Vec<AnswerEvent> = (0..8)
            .map(|at| AnswerEvent::Text {
                choice: 0,
                text: EscapedText::from_json(piece.slice(at..at + 1)).unwrap(),
                logprobs: (at % 2 == 1).then(|| piece.slice(delivered.len()..delivered.len() + 14)),
            })
            .collect();
        for event in events.clone() {
            assert_eq!(filter.filter(event), (Vec::new(), false));
        }
        assert!(filter.held_bytes() >= 8 + 4 * 14, "{}", filter.held_bytes());
        let (released, has_ended) = filter.filter(text("!"));
        assert!(has_ended);
        assert_eq!(released, [events.clone(), vec![text("!")]].concat());
        drop(events);
        assert!(piece.is_unique(), "the memory of the piece is free");
    }

    #[test]
    fn a_prefill_that_a_continuation_may_begin_with_is_not_compared() {
        let is_compared = |prefill: &str| RepetitionFilter::from_prefill(prefill.to_owned()).is_some();
        for prefill in ["[", "\"", "1", "0, 0, ", "abab", "", " "] {
            assert!(!is_compared(prefill), "{prefill:?}");
        }
        for prefill in ["{", "{ ", "The answer is", "Sure", "```json"] {
            assert!(is_compared(prefill), "{prefill:?}");
        }
    }

    #[test]
    fn text_that_a_continuation_may_repeat_is_not_compared() {
        check("0, 0, 0, ", "0, 0, 0, 1", "0, 0, 0, 1");
        check("aa", "aab", "aab");
        check(" a ", " a b", " a b");
        check("\n\n", "\n\nb", "\n\nb");
        check("10", "1010", "1010");
        check("It is a fine no", "It is a fine noon", "It is a fine noon");
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
