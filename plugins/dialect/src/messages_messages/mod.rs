//! A messages client and a messages provider: what passes, passes as it came.
//!
//! The request keeps the client's own members; only `model`, a clamped
//! `max_tokens`, members and texts that no provider should see, and system turns
//! that this one does not take are touched. Of the
//! answer only `model` and the last event are.

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

/// The pair.
pub(crate) const PAIR: Pair = Pair {
    client: Dialect::Messages,
    provider: Dialect::Messages,
    path: "/messages",
    request: request::body,
    whole,
    reply,
};

/// The provider's own body with the client's name for the model, mended, and without thinking that nobody asked for,
/// unless calls or text have to be cut from it, or it came as a stream.
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

/// The provider's own events, unless calls or text have to be cut from them.
fn reply(ask: &Ask, target: &Target<'_>) -> Box<dyn Reply> {
    if cuts(ask, target) {
        return pair::messages_reply(ask, target);
    }
    Box::new(Passing::new(ask, target))
}

/// Whether the gateway may have to cut the answer: then it speaks it itself.
fn cuts(ask: &Ask, target: &Target<'_>) -> bool {
    request::enforced_stops(ask, target) || !ask.parallel_tools
}
