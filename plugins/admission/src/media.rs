//! Validation of media in a request: `data:` URLs, links, base64. Invalid media is refused before a provider receives
//! it.

use crate::base64::Base64;
use crate::json::{Kind, Piece, Value, pieces, unescape};
use crate::path::Path;
use penstock_contract::Refusal;
use std::borrow::Cow;

/// Location of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Picture {
    /// Image in the request, with its bytes of base64.
    Inline(usize),
    /// Image at a URL.
    Linked,
}

/// Maximum length of a URL, in bytes.
const MAX_LINK: usize = 8 << 10;

/// Validates the URL of an image: `data:image/…;base64,…`, `https://…` or `http://…`.
pub(crate) fn picture(url: Value<'_>, at: &Path<'_>) -> Result<Picture, Refusal> {
    let expected = "a data: URL of an image or an https: URL";
    if !url.is_string() {
        return Err(at.expected(expected, url.kind()));
    }
    let head = head(&url);
    if is_scheme(&head, "data:") {
        return data(url, at, &["image/"]).map(Picture::Inline);
    }
    if is_scheme(&head, "https://") || is_scheme(&head, "http://") {
        link(url, at)?;
        return Ok(Picture::Linked);
    }
    Err(at.wrong(format_args!("expected {expected}, got a string that is neither")))
}

/// Start of a string, unescaped: enough for a scheme and a media type.
fn head<'d>(value: &Value<'d>) -> Cow<'d, str> {
    let body = value.quoted();
    // An escape cut at the end does no harm: the last bytes are not read.
    let start = (0..4).find_map(|back| body.get(..HEAD.min(body.len()) - back.min(body.len())));
    let start = start.unwrap_or_default();
    if value.kind() == Kind::Escaped { Cow::Owned(unescape(start)) } else { Cow::Borrowed(start) }
}

/// Maximum bytes of a string that may contain its scheme and media type.
const HEAD: usize = 256;

fn is_scheme(head: &str, scheme: &str) -> bool {
    head.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}

/// Validates an HTTP URL with a host and without spaces.
pub(crate) fn link(url: Value<'_>, at: &Path<'_>) -> Result<(), Refusal> {
    if url.body().len() > MAX_LINK {
        return Err(at.wrong(format_args!("expected a URL of at most {MAX_LINK} bytes")));
    }
    let text = url.text();
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let foreign = |character: char| character.is_whitespace() || character.is_control();
    if !is_http || host.is_empty() || text.contains(foreign) {
        return Err(at.wrong("expected an https: URL with a host"));
    }
    Ok(())
}

/// Validates a `data:` URL of one of these media types (given by prefix); returns the bytes of base64.
pub(crate) fn data(url: Value<'_>, at: &Path<'_>, types: &[&str]) -> Result<usize, Refusal> {
    let head = head(&url);
    let Some((meta, _)) = head.split_once(',') else {
        return Err(at.wrong("expected a data: URL with a media type, \";base64\" and a comma"));
    };
    let meta = meta.get(5..).unwrap_or_default();
    let Some((media, _)) = meta.rsplit_once(';').filter(|(_, last)| last.eq_ignore_ascii_case("base64"))
    else {
        return Err(at.wrong("expected a data: URL in base64"));
    };
    let media = media.split(';').next().unwrap_or_default();
    let fits = |start: &&str| media.len() > start.len() && is_scheme(media, start);
    if !types.iter().any(fits) || !media.bytes().all(is_token) {
        let types: Vec<String> = types.iter().map(|start| format!("{start}…")).collect();
        return Err(at.wrong(format_args!("expected a data: URL of media type {}", types.join(" or "))));
    }
    base64(url, at, head.split_once(',').map_or(0, |(meta, _)| meta.len() + 1))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$&-^_.+/".contains(&byte)
}

/// Validates a string that is base64 after its first `skip` characters (all ASCII); returns its bytes.
pub(crate) fn base64(value: Value<'_>, at: &Path<'_>, skip: usize) -> Result<usize, Refusal> {
    let mut proof = Base64::default();
    let body = value.quoted();
    if value.kind() == Kind::String {
        proof.push(body.as_bytes().get(skip..).unwrap_or_default());
    } else {
        // Some clients escape `/` and `+`; the body is not modified.
        let mut skip = skip;
        for piece in pieces(body) {
            let mut buffer = [0; 4];
            let text = match piece {
                Piece::Plain(plain) => plain,
                Piece::Char(escaped) => escaped.encode_utf8(&mut buffer),
            };
            let skipped = skip.min(text.len());
            skip -= skipped;
            proof.push(text.as_bytes().get(skipped..).unwrap_or_default());
        }
    }
    if proof.is_whole() {
        Ok(value.body().len())
    } else {
        Err(at.wrong("expected base64 (standard alphabet, padded)"))
    }
}
