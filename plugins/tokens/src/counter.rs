//! Token counter of a model.
//!
//! Guarantees: the result of a count is exact or an error. The error says why, so that a caller can continue with the
//! engine or with an estimate.

#[cfg(test)]
mod tests;

use crate::budget::{CountBudget, CountHalt, TokenMeter, cap_at_budget};
use crate::conversation::PromptConversation;
use crate::harmony;
use crate::image::ImageTokenSettings;
use crate::o200k::O200kTokenizer;
use crate::template::{ChatTemplate, RenderError};
use crate::tokenizer::{FileTokenizer, TokenizerError};
use serde_json::{Map, Value};
use std::fmt;

/// Number of tokens of a prompt, with the method of the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenCount {
    /// Number of tokens.
    pub tokens: u64,
    /// Method of the count.
    pub method: CountMethod,
}

/// Method of a token count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountMethod {
    /// Count with the model's tokenizer and template.
    Exact,
    /// Count by an engine that serves the model.
    Engine,
    /// Estimate that is never below the exact number.
    Estimate,
}

impl CountMethod {
    /// Returns the value of the header `x-token-count-method`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Engine => "engine",
            Self::Estimate => "estimate",
        }
    }
}

/// Reason for which a conversation could not be counted exactly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// The model has no chat template, so its prompt is unknown.
    #[error("the model has no chat template")]
    NoTemplate,
    /// The chat template refused the conversation with this message.
    #[error("the chat template refused the conversation: {0}")]
    Template(String),
    /// The conversation has images, but the model has no image rule.
    #[error("the model has no rule for images")]
    NoImageRule,
    /// The conversation has a part of a type that cannot be counted.
    #[error("a part of type {0} cannot be counted")]
    UncountablePart(String),
    /// Rendering the prompt would take too much work.
    #[error("the conversation is too large to be counted")]
    TooLarge,
    /// The stop signal of the budget ended the count.
    #[error("the count was stopped")]
    Stopped,
}

/// Token counter of one model.
pub struct TokenCounter {
    kind: CounterKind,
    images: Option<ImageTokenSettings>,
}

enum CounterKind {
    Harmony(&'static O200kTokenizer),
    Files { tokenizer: Box<FileTokenizer>, template: Option<Box<ChatTemplate>> },
}

impl TokenCounter {
    /// Creates the built-in counter of gpt-oss.
    #[must_use]
    pub fn o200k_harmony() -> Self {
        Self { kind: CounterKind::Harmony(O200kTokenizer::shared()), images: None }
    }

    /// Creates the counter of a model with its own files: the contents of `tokenizer.json`, of a template file if there
    /// is one, and of `tokenizer_config.json`, which names the special tokens and may contain the template.
    ///
    /// # Errors
    /// Returns one sentence that names the file and the parse error or the unsupported part.
    pub fn from_files(
        tokenizer_json: &[u8],
        chat_template: Option<&str>,
        config: Option<&[u8]>,
    ) -> Result<Self, TokenizerError> {
        let tokenizer = Box::new(FileTokenizer::from_json(tokenizer_json)?);
        let config = match config {
            None => Map::new(),
            Some(json) => serde_json::from_slice(json).map_err(|error| {
                TokenizerError(format!("tokenizer_config.json: does not parse ({error})"))
            })?,
        };
        let source = match chat_template {
            Some(source) => Some(source),
            None => find_template(&config)?,
        };
        let template = source.map(|source| compile_template(source, &config)).transpose()?;
        let template = template.map(Box::new);
        Ok(Self { kind: CounterKind::Files { tokenizer, template }, images: None })
    }

    /// Returns the maximum number of prompt tokens for one image; `None` without an image rule.
    #[must_use]
    pub fn max_image_tokens(&self) -> Option<u64> {
        self.images.as_ref().map(ImageTokenSettings::max_tokens)
    }

    /// Adds image settings, for a model that accepts images.
    #[must_use]
    pub fn with_images(mut self, images: ImageTokenSettings) -> Self {
        self.images = Some(images);
        self
    }

    /// Counts the tokens of a conversation, without a limit.
    ///
    /// # Errors
    /// Returns an error if it cannot be counted exactly; see [`CountError`].
    pub fn count(&self, conversation: &PromptConversation) -> Result<TokenCount, CountError> {
        self.count_within(conversation, &CountBudget::unlimited())
    }

    /// Counts the tokens of a conversation; the result is one more than the budget if they exceed it.
    ///
    /// # Errors
    /// Returns an error if it cannot be counted exactly, or if the stop signal ended the count; see [`CountError`].
    pub fn count_within(
        &self,
        conversation: &PromptConversation,
        budget: &CountBudget<'_>,
    ) -> Result<TokenCount, CountError> {
        if let Some(kind) = conversation.first_opaque_part() {
            return Err(CountError::UncountablePart(kind.to_owned()));
        }
        let images = match &self.images {
            None if conversation.images().next().is_some() => return Err(CountError::NoImageRule),
            None => 0,
            Some(images) => {
                conversation.images().fold(0, |sum: u64, image| sum.saturating_add(images.tokens(*image)))
            }
        };
        let meter = TokenMeter::new(images, *budget);
        let counted = match &self.kind {
            CounterKind::Harmony(vocabulary) => harmony::count(vocabulary, conversation, meter),
            CounterKind::Files { tokenizer, template } => {
                let template = template.as_ref().ok_or(CountError::NoTemplate)?;
                self.count_prompt(tokenizer, template, conversation, images, budget)?
            }
        };
        let tokens = cap_at_budget(counted, budget).ok_or(CountError::Stopped)?;
        Ok(TokenCount { tokens, method: CountMethod::Exact })
    }

    /// Counts the tokens of a rendered prompt. All images together count as `images` tokens, and the text of their
    /// placeholders does not count.
    fn count_prompt(
        &self,
        tokenizer: &FileTokenizer,
        template: &ChatTemplate,
        conversation: &PromptConversation,
        images: u64,
        budget: &CountBudget<'_>,
    ) -> Result<Result<u64, CountHalt>, CountError> {
        let mark = self.images.as_ref().and_then(|images| images.placeholder.as_deref());
        let mark = mark.filter(|mark| !mark.is_empty());
        let count = conversation.images().count();
        let each = mark.map_or(0, |mark| tokenizer.count(mark));
        // The tokens of the placeholders are counted with the prompt and subtracted later, so the maximum is higher
        // here.
        let most = budget.max_tokens.saturating_add(each.saturating_mul(count as u64));
        let mut meter = TokenMeter::new(images, CountBudget { max_tokens: most, ..*budget });
        let bytes = meter.max_bytes(tokenizer.max_text_bytes_per_token());
        let prompt = match template.render_within(conversation, mark, &meter, bytes) {
            Ok(prompt) => prompt,
            Err(RenderError::Halted(halt)) => return Ok(Err(halt)),
            Err(RenderError::TooLarge) => return Err(CountError::TooLarge),
            Err(RenderError::Refused(why)) => return Err(CountError::Template(why)),
        };
        if let Err(halt) = tokenizer.count_into(&prompt, &mut meter) {
            return Ok(Err(halt));
        }
        // A user may have written a placeholder as text, so at most as many placeholders as images are subtracted.
        let marks = mark.map_or(0, |mark| prompt.matches(mark).count().min(count)) as u64;
        Ok(Ok(meter.tokens().saturating_sub(marks.saturating_mul(each))))
    }

    /// Counts the tokens of a text that is not a chat, such as an input of an embedding, including the special tokens
    /// that the tokenizer adds around it.
    #[must_use]
    pub fn count_text(&self, text: &str) -> u64 {
        self.count_text_within(text, &CountBudget::unlimited()).unwrap_or(u64::MAX)
    }

    /// Counts like [`TokenCounter::count_text`], but returns at most the maximum of the budget plus one; `None` if the
    /// stop signal ended the count.
    #[must_use]
    pub fn count_text_within(&self, text: &str, budget: &CountBudget<'_>) -> Option<u64> {
        let counted = match &self.kind {
            CounterKind::Harmony(vocabulary) => {
                let mut meter = TokenMeter::new(0, *budget);
                vocabulary.count_into(text, &mut meter).map(|()| meter.tokens())
            }
            CounterKind::Files { tokenizer, .. } => {
                let mut meter = TokenMeter::new(tokenizer.special_token_count(), *budget);
                tokenizer.count_into(text, &mut meter).map(|()| meter.tokens())
            }
        };
        cap_at_budget(counted, budget)
    }
}

/// Renders the prompt of a conversation with a chat template, without a tokenizer, for an engine that can only
/// tokenise text. `config` is the content of `tokenizer_config.json`.
///
/// # Errors
/// Returns an error if the template or the configuration does not parse, or the template refuses the conversation.
pub fn render_prompt(
    chat_template: &str,
    config: Option<&[u8]>,
    conversation: &PromptConversation,
) -> Result<String, TokenizerError> {
    let template = compile_template(chat_template, &parse_config(config)?)?;
    template.render(conversation, None).map_err(|why| TokenizerError(format!("chat template: {why}")))
}

fn parse_config(json: Option<&[u8]>) -> Result<Map<String, Value>, TokenizerError> {
    json.map_or_else(|| Ok(Map::new()), serde_json::from_slice)
        .map_err(|error| TokenizerError(format!("tokenizer_config.json: does not parse ({error})")))
}

fn compile_template(source: &str, config: &Map<String, Value>) -> Result<ChatTemplate, TokenizerError> {
    ChatTemplate::new(source, special_tokens(config))
        .map_err(|why| TokenizerError(format!("chat template: {why}")))
}

/// Returns the `chat_template` of a configuration; `None` if it has none. If it is a list of named templates, returns
/// the template `default`, or else the first one.
fn find_template(config: &Map<String, Value>) -> Result<Option<&str>, TokenizerError> {
    let invalid = || {
        TokenizerError(
            "tokenizer_config.json: chat_template is neither a text nor a list with a default".to_owned(),
        )
    };
    match config.get("chat_template") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(source)) => Ok(Some(source)),
        Some(Value::Array(list)) => {
            let named =
                list.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"));
            named
                .or(list.first())
                .and_then(|entry| entry.get("template")?.as_str())
                .map(Some)
                .ok_or_else(invalid)
        }
        Some(_) => Err(invalid()),
    }
}

/// Returns the members of a configuration whose names end in `_token`, which templates use as variables.
fn special_tokens(config: &Map<String, Value>) -> Map<String, Value> {
    let tokens = config.iter().filter(|(name, _)| name.ends_with("_token")).filter_map(|(name, token)| {
        let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
        Some((name.clone(), text.into()))
    });
    tokens.collect()
}

impl fmt::Debug for TokenCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            CounterKind::Harmony(_) => "o200k_harmony",
            CounterKind::Files { .. } => "files",
        };
        f.debug_struct("Counter").field("kind", &kind).field("images", &self.images).finish()
    }
}
