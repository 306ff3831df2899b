//! Removal of those items of a request that are already part of the conversation.

use crate::item_references::response_id_of_item;
use crate::json_cursor::{elements, is_array, is_null, is_object, member_value, members, parse_string};
use crate::stored_response::item_id;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::HashMap;

/// Members of items that the model reads, or that assign a result to its tool call.
const CONTENT_MEMBERS: [&str; 10] = [
    "role",
    "content",
    "call_id",
    "name",
    "namespace",
    "arguments",
    "input",
    "output",
    "summary",
    "encrypted_content",
];
/// Members of content that clients drop or add although the content stays the same.
const IGNORED_MEMBERS: [&str; 2] = ["annotations", "logprobs"];
/// Maximum depth at which values whose bytes differ are compared by their JSON value. Deeper values with different
/// bytes count as different.
const MAX_DEPTH: u32 = 16;

/// Returns true if an item of `input` has an id.
#[must_use]
pub fn has_item_ids(body: &[u8]) -> bool {
    elements(member_value(body, "input").unwrap_or_default()).any(|item| item_id(item).is_some())
}

/// Returns a body without the items of `input` that repeat an item of `previous_items` (elements of a JSON array
/// without brackets) or an earlier item of the body. Only items with an id are compared. Two items with the same id
/// are the same if their bytes are equal, or if the gateway created the id, and the items have the same type and
/// content.
#[must_use]
pub fn remove_repeated_items(body: &Bytes, previous_items: &[u8]) -> Bytes {
    let input = member_value(body, "input").unwrap_or_default();
    let previous = [b"[", previous_items, b"]"].concat();
    let mut seen: HashMap<String, &[u8]> = HashMap::new();
    for item in elements(&previous) {
        item_id(item).map(|id| seen.entry(id.into_owned()).or_insert(item));
    }
    let mut retained = Vec::with_capacity(input.len());
    let mut has_repeated = false;
    for item in elements(input) {
        if let Some(id) = item_id(item).map(Cow::into_owned) {
            let earlier = *seen.entry(id.clone()).or_insert(item);
            if !std::ptr::eq(earlier, item) && is_same_item(&id, earlier, item) {
                has_repeated = true;
                continue;
            }
        }
        retained.extend_from_slice(if retained.is_empty() { b"[" } else { b"," });
        retained.extend_from_slice(item);
    }
    if !has_repeated {
        return body.clone();
    }
    retained.extend_from_slice(if retained.is_empty() { b"[]" } else { b"]" });
    let start = input.as_ptr() as usize - body.as_ptr() as usize;
    let (before, after) = (body.get(..start), body.get(start + input.len()..));
    Bytes::from([before.unwrap_or_default(), &retained, after.unwrap_or_default()].concat())
}

/// Returns true if two items with this id are the same item: the later one has no content that the earlier one lacks.
/// Content is compared although ids of the gateway are unique, because a client may change the content of an item and
/// keep its id.
fn is_same_item(id: &str, earlier: &[u8], later: &[u8]) -> bool {
    if earlier == later {
        return true;
    }
    let kind = |item| member_value(item, "type").and_then(parse_string).unwrap_or(Cow::Borrowed("message"));
    response_id_of_item(id).is_some()
        && kind(earlier) == kind(later)
        && CONTENT_MEMBERS.iter().all(|name| {
            let Some(value) = member_value(later, name) else { return true };
            member_value(earlier, name).is_some_and(|earlier| {
                is_same_value(earlier, value, MAX_DEPTH)
                    || single_text(earlier).is_some_and(|text| single_text(value) == Some(text))
            })
        })
}

/// Returns the text of content that is a string or a list of one part of text.
fn single_text(content: &[u8]) -> Option<Cow<'_, str>> {
    if !is_array(content) {
        return parse_string(content);
    }
    let mut parts = elements(content);
    let part = parts.next().filter(|_| parts.next().is_none())?;
    let kind = member_value(part, "type").and_then(parse_string)?;
    ["input_text", "output_text", "text"].contains(&&*kind).then_some(())?;
    member_value(part, "text").and_then(parse_string)
}

/// Returns true if two JSON values are equal apart from white space, escapes in strings, the order of members, members
/// that are `null`, and [`IGNORED_MEMBERS`]. Numbers are equal only if their bytes are.
fn is_same_value(one: &[u8], other: &[u8], depth: u32) -> bool {
    if one == other {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else { return false };
    if is_array(one) && is_array(other) {
        let (mut one, mut other) = (elements(one), elements(other));
        return loop {
            match (one.next(), other.next()) {
                (None, None) => break true,
                (Some(one), Some(other)) if is_same_value(one, other, depth) => {}
                _ => break false,
            }
        };
    }
    if is_object(one) && is_object(other) {
        let (one, other) = (sorted_members(one), sorted_members(other));
        return one.len() == other.len()
            && one.iter().zip(&other).all(|((name, value), (other_name, other_value))| {
                name == other_name && is_same_value(value, other_value, depth)
            });
    }
    parse_string(one).is_some_and(|text| parse_string(other) == Some(text))
}

/// Returns the members of an object that count in a comparison, sorted by name.
fn sorted_members(object: &[u8]) -> Vec<(Cow<'_, str>, &[u8])> {
    let mut members: Vec<_> = members(object)
        .filter(|(name, value)| !is_null(value) && !IGNORED_MEMBERS.contains(&&**name))
        .collect();
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    members
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use serde_json::{Value, json};

    const CALL: &str = "fc_abcdefghijklmnopqrstuvwx_1";
    const QUESTION: &str = "msg_abcdefghijklmnopqrstuvwxin0";
    const ANSWER: &str = "msg_abcdefghijklmnopqrstuvwx_0";

    /// Removes repeated items and returns the items that are left.
    fn left(previous: &str, input: &Value) -> Value {
        let body = Bytes::from(json!({"a": 1, "input": input, "z": 2}).to_string());
        assert!(has_item_ids(&body));
        let removed: Value =
            serde_json::from_slice(&remove_repeated_items(&body, previous.as_bytes())).unwrap();
        assert_eq!((&removed["a"], &removed["z"]), (&json!(1), &json!(2)), "{body:?}");
        removed["input"].clone()
    }

    #[test]
    fn repeated_items_are_removed() {
        let call =
            json!({"type": "function_call", "id": CALL, "call_id": "c", "name": "f", "arguments": "{}"});
        let own = json!({"type": "message", "id": "m1", "role": "user", "content": "Hi"});
        let question = json!({"type": "message", "id": QUESTION, "role": "user", "content": "Hi"});
        let untyped =
            json!({"id": QUESTION, "role": "user", "content": [{"type": "input_text", "text": "Hi"}]});
        let output = json!({"type": "function_call_output", "call_id": "c", "output": "1"});
        let changed = json!({"type": "message", "id": "m1", "role": "user", "content": "Ho"});
        let reasoning = json!({"type": "reasoning", "id": CALL});
        let previous = format!("{question},{call}");
        for (previous, input, expected) in [
            ("", json!([call, call, output]), json!([call, output])),
            (&previous, json!([call, output, output]), json!([output, output])),
            (&previous, json!([untyped, call]), json!([])),
            ("", json!([own, changed, own]), json!([own, changed])),
            (&previous, json!([reasoning]), json!([reasoning])),
        ] {
            assert_eq!(left(previous, &input), expected, "{input}");
        }
        for body in ["", "[]", "{\"input\":\"x\"}", "{\"input\":[{\"id\":", "{\"input\":[1,null,[]]}"] {
            assert_eq!(remove_repeated_items(&Bytes::from(body), b"{,"), body, "{body}");
            assert!(!has_item_ids(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn an_item_with_other_content_is_not_removed() {
        let message = |id: &str, role: &str, content: Value| json!({"type": "message", "id": id, "role": role, "content": content});
        let text = |text: &str| json!([{"type": "input_text", "text": text}]);
        let image = |url: &str| json!([{"type": "input_image", "image_url": url}]);
        let call = |arguments: &str, name: &str| json!({"type": "function_call", "id": CALL, "call_id": "c", "name": name, "arguments": arguments});
        for id in ["item_user_1", QUESTION, "m1"] {
            for (earlier, later) in [
                (message(id, "user", json!("Hi")), message(id, "user", json!("More"))),
                (message(id, "user", json!("Hi")), message(id, "user", text("More"))),
                (message(id, "user", json!("Hi")), message(id, "system", json!("Hi"))),
                (message(id, "user", text("Hi")), message(id, "user", json!([text("Hi")[0], text("Hi")[0]]))),
                (message(id, "user", image("a")), message(id, "user", image("b"))),
            ] {
                let (previous, input) = (earlier.to_string(), json!([later]));
                assert_eq!(left(&previous, &input), input, "{previous}");
                assert_eq!(left("", &json!([earlier, later])), json!([earlier, later]), "{previous}");
            }
        }
        for later in [call("{\"a\":1}", "f"), call("{}", "g")] {
            assert_eq!(left(&call("{}", "f").to_string(), &json!([later])), json!([later]));
        }
        let thought = json!({"type": "reasoning", "id": CALL, "summary": []});
        let full = json!({"type": "reasoning", "id": CALL, "summary": [], "encrypted_content": "x"});
        assert_eq!(left(&thought.to_string(), &json!([full])), json!([full]));
        assert_eq!(left(&full.to_string(), &json!([thought])), json!([]));
    }

    #[test]
    fn the_spelling_of_content_is_not_compared() {
        let stored = format!(
            r#"{{"id":"{ANSWER}","type":"message","status":"completed","role":"assistant",
            "content":[{{"type":"output_text","text":"\u0041n é","annotations":[],"logprobs":[]}}]}}"#
        );
        for content in [
            json!([{"text": "An é", "type": "output_text"}]),
            json!([{"type": "output_text", "text": "An é", "annotations": [{"type": "url_citation"}], "logprobs": null}]),
            json!("An é"),
        ] {
            let sent = json!({"role": "assistant", "content": content, "id": ANSWER});
            assert_eq!(left(&stored, &json!([sent])), json!([]), "{sent}");
        }
        let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
        assert!(!is_same_value(deep.as_bytes(), deep.replace('1', " 1").as_bytes(), MAX_DEPTH));
    }
}
