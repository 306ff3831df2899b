//! Documents of stored responses: the items of a conversation and the response object, as JSON text.

use crate::json_cursor::{elements, is_array, is_object, member_value, members, parse_string, string_body};
use penstock_core::StoredInput;
use std::io::Write as _;

/// Statuses of responses that have an answer, so that they are stored and can be continued.
pub(crate) const STORED_STATUSES: [&str; 2] = ["completed", "incomplete"];

/// Document of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredResponse<'a> {
    /// Input items of the whole conversation, including earlier answers: a JSON array.
    pub input_items: &'a [u8],
    /// Response object.
    pub response: &'a [u8],
}

impl<'a> StoredResponse<'a> {
    /// Reads a document; `None` if it is invalid.
    #[must_use]
    pub fn parse(document: &'a [u8]) -> Option<Self> {
        let input_items = member_value(document, "input").filter(|items| is_array(items))?;
        let response = member_value(document, "response").filter(|response| is_object(response))?;
        Some(Self { input_items, response })
    }

    /// Returns the items of the conversation and of its answer, as elements of a JSON array without brackets.
    #[must_use]
    pub fn conversation_items(&self) -> Vec<u8> {
        let output = member_value(self.response, "output").unwrap_or_default();
        let mut out = Vec::with_capacity(self.input_items.len() + output.len());
        for item in elements(self.input_items).chain(elements(output)) {
            if !out.is_empty() {
                out.push(b',');
            }
            out.extend_from_slice(item);
        }
        out
    }
}

/// Returns the response object from a buffered answer, or from the last event of a stream. `None` if its status is
/// neither `completed` nor `incomplete`.
#[must_use]
pub fn storable_response(answer: &[u8]) -> Option<&[u8]> {
    let response = if is_object(answer) { answer } else { last_event_response(answer)? };
    let status = parse_string(member_value(response, "status")?)?;
    STORED_STATUSES.contains(&&*status).then_some(response)
}

/// Returns the response object in the last server-sent event.
fn last_event_response(stream: &[u8]) -> Option<&[u8]> {
    let last = stream.split(|byte| *byte == b'\n').rfind(|line| line.starts_with(b"data: "))?;
    member_value(last.strip_prefix(b"data: ")?, "response")
}

/// Builds the document of a response. Input items get the members that the dialect requires when items are listed: a
/// type, an id and, for messages, a status and a list of content parts. `unique` is the unique part of the response id.
#[must_use]
pub fn build_document(input: &StoredInput, response: &[u8], unique: &str) -> Vec<u8> {
    let size = input.previous_items.len() + input.input.len() + response.len();
    let mut out = Vec::with_capacity(size + size / 16 + 256);
    out.extend_from_slice(b"{\"input\":[");
    out.extend_from_slice(&input.previous_items);
    let is_first = input.previous_items.is_empty();
    if string_body(&input.input).is_some() {
        out.extend_from_slice(if is_first { b"" } else { b"," });
        write_text_message(&input.input, unique, &mut out);
    } else {
        for (index, item) in elements(&input.input).enumerate() {
            out.extend_from_slice(if is_first && index == 0 { b"" } else { b"," });
            write_item(item, index, unique, &mut out);
        }
    }
    out.extend_from_slice(b"],\"response\":");
    out.extend_from_slice(response);
    out.push(b'}');
    out
}

fn write_text_message(text: &[u8], unique: &str, out: &mut Vec<u8>) {
    write_id("message", 0, unique, out);
    out.extend_from_slice(br#","type":"message","status":"completed","role":"user","content":"#);
    write_content(text, "user", out);
    out.push(b'}');
}

/// Writes an item and adds the required members that are absent.
fn write_item(item: &[u8], index: usize, unique: &str, out: &mut Vec<u8>) {
    let text = |name: &str| member_value(item, name).and_then(parse_string);
    let kind = text("type").unwrap_or_else(|| "message".into());
    let role = text("role").unwrap_or_default();
    let is_message = kind == "message";
    match member_value(item, "id") {
        Some(id) => {
            out.extend_from_slice(b"{\"id\":");
            out.extend_from_slice(id);
        }
        None => write_id(&kind, index, unique, out),
    }
    // Writing to a Vec cannot fail.
    if member_value(item, "type").is_none() {
        let _ = write!(out, r#","type":"message""#);
    }
    if is_message && member_value(item, "status").is_none() {
        let _ = write!(out, r#","status":"completed""#);
    }
    for (name, value) in members(item) {
        // A `type` or `status` that is `null` was replaced above.
        if name == "id" || (value == b"null" && (name == "type" || name == "status")) {
            continue;
        }
        out.push(b',');
        penstock_json_scan::json::write_str(out, &name);
        out.push(b':');
        if is_message && name == "content" {
            write_content(value, &role, out)
        } else {
            out.extend_from_slice(value)
        }
    }
    out.push(b'}');
}

/// Writes the start of an item with a new id.
fn write_id(kind: &str, index: usize, unique: &str, out: &mut Vec<u8>) {
    let prefix = match kind {
        "message" => "msg",
        "function_call" => "fc",
        "function_call_output" => "fco",
        "custom_tool_call" => "ctc",
        "custom_tool_call_output" => "ctco",
        "reasoning" => "rs",
        _ => "item",
    };
    let _ = write!(out, r#"{{"id":"{prefix}_{unique}in{index}""#);
}

/// Writes the content of a message. A string becomes a list with one part.
fn write_content(content: &[u8], role: &str, out: &mut Vec<u8>) {
    match string_body(content) {
        None => out.extend_from_slice(content),
        Some(_) => write_text_part(content, role == "assistant", out),
    }
}

/// Writes content with one part, whose text is a JSON string.
pub(crate) fn write_text_part(text: &[u8], is_answer: bool, out: &mut Vec<u8>) {
    let (kind, more) =
        if is_answer { ("output_text", r#","annotations":[],"logprobs":[]"#) } else { ("input_text", "") };
    let _ = write!(out, r#"[{{"type":"{kind}","text":"#);
    out.extend_from_slice(text);
    let _ = write!(out, "{more}}}]");
}

/// Page of the items of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemPage<'a> {
    /// Items of the page.
    pub items: Vec<&'a [u8]>,
    /// True if more items follow.
    pub has_more: bool,
}

/// Returns a page of at most `limit` items of a JSON array, in ascending or descending order, starting after the item
/// with the id `after`. Returns `None` if there is no such item.
#[must_use]
pub fn item_page<'a>(
    array: &'a [u8],
    after: Option<&str>,
    is_ascending: bool,
    limit: usize,
) -> Option<ItemPage<'a>> {
    let mut items: Vec<&[u8]> = elements(array).collect();
    if !is_ascending {
        items.reverse();
    }
    let start = match after {
        None => 0,
        Some(after) => 1 + items.iter().position(|item| item_id(item).is_some_and(|id| id == after))?,
    };
    let rest = items.split_off(start.min(items.len()));
    let has_more = rest.len() > limit;
    Some(ItemPage { items: rest.into_iter().take(limit).collect(), has_more })
}

/// Returns the id of a conversation item.
#[must_use]
pub fn item_id(item: &[u8]) -> Option<std::borrow::Cow<'_, str>> {
    member_value(item, "id").and_then(parse_string)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use bytes::Bytes;
    use serde_json::{Value, json};

    fn document(previous: &str, input: &Value, response: &Value) -> Vec<u8> {
        let input = StoredInput {
            previous_items: Bytes::from(previous.to_owned()),
            input: Bytes::from(input.to_string()),
        };
        build_document(&input, response.to_string().as_bytes(), "abc")
    }

    fn items(document: &[u8]) -> Value {
        serde_json::from_slice::<Value>(document).unwrap()["input"].clone()
    }

    #[test]
    fn a_text_becomes_a_message_with_an_id() {
        let stored = document("", &json!("Hi \"you\"\n"), &json!({"output": []}));
        let content = json!([{"type": "input_text", "text": "Hi \"you\"\n"}]);
        let message = json!({"id": "msg_abcin0", "type": "message", "status": "completed", "role": "user",
            "content": content});
        assert_eq!(items(&stored), json!([message]));
    }

    #[test]
    fn items_get_the_members_that_they_lack() {
        let input = json!([
            {"role": "assistant", "content": "Yes", "status": null},
            {"type": "function_call_output", "call_id": "c", "output": "1", "id": null},
            {"type": "message", "id": "msg_own", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        ]);
        let stored = items(&document("", &input, &json!({})));
        assert_eq!(stored[0]["content"][0]["type"], "output_text");
        assert_eq!((&stored[0]["id"], &stored[0]["type"]), (&json!("msg_abcin0"), &json!("message")));
        assert_eq!(stored[0]["status"], "completed");
        assert_eq!((&stored[1]["id"], &stored[1]["output"]), (&json!("fco_abcin1"), &json!("1")));
        assert_eq!((&stored[2]["id"], &stored[2]["content"]), (&json!("msg_own"), &input[2]["content"]));
    }

    #[test]
    fn a_conversation_has_the_earlier_items_the_input_and_the_answer() {
        let answer = json!({"output": [{"id": "msg_2", "role": "assistant"}]});
        let first = document("", &json!("One"), &answer);
        let conversation = StoredResponse::parse(&first).unwrap().conversation_items();
        let second =
            document(std::str::from_utf8(&conversation).unwrap(), &json!("Two"), &json!({"output": []}));
        let stored = StoredResponse::parse(&second).unwrap();
        assert_eq!(items(&second).as_array().unwrap().len(), 3);
        assert_eq!(stored.conversation_items(), stored.input_items[1..stored.input_items.len() - 1].to_vec());
        assert_eq!(StoredResponse::parse(b"{\"input\":{}}"), None);
    }

    #[test]
    fn the_response_is_found_in_a_body_and_in_the_end_of_a_stream() {
        let body = br#"{"id":"resp_1","status":"incomplete","output":[]}"#;
        assert_eq!(storable_response(body), Some(&body[..]));
        let event = |status: &str| {
            format!(
                "event: a\ndata: {{\"x\":1}}\n\nevent: b\ndata: {{\"response\":{{\"status\":\"{status}\"}}}}\n\n"
            )
        };
        assert_eq!(storable_response(event("completed").as_bytes()), Some(&br#"{"status":"completed"}"#[..]));
        for other in [event("failed"), "data: {\"code\":1}\n\n".to_owned(), String::new()] {
            assert_eq!(storable_response(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn pages_follow_each_other_in_both_orders() {
        let array = br#"[{"id":"a"},{"id":"b"},{"id":"c"}]"#;
        let ids = |after: Option<&str>, ascending: bool, limit: usize| {
            let page = item_page(array, after, ascending, limit).unwrap();
            let ids: Vec<String> =
                page.items.iter().map(|item| item_id(item).unwrap().into_owned()).collect();
            (ids.concat(), page.has_more)
        };
        assert_eq!(ids(None, true, 2), ("ab".into(), true));
        assert_eq!(ids(Some("b"), true, 2), ("c".into(), false));
        assert_eq!(ids(None, false, 1), ("c".into(), true));
        assert_eq!(ids(Some("c"), false, 5), ("ba".into(), false));
        assert_eq!(ids(Some("a"), false, 5), (String::new(), false));
        assert_eq!(item_page(array, Some("x"), true, 5), None);
    }
}
