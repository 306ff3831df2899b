//! Options shared by streamed and buffered messages: identity, usage and stop reason.

use crate::event::EscapedText;
use crate::write::ResponseIdentity;
use penstock_core::{
    AttemptTarget, FinishReason, InferenceRequest, ReportedUsage, ThinkingDisplay, TokenUsage,
};
use penstock_json_scan::json;
use std::io::Write as _;

/// Keepalive event.
pub(super) const PING_EVENT: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";

/// Options of the writer for one client request.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    pub(super) identity: ResponseIdentity,
    pub(super) thinking: ThinkingDisplay,
    /// Estimate of the prompt tokens, for an opening event that is written before the provider reports any usage.
    pub(super) prompt_tokens: u64,
}

impl WriterOptions {
    /// Returns the writer options for the answer to a request.
    #[must_use]
    pub fn from_request(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Self {
        // Latin text has about 3.6 bytes per token. The usage at the end of the answer replaces this estimate.
        let prompt_tokens = (ask.prompt_bytes as u64).saturating_mul(10) / 36 + 4;
        Self { identity: ResponseIdentity::from_target(target), thinking: ask.thinking, prompt_tokens }
    }

    /// Writes `"id":…,"type":…,"role":…,"model":…`.
    pub(super) fn write_identity(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#""id":"msg_"#);
        json::write_escaped(out, &self.identity.id);
        out.extend_from_slice(br#"","type":"message","role":"assistant","model":"#);
        json::write_str(out, &self.identity.model);
    }

    /// Returns the usage for the opening event: the reported input, or else the estimate of the prompt tokens.
    pub(crate) fn message_start_usage(&self, reported: Option<&ReportedUsage>) -> TokenUsage {
        let reported =
            reported.and_then(|stated| Some((stated.input.filter(|input| *input > 0)?, stated.cached)));
        let (input, cached) = reported.unwrap_or((self.prompt_tokens, 0));
        TokenUsage { input, cached, ..TokenUsage::default() }
    }

    /// Writes the opening event and then a ping, as the vendor of the dialect does.
    pub(super) fn write_message_start(&self, reported: Option<&ReportedUsage>, out: &mut Vec<u8>) {
        let opening = self.message_start_usage(reported);
        out.extend_from_slice(b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{");
        self.write_identity(out);
        out.extend_from_slice(br#","content":[],"stop_reason":null,"stop_sequence":null,"usage":"#);
        write_usage(&opening, out);
        out.extend_from_slice(b"}}\n\n");
        out.extend_from_slice(PING_EVENT);
    }
}

/// Writes the usage object of the messages dialect, whose input tokens exclude cached tokens.
pub(crate) fn write_usage(usage: &TokenUsage, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(
        out,
        r#"{{"input_tokens":{},"output_tokens":{},"cache_creation_input_tokens":0,"cache_read_input_tokens":{}"#,
        usage.input.saturating_sub(usage.cached),
        usage.output,
        usage.cached,
    );
    if usage.reasoning > 0 {
        let _ = write!(out, r#","output_tokens_details":{{"thinking_tokens":{}}}"#, usage.reasoning);
    }
    out.push(b'}');
}

/// Returns the stop reason of the messages dialect for a finish reason. `called` is true if the answer has tool calls.
pub(crate) const fn stop_reason(
    reason: FinishReason,
    stop: Option<&EscapedText>,
    called: bool,
) -> &'static str {
    match (reason, stop) {
        (FinishReason::ToolCalls, _) => "tool_use",
        (FinishReason::Stop, _) if called => "tool_use",
        (FinishReason::Stop, Some(_)) => "stop_sequence",
        (FinishReason::Stop, None) => "end_turn",
        (FinishReason::Length, _) => "max_tokens",
        (FinishReason::ContextWindow, _) => "model_context_window_exceeded",
        (FinishReason::ContentFilter, _) => "refusal",
    }
}

/// Writes `"stop_reason":…,"stop_sequence":…`, and details of a refusal.
pub(crate) fn write_stop_members(
    reason: FinishReason,
    stop: Option<&EscapedText>,
    called: bool,
    out: &mut Vec<u8>,
) {
    let name = stop_reason(reason, stop, called);
    out.extend_from_slice(br#""stop_reason":""#);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(br#"","stop_sequence":"#);
    match stop.filter(|_| name == "stop_sequence") {
        Some(stop) => {
            out.push(b'"');
            out.extend_from_slice(stop.escaped());
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
    if reason == FinishReason::ContentFilter {
        out.extend_from_slice(br#","stop_details":{"type":"refusal","category":null,"explanation":null}"#);
    }
}
