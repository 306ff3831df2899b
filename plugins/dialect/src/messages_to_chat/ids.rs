//! Tool names and tool call ids in the form that a provider accepts.
//!
//! Chat providers get tool call ids unchanged, so that models see their own format. If a provider requires nine letters
//! or digits, and for messages providers, an id in another form is replaced by its hash. The hash of an id is always
//! the same, so that call and result still match. Tool names over 64 bytes are shortened and end in a hash; answers get
//! the declared names back (see `tool_names`).

pub(crate) use penstock_core::function_name::{FNV_OFFSET_BASIS, fnv1a_update};
use penstock_core::function_name::{MAX_FUNCTION_NAME_BYTES, replace_function_name};
use penstock_json_scan::json;
use std::borrow::Cow;

const ID_ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_update(FNV_OFFSET_BASIS, bytes)
}

/// Converts a tool call id (body of a JSON string) for providers of the messages dialect, which accept letters, digits,
/// `_` and `-`. An id with other characters is replaced by its hash.
pub(crate) fn portable_call_id(id: &[u8]) -> Cow<'_, [u8]> {
    if is_portable_call_id(id) {
        return Cow::Borrowed(id);
    }
    let decoded = decode_id(id);
    if is_portable_call_id(&decoded) {
        return decoded;
    }
    // The new id consists of two different hashes, so that a collision with another id is unlikely.
    let (one, other) = (fnv1a(&decoded), fnv1a_update(fnv1a(b"id"), &decoded));
    Cow::Owned(format!("call_{one:016x}{other:016x}").into_bytes())
}

/// Returns true if messages providers accept the id unchanged.
pub(crate) fn is_portable_call_id(id: &[u8]) -> bool {
    !id.is_empty() && id.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Returns a tool call id without JSON escapes.
fn decode_id(id: &[u8]) -> Cow<'_, [u8]> {
    match json::unescape_lossy(id) {
        Some(Cow::Owned(decoded)) => Cow::Owned(decoded.into_bytes()),
        _ => Cow::Borrowed(id),
    }
}

/// Converts a tool call id (body of a JSON string) to nine letters or digits: unchanged if it has this form, and
/// otherwise a hash.
pub(crate) fn nine_char_call_id(id: &[u8]) -> Cow<'_, [u8]> {
    let decoded = decode_id(id);
    if decoded.len() == 9 && decoded.iter().all(u8::is_ascii_alphanumeric) {
        return decoded;
    }
    let mut left = fnv1a(&decoded);
    let digits = (0..9).map(|_| {
        let at = usize::try_from(left % 62).unwrap_or_default();
        left /= 62;
        ID_ALPHABET.get(at).copied().unwrap_or(b'0')
    });
    Cow::Owned(digits.collect())
}

/// Shortens a tool name (body of a JSON string) for chat providers. A name over 64 bytes is replaced by its end and
/// its hash. The names of responses clients are shortened in the same way, so that a tool always has the same name at
/// a provider.
pub(crate) fn shorten_tool_name(name: &[u8]) -> Cow<'_, [u8]> {
    if name.len() <= MAX_FUNCTION_NAME_BYTES {
        return Cow::Borrowed(name);
    }
    match json::unescape_lossy(name) {
        Some(decoded) if decoded.len() > MAX_FUNCTION_NAME_BYTES => {
            Cow::Owned(replace_function_name(&decoded).into_bytes())
        }
        _ => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]

    use super::*;

    #[test]
    fn an_id_of_nine_letters_is_unchanged_and_others_are_hashed() {
        assert_eq!(nine_char_call_id(b"aB3456789"), &b"aB3456789"[..]);
        let hashed = nine_char_call_id(b"toolu_01AbCdEf").into_owned();
        assert!(hashed.len() == 9 && hashed.iter().all(u8::is_ascii_alphanumeric));
        assert_eq!(nine_char_call_id(b"toolu_01AbCdEf"), hashed);
        assert_ne!(nine_char_call_id(b"toolu_01AbCdEg"), hashed);
    }

    #[test]
    fn an_id_of_other_characters_becomes_a_stable_portable_id() {
        for id in ["toolu_01AbC-d", "call_1"] {
            assert_eq!(portable_call_id(id.as_bytes()), id.as_bytes());
        }
        let odd: [&[u8]; 4] =
            [b"functions.get_weather:0", b"functions.get_weather:1", "caf\u{e9}".as_bytes(), b"a b"];
        let mapped = odd.map(|id| portable_call_id(id).into_owned());
        assert!(mapped.iter().all(|id| is_portable_call_id(id) && id.len() <= 64));
        assert!(mapped.iter().enumerate().all(|(at, id)| !mapped[..at].contains(id)));
        assert_eq!(portable_call_id(br"functions.g\u0065t_weather:0"), mapped[0]);
        assert_eq!(nine_char_call_id(br"functions.g\u0065t_weather:0"), nine_char_call_id(odd[0]));
        assert_eq!(portable_call_id(b""), portable_call_id(b""));
        assert_eq!(portable_call_id(br"\u0061"), &b"a"[..]);
        assert_eq!(nine_char_call_id(br"\u0061B3456789"), nine_char_call_id(b"aB3456789"));
    }

    #[test]
    fn a_long_name_is_shortened_to_64_bytes() {
        let long = format!("mcp__{}", "x".repeat(80));
        let cut = String::from_utf8(shorten_tool_name(long.as_bytes()).into_owned()).unwrap_or_default();
        assert!(cut.len() <= MAX_FUNCTION_NAME_BYTES && cut == replace_function_name(&long));
        // Names are compared without their escapes, in requests as in answers.
        let escaped = long.replace("mcp", r"m\u0063p");
        assert_eq!(shorten_tool_name(escaped.as_bytes()), cut.as_bytes());
        let escaped = r"\u0061".repeat(20);
        assert_eq!(shorten_tool_name(escaped.as_bytes()), escaped.as_bytes());
    }
}
