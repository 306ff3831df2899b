//! Members of an event of a streamed response.

use super::item_reference::ItemReference;
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
    output_index: EventIndex,
    item_id: Option<Cow<'a, str>>,
    content_index: EventIndex,
    summary_index: EventIndex,
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

/// Index of an output item or of a part, as an event gives it.
#[derive(Clone, Copy, Debug, Default)]
enum EventIndex {
    /// No index, `null`, or a negative number, which some engines send before they have counted a part.
    #[default]
    Absent,
    Valid(u64),
    Invalid,
}

impl EventIndex {
    fn parse(value: &[u8]) -> Self {
        let is_negative =
            || value.strip_prefix(b"-").is_some_and(|value| value.iter().all(u8::is_ascii_digit));
        match json_cursor::parse_integer(value) {
            Some(index) => Self::Valid(index),
            None if json_cursor::is_null(value) || is_negative() => Self::Absent,
            None => Self::Invalid,
        }
    }

    /// Returns the index, and `default` if there is none.
    ///
    /// # Errors
    /// Returns `Malformed` for an invalid index.
    fn or(self, default: Option<u64>) -> Result<Option<u64>, UpstreamError> {
        match self {
            Self::Absent => Ok(default),
            Self::Valid(index) => Ok(Some(index)),
            Self::Invalid => Err(malformed_error()),
        }
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
                "output_index" => seen.output_index = EventIndex::parse(value),
                "item_id" => seen.item_id = json_cursor::parse_string(value),
                "content_index" => seen.content_index = EventIndex::parse(value),
                "summary_index" => seen.summary_index = EventIndex::parse(value),
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

    /// Returns the reference of an event about a part to the item of the part.
    ///
    /// # Errors
    /// Returns `Malformed` for an invalid index.
    pub(super) fn part_reference(&self) -> Result<ItemReference, UpstreamError> {
        Ok(ItemReference::new(self.output_index.or(None)?, self.item_id.as_deref(), None))
    }

    /// Returns the reference of an event to its member `item`, and that member.
    ///
    /// # Errors
    /// Returns `Malformed` for an invalid index, and if the event has no item.
    pub(super) fn item_reference(&self) -> Result<(ItemReference, &'a [u8]), UpstreamError> {
        let item = self.item.ok_or_else(malformed_error)?;
        Ok((ItemReference::of_item(self.output_index.or(None)?, item), item))
    }

    /// Returns the index, within its item, of the event's part of this kind. Returns 0 if the event states no index,
    /// and `None` if the index is invalid. Arguments have no index.
    pub(super) fn part_index(&self, kind: PartKind) -> Option<u64> {
        let index = match kind {
            PartKind::Arguments => return Some(0),
            PartKind::Summary => self.summary_index,
            _ => self.content_index,
        };
        index.or(Some(0)).ok().flatten()
    }
}
