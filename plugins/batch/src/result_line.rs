//! Line of the output file, in one of two formats. The response body is copied byte for byte, except that line breaks
//! between its tokens become spaces, and the Unicode line breaks in its strings are escaped. So the result stays on one
//! line for readers that split lines at these too, such as `str.splitlines` of Python.

use memchr::memmem;

/// Format of a result line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultLineFormat {
    /// `{"id","custom_id","status_code","response","error":null}`: the body is the response.
    #[default]
    Flat,
    /// `{"id","custom_id","status_code","response":{"status_code","request_id","body"},"error":null}`.
    Nested,
}

/// Writes a result line with its line break. `id` has only letters, digits and `_`; `body` is the response body in
/// chunks, as a synchronous request would get it.
pub fn write_result_line<'b>(
    out: &mut Vec<u8>,
    form: ResultLineFormat,
    id: &str,
    custom_id: &str,
    status: u16,
    body: impl IntoIterator<Item = &'b [u8]>,
) {
    let line = out.len();
    let mut digits = itoa::Buffer::new();
    let status = digits.format(status).as_bytes();
    out.extend_from_slice(b"{\"id\":\"");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"\",\"custom_id\":");
    write_json_string(out, custom_id);
    out.extend_from_slice(b",\"status_code\":");
    out.extend_from_slice(status);
    out.extend_from_slice(b",\"response\":");
    if form == ResultLineFormat::Nested {
        out.extend_from_slice(b"{\"status_code\":");
        out.extend_from_slice(status);
        out.extend_from_slice(b",\"request_id\":\"");
        out.extend_from_slice(id.strip_prefix("batch_").unwrap_or(id).as_bytes());
        out.extend_from_slice(b"\",\"body\":");
    }
    let start = out.len();
    for piece in body {
        let from = out.len();
        out.extend_from_slice(piece);
        // Every line break is between JSON tokens, because a JSON string contains no raw line break.
        for byte in out.iter_mut().skip(from).filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
    }
    if out.len() == start {
        out.extend_from_slice(b"null");
    }
    if form == ResultLineFormat::Nested {
        out.push(b'}');
    }
    out.extend_from_slice(b",\"error\":null}\n");
    escape_unicode_line_breaks(out, line);
}

/// Escapes the characters next line (U+0085), line separator (U+2028) and paragraph separator (U+2029) from the position
/// `start`. In JSON they occur only inside strings.
fn escape_unicode_line_breaks(out: &mut Vec<u8>, start: usize) {
    const ESCAPES: [(&str, &str); 3] =
        [("\u{85}", "\\u0085"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")];
    for (character, escape) in ESCAPES {
        let line = out.get(start..).unwrap_or_default();
        let mut found = memmem::find_iter(line, character).peekable();
        if found.peek().is_none() {
            continue;
        }
        let (mut escaped, mut copied) = (Vec::with_capacity(line.len() + 64), 0);
        for at in found {
            escaped.extend_from_slice(line.get(copied..at).unwrap_or_default());
            escaped.extend_from_slice(escape.as_bytes());
            copied = at + character.len();
        }
        escaped.extend_from_slice(line.get(copied..).unwrap_or_default());
        out.truncate(start);
        out.append(&mut escaped);
    }
}

fn write_json_string(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, text).is_err() {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn a_body_stands_in_it_as_the_bytes_it_is() {
        let mut out = Vec::new();
        write_result_line(
            &mut out,
            ResultLineFormat::Flat,
            "batch_req_1",
            "a\"b",
            200,
            [&b"{\"x\":1.10,"[..], b"\"y\": \"\\n\"}"],
        );
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            "{\"id\":\"batch_req_1\",\"custom_id\":\"a\\\"b\",\"status_code\":200,\"response\":{\"x\":1.10,\"y\": \"\\n\"},\"error\":null}\n"
        );
    }

    #[test]
    fn a_line_stays_a_line() {
        let mut out = Vec::new();
        write_result_line(
            &mut out,
            ResultLineFormat::Flat,
            "r",
            "c",
            400,
            [&b"{\r\n  \"x\": [1,\n2]\n}\n"[..]],
        );
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["response"]["x"][1], 2);
        assert_eq!(value["status_code"], 400);
        assert!(value["error"].is_null());
    }

    #[test]
    fn unicode_line_breaks_are_escaped() {
        let text = "a\u{2028}b\u{2029}\u{2029}c\u{85}d \u{2019}\u{e9}\u{205}";
        let body = format!("{{\"x\":\"{text}\",\"y\u{2028}\":\"\\\\\u{2028}\"}}");
        for form in [ResultLineFormat::Flat, ResultLineFormat::Nested] {
            for cut in 0..=body.len() {
                let mut out = b"earlier \xe2\x80\xa8 line\n".to_vec();
                let before = out.clone();
                let pieces = [&body.as_bytes()[..cut], &body.as_bytes()[cut..]];
                write_result_line(&mut out, form, "r", text, 200, pieces);
                let line = out.strip_prefix(&before[..]).unwrap();
                let plain = std::str::from_utf8(line).unwrap();
                assert!(!plain.contains(['\u{85}', '\u{2028}', '\u{2029}']), "{plain}");
                let value: serde_json::Value = serde_json::from_str(plain).unwrap();
                let response = &value["response"];
                let body = if form == ResultLineFormat::Nested { &response["body"] } else { response };
                assert_eq!((&body["x"], &value["custom_id"]), (&text.into(), &text.into()));
                assert_eq!(body["y\u{2028}"], "\\\u{2028}");
            }
        }
    }

    #[test]
    fn the_nested_form_has_status_and_body_in_the_response() {
        for body in [&b"{\"x\":\n1}"[..], b""] {
            let mut out = Vec::new();
            write_result_line(&mut out, ResultLineFormat::Nested, "batch_req_7", "c", 429, [body]);
            assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            let response = &value["response"];
            assert_eq!((&response["status_code"], &response["request_id"]), (&429.into(), &"req_7".into()));
            assert_eq!(response["body"]["x"].as_u64(), if body.is_empty() { None } else { Some(1) });
            assert_eq!((&value["status_code"], &value["id"]), (&429.into(), &"batch_req_7".into()));
            assert!(value["error"].is_null());
        }
    }

    #[test]
    fn no_body_is_null() {
        let mut out = Vec::new();
        write_result_line(&mut out, ResultLineFormat::Flat, "r", "c", 503, []);
        assert!(serde_json::from_slice::<serde_json::Value>(&out).unwrap()["response"].is_null());
    }
}
