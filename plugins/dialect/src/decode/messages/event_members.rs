//! Members of an event of a streamed message.

use crate::json_cursor;
use penstock_core::MeasuredEnergy;
use penstock_http_wire::usage;
use penstock_json_scan::json;
use std::borrow::Cow;

/// Known members of the data of an event. If a name is repeated, the last member counts, as in client libraries.
#[derive(Default)]
pub(crate) struct EventMembers<'a> {
    /// Member `type`, empty if absent.
    pub(crate) event_type: Cow<'a, str>,
    pub(crate) index: Option<usize>,
    pub(crate) delta: Option<&'a [u8]>,
    pub(crate) content_block: Option<&'a [u8]>,
    pub(crate) message: Option<&'a [u8]>,
    pub(super) usage: Option<&'a [u8]>,
    /// Member `error` of an event, unless it is null.
    pub(super) error: Option<&'a [u8]>,
    pub(super) measured_energy: Option<MeasuredEnergy>,
    /// True if the data is one complete object.
    pub(crate) is_complete: bool,
}

impl<'a> EventMembers<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Self {
        let mut seen = Self::default();
        let mut members = json::members(data);
        while let Some((key, value)) = members.next_raw() {
            let Some(key) = json::unescape(key) else { break };
            match &*key {
                "type" => seen.event_type = json_cursor::parse_string(value).unwrap_or_default(),
                "index" => {
                    seen.index =
                        json_cursor::parse_integer(value).and_then(|index| usize::try_from(index).ok())
                }
                "delta" => seen.delta = Some(value),
                "content_block" => seen.content_block = Some(value),
                "message" => seen.message = Some(value),
                "usage" => seen.usage = Some(value),
                "error" => seen.error = Some(value).filter(|error| !json_cursor::is_null(error)),
                "energy" => seen.measured_energy = usage::parse_energy(value).or(seen.measured_energy),
                "impact" => seen.measured_energy = usage::parse_impact_energy(value).or(seen.measured_energy),
                _ => {}
            }
        }
        seen.is_complete = members.is_complete();
        seen
    }

    /// Returns true if the event has a known type other than `error`.
    pub(crate) fn has_known_type(&self) -> bool {
        matches!(
            &*self.event_type,
            "message_start"
                | "content_block_start"
                | "content_block_delta"
                | "content_block_stop"
                | "message_delta"
                | "message_stop"
                | "ping"
        )
    }
}
