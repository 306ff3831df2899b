//! Translation between the API dialects of clients and of providers, in both directions.
//!
//! A pair of dialects is a [`Translator`]. Request bodies are rewritten as slices of the client's own bytes plus new
//! text. Answers pass through one neutral list of [`event::Event`]s: a [`decode::Decoder`] for each provider dialect
//! produces them, a [`write::Writer`] for each client dialect serializes them, and one stream translator between the
//! two buffers and counts them, compares them with delivered text and handles a rescue. Strings keep their JSON
//! escapes, so that they are not unescaped and escaped again.
//!
//! To add a pair: add a folder `src/<client>_<provider>/` with its definition, a line in [`TRANSLATORS`], and golden
//! cases in `testdata/<client>_<provider>/`.

pub mod decode;
pub mod event;
pub mod grammar;
pub mod parameters;
pub mod write;

mod answer;
mod arguments;
mod chat_chat;
mod chat_messages;
mod choices;
mod classify;
mod effort;
mod form;
mod messages_chat;
mod messages_messages;
mod pair;
mod pieces;
mod record;
mod reply;
mod scan;
mod shape;
#[cfg(test)]
mod trial;
mod waiting;

pub use answer::{Answer, Candidate, ToolCall};
pub use chat_messages::MAX_TOKENS;
pub use choices::join;
pub use classify::classify;
pub use form::takes_json_schema;
pub use reply::{Answering, reply};
pub use shape::Shape;

use penstock_contract::{Dialect, Translator};

/// Translators of all supported pairs of dialects.
pub const TRANSLATORS: &[&dyn Translator] =
    &[&chat_chat::PAIR, &chat_messages::PAIR, &messages_chat::PAIR, &messages_messages::PAIR];

/// Returns the translator from a client's dialect to a provider's dialect and back.
#[must_use]
pub fn translator(client: Dialect, provider: Dialect) -> Option<&'static dyn Translator> {
    TRANSLATORS.iter().copied().find(|pair| pair.client() == client && pair.provider() == provider)
}
