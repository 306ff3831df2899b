//! Parser of images in a provider's answer, as slices of the body.

use super::{base64, format};
use bytes::Bytes;
use penstock_core::{GeneratedImage, ImageSource, UpstreamError, UpstreamErrorKind};
use penstock_json_scan::json::{self, StringClass};

/// Maximum length of a URL that is fetched, in bytes.
const MOST_URL: usize = 8 << 10;

/// Number of bytes of a text that are read to detect an image: the head of a data URL, and the start of its data.
const TEXT_START: usize = 512;

/// Reads the images of an answer: `{"data":[{"b64_json"|"url"|…}]}` or `{"images":[…]}`. Items without an image, such as
/// `null` and filtered images, are left out.
///
/// # Errors
/// Returns `InBandError` if the answer contains an error object, and `Malformed` if it is no list.
pub(super) fn read_images(body: &Bytes) -> Result<Vec<GeneratedImage>, UpstreamError> {
    let list = image_list(body)?;
    let mut elements = json::elements(list);
    let images = elements.by_ref().filter_map(|range| read_image(body, list.get(range)?)).collect();
    if elements.is_complete() { Ok(images) } else { Err(malformed()) }
}

/// Returns the number of images in an answer, without the items that have no image; `None` if the answer is malformed or
/// an error. Only the first bytes of each image are read.
#[must_use]
pub fn count_images(body: &Bytes) -> Option<usize> {
    count_elements(body, |element| begins_with_image(body, element))
}

/// Returns the number of items in the list of an answer, also of those without an image; `None` if the answer is
/// malformed or an error.
#[must_use]
pub fn count_image_items(body: &Bytes) -> Option<usize> {
    count_elements(body, |_| true)
}

fn count_elements(body: &[u8], counts: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let list = image_list(body).ok()?;
    let mut elements = json::elements(list);
    let count = elements.by_ref().filter(|range| list.get(range.clone()).is_some_and(&counts)).count();
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

/// Member of an item that may have the image: the JSON string, and true if the member is for URLs.
type ImageText<'a> = (&'a [u8], bool);

/// Returns the texts of an item that may have its image: the item itself, or members of an object. Empty texts are left
/// out.
fn image_texts(element: &[u8]) -> Vec<ImageText<'_>> {
    if element.first() == Some(&b'"') {
        return vec![(element, false)];
    }
    let mut texts = Vec::new();
    let mut members = json::members(element);
    while let Some((key, value)) = members.next_unescaped() {
        let is_image = matches!(&*key, "b64_json" | "base64" | "b64" | "image" | "url");
        if is_image && value.first() == Some(&b'"') && value.len() > 2 {
            texts.push((value, key == "url"));
        }
    }
    texts
}

/// Reads one image: a string, or an object with a member for the image; `None` if there is no image or the JSON is
/// invalid.
fn read_image(body: &Bytes, element: &[u8]) -> Option<GeneratedImage> {
    let mut found = None;
    for (text, named) in image_texts(element) {
        let source = string_content(body, text).and_then(|content| image_source(content, named));
        // An inline image takes precedence over a URL.
        if !matches!((&found, &source), (_, None) | (Some(_), Some(ImageSource::Url(_)))) {
            found = source;
        }
    }
    Some(GeneratedImage { source: found?, revised_prompt: revised_prompt(body, element) })
}

/// Returns the JSON string of the prompt that the provider used instead of the client's; `None` without a valid one.
fn revised_prompt(body: &Bytes, element: &[u8]) -> Option<Bytes> {
    let mut members = json::members(element);
    let mut found = None;
    while let Some((key, value)) = members.next_unescaped() {
        if key == "revised_prompt" && value.first() == Some(&b'"') {
            let is_valid = json::classify_string(value.get(1..value.len() - 1)?) != StringClass::Invalid;
            found = is_valid.then(|| body.slice_ref(value));
        }
    }
    found
}

/// Image of an item, of which only the first bytes are read: its base64 data, or a URL without data.
enum ImageStart {
    Base64(Bytes),
    Url,
}

/// Returns the image of an item by the first text that begins like an image or a URL; `None` if there is none.
fn image_start(body: &Bytes, element: &[u8]) -> Option<ImageStart> {
    image_texts(element).into_iter().find_map(|(text, named)| {
        let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
        let start = inner.get(..TEXT_START).unwrap_or(inner);
        if start.contains(&b'\\') || inner.len() <= TEXT_START {
            return match image_source(string_content(body, text)?, named)? {
                ImageSource::Base64(data) => Some(ImageStart::Base64(data)),
                ImageSource::Url(_) => Some(ImageStart::Url),
            };
        }
        let start = Bytes::copy_from_slice(start);
        if is_url(&start, named) {
            return (inner.len() <= MOST_URL).then_some(ImageStart::Url);
        }
        let data = base64::data_url_payload(start);
        let data: Vec<u8> = data.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let is_image = format::is_image(&base64::decode_base64_prefix(&data));
        is_image.then(|| ImageStart::Base64(base64::data_url_payload(body.slice_ref(inner))))
    })
}

/// Returns true if an item has a text that begins like an image or a URL.
fn begins_with_image(body: &Bytes, element: &[u8]) -> bool {
    image_start(body, element).is_some()
}

/// Returns the base64 data of each image that [`count_images`] counts, `None` for a URL; empty if the answer is
/// malformed or an error. The data after the first bytes is not checked, and may contain white space.
#[must_use]
pub fn image_data(body: &Bytes) -> Vec<Option<Bytes>> {
    let Ok(list) = image_list(body) else { return Vec::new() };
    let mut elements = json::elements(list);
    let starts = elements.by_ref().filter_map(|range| image_start(body, list.get(range)?));
    let data = starts.map(|start| match start {
        ImageStart::Base64(data) => Some(data),
        ImageStart::Url => None,
    });
    let data = data.collect();
    if elements.is_complete() { data } else { Vec::new() }
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

/// Returns true if the text looks like a URL, or is the value of a member for URLs (`named`) and no data URL.
fn is_url(text: &[u8], named: bool) -> bool {
    text.starts_with(b"https://") || text.starts_with(b"http://") || (named && !text.starts_with(b"data:"))
}

/// Returns a URL if the text looks like one or is the value of a member for URLs (`named`), otherwise its base64
/// data. Returns `None` if the data is not an image.
fn image_source(text: Bytes, named: bool) -> Option<ImageSource> {
    if is_url(&text, named) {
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
