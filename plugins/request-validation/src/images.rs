//! Validation of image generation requests.

use crate::body::{RootObject, validate_body};
use crate::field_path::PathStyle;
use crate::filters::read_filters;
use crate::limits::RequestLimits;
use crate::{members, read, scalars};
use bytes::Bytes;
use penstock_core::{ApiError, ImageSize, ImageTask, InferenceRequest, InferenceTask, ModelKind};
use penstock_json_scan::tape::JsonTape;

/// Maximum number of images per request.
const MAX_IMAGES: i64 = 10;
/// Maximum number of diffusion steps per image.
const MAX_STEPS: i64 = 150;

/// Validates a request of `/v1/images/generations`. The size is compared with those of the model later, not here.
///
/// Without `response_format`, models with names like `gpt-image-1` return base64, all others a URL. `size: "auto"` is
/// the model's default; `width` and `height` are equivalent to `size`. `num_inference_steps` (or `steps`) needs an
/// offer that accepts this parameter. `quality`, `style` and members that do not change the image are ignored; `stream`
/// and other members that change the image are refused.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the field's path in `param`.
pub fn validate_images(body: Bytes, limits: &RequestLimits) -> Result<InferenceRequest, ApiError> {
    validate_images_with_default(body, limits, None)
}

/// Validates an image request; `default` is the model of a request without `model`.
///
/// # Errors
/// Same as [`validate_images`].
pub fn validate_images_with_default(
    body: Bytes,
    limits: &RequestLimits,
    default: Option<&str>,
) -> Result<InferenceRequest, ApiError> {
    let (text, nodes) = validate_body(&body, limits, PathStyle::Brackets)?;
    let tape = JsonTape { text, nodes: &nodes };
    let top = RootObject::new(&tape, limits, PathStyle::Brackets)?;
    let model = scalars::model_or_default(&top, default)?;
    let filters = read_filters(&top, ModelKind::Image)?;
    members::refuse_listed_members(&top, members::REFUSED_IMAGE_MEMBERS)?;
    // Providers return only PNG images.
    scalars::keyword(&top, "output_format", &["png"])?;
    scalars::keyword(&top, "background", &["auto", "opaque"])?;
    let prompt = read::required_text(top.get("prompt"), &top.path("prompt"))?;
    let n = top.get("n").map(|n| read::integer(n, &top.path("n"), 1, MAX_IMAGES)).transpose()?;
    let base64 = match scalars::keyword(&top, "response_format", &["url", "b64_json"])? {
        Some(form) => form == "b64_json",
        None => expects_base64(&model),
    };
    for name in ["num_inference_steps", "steps"] {
        top.get(name).map(|steps| read::integer(steps, &top.path(name), 1, MAX_STEPS)).transpose()?;
    }
    if scalars::bool_or_false(&top, "stream")? {
        return Err(top.path("stream").unsupported("images are not streamed"));
    }
    let task = ImageTask {
        prompt: body.slice(prompt.range()),
        n: n.and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
        size: image_size(&top)?,
        as_base64: base64,
    };
    let prompt_bytes = prompt.string_bytes().len();
    let fields = top.to_body_members();
    let ask = InferenceRequest::for_task(
        ModelKind::Image,
        body.clone(),
        fields,
        model,
        InferenceTask::GenerateImages(task),
    );
    Ok(InferenceRequest { prompt_bytes, filters, ..ask })
}

/// Model name prefixes whose clients expect `b64_json` by default: OpenAI's GPT Image models have no other format.
const BASE64_NAMES: &[&str] = &["gpt-image-", "chatgpt-image-"];

fn expects_base64(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).as_bytes();
    BASE64_NAMES
        .iter()
        .any(|start| name.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start.as_bytes())))
}

/// Reads `size`, or `width` and `height` together; both forms are allowed if they agree.
fn image_size(top: &RootObject<'_>) -> Result<Option<ImageSize>, ApiError> {
    let named = named_size(top)?;
    let side = |name: &str| -> Result<Option<u32>, ApiError> {
        let Some(value) = top.get(name) else { return Ok(None) };
        let pixels = read::integer(value, &top.path(name), 1, i64::from(ImageSize::MAX_SIDE))?;
        Ok(u32::try_from(pixels).ok())
    };
    let sides = match (side("width")?, side("height")?) {
        (None, None) => return Ok(named),
        (Some(width), Some(height)) => ImageSize { width, height },
        (Some(_), None) => return Err(top.path("height").missing("a height in pixels beside `width`")),
        (None, Some(_)) => return Err(top.path("width").missing("a width in pixels beside `height`")),
    };
    if named.is_some_and(|named| named != sides) {
        return Err(top.path("width").invalid("expected the width and height of `size`"));
    }
    Ok(Some(sides))
}

fn named_size(top: &RootObject<'_>) -> Result<Option<ImageSize>, ApiError> {
    let Some(value) = top.get("size") else { return Ok(None) };
    let path = top.path("size");
    let text = read::string(value, &path)?.text();
    if text == "auto" {
        return Ok(None);
    }
    let expected = "expected width and height in pixels, such as \"1024x1024\", got another string";
    text.parse().map(Some).map_err(|()| path.invalid(expected))
}
