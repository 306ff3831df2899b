//! Parsed members of a chunk, of its choices and of their messages. The values stay raw JSON.

use super::super::finish_reason;
use super::error_members::{self, ErrorMembers, is_truthy};
use crate::json_cursor::{self, JsonCursor};
use penstock_core::{MeasuredEnergy, ReasoningName, ReportedUsage};
use penstock_http_wire::usage;
use penstock_json_scan::json;
use std::convert::Infallible;

/// Members of a chunk. Choices that are no objects, or whose `delta` or `message` is no object, are `None`.
pub(super) struct ChunkMembers<'a> {
    pub(super) choices: Vec<Option<ChoiceMembers<'a>>>,
    pub(super) usage: Option<ReportedUsage>,
    pub(super) measured_energy: Option<MeasuredEnergy>,
    /// True if the chunk is an error.
    pub(super) is_failed: bool,
}

impl<'a> ChunkMembers<'a> {
    pub(super) fn parse(cursor: &mut JsonCursor<'a>) -> Self {
        let mut choices = Vec::with_capacity(1);
        let (mut usage, mut measured, mut failed) = (None, None, false);
        let mut error_members = ErrorMembers::default();
        let Ok(()) = cursor.visit_members::<Infallible>(|key, value| {
            match key {
                "choices" if finish_reason::is_empty_list_substitute(value) => choices.clear(),
                "choices" => {
                    choices.clear();
                    return value.visit_elements(|_, choice| {
                        // Some engines write null as the choice in a chunk that contains only the usage.
                        if choice.peek_byte() == Some(b'n')
                            && json_cursor::is_null(choice.clone().take_value())
                        {
                            choice.take_value();
                        } else {
                            choices.push(ChoiceMembers::parse(choice));
                        }
                        Ok(())
                    });
                }
                "error" => failed |= value.take_value() != b"null",
                "object" => failed |= json::json_string_equals(value.take_value(), "error"),
                "base_resp" => failed |= error_members::is_base_resp_error(value.take_value()),
                "usage" => usage = usage::parse_usage(value.take_value()).or(usage),
                "x_groq" => {
                    let value = value.take_value();
                    failed |= json_cursor::member_value(value, "error").is_some_and(error_members::is_truthy);
                    usage = usage.or_else(|| finish_reason::parse_groq_usage(value));
                }
                "energy" => measured = usage::parse_energy(value.take_value()).or(measured),
                "impact" => measured = usage::parse_impact_energy(value.take_value()).or(measured),
                _ => error_members.record_member(key, value.take_value()),
            }
            Ok(())
        });
        let is_failed = failed || (choices.is_empty() && error_members.is_error());
        Self { choices, usage, measured_energy: measured, is_failed }
    }
}

/// Members of an element of `choices`, with raw values.
#[derive(Default)]
pub(super) struct ChoiceMembers<'a> {
    pub(super) index: Option<&'a [u8]>,
    pub(super) message: Option<MessageMembers<'a>>,
    pub(super) finish_reason: Option<&'a [u8]>,
    pub(super) stop_sequence: Option<&'a [u8]>,
    pub(super) logprobs: Option<&'a [u8]>,
    pub(super) text: Option<&'a [u8]>,
    pub(super) usage: Option<&'a [u8]>,
    pub(super) error: Option<&'a [u8]>,
    /// Member `message` of a choice that also has a `delta`: some engines repeat the whole answer in the last chunk.
    pub(super) whole_message: Option<MessageMembers<'a>>,
    pub(super) has_delta: bool,
}

/// Members of a `delta` or `message`, with raw values.
#[derive(Clone, Copy, Default)]
pub(super) struct MessageMembers<'a> {
    pub(super) content: Option<&'a [u8]>,
    pub(super) reasoning: Option<&'a [u8]>,
    pub(super) reasoning_name: Option<ReasoningName>,
    /// List of reasoning parts, which most engines send in addition to the text of the reasoning.
    pub(super) reasoning_details: Option<&'a [u8]>,
    pub(super) refusal: Option<&'a [u8]>,
    pub(super) tool_calls: Option<&'a [u8]>,
    pub(super) function_call: Option<&'a [u8]>,
}

impl<'a> ChoiceMembers<'a> {
    /// Parses a choice; returns `None` if it is no object, or its message is no object.
    pub(super) fn parse(element: &mut JsonCursor<'a>) -> Option<Self> {
        if element.peek_byte() != Some(b'{') {
            return None;
        }
        let mut parts = Self::default();
        let (mut delta, mut message, mut odd) = (None, None, false);
        let Ok(()) = element.visit_members::<Infallible>(|key, value| {
            match key {
                "delta" if value.peek_byte() == Some(b'{') => delta = Some(MessageMembers::parse(value)),
                "message" if value.peek_byte() == Some(b'{') => message = Some(MessageMembers::parse(value)),
                "delta" | "message" => odd |= !json_cursor::is_null(value.take_value()),
                _ => parts.set_member(key, value.take_value()),
            }
            Ok(())
        });
        parts.has_delta = delta.is_some();
        parts.whole_message = message.filter(|_| delta.is_some());
        parts.message = delta.or(message);
        (!odd).then_some(parts)
    }

    fn set_member(&mut self, key: &str, value: &'a [u8]) {
        match key {
            _ if value == b"null" => {}
            "index" => self.index = Some(value),
            "finish_reason" => self.finish_reason = Some(value),
            "stop_reason" | "matched_stop" => self.stop_sequence = Some(value),
            "logprobs" => self.logprobs = Some(value),
            "text" => self.text = Some(value),
            "usage" => self.usage = Some(value),
            "error" => self.error = Some(value).filter(|error| is_truthy(error)),
            _ => {}
        }
    }
}

impl<'a> MessageMembers<'a> {
    fn parse(message: &mut JsonCursor<'a>) -> Self {
        let mut members = Self::default();
        let Ok(()) = message.visit_members::<Infallible>(|key, value| {
            let value = value.take_value();
            match key {
                _ if value == b"null" || value == b"\"\"" => {}
                "content" => members.content = Some(value),
                // An engine that sends both names gives both the same text, so that either can be read.
                "reasoning_content" | "reasoning" => {
                    members.reasoning = members.reasoning.or(Some(value));
                    // Engines that send both names also accept the older one, `reasoning_content`, in later requests.
                    // So the older name is recorded.
                    let is_reasoning = key == "reasoning" && members.reasoning_name.is_none();
                    let name =
                        if is_reasoning { ReasoningName::Reasoning } else { ReasoningName::ReasoningContent };
                    members.reasoning_name = Some(name);
                }
                // Engines ignore members of these names in the messages of later requests, so the name is not
                // recorded.
                "thinking" | "reasoning_text" if matches!(value.first(), Some(b'"' | b'{' | b'[')) => {
                    members.reasoning = members.reasoning.or(Some(value));
                }
                "reasoning_details" => members.reasoning_details = Some(value),
                "refusal" => members.refusal = Some(value),
                "tool_calls" => members.tool_calls = Some(value),
                "function_call" => members.function_call = Some(value),
                _ => {}
            }
            Ok(())
        });
        members
    }
}
