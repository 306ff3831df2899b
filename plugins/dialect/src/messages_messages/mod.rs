//! Translator for a messages client and a messages provider, which forwards bytes unchanged where possible.
//!
//! The request retains the client's members. Only `model`, a clamped `max_tokens`,
//! members and texts that no provider should receive, and system messages that this
//! provider rejects are changed. In the answer, `model` and the last event are changed.

mod hidden;
mod mend;
#[cfg(test)]
mod mend_tests;
mod passing;
mod request;
mod said;
mod turns;

use crate::answer::Answer;
use crate::decode;
use crate::pair::{self, Pair};
use crate::pieces;
use crate::write::messages;
use bytes::Bytes;
use passing::Passing;
use penstock_contract::{Ask, Dialect, Done, Fault, FaultKind, Finish, Reply, Target, Whole};
use penstock_wire::json;

/// Definition of the translator.
pub(crate) const PAIR: Pair = Pair {
    client: Dialect::Messages,
    provider: Dialect::Messages,
    path: "/messages",
    request: request::body,
    whole,
    reply,
};

/// Returns the provider's body, repaired, with the client's name for the model and without thinking that the client did
/// not request. If calls or text must be cut, or the body is a stream, writes the message anew.
fn whole(ask: &Ask, target: &Target<'_>, body: Bytes) -> Result<Whole, Fault> {
    if cuts(ask, target) || decode::is_stream(&body) {
        return messages::whole(ask, target, body);
    }
    let answer = Answer::read(ask, target, body.clone())?;
    let finish = answer.candidates.first().and_then(|candidate| candidate.finish).unwrap_or(Finish::Stop);
    let trimmed = pieces::within(&body, json::trim(&body)).unwrap_or_default();
    let body =
        mend::message(&trimmed, &answer, target, ask.thinking).ok_or(Fault::new(FaultKind::Malformed))?;
    let output_bytes = answer.output_bytes();
    Ok(Whole {
        body,
        done: answer.usage.map(Done::Tokens),
        measured: answer.measured,
        finish,
        output_bytes,
        pictures: Vec::new(),
        noticed: answer.noticed,
    })
}

/// Returns a translator that forwards the provider's events, unless calls or text must be cut from them.
fn reply(ask: &Ask, target: &Target<'_>) -> Box<dyn Reply> {
    if cuts(ask, target) {
        return pair::messages_reply(ask, target);
    }
    Box::new(Passing::new(ask, target))
}

/// Returns true if the gateway may have to cut the answer, so that it must write the answer anew.
fn cuts(ask: &Ask, target: &Target<'_>) -> bool {
    request::enforced_stops(ask, target) || !ask.parallel_tools
}
