//! Validation of image generation requests.

use crate::body::{RootObject, validate_body};
use crate::field_path::PathStyle;
use crate::filters::read_offer_filters;
use crate::limits::RequestLimits;
use crate::{members, read, scalars};
use bytes::Bytes;
use penstock_core::{ApiError, ImageSize, ImageTask, InferenceRequest, InferenceTask, ModelKind};
use penstock_json_scan::tape::JsonTape;

/// Maximum number of images per request.
const MAX_IMAGES: i64 = 10;
/// Maximum number of diffusion steps per image.
const MAX_STEPS: i64 = 150;

/// Validates a request of `/v1/images/generations`. The requested size is compared with the sizes of the model later,
/// not here.
///
/// Without `response_format`, models with names like `gpt-image-1` return base64, all others a URL. `size: "auto"` is
/// the model's default; `width` and `height` are equivalent to `size`. `num_inference_steps` (or `steps`) needs an
/// offer that accepts this parameter. `quality`, `style` and members that do not change the image are ignored; `stream`
/// and other members that change the image are refused.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the path of the invalid field, if any, in `param`.
pub fn validate_image_generation(body: Bytes, limits: &RequestLimits) -> Result<InferenceRequest, ApiError> {
    validate_image_generation_with_default_model(body, limits, None)
}

/// Validates an image request; `default_model` is the model of a request without `model`.
///
/// # Errors
/// Same as [`validate_image_generation`].
pub fn validate_image_generation_with_default_model(
    body: Bytes,
    limits: &RequestLimits,
    default_model: Option<&str>,
) -> Result<InferenceRequest, ApiError> {
    let (text, nodes) = validate_body(&body, limits, PathStyle::Brackets)?;
    let tape = JsonTape { text, nodes: &nodes };
    let top = RootObject::new(&tape, limits, PathStyle::Brackets)?;
    let model = scalars::read_model_or_default(&top, default_model)?;
    let filters = read_offer_filters(&top, ModelKind::Image)?;
    members::refuse_listed_members(&top, members::REFUSED_IMAGE_MEMBERS)?;
    // Providers return only PNG images.
    scalars::read_optional_keyword(&top, "output_format", &["png"])?;
    scalars::read_optional_keyword(&top, "background", &["auto", "opaque"])?;
    let prompt = read::require_text_member(top.get("prompt"), &top.member_path("prompt"))?;
    let n = top
        .get("n")
        .map(|n| read::read_bounded_integer(n, &top.member_path("n"), 1, MAX_IMAGES))
        .transpose()?;
    let base64 = match scalars::read_optional_keyword(&top, "response_format", &["url", "b64_json"])? {
        Some(form) => form == "b64_json",
        None => expects_base64(&model),
    };
    for name in ["num_inference_steps", "steps"] {
        top.get(name)
            .map(|steps| read::read_bounded_integer(steps, &top.member_path(name), 1, MAX_STEPS))
            .transpose()?;
    }
    if scalars::read_bool_or_false(&top, "stream")? {
        return Err(top.member_path("stream").unsupported_error("images are not streamed"));
    }
    let task = ImageTask {
        prompt: body.slice(prompt.range()),
        n: n.and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
        size: image_size(&top)?,
        as_base64: base64,
    };
    let prompt_bytes = prompt.string_bytes().len();
    let fields = top.to_body_members();
    let ask = InferenceRequest::from_non_chat_task(
        ModelKind::Image,
        body.clone(),
        fields,
        model,
        InferenceTask::GenerateImages(task),
    );
    Ok(InferenceRequest { prompt_bytes, filters, ..ask })
}

/// Prefixes of model names for which clients expect `b64_json` by default: OpenAI's GPT Image models return no other
/// format.
const BASE64_NAMES: &[&str] = &["gpt-image-", "chatgpt-image-"];

fn expects_base64(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).as_bytes();
    BASE64_NAMES
        .iter()
        .any(|start| name.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start.as_bytes())))
}

/// Reads `size`, or `width` and `height` together; both forms are allowed if they agree. Returns `None` for the default
/// size of the model.
fn image_size(top: &RootObject<'_>) -> Result<Option<ImageSize>, ApiError> {
    let named = named_size(top)?;
    let side = |name: &str| -> Result<Option<u32>, ApiError> {
        let Some(value) = top.get(name) else { return Ok(None) };
        let pixels = read::read_bounded_integer(
            value,
            &top.member_path(name),
            1,
            i64::from(ImageSize::MAX_SIDE_PIXELS),
        )?;
        Ok(u32::try_from(pixels).ok())
    };
    let sides = match (side("width")?, side("height")?) {
        (None, None) => return Ok(named),
        (Some(width), Some(height)) => ImageSize { width, height },
        (Some(_), None) => {
            return Err(top.member_path("height").missing_error("a height in pixels beside `width`"));
        }
        (None, Some(_)) => {
            return Err(top.member_path("width").missing_error("a width in pixels beside `height`"));
        }
    };
    if named.is_some_and(|named| named != sides) {
        return Err(top.member_path("width").invalid_error("expected the width and height of `size`"));
    }
    Ok(Some(sides))
}

fn named_size(top: &RootObject<'_>) -> Result<Option<ImageSize>, ApiError> {
    let Some(value) = top.get("size") else { return Ok(None) };
    let path = top.member_path("size");
    let text = read::require_string(value, &path)?.text();
    if text == "auto" {
        return Ok(None);
    }
    let expected = "expected width and height in pixels, such as \"1024x1024\", got another string";
    text.parse().map(Some).map_err(|()| path.invalid_error(expected))
}
