//! Validation of request bodies: returns an [`InferenceRequest`](penstock_core::InferenceRequest), or an error that
//! names the invalid field.
//!
//! One pass validates the JSON (syntax, UTF-8, depth, number of values) and records the position of each value; the
//! rules of the dialect are then checked on these positions. Content is never deserialised or copied, and no error
//! message repeats it: messages name fields, types and bounds.
//!
//! Rules in all dialects: `null` counts as absent for every optional field; unknown fields are ignored, except those
//! that would select a provider; keys must be unique at the top level and in each object that is read.

mod base64;
mod body;
mod body_edits;
mod chat;
mod completions;
mod conversation;
mod field_path;
mod filters;
mod images;
mod limits;
mod media;
pub mod members;
mod messages;
mod metered;
mod read;
mod responses;
mod scalars;
mod tool_callers;
mod vectors;

pub use body::validate_object_body;
pub use chat::validate_chat_request;
pub use completions::validate_text_completion_request;
pub use conversation::validate_generation_request;
pub use images::{validate_image_generation, validate_image_generation_with_default_model};
pub use limits::RequestLimits;
pub use messages::{MessagesPurpose, validate_count_tokens_request, validate_messages_request};
pub use metered::{validate_speech_request, validate_text_input_request};
pub use responses::{
    ENCRYPTED_REASONING_INCLUDE, INCLUDE_VALUES, ResponsesPurpose, validate_responses_request,
    validate_responses_request_with_storage,
};
pub use vectors::{validate_embeddings_request, validate_rerank_request};
