//! Drawings: the client's wish out in a provider's shape, images back in whatever
//! form it gives them, the answer in the form that the client wants.

mod base64;
mod kind;
mod read;
mod shape;
mod write;

pub use base64::{decode, encode};
pub use kind::content_type;
pub use shape::{SHAPES, steps_name};
pub use write::{Shown, answer};
