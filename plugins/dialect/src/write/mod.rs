//! Writers that serialize events for the client; one per dialect.

pub mod chat;
pub mod messages;

use crate::event::Event;
use penstock_contract::{Finish, Refusal, Target, Usage};

/// Identity of a response, repeated in each of its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Face {
    /// Unique part of the id, letters and digits, without the dialect's prefix.
    pub id: String,
    /// Model name that the client used.
    pub model: String,
    /// Creation time in Unix seconds.
    pub created: u64,
}

impl Face {
    /// Returns the identity for the response of a target.
    #[must_use]
    pub fn of(target: &Target<'_>) -> Self {
        Self { id: target.id.to_owned(), model: target.answer_model.to_owned(), created: target.created }
    }
}

/// Writer of events as server-sent events of a client's dialect.
///
/// Events have passed the response constraints: choices below `n`, tool calls reduced to the requested ones, finish
/// reasons that match the content. Written output is final.
pub trait Writer: Send {
    /// Appends the serialized event. The last [`Event::Finish`] is stored for [`Writer::close`], and content may follow
    /// a finish; `Start`, `Usage`, `Energy`, `Ping` and `End` may produce no output, but `Usage` before the first
    /// content may be used for the opening event.
    fn write(&mut self, event: &Event, out: &mut Vec<u8>);

    /// Appends the output that precedes the content of all choices.
    fn open(&mut self, _out: &mut Vec<u8>) {}

    /// Records the finish reason of a choice that another request answered.
    fn adopt(&mut self, _choice: u32, _finish: Finish) {}

    /// Returns true if the client sees [`Event::Reasoning`]; a rescue compares only visible text.
    fn shows_reasoning(&self) -> bool;

    /// Returns true if the dialect cannot express the answer, since the model wrote invalid tool arguments. Called at
    /// the end of the answer; [`Writer::close`] then ends it with an error.
    fn is_spoilt(&self) -> bool {
        false
    }

    /// Returns the bytes of buffered blocks.
    fn kept(&self) -> usize {
        0
    }

    /// Appends the end of a successful answer: buffered output, usage and `objects` (JSON members without braces, may
    /// be empty).
    fn close(&mut self, usage: &Usage, objects: &[u8], out: &mut Vec<u8>);

    /// Appends the end of a failed answer.
    fn fail(&mut self, refusal: &Refusal, request_id: &str, out: &mut Vec<u8>);
}
