//! Validated inference request that still refers to the bytes of its body.

use crate::filters::Filters;
use crate::kind::{Dialect, Kind};
use crate::seam::Target;
use crate::task::Task;
use crate::usage::{Usage, UsageBounds};
use bytes::Bytes;
use std::ops::Range;

/// Top-level member of the body, as byte ranges of its key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Key without quotes, unescaped.
    pub name: Box<str>,
    /// Range from the key's opening quote to the end of the value.
    pub member: Range<usize>,
    /// Range of the value without surrounding white space.
    pub value: Range<usize>,
}

/// Top-level members of a JSON object in order. Names are unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<Field>);

impl Fields {
    /// Returns the member with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Field> {
        self.0.iter().find(|field| &*field.name == name)
    }
}

/// Edit that makes the body canonical: the bytes in `range` are replaced by `with`. Edits are sorted and do not
/// overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Replaced byte range; empty for an insertion.
    pub range: Range<usize>,
    /// Replacement bytes.
    pub with: Bytes,
}

/// Capabilities that an offer needs to serve this request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// True if tools are declared.
    pub tools: bool,
    /// True for `response_format` of type `json_object`.
    pub json_object: bool,
    /// True for `response_format` of type `json_schema`.
    pub json_schema: bool,
    /// True if the request has image parts.
    pub images: bool,
    /// True if image parts are given as URLs that the provider must fetch itself.
    pub image_urls: bool,
    /// True if the request has audio parts.
    pub audio: bool,
    /// True if the request has file parts.
    pub files: bool,
    /// True for `logprobs` or `top_logprobs`, which cannot be dropped silently.
    pub logprobs: bool,
    /// True for `logit_bias`, which cannot be dropped silently.
    pub logit_bias: bool,
    /// True if more than one candidate is requested.
    pub many: bool,
    /// True if the last message is the assistant's and is to be continued.
    pub prefill: bool,
}

/// Features of a conversation that some providers do not accept unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// True if earlier answers have reasoning.
    pub reasoning: bool,
    /// True if the conversation has tool calls or ids of tool calls.
    pub calls: bool,
    /// True if the conversation has tool results.
    pub results: bool,
    /// True if a system message is in a position that not every provider accepts: any but the first, and any in
    /// `messages` of the messages dialect.
    pub later_system: bool,
    /// Messages dialect: true if there are texts that no provider should receive, such as white space alone or the
    /// billing header of coding agents.
    pub idle_text: bool,
    /// Messages dialect: true if ids of calls have characters other than letters, digits, `_` and `-`.
    pub odd_ids: bool,
}

/// Display of thinking in the response (messages dialect).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// Not requested: reasoning is not returned.
    #[default]
    Off,
    /// Shown as thinking blocks.
    Shown,
    /// Thinking blocks with a signature and without text.
    Omitted,
}

/// Validated inference request: its bytes, the positions of its members, and the values that the gateway needs.
/// Translators read the rest from the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Dialect of the client.
    pub dialect: Dialect,
    /// Kind of model that serves the request.
    pub kind: Kind,
    /// Body exactly as received.
    pub body: Bytes,
    /// Top-level members of the body.
    pub fields: Fields,
    /// Task, with the parameters that the fields below do not have.
    pub task: Task,
    /// Edits inside the forwarded members that a chat-completions provider needs (null members dropped, `developer`
    /// changed to `system` …).
    pub edits: Vec<Edit>,
    /// `model` as sent, unescaped.
    pub model: Box<str>,
    /// True if the client requested server-sent events.
    pub stream: bool,
    /// Chat: `stream_options.include_usage`.
    pub include_usage: bool,
    /// Cap on generated tokens, if the client gave one.
    pub max_tokens: Option<u64>,
    /// Number of candidates, 1 to 10.
    pub n: u32,
    /// True if parallel tool calls are allowed.
    pub parallel_tools: bool,
    /// Stop sequences; admission limits their number.
    pub stop: Vec<String>,
    /// `preset`, if given: `reasoning` or `non_reasoning`.
    pub preset: Option<Box<str>>,
    /// Capabilities that an offer needs.
    pub needs: Needs,
    /// Constraints on the offers that may serve the request.
    pub filters: Option<Box<Filters>>,
    /// Display of thinking.
    pub thinking: Thinking,
    /// Bytes of prompt text (messages, system, tools) without inline media: an upper bound of the text's tokens.
    pub prompt_bytes: usize,
    /// Number of inline and linked images in the prompt.
    pub images: u32,
    /// Features of the conversation that some providers do not accept unchanged.
    pub said: Said,
}

impl Ask {
    /// Returns a request of a kind that is never streamed, with a task and default values. Its dialect is chat, as for
    /// all these paths.
    #[must_use]
    pub fn plain(kind: Kind, body: Bytes, fields: Fields, model: Box<str>, task: Task) -> Self {
        Self {
            dialect: Dialect::Chat,
            kind,
            body,
            fields,
            task,
            edits: Vec::new(),
            model,
            stream: false,
            include_usage: false,
            max_tokens: None,
            n: 1,
            parallel_tools: true,
            stop: Vec::new(),
            preset: None,
            needs: Needs::default(),
            filters: None,
            thinking: Thinking::Off,
            prompt_bytes: 0,
            images: 0,
            said: Said::default(),
        }
    }

    /// Usage estimated from the bytes of generated text, for a provider that reported none; marked as the gateway's
    /// count.
    #[must_use]
    pub fn counted(&self, output_bytes: usize) -> Usage {
        Usage::counted(self.prompt_bytes, output_bytes)
    }

    /// Upper bound of the prompt tokens, from the number of bytes: a token of text has at least one byte. Includes the
    /// tokens of a chat template, and those that a model adds to each input or document.
    #[must_use]
    pub fn most_input(&self) -> u64 {
        let of = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let each = |number: usize| of(number).saturating_mul(UsageBounds::EACH);
        let text = match &self.task {
            // Audio and files are in the body; the number of their bytes bounds their tokens.
            Task::Talk if self.needs.audio || self.needs.files => of(self.body.len()),
            Task::Talk | Task::Draw(_) | Task::Transcribe(_) => of(self.prompt_bytes),
            Task::Embed(embed) => {
                of(self.body.len().max(self.prompt_bytes)).saturating_add(each(embed.inputs.len()))
            }
            // The model reads the query again with each document.
            Task::Rerank(rerank) => {
                let again = of(rerank.query.len()).saturating_mul(of(rerank.documents.len()));
                of(self.body.len()).saturating_add(again).saturating_add(each(rerank.documents.len()))
            }
        };
        let images = u64::from(self.images).saturating_mul(UsageBounds::IMAGE);
        text.saturating_add(images).saturating_add(UsageBounds::TEMPLATE)
    }

    /// Upper bounds of the usage that a provider may report, without the bound by delivered bytes.
    #[must_use]
    pub fn usage_bounds(&self, target: &Target<'_>) -> UsageBounds {
        let window = target.abilities.context_length.unwrap_or(Usage::MOST);
        let most = target.abilities.max_output.unwrap_or(window).min(window);
        let cap = target.max_tokens.or(self.max_tokens).unwrap_or(most).min(most);
        let output = cap.saturating_mul(u64::from(self.n.max(1)));
        // Each input of an embedding request and each document has its own context window.
        let input = if self.kind == Kind::Chat { self.most_input().min(window) } else { self.most_input() };
        UsageBounds { input, output, delivered: u64::MAX }
    }

    /// Number of diffusion steps of an image request.
    #[must_use]
    pub fn steps(&self) -> Option<u32> {
        let value = self.value("num_inference_steps").or_else(|| self.value("steps"))?;
        std::str::from_utf8(value).ok()?.parse().ok()
    }

    /// Returns the bytes of a top-level member's value. `null` counts as absent.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let value = self.body.get(self.fields.get(name)?.value.clone())?;
        (value != b"null").then_some(value)
    }
}
