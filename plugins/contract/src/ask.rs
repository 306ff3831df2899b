//! An ask: a request proven sane, still in its own bytes.

use crate::filters::Filters;
use crate::kind::{Dialect, Kind};
use crate::seam::Target;
use crate::task::Task;
use crate::usage::{Usage, UsageBounds};
use bytes::Bytes;
use std::ops::Range;

/// One top-level member of the body: where its key and its value stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The key without quotes, unescaped if it had to be.
    pub name: Box<str>,
    /// From the key's opening quote to the end of the value.
    pub member: Range<usize>,
    /// The value alone, without surrounding space.
    pub value: Range<usize>,
}

/// The top-level members of a JSON object in order. Names are unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<Field>);

impl Fields {
    /// The member with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Field> {
        self.0.iter().find(|field| &*field.name == name)
    }
}

/// A change to the body's bytes that makes it canonical: `range` becomes `with`.
/// Edits are sorted and do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced; empty for an insertion.
    pub range: Range<usize>,
    /// What stands there instead.
    pub with: Bytes,
}

/// What an offer must be able to do for this ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Tools are declared.
    pub tools: bool,
    /// `response_format` of type `json_object`.
    pub json_object: bool,
    /// `response_format` of type `json_schema`.
    pub json_schema: bool,
    /// Image parts.
    pub images: bool,
    /// Image parts given as a URL that the provider must fetch itself.
    pub image_urls: bool,
    /// Audio parts.
    pub audio: bool,
    /// File parts.
    pub files: bool,
    /// `logprobs` or `top_logprobs`, which cannot be dropped silently.
    pub logprobs: bool,
    /// `logit_bias`, which cannot be dropped silently.
    pub logit_bias: bool,
    /// More than one candidate.
    pub many: bool,
    /// The last message is the assistant's and is to be continued.
    pub prefill: bool,
}

/// What stands in a conversation that some providers do not take as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Reasoning of earlier answers.
    pub reasoning: bool,
    /// Calls of tools, or ids of calls.
    pub calls: bool,
    /// Results of tools.
    pub results: bool,
    /// System messages where not every provider takes one: anywhere but in the first place, and anywhere in
    /// `messages` of the messages dialect.
    pub later_system: bool,
    /// Messages dialect: texts that no provider should get, those of white space alone and the billing header of coding
    /// agents.
    pub idle_text: bool,
    /// Messages dialect: ids of calls with other characters than letters, digits, `_` and `-`.
    pub odd_ids: bool,
}

/// Whether and how thinking is shown (messages dialect).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// Not asked for: reasoning stays inside.
    #[default]
    Off,
    /// Shown as thinking blocks.
    Shown,
    /// Blocks with a signature and no text.
    Omitted,
}

/// A request after admission: its bytes, where its members stand, and what the
/// house must know of it. Translators read the rest from the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The client's dialect.
    pub dialect: Dialect,
    /// The kind of work.
    pub kind: Kind,
    /// The body exactly as it came.
    pub body: Bytes,
    /// Its top-level members.
    pub fields: Fields,
    /// What is asked for, beyond what the members below say.
    pub task: Task,
    /// What a chat-completions provider needs changed inside the members that
    /// are passed on (null members dropped, `developer` turned `system` …).
    pub edits: Vec<Edit>,
    /// `model` as sent, unescaped.
    pub model: Box<str>,
    /// The client wants server-sent events.
    pub stream: bool,
    /// Chat: `stream_options.include_usage`.
    pub include_usage: bool,
    /// The cap on generated tokens, if the client gave one.
    pub max_tokens: Option<u64>,
    /// Number of candidates, 1 to 10.
    pub n: u32,
    /// Parallel tool calls are allowed.
    pub parallel_tools: bool,
    /// Stop sequences, at most a few.
    pub stop: Vec<String>,
    /// `preset`, if given: `reasoning` or `non_reasoning`.
    pub preset: Option<Box<str>>,
    /// What an offer must be able to do.
    pub needs: Needs,
    /// Constraints on the offers that may serve it, if there are any.
    pub filters: Option<Box<Filters>>,
    /// Whether thinking is shown.
    pub thinking: Thinking,
    /// Bytes of prompt text (messages, system, tools), inline media left out:
    /// an upper bound of the text's tokens.
    pub prompt_bytes: usize,
    /// Inline and linked images in the prompt.
    pub images: u32,
    /// What stands in the messages.
    pub said: Said,
}

impl Ask {
    /// An ask of a kind that is always answered whole, with nothing in it yet
    /// but its task. It speaks the chat dialect, as all their paths do.
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

    /// A count for an answer with so many bytes of text whose provider did not
    /// say; marked as the gateway's own.
    #[must_use]
    pub fn counted(&self, output_bytes: usize) -> Usage {
        Usage::counted(self.prompt_bytes, output_bytes)
    }

    /// Upper bound of its prompt tokens, from its bytes: a token of text has at least one byte. What a chat template
    /// adds is in it, and what a model reads with each input or document.
    #[must_use]
    pub fn most_input(&self) -> u64 {
        let of = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let each = |number: usize| of(number).saturating_mul(UsageBounds::EACH);
        let text = match &self.task {
            // Sounds and files stand in the body, and become tokens by their bytes at most.
            Task::Talk if self.needs.audio || self.needs.files => of(self.body.len()),
            Task::Talk | Task::Draw(_) | Task::Transcribe(_) => of(self.prompt_bytes),
            Task::Embed(embed) => {
                of(self.body.len().max(self.prompt_bytes)).saturating_add(each(embed.inputs.len()))
            }
            // The query is read again with each document.
            Task::Rerank(rerank) => {
                let again = of(rerank.query.len()).saturating_mul(of(rerank.documents.len()));
                of(self.body.len()).saturating_add(again).saturating_add(each(rerank.documents.len()))
            }
        };
        let images = u64::from(self.images).saturating_mul(UsageBounds::IMAGE);
        text.saturating_add(images).saturating_add(UsageBounds::TEMPLATE)
    }

    /// Upper bounds of what a provider may state, whatever it delivered.
    #[must_use]
    pub fn usage_bounds(&self, target: &Target<'_>) -> UsageBounds {
        let window = target.abilities.context_length.unwrap_or(Usage::MOST);
        let most = target.abilities.max_output.unwrap_or(window).min(window);
        let cap = target.max_tokens.or(self.max_tokens).unwrap_or(most).min(most);
        let output = cap.saturating_mul(u64::from(self.n.max(1)));
        // Inputs of embeddings and documents have a window each.
        let input = if self.kind == Kind::Chat { self.most_input().min(window) } else { self.most_input() };
        UsageBounds { input, output, delivered: u64::MAX }
    }

    /// Diffusion steps that a request for images sets.
    #[must_use]
    pub fn steps(&self) -> Option<u32> {
        let value = self.value("num_inference_steps").or_else(|| self.value("steps"))?;
        std::str::from_utf8(value).ok()?.parse().ok()
    }

    /// The bytes of a top-level member's value. `null` counts as absent.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let value = self.body.get(self.fields.get(name)?.value.clone())?;
        (value != b"null").then_some(value)
    }
}
