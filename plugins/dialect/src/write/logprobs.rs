//! Log probabilities with the members that clients require. Engines leave out `bytes`, `top_logprobs` or `refusal`,
//! and write null for a probability that they do not know.

use crate::json_cursor::{elements, is_array, is_null, is_object, members, parse_string};
use penstock_json_scan::json;
use std::borrow::Cow;
use std::io::Write as _;

/// Log probability of a token whose probability is unknown or almost 0, as defined by the dialect.
const UNLIKELY: &[u8] = b"-9999.0";

/// Value of `bytes` in a token whose bytes are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnknownBytes {
    /// Value `null`, in the chat dialect.
    Null,
    /// Empty list, in the responses dialect, which does not allow null.
    EmptyList,
}

/// Returns the object `logprobs` of a choice in the chat dialect, with all required members. An object that has them
/// is returned unchanged.
#[must_use]
pub(crate) fn complete_chat_logprobs(object: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let (mut has_content, mut has_refusal, mut is_changed) = (false, false, false);
    out.push(b'{');
    for (name, value) in members(object) {
        json::write_member_name(&mut out, &name);
        let is_list = match &*name {
            "content" => !std::mem::replace(&mut has_content, true),
            "refusal" => !std::mem::replace(&mut has_refusal, true),
            _ => false,
        };
        if is_list && is_array(value) {
            out.push(b'[');
            is_changed |= write_tokens(value, UnknownBytes::Null, &mut out);
            out.push(b']');
        } else {
            out.extend_from_slice(value);
        }
    }
    for (name, is_present) in [("content", has_content), ("refusal", has_refusal)] {
        if !is_present {
            is_changed = true;
            json::write_member_name(&mut out, name);
            out.extend_from_slice(b"null");
        }
    }
    out.push(b'}');
    if is_changed { Cow::Owned(out) } else { Cow::Borrowed(object) }
}

/// Writes the log probabilities of an output text in the responses dialect: the elements of the list, with all required
/// members.
pub(super) fn write_response_logprobs(list: &[u8], out: &mut Vec<u8>) {
    write_tokens(list, UnknownBytes::EmptyList, out);
}

/// Position of a token in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenPosition {
    /// Token of the answer.
    Answer,
    /// Token in `top_logprobs` of a token of the answer.
    Alternative,
}

/// Writes the tokens of a list of the answer, separated by commas. Returns true if a token has changed.
fn write_tokens(list: &[u8], unknown: UnknownBytes, out: &mut Vec<u8>) -> bool {
    write_list(list, TokenPosition::Answer, unknown, out)
}

/// Writes the tokens of a list. Elements that are not objects are left out.
fn write_list(list: &[u8], position: TokenPosition, unknown: UnknownBytes, out: &mut Vec<u8>) -> bool {
    let (mut is_changed, mut is_first) = (false, true);
    for token in elements(list) {
        if !is_object(token) {
            is_changed = true;
            continue;
        }
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        is_changed |= write_token(token, position, unknown, out);
    }
    is_changed
}

/// Writes a token with all required members. Returns true if it has changed.
fn write_token(token: &[u8], position: TokenPosition, unknown: UnknownBytes, out: &mut Vec<u8>) -> bool {
    let has_alternatives = position == TokenPosition::Answer;
    let mut is_changed = false;
    let (mut text, mut has_logprob, mut has_bytes, mut has_list) = (None, false, false, !has_alternatives);
    out.push(b'{');
    for (name, value) in members(token) {
        let is_valid = match &*name {
            "token" => {
                text = parse_string(value);
                text.is_some()
            }
            "logprob" => {
                has_logprob = !is_null(value);
                has_logprob
            }
            "bytes" => {
                has_bytes = is_array(value) || (is_null(value) && unknown == UnknownBytes::Null);
                has_bytes
            }
            "top_logprobs" if has_alternatives => {
                has_list = is_array(value);
                has_list
            }
            _ => true,
        };
        if !is_valid {
            is_changed = true;
            continue;
        }
        json::write_member_name(out, &name);
        if name == "top_logprobs" && has_alternatives {
            out.push(b'[');
            is_changed |= write_list(value, TokenPosition::Alternative, unknown, out);
            out.push(b']');
        } else {
            out.extend_from_slice(value);
        }
    }
    is_changed |= text.is_none() || !has_logprob || !has_bytes || !has_list;
    if text.is_none() {
        json::write_member_name(out, "token");
        out.extend_from_slice(b"\"\"");
    }
    if !has_logprob {
        json::write_member_name(out, "logprob");
        out.extend_from_slice(UNLIKELY);
    }
    if !has_bytes {
        json::write_member_name(out, "bytes");
        write_bytes(text.as_deref().unwrap_or_default(), unknown, out);
    }
    if !has_list {
        json::write_member_name(out, "top_logprobs");
        out.extend_from_slice(b"[]");
    }
    out.push(b'}');
    is_changed
}

/// Writes the bytes of a token's text. The bytes of a token that is only part of a character are unknown, because
/// engines write U+FFFD for it.
fn write_bytes(text: &str, unknown: UnknownBytes, out: &mut Vec<u8>) {
    let bytes = match (text.contains('\u{fffd}'), unknown) {
        (true, UnknownBytes::Null) => return out.extend_from_slice(b"null"),
        (true, UnknownBytes::EmptyList) => &[],
        (false, _) => text.as_bytes(),
    };
    out.push(b'[');
    for (at, byte) in bytes.iter().enumerate() {
        out.extend_from_slice(if at > 0 { b"," } else { b"" });
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{byte}");
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use serde_json::{Value, json};

    fn chat(object: &Value) -> Value {
        serde_json::from_slice(&complete_chat_logprobs(object.to_string().as_bytes())).unwrap()
    }

    #[test]
    fn complete_log_probabilities_are_unchanged() {
        for object in [
            r#"{"content": null, "refusal": null}"#,
            r#"{"content":[], "refusal":[], "more": 1}"#,
            r#"{"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [
                {"token": "a", "logprob": -0.5, "bytes": null, "id": 7}]}], "refusal": null}"#,
        ] {
            let complete = complete_chat_logprobs(object.as_bytes());
            assert!(matches!(complete, Cow::Borrowed(same) if same == object.as_bytes()), "{object}");
        }
    }

    #[test]
    fn missing_members_are_added_for_chat_clients() {
        let whole = json!({"token": "a\"", "logprob": -1, "bytes": [97, 34], "top_logprobs": []});
        for (token, expected) in [
            (json!({"token": "a\"", "logprob": -1}), whole.clone()),
            (json!({"token": "a\"", "logprob": -1, "bytes": [97, 34], "top_logprobs": null}), whole.clone()),
            (
                json!({"token": "é", "logprob": null, "bytes": null, "top_logprobs": [{"token": "b"}, 5]}),
                json!({"token": "é", "logprob": -9999.0, "bytes": null,
                    "top_logprobs": [{"token": "b", "logprob": -9999.0, "bytes": [98]}]}),
            ),
            (
                json!({"token": "\u{fffd}", "logprob": 0, "rank": 1}),
                json!({"token": "\u{fffd}", "logprob": 0, "rank": 1, "bytes": null, "top_logprobs": []}),
            ),
            (json!({}), json!({"token": "", "logprob": -9999.0, "bytes": [], "top_logprobs": []})),
        ] {
            let expected = json!({"content": [expected], "refusal": null});
            assert_eq!(chat(&json!({"content": [token]})), expected, "{token}");
            let (list, expected) =
                (json!({"refusal": [token]}), json!({"content": null, "refusal": expected["content"]}));
            assert_eq!(chat(&list), expected, "{token}");
        }
        assert_eq!(chat(&json!({"content": [null, "a"]})), json!({"content": [], "refusal": null}));
    }

    #[test]
    fn responses_clients_get_lists_of_bytes() {
        let list = json!([{"token": "a", "logprob": -1, "bytes": null}, 1, {"token": "\u{fffd}", "logprob": -2,
            "bytes": null, "top_logprobs": [{"token": "b", "logprob": -3}]}]);
        let mut out = Vec::new();
        write_response_logprobs(list.to_string().as_bytes(), &mut out);
        let written: Value = serde_json::from_slice(&[b"[", &out[..], b"]"].concat()).unwrap();
        assert_eq!(
            written,
            json!([{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []},
                {"token": "\u{fffd}", "logprob": -2, "bytes": [], "top_logprobs": [
                    {"token": "b", "logprob": -3, "bytes": [98]}]}])
        );
    }
}
