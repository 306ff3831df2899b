//! Escaping and unescaping of JSON strings.

use super::scan::{escape_end, plain_run_length};
use std::borrow::Cow;

/// Appends `text` as a JSON string, quotes included.
pub fn write_str(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    write_escaped(out, text);
    out.push(b'"');
}

/// Appends the name of the next member of the object at the end of `out`, with a comma before it unless the member is
/// the first one, and a colon after it.
pub fn write_member_name(out: &mut Vec<u8>, name: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    write_str(out, name);
    out.push(b':');
}

/// Returns the JSON text with a space in place of each line break, which can only be white space between tokens; `None`
/// if there is no line break. A server-sent event must not contain one.
#[must_use]
pub fn replace_line_breaks(text: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr2(b'\n', b'\r', text)?;
    Some(text.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect())
}

/// Appends `text` as the inside of a JSON string: with escapes, but without the quotes around it.
pub fn write_escaped(out: &mut Vec<u8>, text: &str) {
    const HEX: [u8; 16] = *b"0123456789abcdef";
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_run_length(rest));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = special.split_first() else { return };
        rest = after;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            _ => {
                out.extend_from_slice(b"\\u00");
                let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
                out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
}

/// Unescapes the text between the quotes of a JSON string.
///
/// Returns `None` if the text is not UTF-8, has an invalid escape, or contains a control character, a quote or a lone
/// surrogate.
#[must_use]
pub fn unescape(escaped: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(escaped).ok()?;
    if plain_run_length(escaped) == escaped.len() {
        return Some(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let (plain, special) = rest.split_at_checked(plain_run_length(rest.as_bytes()))?;
        out.push_str(plain);
        if special.is_empty() {
            return Some(Cow::Owned(out));
        }
        let after = special.strip_prefix('\\')?;
        let kind = after.chars().next()?;
        rest = after.get(kind.len_utf8()..)?;
        out.push(match kind {
            '"' | '\\' | '/' => kind,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let (first, after) = code_unit(rest)?;
                rest = after;
                match first {
                    0xd800..=0xdbff => {
                        let (second, after) = code_unit(rest.strip_prefix("\\u")?)?;
                        rest = after;
                        let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                        char::from_u32(0x10000 + ((first - 0xd800) << 10) + low)?
                    }
                    unit => char::from_u32(unit)?,
                }
            }
            _ => return None,
        });
    }
}

/// Class of the text between the quotes of a JSON string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringClass {
    /// String that is valid and has no escapes, so its bytes are the text.
    Plain,
    /// String that is valid but has escapes, so its text requires decoding.
    Escaped,
    /// Invalid: not UTF-8, an invalid escape, a bare quote or control character, or a lone surrogate.
    Invalid,
}

/// Classifies the text between the quotes of a JSON string without unescaping it; [`unescape`] accepts exactly the
/// classes other than [`StringClass::Invalid`].
#[must_use]
pub fn classify_string(escaped: &[u8]) -> StringClass {
    let run = plain_run_length(escaped);
    if std::str::from_utf8(escaped).is_err() {
        return StringClass::Invalid;
    }
    if run == escaped.len() {
        return StringClass::Plain;
    }
    let mut at = run;
    while let Some(&byte) = escaped.get(at) {
        let Some(end) = (byte == b'\\').then(|| escape_end(escaped, at)).flatten() else {
            return StringClass::Invalid;
        };
        at = match surrogate_half(escaped.get(at..end).unwrap_or_default()) {
            SurrogateHalf::None => end,
            SurrogateHalf::High => {
                let second = escaped.get(end..end + 6).unwrap_or_default();
                if escape_end(escaped, end) != Some(end + 6) || surrogate_half(second) != SurrogateHalf::Low {
                    return StringClass::Invalid;
                }
                end + 6
            }
            SurrogateHalf::Low => return StringClass::Invalid,
        };
        at += plain_run_length(escaped.get(at..).unwrap_or_default());
    }
    StringClass::Escaped
}

/// Half of a surrogate pair in an escape such as `\ud83d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurrogateHalf {
    /// Escape of a complete character, not of a half.
    None,
    /// High (first) surrogate.
    High,
    /// Low (second) surrogate.
    Low,
}

/// Returns which half of a surrogate pair a complete escape such as `\ud83d` is.
#[must_use]
pub fn surrogate_half(escape: &[u8]) -> SurrogateHalf {
    match escape {
        [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', _, _] => SurrogateHalf::High,
        [b'\\', b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', _, _] => SurrogateHalf::Low,
        _ => SurrogateHalf::None,
    }
}

/// Returns true if the raw text between the quotes of a JSON string equals `text` when unescaped.
#[must_use]
pub fn escaped_text_equals(escaped: &[u8], text: &str) -> bool {
    // Only a longer text is unescaped, because an escape is never shorter than its character.
    escaped == text.as_bytes()
        || (escaped.len() > text.len() && unescape(escaped).is_some_and(|unescaped| unescaped == text))
}

/// Returns true if a JSON value is a string that equals `text` when unescaped.
#[must_use]
pub fn json_string_equals(value: &[u8], text: &str) -> bool {
    matches!(value, [b'"', escaped @ .., b'"'] if escaped_text_equals(escaped, text))
}

/// Unescapes like [`unescape`], but each lone surrogate becomes U+FFFD.
#[must_use]
pub fn unescape_lossy(escaped: &[u8]) -> Option<Cow<'_, str>> {
    if let Some(text) = unescape(escaped) {
        return Some(text);
    }
    let mut repaired = Vec::with_capacity(escaped.len() + 8);
    let mut at = 0;
    while at < escaped.len() {
        let run = plain_run_length(escaped.get(at..)?);
        repaired.extend_from_slice(escaped.get(at..at + run)?);
        at += run;
        if at == escaped.len() {
            break;
        }
        let end = escape_end(escaped, at).filter(|_| escaped.get(at) == Some(&b'\\'))?;
        let escape = escaped.get(at..end)?;
        let next = escaped.get(end..end + 6).unwrap_or_default();
        at = end;
        match surrogate_half(escape) {
            SurrogateHalf::None => repaired.extend_from_slice(escape),
            SurrogateHalf::High if surrogate_half(next) == SurrogateHalf::Low => {
                repaired.extend_from_slice(escape);
                repaired.extend_from_slice(next);
                at = end + 6;
            }
            SurrogateHalf::High | SurrogateHalf::Low => repaired.extend_from_slice(b"\\ufffd"),
        }
    }
    unescape(&repaired).map(|text| Cow::Owned(text.into_owned()))
}

/// Replaces the escape of each lone surrogate by that of U+FFFD; `None` if there is no lone surrogate. Accepts any JSON
/// value, since backslashes occur only in strings.
#[must_use]
pub fn repair_surrogates(json: &[u8]) -> Option<Vec<u8>> {
    let (mut repaired, mut copied, mut at) = (Vec::new(), 0, 0);
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        let start = at + found;
        let escape =
            |at| json.get(at..at + 6).filter(|_| escape_end(json, at) == Some(at + 6)).unwrap_or_default();
        at = match surrogate_half(escape(start)) {
            SurrogateHalf::None => start + 2,
            SurrogateHalf::High if surrogate_half(escape(start + 6)) == SurrogateHalf::Low => start + 12,
            SurrogateHalf::High | SurrogateHalf::Low => {
                repaired.extend_from_slice(json.get(copied..start)?);
                repaired.extend_from_slice(b"\\ufffd");
                copied = start + 6;
                copied
            }
        };
    }
    if copied == 0 {
        return None;
    }
    repaired.extend_from_slice(json.get(copied..)?);
    Some(repaired)
}

fn code_unit(text: &str) -> Option<(u32, &str)> {
    let (digits, after) = text.split_at_checked(4)?;
    let hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    Some((u32::from_str_radix(digits, 16).ok().filter(|_| hexadecimal)?, after))
}
