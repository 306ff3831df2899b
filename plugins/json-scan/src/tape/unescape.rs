//! Decoding of the escapes of a validated string.

use super::parse_escaped_code_unit;

/// Piece of a JSON string: plain text or one escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringPiece<'s> {
    /// Text without escapes.
    Plain(&'s str),
    /// Character that an escape stands for.
    Char(char),
}

/// Returns the pieces of a validated string without copies; `body` is its text between the quotes.
pub fn string_pieces(body: &str) -> impl Iterator<Item = StringPiece<'_>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        match rest.find('\\') {
            Some(0) => {
                let (escaped, length) = decode_escape(rest);
                rest = rest.get(length..).unwrap_or_default();
                Some(StringPiece::Char(escaped))
            }
            found => {
                let (plain, tail) = rest.split_at_checked(found.unwrap_or(rest.len()))?;
                rest = tail;
                Some(StringPiece::Plain(plain))
            }
        }
    })
}

/// Returns the unescaped text of a validated string; `body` is its text between the quotes.
pub fn unescape(body: &str) -> String {
    let mut text = String::with_capacity(body.len());
    for piece in string_pieces(body) {
        match piece {
            StringPiece::Plain(plain) => text.push_str(plain),
            StringPiece::Char(escaped) => text.push(escaped),
        }
    }
    text
}

/// Decodes the escape at the start of `body`; returns the character and the length of the escape.
fn decode_escape(body: &str) -> (char, usize) {
    let simple = match body.as_bytes().get(1) {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => return decode_unicode(body.as_bytes()),
        Some(&other) => char::from(other),
        None => char::REPLACEMENT_CHARACTER,
    };
    (simple, 2)
}

fn decode_unicode(body: &[u8]) -> (char, usize) {
    let unit = parse_escaped_code_unit(body, 0).unwrap_or(0xfffd);
    let pair = [unit, parse_escaped_code_unit(body, 6).unwrap_or(0)];
    if (0xd800..0xdc00).contains(&unit) {
        let both = char::decode_utf16(pair).next().and_then(Result::ok);
        return (both.unwrap_or(char::REPLACEMENT_CHARACTER), 12);
    }
    (char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER), 6)
}
