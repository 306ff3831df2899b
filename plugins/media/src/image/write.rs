//! Writer of the answer with images that the client receives.

use bytes::Bytes;

/// Form in which the client receives an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveredImage {
    /// Base64 data in the answer.
    Base64(Bytes),
    /// URL; plain ASCII without quotes.
    Url(String),
}

/// Writes `{"created":…,"data":[{"url":…,"b64_json":…},…]}`. Each item has both members; the one that was not requested
/// is null. `created` is in Unix seconds; `images` have their revised prompts, JSON strings with quotes. The image data
/// is not copied.
#[must_use]
pub fn write_image_response(created: u64, images: Vec<(DeliveredImage, Option<Bytes>)>) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(2 * images.len() + 1);
    let mut text = format!("{{\"created\":{created},\"data\":[").into_bytes();
    for (index, (shown, revised_prompt)) in images.into_iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        match shown {
            DeliveredImage::Url(url) => {
                text.extend_from_slice(b"{\"url\":\"");
                text.extend_from_slice(url.as_bytes());
                text.extend_from_slice(b"\",\"b64_json\":null");
            }
            DeliveredImage::Base64(image) => {
                text.extend_from_slice(b"{\"url\":null,\"b64_json\":\"");
                pieces.push(Bytes::from(std::mem::take(&mut text)));
                pieces.push(image);
                text.push(b'"');
            }
        }
        if let Some(prompt) = revised_prompt {
            text.extend_from_slice(b",\"revised_prompt\":");
            text.extend_from_slice(&prompt);
        }
        text.push(b'}');
    }
    text.extend_from_slice(b"]}");
    pieces.push(Bytes::from(text));
    pieces
}
