//! Capabilities that a request needs and that an offer may lack.

use super::OfferState;
use crate::config::settings::OfferSettings;
use penstock_core::{ApiError, ImageSize, ImageTask, InferenceRequest, InferenceTask};
use penstock_dialect::{MediaKind, completions, first_media_path};
use penstock_embeddings::fixed_length_error;
use penstock_media::image::diffusion_steps_member;
use penstock_media::speech::unsupported_parameter_error;
use std::time::Duration;

impl OfferState {
    /// Returns the error for the first part of a request that this offer does not support; `None` if it supports all.
    pub fn missing_capability_error(&self, ask: &InferenceRequest) -> Option<ApiError> {
        match &ask.task {
            InferenceTask::Embed(embed)
                if embed.dimensions.is_some() && !self.offer.capabilities.accepts_parameter("dimensions") =>
            {
                Some(fixed_length_error())
            }
            InferenceTask::Embed(_) | InferenceTask::Rerank(_) => {
                let name =
                    ask.unlisted_task_parameter(|name| self.offer.capabilities.accepts_parameter(name))?;
                Some(ApiError::unsupported(name, format!("This model does not support `{name}`.")))
            }
            InferenceTask::GenerateImages(draw) => {
                unsupported_size(&self.offer.model.image_sizes, draw).or_else(|| self.unsupported_steps(ask))
            }
            InferenceTask::Complete(_)
                if !self.offer.dialects.iter().any(|dialect| dialect.spec().has_completions) =>
            {
                let sentence = "This model has no text completions; use /v1/chat/completions.";
                Some(ApiError::unsupported("model", sentence))
            }
            InferenceTask::Complete(task) => {
                let abilities = &self.offer.capabilities;
                completions::missing_capability_error(task, ask, abilities)
                    .or_else(|| missing_capability_error(&self.offer, ask))
            }
            InferenceTask::Passthrough(_) => unsupported_parameter_error(ask, &self.offer.capabilities)
                .or_else(|| missing_capability_error(&self.offer, ask)),
            _ => missing_capability_error(&self.offer, ask),
        }
    }

    /// Returns the refusal of a number of diffusion steps; `None` if the request has none or the offer accepts it.
    fn unsupported_steps(&self, ask: &InferenceRequest) -> Option<ApiError> {
        let name =
            ["num_inference_steps", "steps"].into_iter().find(|name| ask.member_value(name).is_some())?;
        let accepts = self
            .offer
            .shape
            .is_some_and(|shape| diffusion_steps_member(shape, &self.offer.capabilities).is_some());
        (!accepts).then(|| ApiError::unsupported(name, "The number of steps of this model cannot be set."))
    }

    /// Returns the maximum number of tokens that the model generates in one text.
    pub fn max_output_tokens(&self) -> u64 {
        let window = self.offer.context_length;
        self.offer.max_output.unwrap_or(window).min(window)
    }

    /// Returns the `max_tokens` that the gateway sends for a text completion whose client set none: the maximum of
    /// the offer. Without it, engines generate only 16 tokens. `None` for other requests, and for offers without text
    /// completions.
    pub fn default_completion_max_tokens(&self, ask: &InferenceRequest) -> Option<u64> {
        let is_open = matches!(ask.task, InferenceTask::Complete(_)) && ask.max_tokens.is_none();
        (is_open && self.offer.capabilities.completions).then(|| self.max_output_tokens())
    }

    /// Returns true if the choices of this request have to be requested one by one: the dialect allows one choice only,
    /// the configuration of the offer allows fewer choices, or the offer has shown that it returns only one.
    pub fn requires_separate_choices(&self, ask: &InferenceRequest, now: impl FnOnce() -> Duration) -> bool {
        ask.has_separable_choices()
            && (self.dialect_for(ask.dialect).is_some_and(|dialect| !dialect.spec().has_choices)
                || !self.offer.capabilities.supports_choices(ask.n)
                || self.learned.returns_single_choice(now))
    }

    /// Returns the refusal of a text completion that asks for more answers per prompt than the offer returns, by its
    /// configuration or as it has shown. The choices of such a request cannot be requested one by one.
    pub fn unsupported_best_of_error(
        &self,
        ask: &InferenceRequest,
        now: impl FnOnce() -> Duration,
    ) -> Option<ApiError> {
        let InferenceTask::Complete(task) = &ask.task else { return None };
        let answers = task.generations_per_prompt;
        let refused = answers > 1
            && (self.offer.capabilities.max_n.is_some_and(|most| answers > most)
                || self.learned.returns_single_choice(now));
        refused.then(|| unsupported_choices_error(ask))
    }
}

/// Returns the error of an image size that the model does not support; `None` if the request states no size, or the
/// model lists no sizes, so that it accepts any.
fn unsupported_size(sizes: &[ImageSize], draw: &ImageTask) -> Option<ApiError> {
    let size = draw.size.filter(|size| !sizes.is_empty() && !sizes.contains(size))?;
    let known: Vec<String> = sizes.iter().map(ImageSize::to_string).collect();
    let sentence = format!("size: expected one of {} for this model, got {size}.", known.join(", "));
    Some(ApiError::invalid("size", sentence).with_details_member("sizes", known))
}

/// Returns an error if the request needs a capability that the offer lacks. The error names the request field that
/// needs it.
fn missing_capability_error(offer: &OfferSettings, ask: &InferenceRequest) -> Option<ApiError> {
    let (needs, client) = (&ask.required, ask.dialect);
    let accepts = |parameter: &str| offer.capabilities.accepts_parameter(parameter);
    let reads = |kind: &str| offer.model.card.input_modalities.iter().any(|modality| modality == kind);
    let format = client.spec().format_error_path;
    let missing = |param: &str, sentence: &'static str| Some(ApiError::unsupported(param, sentence));
    if needs.tools && !accepts("tools") {
        return missing("tools", "This model does not take tools.");
    }
    if needs.json_schema && !penstock_dialect::accepts_json_schema(&offer.capabilities) {
        return missing(format, "'response_format' of type 'json_schema' is not supported with this model.");
    }
    if needs.json_object && !penstock_dialect::accepts_json_schema(&offer.capabilities) {
        return missing(format, "'response_format' of type 'json_object' is not supported with this model.");
    }
    for (is_needed, modality, kind, media) in [
        (needs.images, "image", MediaKind::Image, "images"),
        (needs.audio, "audio", MediaKind::Audio, "audio"),
        (needs.files, "file", MediaKind::File, "files"),
    ] {
        if is_needed && !reads(modality) {
            let path = first_media_path(ask, kind);
            let path = path.unwrap_or_else(|| client.spec().content_error_path.to_owned());
            let sentence = format!("{path}: this model does not read {media}.");
            return Some(ApiError::unsupported(path, sentence).mark_param_as_sent());
        }
    }
    if needs.logprobs && !accepts("logprobs") && !accepts("top_logprobs") {
        let foreign = ask.responses.as_ref().map(|details| &details.chat_named_members);
        let is_asked = |name| {
            ask.member_value(name).is_some_and(|value| !matches!(value, b"false" | b"null"))
                && foreign.is_none_or(|sent| sent.contains(&name))
        };
        let name =
            if is_asked("logprobs") || !is_asked("top_logprobs") { "logprobs" } else { "top_logprobs" };
        let sentence = format!("{name}: this model gives no log probabilities.");
        return Some(ApiError::unsupported(name, sentence));
    }
    if needs.logit_bias && !accepts("logit_bias") {
        return missing("logit_bias", "logit_bias: this model takes no bias of tokens.");
    }
    None
}

/// Returns the refusal of a request for more choices than its provider returns.
#[must_use]
pub fn unsupported_choices_error(ask: &InferenceRequest) -> ApiError {
    match &ask.task {
        InferenceTask::Complete(task) if task.generations_per_prompt == 1 => {
            ApiError::unsupported("prompt", "The providers of this model answer one prompt in a request.")
        }
        InferenceTask::Complete(task) if task.choices_per_prompt == 1 => ApiError::unsupported(
            "best_of",
            "best_of: the providers of this model give one answer to a prompt.",
        ),
        _ => ApiError::unsupported("n", "n: the providers of this model give one answer to a prompt."),
    }
}
