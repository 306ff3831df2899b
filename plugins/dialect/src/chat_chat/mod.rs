//! A chat client and a chat provider.
//!
//! The request is the client's own bytes with the model replaced, what engines
//! do not take left out, and what only the gateway knows filled in. The answer
//! is cleaned: engines disagree about nearly every detail of the dialect, and
//! client libraries break on most of them.

mod messages;
mod request;
#[cfg(test)]
mod tests;
mod turns;

use crate::answer::Answer;
use crate::write::{self, Face};
use bytes::Bytes;
use penstock_contract::{Ask, Dialect, Fault, Refusal, Reply, Target, Translator, Whole};

/// The pair.
#[derive(Clone, Copy, Debug)]
pub struct ChatChat;

impl Translator for ChatChat {
    fn client(&self) -> Dialect {
        Dialect::Chat
    }

    fn provider(&self) -> Dialect {
        Dialect::Chat
    }

    fn path(&self) -> &'static str {
        "/chat/completions"
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
