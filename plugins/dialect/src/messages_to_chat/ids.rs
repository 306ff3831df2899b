//! Tool names and tool call ids in the form that a provider accepts.
//!
//! Chat providers get tool call ids unchanged, so that models see their own format. If a provider requires nine letters
//! or digits, and for messages providers, an id in another form is replaced by its hash. The hash of an id is always
//! the same, so that call and result still match. Tool names over 64 bytes are shortened, end in a hash, and are
//! restored in answers.

use crate::json_cursor;
use penstock_json_scan::json;
use std::borrow::Cow;

/// Limit on the length of a tool name at chat providers, in bytes.
pub(crate) const MAX_CHAT_TOOL_NAME_BYTES: usize = 64;

const ID_ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Offset basis of FNV-1a, the initial value for [`fnv1a_update`].
pub(crate) const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// Extends a 64-bit FNV-1a hash by more bytes. The hash is the same in all builds and on all machines, as retries and
/// prefix caches require. It need not resist an attacker.
pub(crate) fn fnv1a_update(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

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
    // Two different hashes of the id make a collision of two ids unlikely.
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

/// Shortens a tool name (body of a JSON string) for chat providers. A name over 64 bytes becomes its first 55 bytes,
/// `_` and eight hexadecimal digits of its hash. In those 55 bytes, `_` replaces all characters but letters, digits,
/// `_` and `-`.
pub(crate) fn shorten_tool_name(name: &[u8]) -> Cow<'_, [u8]> {
    if name.len() <= MAX_CHAT_TOOL_NAME_BYTES {
        return Cow::Borrowed(name);
    }
    let mut cut: Vec<u8> = name
        .iter()
        .take(MAX_CHAT_TOOL_NAME_BYTES - 9)
        .map(|byte| if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') { *byte } else { b'_' })
        .collect();
    cut.extend_from_slice(format!("_{:08x}", fnv1a(name) >> 32).as_bytes());
    Cow::Owned(cut)
}

/// Shortened tool names and their originals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShortenedToolNames(Vec<(String, String)>);

impl ShortenedToolNames {
    /// Creates the list from the tool names that the client declares, each the body of a JSON string.
    pub(crate) fn from_declared<'a>(declared: impl Iterator<Item = &'a [u8]>) -> Self {
        let long = declared.filter(|declared| declared.len() > MAX_CHAT_TOOL_NAME_BYTES);
        Self(
            long.filter_map(|long| {
                let quoted = [b"\"", long, b"\""].concat();
                let cut = String::from_utf8(shorten_tool_name(long).into_owned()).ok()?;
                Some((cut, json_cursor::parse_string(&quoted)?.into_owned()))
            })
            .collect(),
        )
    }

    /// Returns the name that the client declared for a tool name in an answer; the same name if it was not shortened.
    pub(crate) fn original_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.iter().find(|(cut, _)| cut == name).map_or(name, |(_, full)| full)
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
    fn a_long_name_is_shortened_to_64_bytes_and_restored() {
        let long = format!("mcp__{}", "x".repeat(80));
        let cut = String::from_utf8(shorten_tool_name(long.as_bytes()).into_owned()).unwrap_or_default();
        assert_eq!(cut.len(), MAX_CHAT_TOOL_NAME_BYTES);
        let names = ShortenedToolNames::from_declared([&b"short"[..], long.as_bytes()].into_iter());
        assert_eq!(names.original_name(&cut), long);
        assert_eq!(names.original_name("short"), "short");
    }
}
