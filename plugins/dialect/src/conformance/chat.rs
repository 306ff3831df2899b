//! Conformance checker of a chat-completions stream. Each rule prevents an error of some client library.

mod check;
#[cfg(test)]
mod tests;

use check::ChatStreamChecker;
use penstock_http_wire::sse;
use serde_json::Value;

/// Checks a complete stream: only `data:` lines and comments, each chunk complete, choices that first appear in the
/// order of their indices, the role in the first chunk of each choice and in no other, tool calls complete, a finish
/// reason for each choice (or an error before any finish reason), usage in the last chunk (a chunk without choices if
/// `include_usage` is true), `[DONE]`.
///
/// # Errors
/// Returns the first violated rule as text.
pub fn check_chat_stream(stream: &[u8], include_usage: bool) -> Result<(), String> {
    let text = std::str::from_utf8(stream).map_err(|_| "the stream is not UTF-8")?;
    for line in text.split('\n') {
        if !(line.is_empty() || line.starts_with("data: ") || line.starts_with(':')) {
            return Err(format!("a line is neither data nor a comment: {line}"));
        }
    }
    if !text.ends_with("\n\n") {
        return Err("the last event has no blank line after it".to_owned());
    }
    let mut check = ChatStreamChecker::new(include_usage);
    let mut decoder = sse::SseDecoder::new(stream.len());
    decoder.push(bytes::Bytes::copy_from_slice(stream));
    while let Some(event) = decoder.next() {
        let event = event.map_err(|_| "an event is too long")?;
        if event.comment.is_some() && event.data.is_empty() {
            continue;
        }
        if &*event.data == b"[DONE]" {
            check.check_done()?;
            continue;
        }
        let value: Value =
            serde_json::from_slice(&event.data).map_err(|error| format!("an event is not JSON: {error}"))?;
        check.check_event(&value).map_err(|rule| format!("{rule}: {value}"))?;
    }
    check.check_end()
}
