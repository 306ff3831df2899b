//! Validation of request bodies: returns an [`Ask`](penstock_contract::Ask), or an error that names the invalid field.
//!
//! One pass validates the JSON (syntax, UTF-8, depth, number of values) and records the position of each value; the
//! rules of the dialect are then checked on these positions. Content is never deserialised or copied, and no error
//! message repeats it: messages name fields, types and bounds.
//!
//! Rules in both dialects: `null` counts as absent for every optional field; unknown fields are ignored, except those
//! that would choose the provider; keys must be unique in the body and in each object that is read.

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
