//! The admission room: a request's bytes in, an [`Ask`](penstock_contract::Ask)
//! or a refusal that names the field out.
//!
//! One pass proves the JSON (validity, UTF-8, depth, number of values) and notes
//! where each value stands; the rules of the dialect are then checked on those
//! notes. Content is never deserialised and never copied, and no sentence of a
//! refusal repeats it: sentences name fields, types and bounds.
//!
//! Rules of reading, in both dialects: `null` is absent for every optional
//! field; unknown fields are ignored, but for those that would choose the
//! provider; no key may come twice in the body or in an
//! object that is read.

mod base64;
mod body;
mod chat;
mod edits;
mod filters;
mod images;
mod json;
mod limits;
mod media;
pub mod members;
mod messages;
mod path;
mod plain;
mod read;
mod vectors;

pub use chat::chat;
pub use images::{images, images_with};
pub use limits::Limits;
pub use messages::{Purpose, count, messages};
pub use vectors::{embeddings, rerank};
