//! Interfaces between the gateway and the dialect translators.

use crate::api_error::ApiError;
use crate::dialect::Dialect;
use crate::inference_request::InferenceRequest;
use crate::media::GeneratedImage;
use crate::output_buffer::OutputBuffer;
use crate::request_adjustment::{AdjustableMember, OfferObservation, ReasoningName, RequestAdjustment};
use crate::stream_progress::{RescueMode, StreamProgress};
use crate::upstream_error::UpstreamError;
use crate::usage::{DeliveredUsage, FinishReason, MeasuredEnergy, TokenUsage, WorkDone};
use bytes::Bytes;

/// Method by which a provider continues an interrupted answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinuationMethod {
    /// `continue_final_message: true` with `add_generation_prompt: false` (vLLM, SGLang).
    ContinueFinalMessage,
    /// Last assistant message marked `prefix: true`, or the messages dialect's own prefill.
    Prefill,
}

/// Method by which a provider continues a last message of the assistant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefillMethod {
    /// Prefill is not supported: a request with a prefill is sent to another provider.
    #[default]
    None,
    /// `continue_final_message` (vLLM, SGLang).
    ContinueFinalMessage,
    /// `prefix: true` on the message (Mistral, DeepSeek).
    Prefix,
    /// No request member needed: the provider continues by itself (llama.cpp, messages dialect).
    Automatic,
}

/// Transformation of a reranking model's scores into the range 0 to 1. The operator configures it, because a response
/// does not show whether its scores are logits: logits can lie between 0 and 1 too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RerankScoreTransform {
    /// Scores that already lie between 0 and 1, left unchanged.
    #[default]
    Identity,
    /// Logits, converted to scores by `1 / (1 + exp(-x))`.
    Sigmoid,
}

/// Features that an offer accepts on the wire beyond the dialect's core, and its limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfferCapabilities {
    /// `supported_parameters` of the catalogue: request parameters that the model accepts.
    pub parameters: Vec<Box<str>>,
    /// Method by which the provider continues an interrupted answer; `None` if it cannot.
    pub continuation: Option<ContinuationMethod>,
    /// Method of accepting a prefill.
    pub prefill: PrefillMethod,
    /// True if reasoning of earlier turns is sent back in the prompt (interleaved thinking).
    pub replay_reasoning: bool,
    /// Configured name of reasoning on the wire; if absent, the name found in the offer's responses.
    pub reasoning_name: Option<ReasoningName>,
    /// True if `chat_template_kwargs.enable_thinking` switches thinking.
    pub thinking_switch: bool,
    /// True if tool call ids must have nine letters or digits (Mistral).
    pub short_tool_ids: bool,
    /// True if `tool` messages may contain images.
    pub tool_images: bool,
    /// True if a `system` message may have any position.
    pub system_anywhere: bool,
    /// True if the provider has `/completions` for text completions; otherwise the prompt is sent as a chat request.
    pub completions: bool,
    /// Maximum number of stop sequences that the provider accepts; the gateway enforces all further ones. `None` for no
    /// limit.
    pub max_stop: Option<usize>,
    /// Maximum number of choices per request; if absent, `parameters` decides.
    pub max_n: Option<u32>,
    /// Maximum number of images per request; more images take several requests. `None` for no limit.
    pub max_images: Option<u32>,
    /// Maximum number of inputs or documents per request; longer lists take several requests. `None` for no limit.
    pub max_inputs: Option<usize>,
    /// Transformation that the offer's reranking scores need.
    pub score_transform: RerankScoreTransform,
    /// Size of the context window, in tokens; `None` if unknown.
    pub context_length: Option<u64>,
    /// Maximum number of tokens generated for one choice; `None` if only the context window limits it.
    pub max_output: Option<u64>,
    /// Maximum number of prompt tokens for one image by the image rule of the model; `None` without such a rule.
    pub max_image_tokens: Option<u64>,
}

impl OfferCapabilities {
    /// Returns true if a request may have this many choices: by `max_n`, or, if `max_n` is absent, by the parameters in
    /// the catalogue. An empty list of parameters allows any number.
    #[must_use]
    pub fn supports_choices(&self, choices: u32) -> bool {
        match self.max_n {
            Some(most) => choices <= most,
            None => choices <= 1 || self.parameters.is_empty() || self.accepts_parameter("n"),
        }
    }

    /// Returns true if the catalogue lists this parameter.
    #[must_use]
    pub fn accepts_parameter(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|name| &**name == parameter)
    }
}

/// Provider side of one attempt, and the values of `model`, `id` and `created` in the response to the client.
#[derive(Clone, Copy, Debug)]
pub struct AttemptTarget<'a> {
    /// Model name at the provider.
    pub model: &'a str,
    /// Dialect of the request to the provider.
    pub dialect: Dialect,
    /// Capabilities of the offer.
    pub capabilities: &'a OfferCapabilities,
    /// Sampling parameters of the model's preset, as names with JSON values. Each is sent unless the client set the
    /// parameter itself. Empty without a preset.
    pub preset: &'a [(Box<str>, Box<str>)],
    /// Cap on generated tokens that replaces the client's, if it was clamped.
    pub max_tokens: Option<u64>,
    /// Adjustments of the request to the offer.
    pub adjustment: RequestAdjustment,
    /// `model` in the response: the name that the client sent.
    pub answer_model: &'a str,
    /// Unique part of the response id, letters and digits.
    pub answer_id: &'a str,
    /// Value of `created`, in Unix seconds.
    pub answer_created: u64,
}

impl AttemptTarget<'_> {
    /// Returns true if the gateway sends this member, because the provider has not rejected it so far.
    #[must_use]
    pub const fn allows_member(&self, extra: AdjustableMember) -> bool {
        !self.adjustment.omitted.contains(extra)
    }

    /// Returns the method of continuing an interrupted answer, unless the dialect has none or the provider rejected its
    /// members.
    #[must_use]
    pub fn continuation_method(&self) -> Option<ContinuationMethod> {
        let by = |method: &ContinuationMethod| match (method, self.capabilities.prefill) {
            (ContinuationMethod::ContinueFinalMessage, _) => {
                self.allows_member(AdjustableMember::ContinueFinal)
            }
            (ContinuationMethod::Prefill, PrefillMethod::Automatic) => true,
            (ContinuationMethod::Prefill, _) => self.allows_member(AdjustableMember::Prefix),
        };
        self.capabilities.continuation.filter(|_| self.dialect.spec().continues_messages).filter(by)
    }

    /// Returns the method of accepting a prefill, unless the dialect has none or the provider rejected its members.
    #[must_use]
    pub const fn prefill_method(&self) -> PrefillMethod {
        match self.capabilities.prefill {
            _ if !self.dialect.spec().continues_messages => PrefillMethod::None,
            PrefillMethod::ContinueFinalMessage if !self.allows_member(AdjustableMember::ContinueFinal) => {
                PrefillMethod::None
            }
            PrefillMethod::Prefix if !self.allows_member(AdjustableMember::Prefix) => PrefillMethod::None,
            prefill => prefill,
        }
    }

    /// Returns the name of the member in which earlier reasoning is sent back to the provider; `None` if it is not sent
    /// back: by the configuration of the offer, or because the engine accepts none.
    #[must_use]
    pub fn reasoning_replay_member(&self) -> Option<ReasoningName> {
        if !self.capabilities.replay_reasoning || !self.allows_member(AdjustableMember::Reasoning) {
            return None;
        }
        let usual = self.adjustment.reasoning_name.or(self.capabilities.reasoning_name).unwrap_or_default();
        Some(if self.allows_member(AdjustableMember::ReasoningName) { usual } else { usual.alternative() })
    }
}

/// Translated answer of a request that is not streamed, without `environment_impact` and `billing_cost`.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferedResponse {
    /// Body for the client in chunks: a JSON object whose last byte is `}`, audio or text; empty for images.
    pub body: Vec<Bytes>,
    /// Work that is charged, from the provider's report; `None` if it reported none.
    pub work: Option<WorkDone>,
    /// Work of the provider, if output was removed from the response; `None` if it is the charged work.
    pub provider_work: Option<WorkDone>,
    /// Energy measured by the provider.
    pub measured_energy: Option<MeasuredEnergy>,
    /// Finish reason of the first choice.
    pub finish_reason: FinishReason,
    /// Bytes of generated text, used to count tokens if usage is missing.
    pub output_bytes: usize,
    /// Images generated by the model. The gateway writes the response to the client itself, after it has fetched or
    /// stored the images, depending on the requested format.
    pub images: Vec<GeneratedImage>,
    /// Properties of the offer observed in the response.
    pub observation: OfferObservation,
}

impl BufferedResponse {
    /// Returns the charged token usage; `None` if none was reported, or if the work is not counted in tokens.
    #[must_use]
    pub fn usage(&self) -> Option<TokenUsage> {
        self.work.as_ref().and_then(WorkDone::usage).copied()
    }
}

/// Translation of one streamed answer from the provider's dialect to the client's.
///
/// The output does not depend on the boundaries of the provider's chunks.
pub trait StreamTranslation: Send {
    /// Translates bytes of the provider. While [`StreamProgress::Pending`], output is buffered; it is released with the
    /// first content token.
    ///
    /// # Errors
    /// Returns the provider's failure. The translation may go on after [`StreamTranslation::start_rescue`].
    fn push(&mut self, bytes: Bytes, out: &mut OutputBuffer) -> Result<(), UpstreamError>;

    /// Handles the end of the provider's stream.
    ///
    /// # Errors
    /// Returns `Truncated` if there was no finish reason.
    fn end(&mut self, out: &mut OutputBuffer) -> Result<(), UpstreamError>;

    /// Progress of the answer.
    fn progress(&self) -> StreamProgress;

    /// Returns the content type of audio output: that of the requested format, and after the first output that of the
    /// actual audio. Returns `None` for all other output.
    fn content_type(&self) -> Option<&'static str> {
        None
    }

    /// Returns true if the answer has ended without usage and the provider may still report the usage, as some engines
    /// do after their end event. The caller passes on the bytes that arrive before the provider closes the connection,
    /// but need not wait for them.
    fn awaits_usage(&self) -> bool {
        false
    }

    /// Returns true if the finish reason is the only sign that the answer is complete: no usage came with it or after
    /// it. Some engines send more output after such a finish reason.
    fn has_unconfirmed_finish(&self) -> bool {
        false
    }

    /// Returns the usage reported by the provider so far. If the provider reported only the input or only the output,
    /// the gateway's own count replaces the other, and the usage is marked accordingly.
    fn usage(&self) -> Option<TokenUsage>;

    /// Returns the number of bytes of generated text passed to the client, without an echo of the prompt; used to count
    /// tokens if usage is missing.
    fn delivered_text_bytes(&self) -> usize;

    /// Returns the number of bytes of generated text that the current provider has sent (text, reasoning and tool
    /// calls), including the part that repeats what the client already has from an earlier provider. While this number
    /// does not grow, the answer makes no progress, whatever else is received.
    fn received_text_bytes(&self) -> usize;

    /// Returns the gateway's count of the output passed to the client, at most the amount that the request allows.
    fn estimated_usage(&self) -> TokenUsage;

    /// Returns the amount of the answer that the client has received so far.
    fn delivered_usage(&self) -> DeliveredUsage {
        let bytes = self.delivered_text_bytes();
        DeliveredUsage { is_empty: bytes == 0, bytes, usage: self.estimated_usage() }
    }

    /// Returns the usage of the current provider alone: as reported by it, or else counted from the text that it
    /// generated, including the part that repeats what the client already has from an earlier provider.
    fn attempt_usage(&self) -> TokenUsage;

    /// Returns the billable work of the answer if its unit is not tokens, such as seconds of audio; `None` for tokens.
    /// Called once, after the answer has ended or was cut.
    fn non_token_work(&mut self) -> Option<WorkDone> {
        None
    }

    /// Returns the number of bytes of memory in use, without the record of the delivered text: an incomplete event,
    /// output that must wait, arguments of calls. Called after each [`StreamTranslation::push`].
    fn buffered_bytes(&self) -> usize;

    /// Returns an upper estimate of the bytes of the answer that [`StreamTranslation::write_end`] copies in addition to
    /// the memory in use.
    fn end_bytes(&self) -> usize {
        0
    }

    /// Returns the energy measured by the provider.
    fn measured_energy(&self) -> Option<MeasuredEnergy>;

    /// Returns true if the model's output cannot be written in the client's dialect, so that
    /// [`StreamTranslation::write_end`] ends the answer with an error. The provider is not at fault, and the delivered
    /// output is charged.
    fn has_invalid_output(&self) -> bool {
        false
    }

    /// Returns the finish reason of the answer; `None` before it has arrived.
    fn finish_reason(&self) -> Option<FinishReason>;

    /// Writes the output that precedes the content of all choices; used if the choices are requested separately.
    fn write_start(&mut self, _out: &mut OutputBuffer) {}

    /// Records the finish reason of a choice that another request answered; [`StreamTranslation::write_end`] writes it.
    fn record_choice_finish(&mut self, _choice: u32, _finish: FinishReason) {}

    /// Properties of the offer observed in the stream.
    fn offer_observation(&self) -> OfferObservation {
        OfferObservation::default()
    }

    /// Returns the text that the client has received, with a blank line between the messages of an answer that
    /// consists of several; `None` if the answer cannot be continued. An answer can be continued if it has one choice
    /// and text only, and the text was recorded completely.
    fn delivered_text(&mut self) -> Option<String>;

    /// Prepares the translation for the bytes of another provider, which resumes the answer. Returns false if that is
    /// impossible: too much was delivered, or the content cannot be compared.
    fn start_rescue(&mut self, target: &AttemptTarget<'_>, mode: RescueMode) -> bool;

    /// Writes the end of a successful answer: the last event, held back until now, with the usage and `objects` (JSON
    /// members without braces, such as `"environment_impact":{…},"billing_cost":{…}`; may be empty).
    fn write_end(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut OutputBuffer);

    /// Writes the end of a failed answer: the dialect's error event, and no event that marks success. `objects` state
    /// the cost, as in [`StreamTranslation::write_end`]; they are empty if nothing is charged.
    fn write_error(&mut self, refusal: &ApiError, request_id: &str, objects: &[u8], out: &mut OutputBuffer);
}

/// Translator for one pair of client and provider dialects.
pub trait Translator: Sync + Send {
    /// Returns the dialect of the client.
    fn client_dialect(&self) -> Dialect;

    /// Returns the dialect of the provider.
    fn provider_dialect(&self) -> Dialect;

    /// Returns the path of the requests, below the provider's base URL.
    fn path(&self) -> &'static str;

    /// Builds the request body for the provider in chunks; unchanged parts are slices of the client's body. The same
    /// request and target give the same bytes.
    ///
    /// # Errors
    /// Returns an error that names the field if the provider's dialect cannot express it.
    fn build_request(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<Bytes>, ApiError>;

    /// Builds the request body that asks a provider to continue `delivered`.
    ///
    /// # Errors
    /// Same as [`Translator::build_request`]; also if the target cannot continue an answer.
    fn build_continuation(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        delivered: &str,
    ) -> Result<Vec<Bytes>, ApiError>;

    /// Translates an answer that was not streamed.
    ///
    /// # Errors
    /// Returns the provider's failure if the answer is invalid.
    fn translate_buffered(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        body: Bytes,
    ) -> Result<BufferedResponse, UpstreamError>;

    /// Starts the translation of a streamed answer.
    fn translate_stream(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Box<dyn StreamTranslation>;
}
