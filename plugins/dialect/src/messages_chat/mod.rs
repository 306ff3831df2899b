//! A messages client and a chat provider.
//!
//! The request is written from slices of the client's own bytes; the answer
//! passes through the neutral events.

mod block;
pub(crate) mod ids;
mod request;
mod said;
mod speak;
#[cfg(test)]
mod tests;
mod turns;

use crate::write::messages::{self, Manner, Writer};
use bytes::Bytes;
use penstock_contract::{Ask, Dialect, Fault, Refusal, Reply, Target, Translator, Whole};

/// The pair.
#[derive(Clone, Copy, Debug)]
pub struct MessagesChat;

impl Translator for MessagesChat {
    fn client(&self) -> Dialect {
        Dialect::Messages
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
        messages::whole(ask, target, body)
    }

    fn reply(&self, ask: &Ask, target: &Target<'_>) -> Box<dyn Reply> {
        crate::reply(ask, target, Writer::new(Manner::of(ask, target)))
    }
}
