//! Transcription: the client's form is parsed, a provider's form is built, and its answer becomes a transcript in any
//! of the five formats.

mod fields;
mod language;
mod shape;
mod synthesis;
mod transcript;
mod upload;
mod write;

pub use shape::SHAPES;
pub use upload::TranscriptionUpload;
pub use write::content_type;
