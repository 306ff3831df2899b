//! Meter of the echo of prompts: with `echo`, each text of a completion begins with its prompt, which does not count as
//! output.

use crate::event::{AnswerEvent, EscapedText};
use penstock_core::{InferenceRequest, InferenceTask};

/// Number of bytes of text that are assumed for each token id of a prompt, because the gateway does not know the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BytesPerTokenId {
    /// Lower bound, for the bounds of the usage that a provider may report.
    Least = 1,
    /// Typical number, for the gateway's own estimate of the usage.
    Typical = 4,
}

/// Meter of the bytes of an answer that are an echo of the prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct EchoMeter {
    /// Remaining bytes of the echo by choice; empty if the request has no echo.
    remaining: Vec<usize>,
    echoed: usize,
}

impl EchoMeter {
    /// Creates a meter at the start of an answer.
    pub(crate) fn new(ask: &InferenceRequest, id_bytes: BytesPerTokenId) -> Self {
        let InferenceTask::Complete(task) = &ask.task else { return Self::default() };
        if !task.echo {
            return Self::default();
        }
        let of_prompt = |prompt: &bytes::Bytes| match prompt.strip_prefix(b"[") {
            Some(ids) => ids.split(|byte| *byte == b',').count() * id_bytes as usize,
            None => text_bytes(prompt),
        };
        let choices = task.choices_per_prompt as usize;
        let each = task.prompts.iter().map(of_prompt);
        Self { remaining: each.flat_map(|bytes| std::iter::repeat_n(bytes, choices)).collect(), echoed: 0 }
    }

    /// Counts the text of an event. The first bytes of each choice are the echo.
    pub(crate) fn add_event(&mut self, event: &AnswerEvent) {
        if let AnswerEvent::Text { choice, text, .. } = event
            && !self.remaining.is_empty()
        {
            self.add_text(*choice, text.decoded_len());
        }
    }

    /// Counts the next bytes of the text of a choice.
    pub(crate) fn add_text(&mut self, choice: u32, bytes: usize) {
        if let Some(remaining) = self.remaining.get_mut(choice as usize) {
            let echoed = bytes.min(*remaining);
            *remaining -= echoed;
            self.echoed += echoed;
        }
    }

    /// Returns the number of counted bytes that are an echo.
    pub(crate) const fn echoed_bytes(&self) -> usize {
        self.echoed
    }
}

/// Returns the length of the text in a JSON string, in bytes; 0 if the string is invalid.
fn text_bytes(json: &bytes::Bytes) -> usize {
    let inner = 1..json.len().saturating_sub(1).max(1);
    let text = (json.len() >= 2).then(|| EscapedText::from_json(json.slice(inner))).flatten();
    text.map_or(0, |text| text.decoded_len())
}
