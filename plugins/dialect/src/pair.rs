//! Definition of a pair of dialects: a table of functions, so that a pair contains only its own code.

use crate::answer::Answer;
use crate::write::{self, Face};
use bytes::Bytes;
use penstock_contract::{Ask, Dialect, Fault, Refusal, Reply, Target, Translator, Whole};

/// Function that builds the request body for a provider, as segments.
type Request = fn(&Ask, &Target<'_>, Option<&str>) -> Result<Vec<Bytes>, Refusal>;

/// Translator between a client dialect and a provider dialect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) client: Dialect,
    pub(crate) provider: Dialect,
    /// Path below the provider's base URL.
    pub(crate) path: &'static str,
    /// Builder of the request body; with delivered text, of the request to continue it.
    pub(crate) request: Request,
    /// Translator of a buffered answer.
    pub(crate) whole: fn(&Ask, &Target<'_>, Bytes) -> Result<Whole, Fault>,
    /// Constructor of the translation of a streamed answer.
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

/// Translates a buffered answer of any provider to the chat dialect.
///
/// # Errors
/// Returns the error of an answer that cannot be decoded.
pub(crate) fn chat_whole(ask: &Ask, target: &Target<'_>, body: Bytes) -> Result<Whole, Fault> {
    let answer = Answer::read(ask, target, body)?;
    Ok(write::chat::plain(&answer, &Face::of(target), target.adjust.choices))
}

/// Creates a translation of a stream of any provider to the chat dialect.
pub(crate) fn chat_reply(ask: &Ask, target: &Target<'_>) -> Box<dyn Reply> {
    let choices = target.adjust.choices;
    let writer = write::chat::Writer::new(&Face::of(target), ask.n, ask.include_usage, choices);
    crate::reply(ask, target, writer)
}

/// Creates a translation of a stream of any provider to the messages dialect.
pub(crate) fn messages_reply(ask: &Ask, target: &Target<'_>) -> Box<dyn Reply> {
    crate::reply(ask, target, write::messages::Writer::new(write::messages::Manner::of(ask, target)))
}
