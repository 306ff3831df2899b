//! Head of a form part: its name and file name.

use penstock_core::percent;
use std::borrow::Cow;

/// Maximum number of headers per part.
const MAX_PART_HEADERS: usize = 16;

/// Head of a form part, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartHead {
    /// Name of the part.
    pub name: String,
    /// True for a file, which has a `filename` or `filename*`, even an empty one.
    pub is_file: bool,
    /// File name; decoded if it was sent as `filename*`. `None` if the part has none that can be decoded.
    pub filename: Option<String>,
}

impl PartHead {
    /// Parses the lines between a delimiter and the content. `None` if they are invalid, or no `content-disposition`
    /// names the part.
    pub(super) fn parse(head: &[u8]) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_PART_HEADERS];
        let Ok(httparse::Status::Complete((_, headers))) = httparse::parse_headers(head, &mut headers) else {
            return None;
        };
        let disposition =
            headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-disposition"))?;
        let value = decode_text(disposition.value);
        let (kind, parameters) = value.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("form-data") {
            return None;
        }
        let extended = header_parameter(parameters, "filename*");
        let plain = header_parameter(parameters, "filename");
        let is_file = extended.is_some() || plain.is_some();
        let filename = extended.as_deref().and_then(decode_extended).or(plain);
        Some(Self { name: header_parameter(parameters, "name")?, is_file, filename })
    }
}

/// Decodes a header value: as UTF-8, or else as Latin-1, in which older clients send file names.
fn decode_text(value: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(value)
        .map_or_else(|_| Cow::Owned(value.iter().copied().map(char::from).collect()), Cow::Borrowed)
}

/// Decodes a value such as `UTF-8''na%C3%AFve.txt`; `None` for another charset or another form.
fn decode_extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_, text) = rest.split_once('\'')?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    percent::decode(text).map(Cow::into_owned)
}

/// Returns a parameter of a header such as `a=b; c="d\"e"`; `None` if it is missing, or if the header is malformed
/// before it.
pub(super) fn header_parameter(mut text: &str, name: &str) -> Option<String> {
    loop {
        text = text.trim_start_matches([' ', '\t', ';']);
        let (key, rest) = text.split_once('=')?;
        let (value, rest) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, rest) = rest.split_once(';').unwrap_or((rest, ""));
                (value.trim().to_owned(), rest)
            }
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        text = rest;
    }
}

/// Reads a quoted string up to the closing quote, and returns it with the remaining text; `None` if the closing quote
/// is missing. A backslash escapes only a quote or another backslash, because Windows file names contain backslashes
/// before other characters.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' if matches!(letters.peek(), Some((_, '"' | '\\'))) => {
                value.extend(letters.next().map(|(_, letter)| letter));
            }
            letter => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(head: &str) -> Option<PartHead> {
        PartHead::parse(format!("{head}\r\n\r\n").as_bytes())
    }

    #[test]
    fn names_and_files_as_clients_write_them() {
        let model = read("Content-Disposition: form-data; name=\"model\"").unwrap();
        assert_eq!((model.name.as_str(), model.is_file), ("model", false));
        for file in [
            "content-disposition: form-data; name=\"file\"; filename=\"C:\\audio\\a.mp3\"\r\nContent-Type: audio/mpeg",
            "Content-Disposition: form-data; filename=\"a;name=\\\"x\\\".wav\"; name=\"file\"",
            "Content-Disposition: form-data; name=file; filename*=UTF-8''na%C3%AFve.mp3",
            "Content-Type: audio/wav\r\nContent-Disposition: form-data; name=\"file\"; filename=\"\u{e9}\u{4e2d}.wav\"",
        ] {
            let part = read(file).unwrap();
            assert_eq!((part.name.as_str(), part.is_file), ("file", true), "{file}");
        }
    }

    #[test]
    fn a_files_name_is_read_in_both_forms() {
        let name = |parameters: &str| {
            read(&format!("Content-Disposition: form-data; name=\"file\"; {parameters}")).unwrap().filename
        };
        assert_eq!(name("filename=\"a \\\"b\\\".jsonl\"").as_deref(), Some("a \"b\".jsonl"));
        assert_eq!(
            name("filename*=UTF-8''na%C3%AFve%20%e4%b8%ad.jsonl").as_deref(),
            Some("na\u{ef}ve \u{4e2d}.jsonl")
        );
        assert_eq!(name("filename=x; filename*=utf-8'en'y%").as_deref(), Some("y%"));
        assert_eq!(name("filename*=UTF-8''%+f%4%zz+%c3%A9").as_deref(), Some("%+f%4%zz+\u{e9}"));
        assert_eq!(name("filename=x; filename*=ISO-8859-1''%E9").as_deref(), Some("x"));
        assert_eq!(name("filename*=UTF-8''%ff"), None);
        assert_eq!(name("filename=\"\"").as_deref(), Some(""));
    }

    #[test]
    fn a_files_name_may_be_latin_1() {
        let head = b"Content-Disposition: form-data; name=\"file\"; filename=\"na\xefve \x93.mp3\"\r\n\r\n";
        let part = PartHead::parse(head).unwrap();
        assert_eq!((part.name.as_str(), part.is_file), ("file", true));
        assert_eq!(part.filename.as_deref(), Some("na\u{ef}ve \u{93}.mp3"));
    }

    #[test]
    fn a_part_without_a_name_is_none() {
        for head in ["", "Content-Type: text/plain", "Content-Disposition: attachment; name=\"a\"", "a b: c"]
        {
            assert_eq!(read(head), None, "{head}");
        }
    }
}
