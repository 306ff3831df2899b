//! A pair of dialects as what it does: a row of functions, so that a pair says
//! only what is its own.

use crate::answer::Answer;
use crate::write::{self, Face};
use bytes::Bytes;
use penstock_contract::{Ask, Dialect, Fault, Refusal, Reply, Target, Translator, Whole};

/// The body for a provider, in pieces.
type Request = fn(&Ask, &Target<'_>, Option<&str>) -> Result<Vec<Bytes>, Refusal>;

/// A client's dialect and a provider's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) client: Dialect,
    pub(crate) provider: Dialect,
    /// Below the provider's base URL.
    pub(crate) path: &'static str,
    /// The provider's body; with what was delivered, the one that asks to continue it.
    pub(crate) request: Request,
    /// A plain answer, for the client.
    pub(crate) whole: fn(&Ask, &Target<'_>, Bytes) -> Result<Whole, Fault>,
    /// A streamed one.
    pub(crate) reply: fn(&Ask, &Target<'_>) -> Box<dyn Reply>,
}

impl Translator for Pair {
    fn client(&self) -> Dialect {
        self.client
    }

    fn provider(&self) -> Dialect {
        self.provider
    }

    fn path(&self) -> &'static str {
        self.path
    }

    fn request(&self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Bytes>, Refusal> {
        (self.request)(ask, target, None)
    }

    fn continuation(&self, ask: &Ask, target: &Target<'_>, delivered: &str) -> Result<Vec<Bytes>, Refusal> {
        (self.request)(ask, target, Some(delivered))
    }

    fn whole(&self, ask: &Ask, target: &Target<'_>, body: Bytes) -> Result<Whole, Fault> {
        (self.whole)(ask, target, body)
    }

    fn reply(&self, ask: &Ask, target: &Target<'_>) -> Box<dyn Reply> {
        (self.reply)(ask, target)
    }
}

/// A plain answer of any provider, in the chat dialect.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn chat_whole(ask: &Ask, target: &Target<'_>, body: Bytes) -> Result<Whole, Fault> {
    let answer = Answer::read(ask, target, body)?;
    Ok(write::chat::plain(&answer, &Face::of(target), target.adjust.choices))
}

/// A stream of any provider, in the chat dialect.
pub(crate) fn chat_reply(ask: &Ask, target: &Target<'_>) -> Box<dyn Reply> {
    let choices = target.adjust.choices;
    let writer = write::chat::Writer::new(&Face::of(target), ask.n, ask.include_usage, choices);
    crate::reply(ask, target, writer)
}

/// A stream of any provider, in the messages dialect.
pub(crate) fn messages_reply(ask: &Ask, target: &Target<'_>) -> Box<dyn Reply> {
    crate::reply(ask, target, write::messages::Writer::new(write::messages::Manner::of(ask, target)))
}
