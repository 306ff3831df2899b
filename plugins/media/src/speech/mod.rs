//! Speech written down: the client's form in, a provider's form out, its answer
//! into any of the five ways to write a transcript.

mod fields;
mod language;
mod shape;
mod transcript;
mod upload;
mod write;

pub use shape::SHAPES;
pub use upload::Upload;
pub use write::content_type;
