//! Events become the client's bytes; one writer per dialect.

pub mod chat;
pub mod messages;

use crate::event::Event;
use penstock_contract::{Finish, Refusal, Target, Usage};

/// The face of an answer: what is the same in every event of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Face {
    /// Unique part of the id, letters and digits; the dialect's prefix is not in it.
    pub id: String,
    /// The name that the client called the model.
    pub model: String,
    /// Unix seconds.
    pub created: u64,
}

impl Face {
    /// The face that a target's answer wears.
    #[must_use]
    pub fn of(target: &Target<'_>) -> Self {
        Self { id: target.id.to_owned(), model: target.answer_model.to_owned(), created: target.created }
    }
}

/// Speaks events in a client's dialect, as server-sent events.
///
/// Events arrive shaped: choices below `n`, tool calls already cut to what was
/// asked, finish reasons that fit what was said. Nothing is ever taken back.
pub trait Writer: Send {
    /// Appends what this event is in the dialect. The last [`Event::Finish`] is kept
    /// for [`Writer::close`], and content may follow one; `Start`, `Usage`, `Energy`, `Ping` and `End` need
    /// not say anything, though `Usage` before the first content may be used
    /// for the opening event.
    fn write(&mut self, event: &Event, out: &mut Vec<u8>);

    /// Appends what stands before the content of all choices.
    fn open(&mut self, _out: &mut Vec<u8>) {}

    /// Notes the end of a choice that another request answered.
    fn adopt(&mut self, _choice: u32, _finish: Finish) {}

    /// Whether the client sees [`Event::Reasoning`]; a rescue compares only what it saw.
    fn shows_reasoning(&self) -> bool;

    /// Whether the answer, if it ends here, is none that the dialect can say, since the model wrote no sound arguments
    /// (asked at its end): [`Writer::close`] ends it with an error.
    fn is_spoilt(&self) -> bool {
        false
    }

    /// Bytes that wait for their turn.
    fn kept(&self) -> usize {
        0
    }

    /// Appends the end of a good answer: what was kept, with usage and
    /// `objects` (JSON members without braces, maybe none).
    fn close(&mut self, usage: &Usage, objects: &[u8], out: &mut Vec<u8>);

    /// Appends the end of a failed answer.
    fn fail(&mut self, refusal: &Refusal, request_id: &str, out: &mut Vec<u8>);
}
