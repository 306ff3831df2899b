//! Members of an event of a streamed response.

use super::malformed_error;
use super::part::PartKind;
use crate::json_cursor;
use penstock_core::{MeasuredEnergy, UpstreamError};
use penstock_http_wire::usage;
use penstock_json_scan::json;
use std::borrow::Cow;

/// Known members of the data of an event. If a name is repeated, the last member counts, as in client libraries.
#[derive(Default)]
pub(super) struct EventMembers<'a> {
    /// Member `type`, empty if absent.
    pub(super) event_type: Cow<'a, str>,
    pub(super) output_index: Option<u64>,
    content_index: PartIndex,
    summary_index: PartIndex,
    delta: Option<&'a [u8]>,
    /// Name and value of the member with a complete text: `text`, `refusal` or `arguments`.
    whole: Option<(Cow<'a, str>, &'a [u8])>,
    pub(super) logprobs: Option<&'a [u8]>,
    pub(super) item: Option<&'a [u8]>,
    pub(super) part: Option<&'a [u8]>,
    pub(super) response: Option<&'a [u8]>,
    pub(super) error: Option<&'a [u8]>,
    pub(super) measured_energy: Option<MeasuredEnergy>,
    /// True if the data is one complete object.
    pub(super) is_complete: bool,
}

/// Index of a part of an output item, as an event gives it.
#[derive(Clone, Copy, Debug, Default)]
enum PartIndex {
    #[default]
    Absent,
    Valid(u64),
    Invalid,
}

impl PartIndex {
    fn parse(value: &[u8]) -> Self {
        json_cursor::parse_integer(value).map_or(Self::Invalid, Self::Valid)
    }
}

impl<'a> EventMembers<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Self {
        let mut seen = Self::default();
        let mut members = json::members(data);
        while let Some((key, value)) = members.next_raw() {
            let Some(key) = json::unescape(key) else { break };
            let present = Some(value).filter(|value| !json_cursor::is_null(value));
            match &*key {
                "type" => seen.event_type = json_cursor::parse_string(value).unwrap_or_default(),
                "output_index" => seen.output_index = json_cursor::parse_integer(value),
                "content_index" => seen.content_index = PartIndex::parse(value),
                "summary_index" => seen.summary_index = PartIndex::parse(value),
                "delta" => seen.delta = present,
                "text" | "refusal" | "arguments" => seen.whole = present.map(|value| (key, value)),
                "logprobs" => seen.logprobs = present,
                "item" => seen.item = present.filter(|item| json_cursor::is_object(item)),
                "part" => seen.part = present.filter(|part| json_cursor::is_object(part)),
                "response" => seen.response = present,
                "error" => seen.error = present,
                "energy" => seen.measured_energy = usage::parse_energy(value).or(seen.measured_energy),
                "impact" => seen.measured_energy = usage::parse_impact_energy(value).or(seen.measured_energy),
                _ => {}
            }
        }
        seen.is_complete = members.is_complete();
        seen
    }

    /// Returns the response object of the event.
    ///
    /// # Errors
    /// Returns `Malformed` if the event has none.
    pub(super) fn response_object(&self) -> Result<&'a [u8], UpstreamError> {
        self.response.filter(|response| json_cursor::is_object(response)).ok_or_else(malformed_error)
    }

    /// Returns the JSON string in the member of this name: `delta`, or the name of the member with the complete text.
    pub(super) fn member_text(&self, member: &str) -> Option<&'a [u8]> {
        let value = match member {
            "delta" => self.delta,
            _ => self.whole.as_ref().filter(|(name, _)| name == member).map(|(_, value)| *value),
        };
        value.filter(|value| json_cursor::string_body(value).is_some())
    }

    /// Returns the index, within its item, of the event's part of this kind. Returns 0 if the event states no index,
    /// and `None` if the index is invalid.
    pub(super) fn part_index(&self, kind: PartKind) -> Option<u64> {
        let index = if kind == PartKind::Summary { self.summary_index } else { self.content_index };
        match index {
            PartIndex::Absent => Some(0),
            PartIndex::Valid(index) => Some(index),
            PartIndex::Invalid => None,
        }
    }
}
