//! Writers and readers of JSON fragments.

use bytes::Bytes;
use penstock_json_scan::json;

/// Appends a JSON array of JSON values, as shared chunks.
pub(crate) fn write_json_array(values: &[Bytes], out: &mut Vec<Bytes>) {
    out.push(Bytes::from_static(b"["));
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(Bytes::from_static(b","));
        }
        out.push(value.clone());
    }
    out.push(Bytes::from_static(b"]"));
}

/// Returns text as a JSON string.
pub(crate) fn json_string(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::write_str(&mut out, text);
    out
}

/// Parses the index of an item: an unsigned integer of digits only, which every JSON parser reads equally; `None` for
/// any other value.
pub(crate) fn parse_index(value: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(value).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
