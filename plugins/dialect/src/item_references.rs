//! References (`item_reference`) to items of stored responses, which clients send instead of the complete items.

use crate::json_cursor::{elements, member_value, parse_string};
use crate::stored_response::{StoredResponse, item_id};
use bytes::Bytes;
use std::borrow::Cow;

/// Number of characters of the random part of a response id. The ids of its items contain the same random part.
pub const RESPONSE_ID_RANDOM_CHARS: usize = 24;
/// Characters of which the random part consists.
pub const RESPONSE_ID_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Maximum number of item references in a request.
pub const MAX_REFERENCES: usize = 1024;

/// Item reference in the input of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemReference {
    /// Position of the reference in the array `input`.
    pub index: usize,
    /// Id of the item; `None` if it is absent, empty or not a string.
    pub id: Option<String>,
}

impl ItemReference {
    /// Returns the id of the response to which the item belongs; `None` if the gateway did not create the id.
    #[must_use]
    pub fn response_id(&self) -> Option<String> {
        self.id.as_deref().and_then(response_id_of_item)
    }
}

/// Returns the id of the response to which the item with this id belongs; `None` if the gateway did not create the id.
#[must_use]
pub fn response_id_of_item(id: &str) -> Option<String> {
    let (_, rest) = id.split_once('_')?;
    let (unique, rest) = rest.split_at_checked(RESPONSE_ID_RANDOM_CHARS)?;
    // The id of an output item has `_` before its index, and the id of an input item has `in`.
    let index = rest.strip_prefix('_').or_else(|| rest.strip_prefix("in"))?;
    let is_own = !index.is_empty()
        && index.bytes().all(|byte| byte.is_ascii_digit())
        && unique.bytes().all(|byte| RESPONSE_ID_ALPHABET.contains(&byte));
    is_own.then(|| format!("resp_{unique}"))
}

/// Returns the item references in a request body that was not validated. Returns at most one more than
/// [`MAX_REFERENCES`], so that the caller can detect an excess.
#[must_use]
pub fn find_references(body: &[u8]) -> Vec<ItemReference> {
    let input = member_value(body, "input").unwrap_or_default();
    let references = elements(input).enumerate().filter_map(|(index, item)| {
        let kind = member_value(item, "type").and_then(parse_string);
        let is_reference = match kind {
            Some(kind) => kind == "item_reference",
            // An item without a type is a reference if it has an id, and neither content nor a role.
            None => {
                member_value(item, "id").is_some()
                    && ["role", "content"].iter().all(|name| member_value(item, name).is_none())
            }
        };
        let id = || item_id(item).filter(|id| !id.is_empty()).map(Cow::into_owned);
        is_reference.then(|| ItemReference { index, id: id() })
    });
    references.take(MAX_REFERENCES + 1).collect()
}

/// Returns the item with this id from the output or the input items in the document of a stored response.
#[must_use]
pub fn find_stored_item<'a>(document: &'a [u8], id: &str) -> Option<&'a [u8]> {
    let stored = StoredResponse::parse(document)?;
    let output = member_value(stored.response, "output").unwrap_or_default();
    elements(output)
        .chain(elements(stored.input_items))
        .find(|item| item_id(item).is_some_and(|own| own == id))
}

/// Returns the body with some elements of `input` replaced by items. Each element of `items` is the index in `input`
/// and the item for that position; the indices are in ascending order.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn an_id_names_its_response() {
        let unique = "in4bin7eabcdefghijkl2in3";
        let response = format!("resp_{unique}");
        for form in ["msg_*_0", "fco_*in12", "rs_*_3", "item_*_10"] {
            let id = form.replace('*', unique);
            assert_eq!(response_id_of_item(&id).as_ref(), Some(&response), "{id}");
        }
        for form in
            ["msg_*", "msg_*_", "msg_*in", "msg_*_x", "msg_*x_0", "msg_a*_0", "msg_*__0", "msg*_0", "*"]
        {
            let id = form.replace('*', unique);
            assert_eq!(response_id_of_item(&id), None, "{id}");
        }
        for id in [
            "item_user_1",
            "msg_own",
            "msg__1",
            "msg_4bin8e_0",
            "msg_ABCDEFGHIJKLabcdefghijkl_0",
            "msg_abcdefghijklmnopqrst0189_0",
            "msg_abcdefghijklmnopqrstuvw\u{e9}_0",
            "",
        ] {
            assert_eq!(response_id_of_item(id), None, "{id}");
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
        let ids: Vec<_> = found.iter().map(|one| (one.index, one.id.as_deref())).collect();
        assert_eq!(ids, [(0, Some("msg_a_0")), (2, Some("fc_a_1")), (3, None)]);
        let items = [(0, Bytes::from("{\"a\":1}")), (2, Bytes::from("{\"b\":[2]}"))];
        let replaced: Value = serde_json::from_slice(&replace_references(&body, &items)).unwrap();
        assert_eq!((&replaced["input"][0]["a"], &replaced["input"][2]["b"][0]), (&json!(1), &json!(2)));
        assert_eq!((&replaced["input"][3]["id"], &replaced["store"]), (&json!(5), &json!(true)));
        assert_eq!(replace_references(&body, &[]), body);
    }

    #[test]
    fn a_reference_may_have_no_usable_id() {
        for item in [
            json!({"type": "item_reference"}),
            json!({"type": "item_reference", "id": null}),
            json!({"type": "item_reference", "id": ""}),
            json!({"type": "item_reference", "id": ["msg_a_0"]}),
            json!({"type": null, "id": ""}),
            json!({"id": 7}),
        ] {
            let body = json!({"input": [item]}).to_string();
            assert_eq!(find_references(body.as_bytes()), [ItemReference { index: 0, id: None }], "{body}");
        }
        for item in [
            json!({}),
            json!({"type": null}),
            json!({"type": "message", "id": null}),
            json!({"call_id": "c"}),
        ] {
            let body = json!({"input": [item]}).to_string();
            assert_eq!(find_references(body.as_bytes()), [], "{body}");
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
            assert_eq!(item_id(find_stored_item(document.as_bytes(), id).unwrap()).unwrap(), id);
        }
        assert_eq!(find_stored_item(document.as_bytes(), "msg_a_1"), None);
        assert_eq!(find_stored_item(b"{}", "msg_a_0"), None);
    }
}
