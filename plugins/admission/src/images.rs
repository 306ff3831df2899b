//! Validation of image generation requests.

use crate::body::{Top, prove};
use crate::filters::filters;
use crate::json::Tape;
use crate::limits::Limits;
use crate::path::Style;
use crate::{plain, read};
use bytes::Bytes;
use penstock_contract::{Ask, Draw, Kind, Refusal, Size, Task};

/// Maximum number of images per request.
const MOST: i64 = 10;
/// Maximum number of diffusion steps per image.
const MOST_STEPS: i64 = 150;

/// Validates a request of `/v1/images/generations`, except that the size may not be supported by the model.
///
/// Without `response_format`, models with names like `gpt-image-1` return base64, all others a URL. `size: "auto"` is
/// the model's default; `width` and `height` are equivalent to `size`. `num_inference_steps` (or `steps`) is forwarded
/// if the offer accepts it. Fields of other services (`quality`, `style`, `user` …) are ignored; `stream` is refused.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the field's path in `param`.
pub fn images(body: Bytes, limits: &Limits) -> Result<Ask, Refusal> {
    images_with(body, limits, None)
}

/// Validates an image request, with a default model.
///
/// # Errors
/// Same as [`images`].
pub fn images_with(body: Bytes, limits: &Limits, default: Option<&str>) -> Result<Ask, Refusal> {
    let (text, nodes) = prove(&body, limits, Style::Brackets)?;
    let tape = Tape { text, nodes: &nodes };
    let top = Top::new(&tape, limits, Style::Brackets)?;
    let model = plain::model_or(&top, default)?;
    let filters = filters(&top, Kind::Image)?;
    let prompt = read::name(top.get("prompt"), &top.path("prompt"))?;
    let n = top.get("n").map(|n| read::integer(n, &top.path("n"), 1, MOST)).transpose()?;
    let base64 = match plain::word(&top, "response_format", &["url", "b64_json"])? {
        Some(form) => form == "b64_json",
        None => expects_base64(&model),
    };
    for name in ["num_inference_steps", "steps"] {
        top.get(name).map(|steps| read::integer(steps, &top.path(name), 1, MOST_STEPS)).transpose()?;
    }
    if plain::switch(&top, "stream")? {
        return Err(top.path("stream").unsupported("images are not streamed"));
    }
    let task = Draw {
        prompt: body.slice(prompt.range()),
        n: n.and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
        size: size(&top)?,
        base64,
    };
    let prompt_bytes = prompt.body().len();
    let fields = top.fields();
    let ask = Ask::plain(Kind::Image, body.clone(), fields, model, Task::Draw(task));
    Ok(Ask { prompt_bytes, filters, ..ask })
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
fn size(top: &Top<'_>) -> Result<Option<Size>, Refusal> {
    let named = named_size(top)?;
    let side = |name: &str| -> Result<Option<u32>, Refusal> {
        let Some(value) = top.get(name) else { return Ok(None) };
        let pixels = read::integer(value, &top.path(name), 1, i64::from(Size::MOST))?;
        Ok(u32::try_from(pixels).ok())
    };
    let sides = match (side("width")?, side("height")?) {
        (None, None) => return Ok(named),
        (Some(width), Some(height)) => Size { width, height },
        (Some(_), None) => return Err(top.path("height").missing("a height in pixels beside `width`")),
        (None, Some(_)) => return Err(top.path("width").missing("a width in pixels beside `height`")),
    };
    if named.is_some_and(|named| named != sides) {
        return Err(top.path("width").wrong("expected the width and height of `size`"));
    }
    Ok(Some(sides))
}

fn named_size(top: &Top<'_>) -> Result<Option<Size>, Refusal> {
    let Some(value) = top.get("size") else { return Ok(None) };
    let path = top.path("size");
    let text = read::string(value, &path)?.text();
    if text == "auto" {
        return Ok(None);
    }
    let expected = "expected width and height in pixels, such as \"1024x1024\", got another string";
    text.parse().map(Some).map_err(|()| path.wrong(expected))
}
