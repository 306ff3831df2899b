//! Members that clients require in each message, completed in the answer of a messages provider.

use super::repair::json_string;
use crate::document_patches::DocumentPatches;
use crate::json_cursor;
use penstock_json_scan::json;

/// Sets the client's model name, the type and the role of a message, and its id if it is absent, empty or no string;
/// `id` is the unique part of a new id. The message must have a member.
pub(super) fn complete_message(patches: &mut DocumentPatches<'_>, message: &[u8], model: &str, id: &str) {
    let is_text = |value: &[u8]| json_cursor::string_body(value).is_some_and(|text| !text.is_empty());
    set_all(patches, message, "id", is_text, json_string(&format!("msg_{id}")));
    for (name, word) in [("type", "message"), ("role", "assistant")] {
        set_all(patches, message, name, |value| json::json_string_equals(value, word), json_string(word));
    }
    set_all(patches, message, "model", |_| false, json_string(model));
}

/// Sets a member to null if it is absent.
pub(super) fn add_null(patches: &mut DocumentPatches<'_>, message: &[u8], name: &str) {
    set_all(patches, message, name, |_| true, b"null".to_vec());
}

/// Replaces each value of the member `name` that is not sound, and adds the member if it is absent.
fn set_all(
    patches: &mut DocumentPatches<'_>,
    message: &[u8],
    name: &str,
    is_sound: impl Fn(&[u8]) -> bool,
    value: Vec<u8>,
) {
    let mut is_absent = true;
    for (_, reported) in json_cursor::members(message).filter(|(key, _)| key == name) {
        is_absent = false;
        if !is_sound(reported) {
            patches.replace(reported, value.clone());
        }
    }
    if is_absent {
        patches.set_member(message, name, None, value);
    }
}
