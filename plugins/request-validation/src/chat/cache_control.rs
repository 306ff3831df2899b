//! Markers of the prompt cache (`cache_control`) in a chat request. The chat dialect does not define them, so a value that
//! is no marker is ignored, as other unknown members are.

use penstock_core::{CacheMarker, CachePosition, CacheTtl};
use penstock_json_scan::tape::JsonValue;

/// Collector of the markers of a request, in the order of the prompt: tools, then messages.
#[derive(Debug, Default)]
pub(super) struct CacheMarkers {
    tools: Vec<CacheMarker>,
    messages: Vec<CacheMarker>,
    request: Option<CacheMarker>,
}

impl CacheMarkers {
    /// Adds the marker of an object at this position, if it has one. The object is a tool, a message or a content part.
    pub(super) fn read(&mut self, object: JsonValue<'_>, position: CachePosition) {
        self.add(member(object, "cache_control"), position);
    }

    /// Adds the marker with this value of `cache_control`, if it is one.
    pub(super) fn add(&mut self, control: Option<JsonValue<'_>>, position: CachePosition) {
        let Some(ttl) = control.and_then(read_ttl) else { return };
        let marker = CacheMarker { position, ttl };
        match position {
            CachePosition::Tool(_) => self.tools.push(marker),
            CachePosition::Part(..) | CachePosition::Message(_) => self.messages.push(marker),
            CachePosition::Request => self.request = Some(marker),
        }
        // A position has one marker. Only the last markers are sent, so the others need not be stored.
        for list in [&mut self.tools, &mut self.messages] {
            list.dedup_by_key(|marker| marker.position);
            if list.len() > CacheMarker::MAX_COUNT {
                list.remove(0);
            }
        }
    }

    /// Changes the positions of the tools after tools were removed; `is_retained` has an element for each tool. The
    /// marker of a removed tool moves to the tool before it.
    pub(super) fn remove_tools(&mut self, is_retained: &[bool]) {
        self.tools.retain_mut(|marker| {
            let CachePosition::Tool(index) = marker.position else { return false };
            let retained =
                is_retained.iter().take(index.saturating_add(1)).filter(|is_retained| **is_retained);
            let position = retained.count().checked_sub(1);
            marker.position = CachePosition::Tool(position.unwrap_or_default());
            position.is_some()
        });
        self.tools.dedup_by_key(|marker| marker.position);
    }

    /// Returns the last markers, as many as a request may have.
    pub(super) fn into_markers(self) -> Vec<CacheMarker> {
        let mut markers = self.tools;
        markers.extend(self.messages);
        markers.extend(self.request);
        markers.drain(..markers.len().saturating_sub(CacheMarker::MAX_COUNT));
        markers
    }
}

/// Reads a marker; returns its lifetime, if it states one, and `None` if the value is no marker.
fn read_ttl(control: JsonValue<'_>) -> Option<Option<CacheTtl>> {
    member(control, "type").filter(|kind| kind.equals_text("ephemeral"))?;
    Some(match member(control, "ttl") {
        Some(ttl) if ttl.equals_text("5m") => Some(CacheTtl::FiveMinutes),
        Some(ttl) if ttl.equals_text("1h") => Some(CacheTtl::OneHour),
        _ => None,
    })
}

fn member<'d>(object: JsonValue<'d>, name: &str) -> Option<JsonValue<'d>> {
    object.members().find(|(key, _)| key.equals_text(name)).map(|(_, value)| value)
}
