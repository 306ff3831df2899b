//! Parser of images in a provider's answer, as slices of the body.

use super::{base64, format};
use bytes::Bytes;
use penstock_core::{GeneratedImage, ImageSource, UpstreamError, UpstreamErrorKind};
use penstock_json_scan::json::{self, StringClass};

/// Maximum length of a URL that is fetched, in bytes.
const MOST_URL: usize = 8 << 10;

/// Reads the images of an answer: `{"data":[{"b64_json"|"url"|…}]}` or `{"images":[…]}`.
///
/// # Errors
/// Returns `InBandError` if the answer contains an error object, and `Malformed` if it contains no image or an
/// invalid one.
pub(super) fn read_images(body: &Bytes) -> Result<Vec<GeneratedImage>, UpstreamError> {
    let list = image_list(body)?;
    let mut found = Vec::new();
    let mut elements = json::elements(list);
    for range in elements.by_ref() {
        let element = list.get(range).unwrap_or_default();
        found.push(read_image(body, element).ok_or_else(malformed)?);
    }
    if elements.is_complete() && !found.is_empty() { Ok(found) } else { Err(malformed()) }
}

/// Returns the number of images in an answer; `None` if the answer is malformed or an error. The images are not read.
#[must_use]
pub fn count_images(body: &[u8]) -> Option<usize> {
    let mut elements = json::elements(image_list(body).ok()?);
    let count = elements.by_ref().count();
    elements.is_complete().then_some(count)
}

/// Returns the array of images in an answer.
fn image_list(body: &[u8]) -> Result<&[u8], UpstreamError> {
    let mut list = None;
    let mut members = json::members(body);
    while let Some((key, value)) = members.next_unescaped() {
        match &*key {
            "error" if !matches!(value, b"null" | b"\"\"") => {
                return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
            }
            "data" | "images" => list = list.or(Some(value)),
            _ => {}
        }
    }
    list.filter(|_| members.is_complete()).ok_or_else(malformed)
}

fn malformed() -> UpstreamError {
    UpstreamError::new(UpstreamErrorKind::Malformed)
}

/// Reads one image: a string, or an object with a member for the image; `None` if there is no image or the JSON is
/// invalid.
fn read_image(body: &Bytes, element: &[u8]) -> Option<GeneratedImage> {
    if element.first() == Some(&b'"') {
        return Some(GeneratedImage {
            source: image_source(string_content(body, element)?, false)?,
            revised_prompt: None,
        });
    }
    let (mut found, mut revised_prompt) = (None, None);
    let mut members = json::members(element);
    while let Some((key, value)) = members.next_unescaped() {
        if value.first() != Some(&b'"') {
            continue;
        }
        match &*key {
            "b64_json" | "base64" | "b64" | "image" | "url" if value.len() > 2 => {
                // An inline image takes precedence over a URL.
                let source = image_source(string_content(body, value)?, key == "url")?;
                if !matches!((&found, &source), (Some(_), ImageSource::Url(_))) {
                    found = Some(source);
                }
            }
            "revised_prompt" => {
                let sound = json::classify_string(value.get(1..value.len() - 1)?) != StringClass::Invalid;
                revised_prompt = sound.then(|| body.slice_ref(value));
            }
            _ => {}
        }
    }
    Some(GeneratedImage { source: found?, revised_prompt })
}

/// Returns the content of a JSON string: a slice, unless it has escapes. `None` if the string is invalid.
fn string_content(body: &Bytes, string: &[u8]) -> Option<Bytes> {
    let inner = string.get(1..string.len().checked_sub(1)?)?;
    match json::classify_string(inner) {
        StringClass::Plain => Some(body.slice_ref(inner)),
        StringClass::Escaped => Some(Bytes::from(json::unescape(inner)?.into_owned())),
        StringClass::Invalid => None,
    }
}

/// Returns a URL if the text looks like one or is the value of a member for URLs (`named`), otherwise its base64
/// data. Returns `None` if the data is not an image.
fn image_source(text: Bytes, named: bool) -> Option<ImageSource> {
    let inline = text.starts_with(b"data:");
    if text.starts_with(b"https://") || text.starts_with(b"http://") || (named && !inline) {
        let url = std::str::from_utf8(&text).ok()?;
        return (url.len() <= MOST_URL).then(|| ImageSource::Url(url.into()));
    }
    let inside = base64::data_url_payload(text);
    if base64::is_canonical(&inside) {
        return format::is_image(&base64::decode_base64_prefix(&inside))
            .then_some(ImageSource::Base64(inside));
    }
    let image = base64::decode_base64(&inside).filter(|image| format::is_image(image))?;
    Some(ImageSource::Base64(base64::encode_base64(&image)))
}
