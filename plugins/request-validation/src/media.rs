//! Validation of media in a request: `data:` URLs, links, base64. Invalid media is refused before a provider receives
//! it.

use crate::base64::Base64Validator;
use crate::field_path::FieldPath;
use penstock_core::ApiError;
use penstock_json_scan::tape::{JsonValue, StringPiece, ValueKind, string_pieces, unescape};
use std::borrow::Cow;

/// Location of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageLocation {
    /// Image in the request, with the length in bytes of its `data:` URL as sent.
    Inline(usize),
    /// Outside the request, at a URL.
    Linked,
}

/// Maximum length of a URL, in bytes.
const MAX_LINK: usize = 8 << 10;

/// Validates the URL of an image: `data:image/…;base64,…`, `https://…` or `http://…`.
pub(crate) fn validate_image_url(
    url: JsonValue<'_>,
    path: &FieldPath<'_>,
) -> Result<ImageLocation, ApiError> {
    let expected = "a data: URL of an image, or an http: or https: URL";
    if !url.is_string() {
        return Err(path.unexpected_type_error(expected, url.kind()));
    }
    if is_data_url(&url) {
        return validate_data_url(url, path, &["image/"]).map(ImageLocation::Inline);
    }
    let head = string_prefix(&url);
    if is_scheme(&head, "https://") || is_scheme(&head, "http://") {
        validate_http_url(url, path)?;
        return Ok(ImageLocation::Linked);
    }
    Err(path.invalid_error(format_args!("expected {expected}, got another string")))
}

/// Returns true if a string has the scheme `data:`.
pub(crate) fn is_data_url(url: &JsonValue<'_>) -> bool {
    is_scheme(&string_prefix(url), "data:")
}

/// Returns the first bytes of a string, without JSON escapes: enough to contain a scheme and a media type.
fn string_prefix<'d>(value: &JsonValue<'d>) -> Cow<'d, str> {
    let body = value.raw_inner_text();
    // If an escape sequence is cut at the end, the result is still correct, because the last bytes are not compared.
    let start = (0..4).find_map(|back| body.get(..PREFIX_BYTES.min(body.len()) - back.min(body.len())));
    let start = start.unwrap_or_default();
    if value.kind() == ValueKind::EscapedString { Cow::Owned(unescape(start)) } else { Cow::Borrowed(start) }
}

/// Maximum number of bytes in which a string must contain its scheme and media type.
const PREFIX_BYTES: usize = 256;

fn is_scheme(head: &str, scheme: &str) -> bool {
    head.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}

/// Validates an HTTP or HTTPS URL: at most 8 KiB, with a host and without spaces.
pub(crate) fn validate_http_url(url: JsonValue<'_>, path: &FieldPath<'_>) -> Result<(), ApiError> {
    if url.string_bytes().len() > MAX_LINK {
        return Err(path.invalid_error(format_args!("expected a URL of at most {MAX_LINK} bytes")));
    }
    let text = url.text();
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let foreign = |character: char| character.is_whitespace() || character.is_control();
    if !is_http || host.is_empty() || text.contains(foreign) {
        return Err(path.invalid_error("expected an http: or https: URL with a host"));
    }
    Ok(())
}

/// Validates a `data:` URL whose media type begins with one of `types`; returns the length in bytes of the whole URL,
/// as [`validate_base64`] does.
pub(crate) fn validate_data_url(
    url: JsonValue<'_>,
    path: &FieldPath<'_>,
    types: &[&str],
) -> Result<usize, ApiError> {
    let head = string_prefix(&url);
    let Some((meta, _)) = head.split_once(',') else {
        return Err(path.invalid_error("expected a data: URL with a media type, \";base64\" and a comma"));
    };
    let meta = meta.get(5..).unwrap_or_default();
    let Some((media, _)) = meta.rsplit_once(';').filter(|(_, last)| last.eq_ignore_ascii_case("base64"))
    else {
        return Err(path.invalid_error("expected a data: URL in base64"));
    };
    let media = media.split(';').next().unwrap_or_default();
    let fits = |start: &&str| media.len() > start.len() && is_scheme(media, start);
    if !types.iter().any(fits) || !media.bytes().all(is_token) {
        let types: Vec<String> = types.iter().map(|start| format!("{start}…")).collect();
        return Err(
            path.invalid_error(format_args!("expected a data: URL of media type {}", types.join(" or ")))
        );
    }
    validate_base64(url, path, head.split_once(',').map_or(0, |(meta, _)| meta.len() + 1))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$&-^_.+/".contains(&byte)
}

/// Validates a string that is base64 after its first `skip` characters, which are ASCII; returns the length of the
/// whole string in bytes as it was sent, with the skipped characters and JSON escapes, without the quotes.
pub(crate) fn validate_base64(
    value: JsonValue<'_>,
    path: &FieldPath<'_>,
    skip: usize,
) -> Result<usize, ApiError> {
    let mut proof = Base64Validator::default();
    let body = value.raw_inner_text();
    if value.kind() == ValueKind::String {
        // The scan of the body has already checked most base64 characters of a long string.
        let (bytes, known) = (body.as_bytes(), value.base64_range());
        let known = known.start.max(skip)..known.end.max(skip);
        proof.push(bytes.get(skip..known.start).unwrap_or_default());
        proof.count_prevalidated_characters(known.len());
        proof.push(bytes.get(known.end..).unwrap_or_default());
    } else {
        // Some clients escape `/` and `+` in JSON strings. The pieces between the escapes are validated one by one,
        // and the body is not changed.
        let mut skip = skip;
        for piece in string_pieces(body) {
            let mut buffer = [0; 4];
            let text = match piece {
                StringPiece::Plain(plain) => plain,
                StringPiece::Char(escaped) => escaped.encode_utf8(&mut buffer),
            };
            let skipped = skip.min(text.len());
            skip -= skipped;
            proof.push(text.as_bytes().get(skipped..).unwrap_or_default());
        }
    }
    if proof.is_valid() {
        Ok(value.string_bytes().len())
    } else {
        Err(path.invalid_error("expected base64 (standard alphabet, padded)"))
    }
}
