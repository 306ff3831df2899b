//! The seams between the house and the dialects.

use crate::adjust::{Adjust, Extra, Noticed, ReasoningName};
use crate::ask::Ask;
use crate::fault::Fault;
use crate::kind::Dialect;
use crate::media::Picture;
use crate::refusal::Refusal;
use crate::usage::{Done, Finish, Measured, Usage};
use bytes::Bytes;

/// How a provider continues a broken answer, if it can at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// `continue_final_message: true` with `add_generation_prompt: false` (vLLM, SGLang).
    ContinueFinalMessage,
    /// A last assistant message marked `prefix: true`, or the messages dialect's own prefill.
    Prefill,
}

/// How a provider takes a last message by the assistant that the client wants continued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefill {
    /// It does not: such an ask goes elsewhere.
    #[default]
    None,
    /// `continue_final_message` (vLLM, SGLang).
    ContinueFinalMessage,
    /// `prefix: true` on the message (Mistral, DeepSeek).
    Prefix,
    /// By itself (llama.cpp, the messages dialect).
    Automatic,
}

/// What the scores of a reranking model are. It is configured, because no
/// answer tells it: logits may happen to lie between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Score {
    /// From 0 to 1 already.
    #[default]
    AsIs,
    /// Logits: `1 / (1 + exp(-x))` makes them scores.
    Sigmoid,
}

/// What an offer takes on the wire beyond the dialect's core.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Abilities {
    /// The catalogue's `supported_parameters`: what the model accepts.
    pub parameters: Vec<Box<str>>,
    /// Continues a broken stream.
    pub continuation: Option<Continuation>,
    /// Takes a prefill.
    pub prefill: Prefill,
    /// Reasoning of earlier turns goes back into the prompt (interleaved thinking).
    pub replay_reasoning: bool,
    /// The name of reasoning on the wire; as in the offer's answers where it is not configured.
    pub reasoning_name: Option<ReasoningName>,
    /// Thinking is switched by `chat_template_kwargs.enable_thinking`.
    pub thinking_switch: bool,
    /// Tool call ids must be nine letters or digits (Mistral).
    pub short_tool_ids: bool,
    /// Images may stand in `tool` messages.
    pub tool_images: bool,
    /// A `system` message may stand anywhere.
    pub system_anywhere: bool,
    /// The most stop sequences it takes; more are enforced by the gateway.
    pub max_stop: Option<usize>,
    /// The most choices of one request; `parameters` decides where it is not configured.
    pub max_n: Option<u32>,
    /// The most images of one call; more take several.
    pub max_images: Option<u32>,
    /// The most inputs or documents of one call; longer lists take several.
    pub max_inputs: Option<usize>,
    /// What its scores are.
    pub score: Score,
    /// Tokens of its window.
    pub context_length: Option<u64>,
    /// The most tokens that it generates for one candidate.
    pub max_output: Option<u64>,
}

impl Abilities {
    /// Whether a request may ask for so many choices: by `max_n`, or else by the catalogue's list, if there is one.
    #[must_use]
    pub fn gives(&self, choices: u32) -> bool {
        match self.max_n {
            Some(most) => choices <= most,
            None => choices <= 1 || self.parameters.is_empty() || self.accepts("n"),
        }
    }

    /// Whether the catalogue lists this parameter.
    #[must_use]
    pub fn accepts(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|name| &**name == parameter)
    }
}

/// The provider's side of one attempt, and the face the answer wears.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// What the provider calls the model.
    pub model: &'a str,
    /// The dialect it is asked in.
    pub dialect: Dialect,
    /// What it takes.
    pub abilities: &'a Abilities,
    /// Sampling parameters of the model's preset, as JSON members (`"top_p":0.9,…`),
    /// for those that the client left out. Empty when there is none.
    pub preset: &'a [(Box<str>, Box<str>)],
    /// The cap on generated tokens to send instead of the client's, if it was clamped.
    pub max_tokens: Option<u64>,
    /// How it differs from what is configured.
    pub adjust: Adjust,
    /// `model` in the answer: the name that the client sent.
    pub answer_model: &'a str,
    /// Unique part of the answer's id, letters and digits.
    pub id: &'a str,
    /// Unix seconds for `created`.
    pub created: u64,
}

/// Bytes on their way to the client, in order. Never joined by the dialects.
#[derive(Clone, Debug, Default)]
pub struct Out(pub Vec<Bytes>);

impl Target<'_> {
    /// Whether a member of the gateway's own is said.
    #[must_use]
    pub const fn says(&self, extra: Extra) -> bool {
        !self.adjust.without.has(extra)
    }

    /// How it continues a broken answer, unless it refused what that is asked with.
    #[must_use]
    pub fn continuation(&self) -> Option<Continuation> {
        let by = |way: &Continuation| match (way, self.abilities.prefill) {
            (Continuation::ContinueFinalMessage, _) => self.says(Extra::ContinueFinal),
            (Continuation::Prefill, Prefill::Automatic) => true,
            (Continuation::Prefill, _) => self.says(Extra::Prefix),
        };
        self.abilities.continuation.filter(by)
    }

    /// How it takes a prefill, unless it refused what that is asked with.
    #[must_use]
    pub const fn prefill(&self) -> Prefill {
        match self.abilities.prefill {
            Prefill::ContinueFinalMessage if !self.says(Extra::ContinueFinal) => Prefill::None,
            Prefill::Prefix if !self.says(Extra::Prefix) => Prefill::None,
            prefill => prefill,
        }
    }

    /// The name under which reasoning is sent back; `None` where the engine takes none.
    #[must_use]
    pub fn reasoning(&self) -> Option<ReasoningName> {
        if !self.abilities.replay_reasoning || !self.says(Extra::Reasoning) {
            return None;
        }
        let usual = self.adjust.reasoning.or(self.abilities.reasoning_name).unwrap_or_default();
        Some(if self.says(Extra::ReasoningName) { usual } else { usual.other() })
    }
}

impl Out {
    /// Adds a piece; empty ones are dropped.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.0.push(bytes);
        }
    }

    /// Bytes waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Nothing waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How far a streamed answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// No content token yet: nothing may reach the client, failover is invisible.
    Waiting,
    /// At least one content token (text, reasoning or tool call).
    Committed,
    /// A finish reason for every candidate; what is still to come is usage.
    Finished,
    /// The provider has said its last word: close at once.
    Ended,
}

/// How a broken stream goes on with another provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescue {
    /// It starts over; its output is held back while it equals what the client has.
    StartOver,
    /// It continues the text that [`Reply::delivered`] told.
    Continue,
}

/// A whole plain answer, translated, before the Penstock objects are in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    /// A JSON object in the client's dialect; its last byte is `}`.
    pub body: Vec<Bytes>,
    /// What the provider says it did.
    pub done: Option<Done>,
    /// Energy it measured.
    pub measured: Option<Measured>,
    /// Why it ended (the first candidate's).
    pub finish: Finish,
    /// Bytes of generated text, for a count where usage is missing.
    pub output_bytes: usize,
    /// Images, from models that draw: the house writes their answer itself, once
    /// it has fetched and kept what the client's form asks for.
    pub pictures: Vec<Picture>,
    /// What it showed of its offer.
    pub noticed: Noticed,
}

impl Whole {
    /// The tokens that the provider says it used.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.done.as_ref().and_then(Done::usage).copied()
    }
}

/// One streamed answer on its way from a provider's dialect to the client's.
///
/// Its output does not depend on how the provider's bytes were cut.
pub trait Reply: Send {
    /// Takes bytes of the provider. While [`Progress::Waiting`], what it would
    /// send is kept inside and comes out with the first content token.
    ///
    /// # Errors
    /// What the provider did wrong. The reply may go on after [`Reply::rescue`].
    fn push(&mut self, bytes: Bytes, out: &mut Out) -> Result<(), Fault>;

    /// The provider closed its stream.
    ///
    /// # Errors
    /// `Truncated` when no finish reason was seen.
    fn end(&mut self, out: &mut Out) -> Result<(), Fault>;

    /// How far it has come.
    fn progress(&self) -> Progress;

    /// What the provider says it used so far; a half of which it says nothing is
    /// the gateway's own count, and all of it is marked as that.
    fn usage(&self) -> Option<Usage>;

    /// Bytes of generated text passed to the client, for a count where usage is missing.
    fn output_bytes(&self) -> usize;

    /// Bytes of generated text that the provider at work has sent: text, reasoning and tool calls, with what the client
    /// had already. While they do not grow the answer makes no progress, whatever else is sent.
    fn generated(&self) -> usize;

    /// The gateway's own count of what was passed to the client, no more than the ask allows.
    fn counted(&self) -> Usage;

    /// What the provider at work has used, whatever another did before: as it says, else by the text that it has sent
    /// itself, with what the client had already.
    fn worked(&self) -> Usage;

    /// Bytes that it keeps in memory now besides its record of what was passed: an event that is not whole, what may
    /// not leave yet, arguments of calls. Asked after each [`Reply::push`].
    fn kept(&self) -> usize;

    /// Energy that the provider measured.
    fn measured(&self) -> Option<Measured>;

    /// Whether what the model wrote cannot be said in the client's dialect, so that [`Reply::close`] ends it with an
    /// error: nobody but the model is at fault, and what was delivered is charged.
    fn is_spoilt(&self) -> bool {
        false
    }

    /// Why it ended, once known.
    fn finish(&self) -> Option<Finish>;

    /// What it has shown of its offer.
    fn noticed(&self) -> Noticed {
        Noticed::default()
    }

    /// Writes what stands before the content of all choices, where other requests answer them.
    fn open(&mut self, _out: &mut Out) {}

    /// A choice that another request answered has ended: [`Reply::close`] says so with its own.
    fn adopt(&mut self, _choice: u32, _finish: Finish) {}

    /// The text that the client already has, if the answer so far can be
    /// continued: one candidate, text only, all of it kept.
    fn delivered(&mut self) -> Option<String>;

    /// Goes on with another provider. False when it cannot be done (too much
    /// was delivered to compare, or something that cannot be compared).
    fn rescue(&mut self, target: &Target<'_>, how: Rescue) -> bool;

    /// Writes the end of a good answer: the held last event with usage, and
    /// `objects` (JSON members without braces, such as
    /// `"environment_impact":{…},"billing_cost":{…}`; may be empty).
    fn close(&mut self, usage: &Usage, objects: &[u8], out: &mut Out);

    /// Writes the end of a failed answer: the dialect's error event, nothing
    /// that looks like success.
    fn fail(&mut self, refusal: &Refusal, request_id: &str, out: &mut Out);
}

/// One pair of dialects, client's and provider's.
pub trait Translator: Sync + Send {
    /// The client's dialect.
    fn client(&self) -> Dialect;

    /// The provider's dialect.
    fn provider(&self) -> Dialect;

    /// The path below the provider's base URL.
    fn path(&self) -> &'static str;

    /// The provider's request body in pieces; unchanged parts are slices of the ask's own bytes.
    /// The same ask and target give the same bytes.
    ///
    /// # Errors
    /// What cannot be said in the provider's dialect, naming the field.
    fn request(&self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Bytes>, Refusal>;

    /// The body that asks a provider to continue `delivered`.
    ///
    /// # Errors
    /// As [`Translator::request`]; also when the target cannot continue.
    fn continuation(&self, ask: &Ask, target: &Target<'_>, delivered: &str) -> Result<Vec<Bytes>, Refusal>;

    /// A whole plain answer.
    ///
    /// # Errors
    /// What is wrong with it.
    fn whole(&self, ask: &Ask, target: &Target<'_>, body: Bytes) -> Result<Whole, Fault>;

    /// A streamed answer.
    fn reply(&self, ask: &Ask, target: &Target<'_>) -> Box<dyn Reply>;
}
