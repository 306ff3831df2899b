//! Validated inference request that still refers to the bytes of its body.

use crate::api_error::ApiError;
use crate::cache_marker::CacheMarker;
use crate::dialect::Dialect;
use crate::inference_task::{InferenceTask, PassthroughDelivery};
use crate::model_kind::ModelKind;
use crate::offer_filters::OfferFilters;
use crate::responses_details::ResponsesDetails;
use crate::traits::AttemptTarget;
use crate::usage::{TokenUsage, UsageBounds};
use bytes::Bytes;
use std::ops::Range;

/// Top-level member of the body, as byte ranges of its key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyMember {
    /// Key without quotes, unescaped.
    pub name: Box<str>,
    /// Range from the key's opening quote to the end of the value.
    pub member_range: Range<usize>,
    /// Range of the value without surrounding white space.
    pub value_range: Range<usize>,
    /// Ranges in the body of the strings of at least 4 KiB in the value, quotes included, sorted. Validation has found
    /// their ends, so that a reader need not scan them again.
    pub long_strings: Vec<Range<usize>>,
}

/// Top-level members of a JSON object in order. Names are unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyMembers(pub Vec<BodyMember>);

impl BodyMembers {
    /// Returns the member with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&BodyMember> {
        self.0.iter().find(|field| &*field.name == name)
    }
}

/// Edit that brings the body into the form that every engine accepts: `replacement` replaces the bytes in `range`. The
/// edits of a request are sorted by position and do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyEdit {
    /// Replaced byte range; empty for an insertion.
    pub range: Range<usize>,
    /// Bytes that replace the range of the body.
    pub replacement: Bytes,
}

/// Capabilities that an offer needs to serve this request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredCapabilities {
    /// True if the request declares tools.
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
    /// True if more than one choice is requested (`n` above 1).
    pub multiple_choices: bool,
    /// True if the last message is the assistant's and is to be continued.
    pub prefill: bool,
}

/// Features of a conversation that some providers do not accept unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryFeatures {
    /// True if earlier answers have reasoning.
    pub reasoning: bool,
    /// True if the conversation has tool calls or ids of tool calls.
    pub calls: bool,
    /// True if the conversation has tool results.
    pub results: bool,
    /// True if a system message is in a position that not every provider accepts: any but the first in the chat form,
    /// and any in `messages` of the messages dialect.
    pub late_system_messages: bool,
    /// Messages dialect: true if there are texts that no provider should receive, such as white space alone or the
    /// billing header of coding agents.
    pub removable_text: bool,
    /// Messages dialect: true if ids of calls have characters other than letters, digits, `_` and `-`.
    pub nonstandard_ids: bool,
    /// Messages dialect: true if there are calls without `input`.
    pub calls_without_input: bool,
    /// Messages dialect: true if a later user message hides system messages from the model (`clear_at`).
    pub hidden_system_messages: bool,
}

/// Display of thinking in the response (messages dialect).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingDisplay {
    /// Thinking not requested: reasoning is not returned.
    #[default]
    Off,
    /// Thinking returned as blocks with its text.
    Shown,
    /// Thinking blocks with a signature and without text.
    Omitted,
}

/// Validated inference request: its bytes, the positions of its members, and the values that the gateway needs.
/// Translators read the rest from the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct InferenceRequest {
    /// Dialect of the client.
    pub dialect: Dialect,
    /// Kind of model that serves the request.
    pub kind: ModelKind,
    /// Body exactly as received, or converted to the form of [`Dialect::request_body_format`].
    pub body: Bytes,
    /// Top-level members of the body.
    pub members: BodyMembers,
    /// Task of the request, with the parameters that only its kind of request has.
    pub task: InferenceTask,
    /// Edits of the forwarded members for providers of the chat dialect, such as removing `null` members or changing
    /// the role `developer` to `system`.
    pub edits: Vec<BodyEdit>,
    /// `model` as sent, unescaped.
    pub model: Box<str>,
    /// True if the client requested server-sent events.
    pub stream: bool,
    /// Value of `stream_options.include_usage` (chat dialect).
    pub include_usage: bool,
    /// Cap on generated tokens, if the client gave one.
    pub max_tokens: Option<u64>,
    /// Number of choices: 1 to 10; for text completions the prompts times `n`, up to 1024.
    pub n: u32,
    /// True if parallel tool calls are allowed.
    pub parallel_tools: bool,
    /// Stop sequences; validation limits their number.
    pub stop: Vec<String>,
    /// `preset`, if given: `reasoning` or `non_reasoning`.
    pub preset: Option<Box<str>>,
    /// Capabilities that an offer needs.
    pub required: RequiredCapabilities,
    /// Constraints on the offers that may serve the request.
    pub filters: Option<Box<OfferFilters>>,
    /// Display of thinking.
    pub thinking: ThinkingDisplay,
    /// Responses dialect: parts of the request that the converted body does not have.
    pub responses: Option<Box<ResponsesDetails>>,
    /// Bytes of the texts that the model reads (messages, system, tools, inputs) without inline media: an upper bound
    /// of their tokens. A token id counts as 4 bytes; texts to be spoken count in characters.
    pub prompt_bytes: usize,
    /// Number of inline and linked images in the prompt.
    pub image_count: u32,
    /// Features of the conversation that some providers do not accept unchanged.
    pub history: HistoryFeatures,
    /// Chat form: markers of the prompt cache, at most [`CacheMarker::MAX_COUNT`].
    pub cache_markers: Vec<CacheMarker>,
}

impl InferenceRequest {
    /// Returns a request that is no conversation, with this task, without a stream, and with default values for all
    /// other fields. Its dialect is chat, because the endpoints of such tasks follow the conventions of the chat
    /// dialect.
    #[must_use]
    pub fn from_non_chat_task(
        kind: ModelKind,
        body: Bytes,
        members: BodyMembers,
        model: Box<str>,
        task: InferenceTask,
    ) -> Self {
        Self {
            dialect: Dialect::Chat,
            kind,
            body,
            members,
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
            required: RequiredCapabilities::default(),
            filters: None,
            thinking: ThinkingDisplay::Off,
            responses: None,
            prompt_bytes: 0,
            image_count: 0,
            history: HistoryFeatures::default(),
            cache_markers: Vec::new(),
        }
    }

    /// Returns an estimate of the usage from the bytes of the prompt and of the generated text, for a provider that
    /// reported no usage. It is marked as the gateway's count.
    #[must_use]
    pub fn estimate_unreported_usage(&self, output_bytes: usize) -> TokenUsage {
        TokenUsage::estimate(self.prompt_bytes, output_bytes)
    }

    /// Returns the upper bound of the prompt tokens, from the number of bytes: a token of text has at least one byte.
    /// Includes `image` tokens for each image ([`image_token_bound`]), the tokens of a chat template, those of the template
    /// around each text of a moderation, those that a model adds to each input or document, and the query once for each
    /// reranked document.
    ///
    /// [`image_token_bound`]: crate::OfferCapabilities::image_token_bound
    #[must_use]
    pub fn max_input_tokens(&self, image: u64) -> u64 {
        let of = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let each = |number: usize| of(number).saturating_mul(UsageBounds::MAX_ADDED_TOKENS_PER_INPUT);
        let text = match &self.task {
            // Audio and files are in the body, so its size in bytes is an upper bound of their tokens.
            InferenceTask::Chat if self.required.audio || self.required.files => of(self.body.len()),
            InferenceTask::Chat
            | InferenceTask::GenerateImages(_)
            | InferenceTask::Transcribe(_)
            | InferenceTask::Passthrough(_) => of(self.prompt_bytes),
            // The engine may add tokens to each prompt, such as one at its start.
            InferenceTask::Complete(task) => of(self.prompt_bytes).saturating_add(each(task.prompts.len())),
            InferenceTask::Embed(embed) => {
                of(self.body.len().max(self.prompt_bytes)).saturating_add(each(embed.inputs.len()))
            }
            // The model reads the query again with each document.
            InferenceTask::Rerank(rerank) => {
                let again = of(rerank.query.len()).saturating_mul(of(rerank.documents.len()));
                of(self.body.len()).saturating_add(again).saturating_add(each(rerank.documents.len()))
            }
        };
        let images = u64::from(self.image_count).saturating_mul(image);
        let templates = match &self.task {
            InferenceTask::Complete(_) | InferenceTask::Embed(_) | InferenceTask::Rerank(_) => 0,
            // A moderation model reads each text in a prompt of its own, which contains its policy.
            InferenceTask::Passthrough(task) => task.texts.len().max(1),
            InferenceTask::Chat | InferenceTask::GenerateImages(_) | InferenceTask::Transcribe(_) => 1,
        };
        let templates = of(templates).saturating_mul(UsageBounds::MAX_TEMPLATE_TOKENS);
        text.saturating_add(images).saturating_add(templates)
    }

    /// Returns the bounds of the usage that a provider may report. The fields `max_delivered` and `least_output` depend
    /// on the delivered bytes, so here they restrict nothing.
    #[must_use]
    pub fn usage_bounds(&self, target: &AttemptTarget<'_>) -> UsageBounds {
        let window = target.capabilities.context_length.unwrap_or(TokenUsage::MAX_PLAUSIBLE_TOKENS);
        let most = target.capabilities.max_output.unwrap_or(window).min(window);
        let cap = target.max_tokens.or(self.max_tokens).unwrap_or(most).min(most);
        let output = cap.saturating_mul(self.generation_count());
        let undelivered =
            cap.saturating_mul(self.generation_count().saturating_sub(u64::from(self.n.max(1))));
        UsageBounds {
            input: self.max_input_tokens_for_window(window, target.capabilities.image_token_bound()),
            output,
            max_delivered: u64::MAX,
            max_undelivered: undelivered,
            least_input: self.min_input_tokens(window),
            least_output: 0,
        }
    }

    /// Returns the lower bound of the prompt tokens. For embeddings and rerank the bound is at most 1, because the
    /// model may truncate each input. For images and audio, which are not charged by tokens, the bound is 0.
    fn min_input_tokens(&self, window: u64) -> u64 {
        let least = UsageBounds::min_tokens(self.prompt_bytes).min(window);
        match &self.task {
            InferenceTask::Chat | InferenceTask::Complete(_) => least,
            InferenceTask::Passthrough(_) if self.kind == ModelKind::Moderation => least,
            InferenceTask::Embed(_) | InferenceTask::Rerank(_) => least.min(1),
            _ => 0,
        }
    }

    /// Returns the upper bound of the prompt tokens that a model with this context window can read, with `image` tokens
    /// for each image ([`image_token_bound`]). Each prompt of a text completion, each input or text and each document has
    /// the whole window; images and transcriptions have no window.
    ///
    /// [`image_token_bound`]: crate::OfferCapabilities::image_token_bound
    #[must_use]
    pub fn max_input_tokens_for_window(&self, window: u64, image: u64) -> u64 {
        let texts = match &self.task {
            InferenceTask::Chat => 1,
            InferenceTask::Complete(task) => task.prompts.len(),
            InferenceTask::Embed(task) => task.inputs.len(),
            InferenceTask::Rerank(task) => task.documents.len(),
            InferenceTask::Passthrough(task) => task.texts.len(),
            // Images and audio are not charged by the tokens of their prompt.
            InferenceTask::GenerateImages(_) | InferenceTask::Transcribe(_) => {
                return self.max_input_tokens(image);
            }
        };
        let texts = u64::try_from(texts.max(1)).unwrap_or(u64::MAX);
        self.max_input_tokens(image).min(window.saturating_mul(texts))
    }

    /// Returns true if the prompt can have this number of tokens, by the bytes of its texts and by its images, each of
    /// which has at most `image` tokens.
    #[must_use]
    pub fn is_plausible_prompt_count(&self, tokens: u64, image: u64) -> bool {
        let window = TokenUsage::MAX_PLAUSIBLE_TOKENS;
        (self.min_input_tokens(window)..=self.max_input_tokens_for_window(window, image)).contains(&tokens)
    }

    /// Returns the number of texts that the request generates, at least 1.
    #[must_use]
    pub fn generation_count(&self) -> u64 {
        match &self.task {
            InferenceTask::Complete(task) => task.generation_count().max(1),
            _ => u64::from(self.n.max(1)),
        }
    }

    /// Returns true if the request has several choices, and the gateway can send one request for each choice instead.
    #[must_use]
    pub const fn has_separable_choices(&self) -> bool {
        self.n > 1 && matches!(self.task, InferenceTask::Chat)
    }

    /// Returns true if the answer is a stream of server-sent events.
    #[must_use]
    pub fn streams_events(&self) -> bool {
        self.stream && self.streamed_content_type().is_none()
    }

    /// Returns the content type of an answer that is streamed as plain bytes; `None` for server-sent events and for a
    /// complete answer.
    #[must_use]
    pub fn streamed_content_type(&self) -> Option<&'static str> {
        match &self.task {
            InferenceTask::Passthrough(task)
                if self.stream && task.delivery == PassthroughDelivery::Bytes =>
            {
                task.content_type
            }
            _ => None,
        }
    }

    /// Returns the number of times that providers may read the prompt: once for each choice if the choices can be
    /// requested separately, otherwise once.
    #[must_use]
    pub fn prompt_read_count(&self) -> u64 {
        if self.has_separable_choices() { u64::from(self.n) } else { 1 }
    }

    /// Returns true if the text of the answer begins with the prompt.
    #[must_use]
    pub const fn echoes_prompt(&self) -> bool {
        matches!(&self.task, InferenceTask::Complete(task) if task.echo)
    }

    /// Returns the number of diffusion steps that an image request states in `num_inference_steps` or `steps`; `None`
    /// if it states no whole number.
    #[must_use]
    pub fn diffusion_steps(&self) -> Option<u32> {
        let value = self.member_value("num_inference_steps").or_else(|| self.member_value("steps"))?;
        std::str::from_utf8(value).ok()?.parse().ok()
    }

    /// Returns the bytes of a top-level member's value; `None` if the member is absent or `null`.
    #[must_use]
    pub fn member_value(&self, name: &str) -> Option<&[u8]> {
        let value = self.body.get(self.members.get(name)?.value_range.clone())?;
        (value != b"null").then_some(value)
    }

    /// Replaces `param` of an error, and the same path in its message, by the client's path if validation has
    /// converted the request to the chat form. A member that the client itself sent under its name in the chat form
    /// is not renamed.
    #[must_use]
    pub fn rename_error_param(&self, mut refusal: ApiError) -> ApiError {
        let (Some(details), false) = (&self.responses, refusal.is_client_param) else { return refusal };
        let Some(path) = refusal.param.take() else { return refusal };
        let root = path.split(['[', '.']).next().unwrap_or(&path);
        if details.chat_named_members.contains(&root) {
            return refusal.with_param(path).mark_param_as_sent();
        }
        let own = details.client_param_path(&path);
        let own = own.unwrap_or_else(|| self.dialect.client_member_name(&path).to_owned());
        if own != path {
            let message = refusal.message.replace(&format!("`{path}`"), &format!("`{own}`"));
            refusal.message = match message.strip_prefix(&path).filter(|rest| rest.starts_with(": ")) {
                Some(rest) => format!("{own}{rest}").into(),
                None => message.into(),
            };
        }
        refusal.with_param(own).mark_param_as_sent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference_task::{
        CompletionTask, EmbeddingInputs, EmbeddingTask, PassthroughTask, RerankTask,
    };
    use crate::request_adjustment::RequestAdjustment;
    use crate::traits::OfferCapabilities;
    use crate::usage::WorkDone;

    #[test]
    fn images_are_bounded_by_the_rule_of_the_model() {
        let none = BodyMembers::default();
        let chat = InferenceTask::Chat;
        let body = Bytes::from_static(b"{}");
        let request = InferenceRequest::from_non_chat_task(ModelKind::Chat, body, none, "m".into(), chat);
        let request = InferenceRequest { image_count: 3, prompt_bytes: 10, ..request };
        let text = 10 + UsageBounds::MAX_TEMPLATE_TOKENS;
        for (max_image_tokens, each) in [(Some(272), 272), (None, UsageBounds::MAX_IMAGE_TOKENS)] {
            let capabilities = OfferCapabilities { max_image_tokens, ..OfferCapabilities::default() };
            let bound = capabilities.image_token_bound();
            assert_eq!(request.max_input_tokens(bound), text + 3 * each);
            assert_eq!(request.max_input_tokens_for_window(1_000, bound), 1_000);
        }
        let max = text + 3 * 272;
        let plausible = |tokens| request.is_plausible_prompt_count(tokens, 272);
        assert_eq!([0, 1, max, max + 1, u64::MAX].map(plausible), [false, true, true, false, false]);
    }

    fn input_bound(task: InferenceTask) -> u64 {
        let body = Bytes::from(vec![b'x'; 8_000_000]);
        let request = InferenceRequest {
            prompt_bytes: 8_000_000,
            ..InferenceRequest::from_non_chat_task(
                ModelKind::Chat,
                body,
                BodyMembers::default(),
                "m".into(),
                task,
            )
        };
        let capabilities =
            OfferCapabilities { context_length: Some(131_072), ..OfferCapabilities::default() };
        let target = AttemptTarget {
            model: "m",
            dialect: Dialect::Chat,
            capabilities: &capabilities,
            preset: &[],
            max_tokens: None,
            adjustment: RequestAdjustment::default(),
            answer_model: "m",
            answer_id: "1",
            answer_created: 0,
        };
        request.usage_bounds(&target).input
    }

    #[test]
    fn each_text_is_bounded_by_a_window_of_its_own() {
        let two = || vec![Bytes::from_static(b"\"a\""); 2];
        let complete = InferenceTask::Complete(CompletionTask {
            prompts: two(),
            has_token_ids: false,
            echo: false,
            choices_per_prompt: 3,
            generations_per_prompt: 5,
        });
        let embed = InferenceTask::Embed(EmbeddingTask {
            inputs: EmbeddingInputs::Texts(two()),
            is_verbatim: true,
            as_base64: false,
            dimensions: None,
        });
        let rerank = InferenceTask::Rerank(RerankTask {
            query: Bytes::from_static(b"\"q\""),
            documents: two(),
            top_n: None,
            return_documents: false,
        });
        let moderate = InferenceTask::Passthrough(PassthroughTask {
            texts: two(),
            max_work: WorkDone::Unknown,
            content_type: None,
            delivery: PassthroughDelivery::Complete,
        });
        for task in [complete, embed, rerank, moderate] {
            assert_eq!(input_bound(task), 2 * 131_072);
        }
        assert_eq!(input_bound(InferenceTask::Chat), 131_072);
    }
}
