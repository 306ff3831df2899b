//! Reasoning items of stored responses with their text in sealed form (`encrypted_content`), for clients that send them
//! back without relying on the stored response.

use crate::json_cursor::{elements, is_null, member_value, members, parse_string};
use penstock_core::encode_opaque_reasoning;
use penstock_json_scan::json;
use std::borrow::Cow;

/// Returns the response object with the text of its reasoning items encoded in `encrypted_content`; `None` if no
/// reasoning item has a text that is not encoded already.
#[must_use]
pub fn seal_response_reasoning(response: &[u8]) -> Option<Vec<u8>> {
    let sealed: Vec<Option<Vec<u8>>> =
        elements(member_value(response, "output")?).map(seal_item_reasoning).collect();
    if sealed.iter().all(Option::is_none) {
        return None;
    }
    let size = sealed.iter().flatten().map(Vec::len).sum::<usize>();
    let mut out = Vec::with_capacity(response.len() + size);
    write_members(response, &mut out, |name, value, out| {
        if name != "output" {
            return out.extend_from_slice(value);
        }
        out.push(b'[');
        for (at, (item, sealed)) in elements(value).zip(&sealed).enumerate() {
            out.extend_from_slice(if at > 0 { b"," } else { b"" });
            out.extend_from_slice(sealed.as_deref().unwrap_or(item));
        }
        out.push(b']');
    });
    out.push(b'}');
    Some(out)
}

/// Returns a reasoning item with its text encoded in `encrypted_content`; `None` for other items, and for an item
/// that has no text or has `encrypted_content` already.
#[must_use]
pub fn seal_item_reasoning(item: &[u8]) -> Option<Vec<u8>> {
    let is_reasoning =
        member_value(item, "type").is_some_and(|kind| json::json_string_equals(kind, "reasoning"));
    let is_sealed = member_value(item, "encrypted_content").is_some_and(|value| !is_null(value));
    if !is_reasoning || is_sealed {
        return None;
    }
    let text = reasoning_text(item, "content").or_else(|| reasoning_text(item, "summary"))?;
    let sealed = encode_opaque_reasoning(&text);
    let mut out = Vec::with_capacity(item.len() + sealed.len() + 32);
    write_members(item, &mut out, |_, value, out| out.extend_from_slice(value));
    out.extend_from_slice(br#","encrypted_content":"#);
    json::write_str(&mut out, &sealed);
    out.push(b'}');
    Some(out)
}

/// Returns the texts of a list of parts, one per line; `None` if there is no text.
fn reasoning_text(item: &[u8], name: &str) -> Option<String> {
    let parts = elements(member_value(item, name)?);
    let texts: Vec<Cow<'_, str>> =
        parts.filter_map(|part| member_value(part, "text").and_then(parse_string)).collect();
    Some(texts.join("\n")).filter(|text| !text.is_empty())
}

/// Writes the start of an object with its members, except `encrypted_content` that is null.
fn write_members(object: &[u8], out: &mut Vec<u8>, write_value: impl Fn(&str, &[u8], &mut Vec<u8>)) {
    out.push(b'{');
    let start = out.len();
    for (name, value) in members(object) {
        if name == "encrypted_content" && is_null(value) {
            continue;
        }
        out.extend_from_slice(if out.len() > start { b"," } else { b"" });
        json::write_str(out, &name);
        out.push(b':');
        write_value(&name, value, out);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use penstock_core::decode_opaque_reasoning;
    use serde_json::{Value, json};

    fn sealed(item: &Value) -> Option<Value> {
        seal_item_reasoning(item.to_string().as_bytes()).map(|item| serde_json::from_slice(&item).unwrap())
    }

    #[test]
    fn reasoning_is_sealed_from_its_content_or_its_summary() {
        let text = "Think \"well\"";
        let part = json!({"type": "reasoning_text", "text": text});
        for item in [
            json!({"id": "rs_1", "type": "reasoning", "summary": [], "content": [part]}),
            json!({"type": "reasoning", "summary": [part], "encrypted_content": null}),
            json!({"type": "reasoning", "summary": [part], "content": []}),
        ] {
            let sealed = sealed(&item).unwrap();
            assert_eq!(
                decode_opaque_reasoning(sealed["encrypted_content"].as_str().unwrap()).as_deref(),
                Some(text)
            );
            assert_eq!((&sealed["id"], &sealed["content"]), (&item["id"], &item["content"]));
        }
        for other in [
            json!({"type": "message", "content": [part]}),
            json!({"type": "reasoning", "summary": [], "content": []}),
            json!({"type": "reasoning"}),
            json!({"type": "reasoning", "content": [part], "encrypted_content": "of another vendor"}),
        ] {
            assert_eq!(sealed(&other), None, "{other}");
        }
    }

    #[test]
    fn only_the_reasoning_of_a_response_changes() {
        let part = json!({"type": "reasoning_text", "text": "why"});
        let message = json!({"type": "message", "content": [{"type": "output_text", "text": "a"}]});
        let reasoning = json!({"type": "reasoning", "content": [part]});
        let response = json!({"id": "resp_1", "output": [reasoning, message], "usage": {"output": [1]}});
        let sealed: Value =
            serde_json::from_slice(&seal_response_reasoning(response.to_string().as_bytes()).unwrap())
                .unwrap();
        assert_eq!((&sealed["output"][1], &sealed["usage"]), (&message, &response["usage"]));
        assert!(sealed["output"][0]["encrypted_content"].is_string());
        for without in
            [json!({"output": [message]}), json!({"output": []}), json!({"output": null}), json!({})]
        {
            assert_eq!(seal_response_reasoning(without.to_string().as_bytes()), None);
        }
    }
}
