//! Request formats of image providers. Every request asks for images inside the answer, so that the gateway rarely has
//! to fetch one.

use super::read;
use crate::measured_energy::read_energy;
use bytes::Bytes;
use penstock_core::{
    AdjustableMember, ApiError, AttemptTarget, BufferedResponse, FinishReason, ImageSize, ImageTask,
    InferenceRequest, InferenceTask, ModelKind, OfferCapabilities, OfferObservation, ProviderAdapter,
    UpstreamAnswer, UpstreamError, UpstreamErrorKind, UpstreamRequest, WorkDone,
};
use penstock_http_wire::usage::sum_energy;
use penstock_json_scan::json;

/// Adapters of all image providers; the first one is the default.
pub const IMAGE_ADAPTERS: &[&dyn ProviderAdapter] = &[
    &ImageShape {
        name: "openai-images",
        path: "/images/generations",
        dialect: ImageDialect::Size('x', true),
    },
    &ImageShape {
        name: "openai-images-bare",
        path: "/images/generations",
        dialect: ImageDialect::Size('x', false),
    },
    &ImageShape {
        name: "openai-images-star",
        path: "/images/generations",
        dialect: ImageDialect::Size('*', true),
    },
    &ImageShape { name: "width-height", path: "/images/generations", dialect: ImageDialect::Sides },
    &ImageShape { name: "automatic1111", path: "/sdapi/v1/txt2img", dialect: ImageDialect::Batch },
];

/// Adapter for providers of images with one request format.
struct ImageShape {
    name: &'static str,
    path: &'static str,
    dialect: ImageDialect,
}

/// Request members that a provider accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageDialect {
    /// API with `n`, and `size` with this separator between width and height; the flag is true if `response_format` is
    /// accepted.
    Size(char, bool),
    /// API with `n`, `width`, `height` and `response_format`.
    Sides,
    /// API with `batch_size`, `width` and `height`. The request names no model, because the provider has only one
    /// loaded.
    Batch,
}

impl ProviderAdapter for ImageShape {
    fn kind(&self) -> ModelKind {
        ModelKind::Image
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn path(&self) -> &'static str {
        self.path
    }

    fn build_requests(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        let task = image_task(ask)
            .ok_or_else(|| ApiError::unsupported("model", "model: it does not generate images."))?;
        let most = match target.allows_member(AdjustableMember::MultipleChoices) {
            true => target.capabilities.max_images.unwrap_or(u32::MAX).max(1),
            false => 1,
        };
        let mut left = task.n.max(1);
        let mut calls = Vec::new();
        while left > 0 {
            let n = left.min(most);
            calls.push(self.build_call(task, ask.diffusion_steps(), target, n));
            left -= n;
        }
        Ok(calls)
    }

    /// Builds one request for each missing image: engines that ignore `n` make one image per request.
    fn build_missing_requests(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        answers: &[UpstreamAnswer],
    ) -> Vec<UpstreamRequest> {
        let Some(task) = image_task(ask).filter(|task| task.n > 1) else { return Vec::new() };
        let count = answers.iter().map(|answer| read::count_images(&answer.body)).sum::<Option<usize>>();
        // A provider that makes no image at all fails.
        let Some(count) = count.filter(|count| *count > 0) else { return Vec::new() };
        let missing = task.n.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        (0..missing).map(|_| self.build_call(task, ask.diffusion_steps(), target, 1)).collect()
    }

    fn translate(
        &self,
        ask: &InferenceRequest,
        _: &AttemptTarget<'_>,
        answers: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError> {
        let task = image_task(ask).ok_or_else(|| UpstreamError::new(UpstreamErrorKind::Malformed))?;
        let mut pictures = Vec::new();
        for answer in &answers {
            pictures.extend(read::read_images(&answer.body)?);
        }
        if pictures.is_empty() {
            return Err(UpstreamError::new(UpstreamErrorKind::Malformed));
        }
        // Engines may generate more images than requested, to fill a batch. The additional images are dropped and not
        // charged.
        pictures.truncate(usize::try_from(task.n).unwrap_or(usize::MAX));
        let count = u32::try_from(pictures.len()).unwrap_or(u32::MAX);
        Ok(BufferedResponse {
            body: Vec::new(),
            work: Some(WorkDone::Images {
                count,
                steps: None,
                pixels: task.size.map(ImageSize::pixel_count),
            }),
            provider_work: None,
            measured_energy: sum_energy(answers.iter().map(|answer| read_energy(&answer.body))),
            finish_reason: FinishReason::Stop,
            output_bytes: 0,
            images: pictures,
            observation: OfferObservation::default(),
        })
    }
}

/// Returns the name of the request member for the number of diffusion steps; `None` if the provider accepts none. The
/// API `automatic1111` always accepts the member; the other APIs accept it if the catalogue lists one of the member's
/// names for the offer.
#[must_use]
pub fn diffusion_steps_member(
    shape: &dyn ProviderAdapter,
    abilities: &OfferCapabilities,
) -> Option<&'static str> {
    if shape.name() == "automatic1111" {
        return Some("steps");
    }
    ["num_inference_steps", "steps"].into_iter().find(|name| abilities.accepts_parameter(name))
}

fn image_task(ask: &InferenceRequest) -> Option<&ImageTask> {
    match &ask.task {
        InferenceTask::GenerateImages(task) => Some(task),
        _ => None,
    }
}

impl ImageShape {
    fn build_call(
        &self,
        task: &ImageTask,
        steps: Option<u32>,
        target: &AttemptTarget<'_>,
        n: u32,
    ) -> UpstreamRequest {
        let mut head = b"{".to_vec();
        if self.dialect != ImageDialect::Batch {
            head.extend_from_slice(b"\"model\":");
            json::write_str(&mut head, target.model);
            head.push(b',');
        }
        head.extend_from_slice(b"\"prompt\":");
        let mut tail = match self.dialect {
            _ if n == 1 && !target.allows_member(AdjustableMember::ImageCount) => String::new(),
            ImageDialect::Batch => format!(",\"batch_size\":{n}"),
            ImageDialect::Size(..) | ImageDialect::Sides => format!(",\"n\":{n}"),
        };
        if let Some(ImageSize { width, height }) = task.size {
            tail += &match self.dialect {
                ImageDialect::Size(sign, _) => format!(",\"size\":\"{width}{sign}{height}\""),
                ImageDialect::Sides | ImageDialect::Batch => {
                    format!(",\"width\":{width},\"height\":{height}")
                }
            };
        }
        if let (Some(name), Some(steps)) = (diffusion_steps_member(self, target.capabilities), steps) {
            tail += &format!(",\"{name}\":{steps}");
        }
        let asks = matches!(self.dialect, ImageDialect::Sides | ImageDialect::Size(_, true));
        if asks && target.allows_member(AdjustableMember::MediaFormat) {
            tail += ",\"response_format\":\"b64_json\"";
        }
        tail.push('}');
        UpstreamRequest::from_json(vec![Bytes::from(head), task.prompt.clone(), Bytes::from(tail)])
    }
}
