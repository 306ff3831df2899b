//! Providers' bytes become events; one decoder per dialect.

pub mod chat;
mod form;
pub mod messages;

use form::Opening;
pub(crate) use form::{Form, is_stream};

use crate::event::Event;
use bytes::Bytes;
use penstock_contract::{Dialect, Fault, FaultKind, ReasoningName};
use penstock_wire::json;

/// The longest server-sent event that a provider may send, in bytes.
pub const MAX_EVENT: usize = 8 << 20;
/// The most tool calls of one candidate.
pub const MAX_TOOLS: usize = 128;
/// The longest tool name or id, in bytes.
pub const MAX_NAME: usize = 1024;

/// Reads one streamed answer. The events do not depend on how it was cut.
pub trait Decoder: Send {
    /// Takes bytes and appends the events they complete. Events appended
    /// before a fault count; nothing follows a fault.
    ///
    /// # Errors
    /// `Malformed` for what is no event of the dialect (not JSON, a member of a wrong type, an index that cannot be, an
    /// event out of order), `InBand` for an error
    /// object, `Caller` where that error is the client's own, `ModelOutput` for more calls or longer names than are
    /// passed on.
    fn push(&mut self, bytes: Bytes, events: &mut Vec<Event>) -> Result<(), Fault>;

    /// The provider closed: appends what only the end can tell. Whether all
    /// candidates have finished is the reply's affair.
    ///
    /// # Errors
    /// As [`Decoder::push`].
    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Fault>;

    /// The name of the reasoning so far, where the dialect has several.
    fn reasoning_name(&self) -> Option<ReasoningName> {
        None
    }

    /// Bytes that it keeps: of an event that is not whole, and of calls.
    fn kept(&self) -> usize;
}

/// A decoder for a provider's dialect. `id` (unique, letters and digits) seeds
/// the ids of tool calls that came without one.
#[must_use]
pub fn decoder(provider: Dialect, id: &str) -> Box<dyn Decoder> {
    match provider {
        Dialect::Chat => Box::new(chat::Decoder::new(id)),
        Dialect::Messages => Box::new(messages::Decoder::new()),
    }
}

/// The events of a whole plain answer, as a stream of it would give them
/// (each text in one event; `Start` first, `End` last). An engine that streams
/// although it was not asked to is read as a stream. Returns the name of the reasoning in it.
///
/// # Errors
/// `Malformed` for what is no answer of the dialect, `InBand` for an error object.
/// Events before the error are appended all the same.
pub fn whole(
    provider: Dialect,
    body: Bytes,
    id: &str,
    events: &mut Vec<Event>,
) -> Result<Option<ReasoningName>, Fault> {
    if is_stream(&body) {
        let mut decoder = decoder(provider, id);
        decoder.push(body, events)?;
        decoder.end(events)?;
        return Ok(decoder.reasoning_name());
    }
    // Members are looked up where they stand: what is cut behind the last of them would go unseen.
    let document = json::trim(&body);
    if json::value_end(document, 0) != Some(document.len()) || std::str::from_utf8(document).is_err() {
        return Err(Fault::new(FaultKind::Malformed));
    }
    match provider {
        Dialect::Chat => chat::whole(body, id, events),
        Dialect::Messages => messages::whole(body, events).map(|()| None),
    }
}

/// The fault of an answer at whose end something is left: half an event is a stream that was cut, not a wrong one.
fn cut(fault: Fault) -> Fault {
    match fault.kind {
        FaultKind::Malformed => Fault::new(FaultKind::Truncated),
        _ => fault,
    }
}
