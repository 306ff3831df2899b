//! A chat client and a messages provider.
//!
//! The request is written from slices of the client's own bytes; the answer
//! passes through the neutral events and wears the chat dialect's face.

mod parts;
mod request;
mod turns;
mod waiting;

use crate::answer::Answer;
use crate::write::{self, Face};
use bytes::Bytes;
use penstock_contract::{Ask, Dialect, Fault, Refusal, Reply, Target, Translator, Whole};

/// The pair.
#[derive(Clone, Copy, Debug)]
pub struct ChatMessages;

impl Translator for ChatMessages {
    fn client(&self) -> Dialect {
        Dialect::Chat
    }

    fn provider(&self) -> Dialect {
        Dialect::Messages
    }

    fn path(&self) -> &'static str {
        "/messages"
    }

    fn request(&self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Bytes>, Refusal> {
        request::body(ask, target, None)
    }

    fn continuation(&self, ask: &Ask, target: &Target<'_>, delivered: &str) -> Result<Vec<Bytes>, Refusal> {
        request::body(ask, target, Some(delivered))
    }

    fn whole(&self, ask: &Ask, target: &Target<'_>, body: Bytes) -> Result<Whole, Fault> {
        let answer = Answer::read(ask, target, body)?;
        Ok(write::chat::plain(&answer, &Face::of(target)))
    }

    fn reply(&self, ask: &Ask, target: &Target<'_>) -> Box<dyn Reply> {
        crate::reply(ask, target, write::chat::Writer::new(&Face::of(target), ask.n, ask.include_usage))
    }
}
