//! The dialects: what a client said becomes what a provider understands, and
//! the provider's answer becomes what the client's libraries read.
//!
//! A pair of dialects is a [`Translator`]. Requests are rewritten in place, as
//! pieces of the client's own bytes. Answers pass through one neutral list of
//! [`event::Event`]s: a [`decode::Decoder`] per provider dialect makes them, a
//! [`write::Writer`] per client dialect speaks them, and one reply between the
//! two holds, counts, compares and rescues. Text stays escaped as it came, so
//! nothing is parsed and written again.
//!
//! To add a pair: a folder `src/<client>_<provider>/` with its row, a line in [`TRANSLATORS`],
//! and golden cases in `testdata/<client>_<provider>/`.

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

/// Every pair of dialects that is spoken.
pub const TRANSLATORS: &[&dyn Translator] =
    &[&chat_chat::PAIR, &chat_messages::PAIR, &messages_chat::PAIR, &messages_messages::PAIR];

/// The translator from a client's dialect to a provider's and back.
#[must_use]
pub fn translator(client: Dialect, provider: Dialect) -> Option<&'static dyn Translator> {
    TRANSLATORS.iter().copied().find(|pair| pair.client() == client && pair.provider() == provider)
}
