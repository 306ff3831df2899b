//! Members that both chunks and buffered completions have.

use crate::write::ResponseIdentity;
use penstock_core::{FinishReason, TokenUsage};
use penstock_json_scan::json;

/// Writes `"id":…,"object":…,"created":…,"model":…`.
pub(super) fn write_identity(out: &mut Vec<u8>, identity: &ResponseIdentity, object: &str) {
    out.extend_from_slice(b"\"id\":");
    out.extend_from_slice(b"\"chatcmpl-");
    json::write_escaped(out, &identity.id);
    out.push(b'"');
    out.extend_from_slice(b",\"object\":\"");
    out.extend_from_slice(object.as_bytes());
    out.extend_from_slice(b"\",\"created\":");
    write_integer(identity.created, out);
    out.extend_from_slice(b",\"model\":");
    json::write_str(out, &identity.model);
}

/// Returns the name of the finish reason, one of the four names that the dialect has.
pub(crate) const fn finish_reason_name(finish: FinishReason) -> &'static [u8] {
    match finish {
        FinishReason::Stop => b"stop",
        FinishReason::Length | FinishReason::ContextWindow => b"length",
        FinishReason::ToolCalls => b"tool_calls",
        FinishReason::ContentFilter => b"content_filter",
    }
}

/// Writes the usage object, with integers only, because clients sum all its numbers.
pub(crate) fn write_usage(out: &mut Vec<u8>, usage: &TokenUsage) {
    let total = usage.input.saturating_add(usage.output);
    let parts: [(&str, u64, &str); 5] = [
        ("{\"prompt_tokens\":", usage.input, ""),
        (",\"completion_tokens\":", usage.output, ""),
        (",\"total_tokens\":", total, ""),
        (",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cached, "}"),
        (",\"completion_tokens_details\":{\"reasoning_tokens\":", usage.reasoning, "}}"),
    ];
    for (before, value, after) in parts {
        out.extend_from_slice(before.as_bytes());
        write_integer(value, out);
        out.extend_from_slice(after.as_bytes());
    }
}

/// Writes a comma and the Penstock objects (`environment_impact`, `billing_cost`), which are JSON members without
/// braces; writes nothing if `objects` is empty.
pub(crate) fn write_penstock_objects(out: &mut Vec<u8>, objects: &[u8]) {
    if !objects.is_empty() {
        out.push(b',');
        out.extend_from_slice(objects);
    }
}

/// Writes an integer in decimal digits.
pub(crate) fn write_integer(value: u64, out: &mut Vec<u8>) {
    if let Ok(small @ 0..=9) = u8::try_from(value) {
        out.push(b'0' + small);
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }
}
