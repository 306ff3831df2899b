//! Speech: transcription, and synthesis (in `synthesis.rs` and `stream.rs`). For transcription, the client's form is
//! parsed, a form for the provider is built, and its answer is converted to one of the five transcript formats.

mod fields;
mod language;
mod parameters;
mod shape;
mod signature;
mod stream;
mod synthesis;
mod transcript;
mod upload;
mod write;

pub use parameters::{OFFER_DEPENDENT_PARAMETERS, unsupported_parameter_error};
pub use shape::AUDIO_ADAPTERS;
pub use synthesis::generated_audio_type;
pub use upload::TranscriptionFormParser;
pub use write::transcript_content_type;
