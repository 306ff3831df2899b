//! Exact token counts for chat and messages requests: tokenizers, chat templates, images.
//!
//! A [`PromptConversation`] is parsed from a body of the chat or the messages dialect. A [`TokenCounter`] counts it
//! with the model's own tokenizer and template (those of gpt-oss are built in). If the model has no such files, an
//! [`engine`] that serves the model can count it; otherwise [`max_conversation_tokens`] returns a number that is not too
//! low. [`max_prompt_tokens`] computes an upper limit from the number of bytes alone; a prompt within the context window
//! by this limit need not be counted.
//!
//! [`PublishedEncoding`] converts token ids that a client sent back into text.
//!
//! Contents of files and answers of engines are arguments: this crate does no I/O.

mod budget;
mod conversation;
mod counter;
mod encoding;
pub mod engine;
mod estimate;
mod harmony;
mod image;
mod merge;
mod o200k;
mod packed_vocabulary;
mod pretokenizer_regex;
mod strftime;
mod template;
mod tokenizer;
mod vocabulary;
mod windows;

pub use budget::CountBudget;
pub use conversation::{
    FunctionCall, FunctionTool, PromptConversation, PromptEffort, PromptMessage, PromptParseError,
    PromptPart, SpeakerRole,
};
pub use counter::{CountError, CountMethod, TokenCount, TokenCounter, render_prompt};
pub use encoding::PublishedEncoding;
pub use estimate::{
    max_conversation_tokens, max_conversation_tokens_within, max_prompt_tokens, max_text_tokens,
};
pub use image::{ImageRule, ImageTokenSettings, PromptImage, base64_image_size, image_size};
pub use tokenizer::TokenizerError;
