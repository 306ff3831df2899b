//! Decoder of a buffered response. It returns the same events as for a stream.

use super::{DecodedOutput, incomplete_reason, malformed_error};
use crate::classify;
use crate::decode::parse_finish_word;
use crate::event::AnswerEvent;
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::{FinishReason, MeasuredEnergy, ReportedUsage, UpstreamError, UpstreamErrorKind};
use penstock_http_wire::usage;
use penstock_json_scan::json;

/// Appends the events of a buffered response.
///
/// # Errors
/// Returns the errors of [`DialectDecoder::push`](crate::decode::DialectDecoder::push); `Malformed` also if the body is
/// no response, and `InBandError` for a failed or cancelled response without an error object.
pub fn decode_response(body: Bytes, events: &mut Vec<AnswerEvent>) -> Result<(), UpstreamError> {
    let response = json::trim(&body);
    let object = json_cursor::member_value(response, "object").and_then(json_cursor::parse_string);
    let output = json_cursor::member_value(response, "output");
    if object.as_deref() != Some("response") || output.is_none_or(|output| !json_cursor::is_array(output)) {
        // A failed response may have no output.
        let error = json_cursor::member_value(response, "error").filter(|error| !json_cursor::is_null(error));
        return Err(error.map_or_else(malformed_error, classify::classify_in_band_error));
    }
    events.push(AnswerEvent::Start);
    DecodedOutput::default().finish_response(&body, response, events)
}

/// Status of the response object in the last event or in a buffered answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndStatus {
    Completed,
    Incomplete(FinishReason),
    /// Response that has not ended.
    Running,
}

/// Members of the response object at the end of an answer.
pub(super) struct ResponseEnd<'a> {
    status: EndStatus,
    pub(super) output: Option<&'a [u8]>,
    pub(super) usage: Option<ReportedUsage>,
    pub(super) measured_energy: Option<MeasuredEnergy>,
}

impl<'a> ResponseEnd<'a> {
    /// Parses a response object.
    ///
    /// # Errors
    /// Returns the error of a failed response, also of an incomplete one whose reason is a failure, and `Malformed` for a
    /// member of an invalid type.
    pub(super) fn parse(response: &'a [u8]) -> Result<Self, UpstreamError> {
        let (mut status, mut details) = (None, None);
        let mut end = Self { status: EndStatus::Completed, output: None, usage: None, measured_energy: None };
        for (key, value) in json_cursor::members(response) {
            match &*key {
                _ if json_cursor::is_null(value) => {}
                "status" => status = Some(json_cursor::parse_string(value).ok_or_else(malformed_error)?),
                "error" => return Err(classify::classify_in_band_error(value)),
                "incomplete_details" => details = Some(value),
                "output" => end.output = Some(value),
                "usage" => end.usage = usage::parse_usage(value),
                "energy" => end.measured_energy = usage::parse_energy(value).or(end.measured_energy),
                "impact" => end.measured_energy = usage::parse_impact_energy(value).or(end.measured_energy),
                _ => {}
            }
        }
        end.status = match status.as_deref() {
            Some("failed" | "cancelled" | "expired") => {
                return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
            }
            Some("queued" | "in_progress") => EndStatus::Running,
            Some("incomplete") => {
                let reason = details.and_then(|details| json_cursor::member_value(details, "reason"));
                let reason = reason.and_then(json_cursor::parse_string).unwrap_or_default();
                EndStatus::Incomplete(incomplete_reason(&reason)?)
            }
            Some(status) => match parse_finish_word(status)? {
                FinishReason::Stop | FinishReason::ToolCalls => EndStatus::Completed,
                reason => EndStatus::Incomplete(reason),
            },
            None => EndStatus::Completed,
        };
        Ok(end)
    }

    /// Returns the finish reason; `None` if the response has not finished.
    pub(super) const fn finish_reason(&self, has_calls: bool) -> Option<FinishReason> {
        match self.status {
            EndStatus::Completed if has_calls => Some(FinishReason::ToolCalls),
            EndStatus::Completed => Some(FinishReason::Stop),
            EndStatus::Incomplete(reason) => Some(reason),
            EndStatus::Running => None,
        }
    }
}
