//! References (`item_reference`) to items of stored responses, which clients send instead of the complete items.

use crate::json_cursor::{elements, member_value, parse_string};
use crate::stored_response::{StoredResponse, item_id};
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum number of references in a request.
pub const MAX_REFERENCES: usize = 1024;

/// Reference in the input of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemReference {
    /// Position of the reference in the array `input`.
    pub index: usize,
    /// Id of the item.
    pub id: String,
}

impl ItemReference {
    /// Returns the id of the response to which the item belongs; `None` if the gateway did not create the id.
    #[must_use]
    pub fn response_id(&self) -> Option<String> {
        let (_, rest) = self.id.split_once('_')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // Ids of items in an answer, and of items in an input, have different forms.
        let split = rest.rsplit_once('_').or_else(|| rest.rsplit_once("in"));
        let (unique, _) = split.filter(|(unique, index)| !unique.is_empty() && is_number(index))?;
        Some(format!("resp_{unique}"))
    }
}

/// Returns the references in a body, which need not be valid; at most one more than [`MAX_REFERENCES`].
#[must_use]
pub fn find_references(body: &[u8]) -> Vec<ItemReference> {
    let input = member_value(body, "input").unwrap_or_default();
    let references = elements(input).enumerate().filter_map(|(index, item)| {
        let kind = member_value(item, "type").and_then(parse_string);
        let is_reference = match kind {
            Some(kind) => kind == "item_reference",
            // The type of a reference may be absent. All other items without a type have content or a role.
            None => ["role", "content"].iter().all(|name| member_value(item, name).is_none()),
        };
        Some(ItemReference { index, id: item_id(item).filter(|_| is_reference)?.into_owned() })
    });
    references.take(MAX_REFERENCES + 1).collect()
}

/// Returns the item with this id from the document of a stored response.
#[must_use]
pub fn find_item<'a>(document: &'a [u8], id: &str) -> Option<&'a [u8]> {
    let stored = StoredResponse::parse(document)?;
    let output = member_value(stored.response, "output").unwrap_or_default();
    elements(output)
        .chain(elements(stored.input_items))
        .find(|item| item_id(item).is_some_and(|own| own == id))
}

/// Replaces elements of `input` by items; each item is given with the index of the element, in ascending order.
#[must_use]
pub fn replace_references(body: &Bytes, items: &[(usize, Bytes)]) -> Bytes {
    let input = member_value(body, "input").unwrap_or_default();
    let added: usize = items.iter().map(|(_, item)| item.len()).sum();
    let mut out = Vec::with_capacity(body.len() + added);
    let mut copied = 0;
    let mut left = items.iter().peekable();
    for (index, element) in elements(input).enumerate() {
        let Some((_, item)) = left.next_if(|(at, _)| *at == index) else { continue };
        let start = element.as_ptr() as usize - body.as_ptr() as usize;
        out.extend_from_slice(body.get(copied..start).unwrap_or_default());
        out.extend_from_slice(item);
        copied = start + element.len();
    }
    out.extend_from_slice(body.get(copied..).unwrap_or_default());
    Bytes::from(out)
}

/// Returns true if an item of `input` has an id.
#[must_use]
pub fn has_item_ids(body: &[u8]) -> bool {
    elements(member_value(body, "input").unwrap_or_default()).any(|item| item_id(item).is_some())
}

/// Removes items of `input` that the conversation already has: those of a body that repeat an item of `previous_items`
/// (elements of a JSON array without brackets), or an earlier item of the body. Items are the same if they have the same
/// type and id, and the gateway created the id or their bytes are equal.
#[must_use]
pub fn remove_repeated_items(body: &Bytes, previous_items: &[u8]) -> Bytes {
    let input = member_value(body, "input").unwrap_or_default();
    let previous = [b"[", previous_items, b"]"].concat();
    let mut seen: HashMap<String, &[u8]> = HashMap::new();
    for item in elements(&previous) {
        item_id(item).map(|id| seen.entry(id.into_owned()).or_insert(item));
    }
    let mut kept = Vec::with_capacity(input.len());
    let mut has_repeated = false;
    for item in elements(input) {
        if let Some(id) = item_id(item).map(Cow::into_owned) {
            let earlier = *seen.entry(id.clone()).or_insert(item);
            if !std::ptr::eq(earlier, item) && is_same_item(&id, earlier, item) {
                has_repeated = true;
                continue;
            }
        }
        kept.extend_from_slice(if kept.is_empty() { b"[" } else { b"," });
        kept.extend_from_slice(item);
    }
    if !has_repeated {
        return body.clone();
    }
    kept.extend_from_slice(if kept.is_empty() { b"[]" } else { b"]" });
    let start = input.as_ptr() as usize - body.as_ptr() as usize;
    let (before, after) = (body.get(..start), body.get(start + input.len()..));
    Bytes::from([before.unwrap_or_default(), &kept, after.unwrap_or_default()].concat())
}

/// Returns true if two items with this id are the same.
fn is_same_item(id: &str, earlier: &[u8], later: &[u8]) -> bool {
    let kind = |item| member_value(item, "type").and_then(parse_string).unwrap_or(Cow::Borrowed("message"));
    let is_own_id = ItemReference { index: 0, id: id.to_owned() }.response_id().is_some();
    earlier == later || (is_own_id && kind(earlier) == kind(later))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use serde_json::{Value, json};

    fn reference(id: &str) -> ItemReference {
        ItemReference { index: 0, id: id.to_owned() }
    }

    #[test]
    fn an_id_names_its_response() {
        for (id, response) in [
            ("msg_4b8e_0", Some("resp_4b8e")),
            ("fco_4bin8ein12", Some("resp_4bin8e")),
            ("rs_4bin8e_3", Some("resp_4bin8e")),
            ("msg_own", None),
            ("msg__1", None),
            ("msg_in1", None),
            ("msg_4b8e_x", None),
            ("4b8e", None),
            ("", None),
        ] {
            assert_eq!(reference(id).response_id().as_deref(), response, "{id}");
        }
    }

    #[test]
    fn references_are_replaced_by_their_items() {
        let body = json!({"model": "m", "input": [
            {"type": "item_reference", "id": "msg_a_0"},
            {"role": "user", "content": "type item_reference"},
            {"id": "fc_a_1"},
            {"type": "item_reference", "id": 5},
            {"type": "message", "id": "msg_b_0", "role": "user", "content": "x"},
        ], "store": true});
        let body = Bytes::from(body.to_string());
        let found = find_references(&body);
        let ids: Vec<_> = found.iter().map(|one| (one.index, one.id.as_str())).collect();
        assert_eq!(ids, [(0, "msg_a_0"), (2, "fc_a_1")]);
        let items = [(0, Bytes::from("{\"a\":1}")), (2, Bytes::from("{\"b\":[2]}"))];
        let replaced: Value = serde_json::from_slice(&replace_references(&body, &items)).unwrap();
        assert_eq!((&replaced["input"][0]["a"], &replaced["input"][2]["b"][0]), (&json!(1), &json!(2)));
        assert_eq!((&replaced["input"][3]["id"], &replaced["store"]), (&json!(5), &json!(true)));
        assert_eq!(replace_references(&body, &[]), body);
    }

    #[test]
    fn repeated_items_are_removed() {
        let call =
            json!({"type": "function_call", "id": "fc_a_1", "call_id": "c", "name": "f", "arguments": "{}"});
        let own = json!({"type": "message", "id": "m1", "role": "user", "content": "Hi"});
        let question = json!({"type": "message", "id": "msg_ain0", "role": "user", "content": "Hi"});
        let short =
            json!({"id": "msg_ain0", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]});
        let output = json!({"type": "function_call_output", "call_id": "c", "output": "1"});
        let changed = json!({"type": "message", "id": "m1", "role": "user", "content": "Ho"});
        let previous = format!("{question},{call}");
        for (previous, input, left) in [
            ("", json!([call, call, output]), json!([call, output])),
            (&previous, json!([call, output, output]), json!([output, output])),
            (&previous, json!([short, call]), json!([])),
            ("", json!([own, changed, own]), json!([own, changed])),
            (
                &previous,
                json!([{"type": "reasoning", "id": "fc_a_1"}]),
                json!([{"type": "reasoning", "id": "fc_a_1"}]),
            ),
        ] {
            let body = Bytes::from(json!({"a": 1, "input": input, "z": 2}).to_string());
            assert!(has_item_ids(&body));
            let removed = remove_repeated_items(&body, previous.as_bytes());
            let expected = json!({"a": 1, "input": left, "z": 2});
            assert_eq!(serde_json::from_slice::<Value>(&removed).unwrap(), expected, "{body:?}");
        }
        for body in ["", "[]", "{\"input\":\"x\"}", "{\"input\":[{\"id\":", "{\"input\":[1,null,[]]}"] {
            assert_eq!(remove_repeated_items(&Bytes::from(body), b"{,"), body, "{body}");
            assert!(!has_item_ids(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn a_body_of_any_bytes_does_no_harm() {
        for body in
            ["", "[]", "{\"input\":\"x\"}", "{\"input\":[{\"id\":", "{\"input\":[1,null,[]]}", "\u{1}"]
        {
            assert!(find_references(body.as_bytes()).is_empty(), "{body}");
            assert_eq!(
                replace_references(&Bytes::from(body), &[(0, Bytes::from("x"))]).is_empty(),
                body.is_empty()
            );
        }
    }

    #[test]
    fn an_item_is_found_in_the_answer_and_in_the_input() {
        let document = json!({"input": [{"id": "msg_ain0"}], "response": {"output": [{"id": "msg_a_0"}]}});
        let document = document.to_string();
        for id in ["msg_ain0", "msg_a_0"] {
            assert_eq!(item_id(find_item(document.as_bytes(), id).unwrap()).unwrap(), id);
        }
        assert_eq!(find_item(document.as_bytes(), "msg_a_1"), None);
        assert_eq!(find_item(b"{}", "msg_a_0"), None);
    }
}
