//! Replay of the events of a background response, built from its stored object. The sequence number of an event
//! depends on the object alone. A stream can therefore be continued after any event, also by another gateway and
//! after a restart.
//!
//! ```text
//! 0 response.created   1 response.queued   2 response.in_progress   3… events of the items   last event
//! ```

use super::frame::{EVENT_END, EventSequence, write_error_event};
use crate::background_response::{
    BackgroundResponseState, has_answer, is_pending, is_queued, with_background_state,
};
use crate::json_cursor::{elements, member_value, members, parse_string, string_body};
use penstock_core::ApiError;
use penstock_json_scan::json;
use std::io::Write as _;

/// Sequence number of `response.in_progress`, the last event of a response that has not ended.
pub const LAST_PENDING_EVENT: u64 = 2;

/// Replay of the events of one response, in pieces. A piece is one of the opening events, the events of one item, or
/// the last event.
#[derive(Debug, Default)]
pub struct ResponseReplay {
    events: EventSequence,
    /// Sequence number of the last event that the client has; `None` for a client without events.
    after: Option<u64>,
    position: ReplayPosition,
}

/// Position in a replay of events: the next event or item to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReplayPosition {
    #[default]
    Created,
    Queued,
    InProgress,
    /// Item with this index, or the last event behind the last item.
    Item(usize),
    Ended,
}

/// Pieces that can be written for the present state of a response.
#[derive(Debug)]
pub struct ReplayPieces<'a> {
    replay: &'a mut ResponseReplay,
    response: &'a [u8],
    /// Reader of the items that are not written yet; created when the first of them is written.
    items: Option<OutputItems<'a>>,
}

/// Reader of the items in the output of a response. It reads the output once.
#[derive(Debug)]
struct OutputItems<'a> {
    output: &'a [u8],
    ranges: json::ElementIter<'a>,
}

impl<'a> OutputItems<'a> {
    /// Creates a reader behind the first `skipped` items. A response without an answer has no items.
    fn new(response: &'a [u8], skipped: usize) -> Self {
        let output =
            if has_answer(response) { member_value(response, "output").unwrap_or_default() } else { b"" };
        let mut ranges = json::elements(output);
        ranges.by_ref().take(skipped).for_each(drop);
        Self { output, ranges }
    }
}

impl<'a> Iterator for OutputItems<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let range = self.ranges.next()?;
        self.output.get(range)
    }
}

impl ReplayPieces<'_> {
    /// Writes the next piece, without the events that the client has. Returns false, and writes nothing, if no piece
    /// can be written: at the end, and until the state of the response changes.
    pub fn write_next(&mut self, out: &mut Vec<u8>) -> bool {
        let (kind, state, next) = match self.replay.position {
            ReplayPosition::Created => {
                ("response.created", BackgroundResponseState::Queued, ReplayPosition::Queued)
            }
            ReplayPosition::Queued => {
                ("response.queued", BackgroundResponseState::Queued, ReplayPosition::InProgress)
            }
            ReplayPosition::InProgress if is_queued(self.response) => return false,
            ReplayPosition::InProgress => {
                ("response.in_progress", BackgroundResponseState::InProgress, ReplayPosition::Item(0))
            }
            ReplayPosition::Item(_) if is_pending(self.response) => return false,
            ReplayPosition::Item(index) => {
                self.write_output(index, out);
                return true;
            }
            ReplayPosition::Ended => return false,
        };
        let response = self.response;
        self.replay
            .write_event(kind, out, |out| write_response(&with_background_state(response, &state), out));
        self.replay.position = next;
        true
    }

    /// Writes the events of the item with this index, or after the last item the last event.
    fn write_output(&mut self, index: usize, out: &mut Vec<u8>) {
        let response = self.response;
        let item = self.items.get_or_insert_with(|| OutputItems::new(response, index)).next();
        self.replay.position = match item {
            Some(item) => {
                self.replay.write_item(index, item, out);
                ReplayPosition::Item(index + 1)
            }
            None => {
                self.replay.write_last(response, out);
                ReplayPosition::Ended
            }
        };
    }
}

impl ResponseReplay {
    /// Creates a replay of the events after the given number, or of all events if no number is given.
    #[must_use]
    pub fn new(after: Option<u64>) -> Self {
        Self { after, ..Self::default() }
    }

    /// Returns the pieces after those written so far, for the present response object.
    #[must_use]
    pub const fn pieces<'a>(&'a mut self, response: &'a [u8]) -> ReplayPieces<'a> {
        ReplayPieces { replay: self, response, items: None }
    }

    /// Writes the event `error`, which ends the stream although the response goes on. The event repeats the number of
    /// the last event that the client has. A client that continues the stream after this number therefore misses no
    /// event.
    pub fn write_error(&self, refusal: &ApiError, out: &mut Vec<u8>) {
        let written = self.events.peek_next_number().saturating_sub(1);
        let number = self.after.map_or(written, |after| written.max(after));
        write_error_event(&mut EventSequence::with_next(number), refusal, out);
    }

    /// Writes an event, unless the client has already received it.
    fn write_event(&mut self, kind: &str, out: &mut Vec<u8>, members: impl FnOnce(&mut Vec<u8>)) {
        if self.after.is_some_and(|after| self.events.peek_next_number() <= after) {
            return self.events.skip_event();
        }
        self.events.write_event_start(kind, out);
        members(out);
        out.extend_from_slice(EVENT_END);
    }

    /// Writes the last event: `response.failed` for a cancelled response too, because the dialect has no event for it.
    fn write_last(&mut self, response: &[u8], out: &mut Vec<u8>) {
        let kind = match member_value(response, "status").and_then(parse_string).as_deref() {
            Some("completed") => "response.completed",
            Some("incomplete") => "response.incomplete",
            _ => "response.failed",
        };
        self.write_event(kind, out, |out| write_response(response, out));
    }

    fn write_item(&mut self, index: usize, item: &[u8], out: &mut Vec<u8>) {
        self.write_event("response.output_item.added", out, |out| {
            let _ = write!(out, r#","output_index":{index},"item":"#);
            write_open_item(item, out);
        });
        let position = ItemPosition { id: member_value(item, "id").unwrap_or(b"\"\""), index };
        let kind = member_value(item, "type").and_then(parse_string).unwrap_or_default();
        match &*kind {
            "message" => self.write_parts(&position, item, "content", out),
            "reasoning" => {
                self.write_parts(&position, item, "summary", out);
                self.write_parts(&position, item, "content", out);
            }
            _ => self.write_call(&position, item, &kind, out),
        }
        self.write_event("response.output_item.done", out, |out| {
            let _ = write!(out, r#","output_index":{index},"item":"#);
            out.extend_from_slice(item);
        });
    }

    /// Writes the events of the parts of a message or of reasoning. Each text is one delta.
    fn write_parts(&mut self, position: &ItemPosition<'_>, item: &[u8], list: &str, out: &mut Vec<u8>) {
        let parts = member_value(item, list).unwrap_or_default();
        for (at, part) in elements(parts).enumerate() {
            let kind = member_value(part, "type").and_then(parse_string).unwrap_or_default();
            let Some(names) = PartNames::of(&kind) else { continue };
            let text = member_value(part, names.text).unwrap_or(b"\"\"");
            let logprobs = (kind == "output_text").then(|| member_value(part, "logprobs").unwrap_or(b"[]"));
            let start = |out: &mut Vec<u8>| {
                position.write(out);
                let _ = write!(out, r#","{}":{at}"#, names.position);
            };
            let with_text = |member: &str, out: &mut Vec<u8>| {
                start(out);
                let _ = write!(out, r#","{member}":"#);
                out.extend_from_slice(text);
                if let Some(logprobs) = logprobs {
                    out.extend_from_slice(br#","logprobs":"#);
                    out.extend_from_slice(logprobs);
                }
            };
            self.write_event(&format!("response.{}.added", names.part), out, |out| {
                start(out);
                out.extend_from_slice(br#","part":"#);
                write_emptied(part, &[(names.text, b"\"\""), ("logprobs", b"[]")], out);
            });
            if string_body(text).is_some_and(|text| !text.is_empty()) {
                self.write_event(&format!("response.{}.delta", names.events), out, |out| {
                    with_text("delta", out)
                });
            }
            self.write_event(&format!("response.{}.done", names.events), out, |out| {
                with_text(names.text, out)
            });
            self.write_event(&format!("response.{}.done", names.part), out, |out| {
                start(out);
                out.extend_from_slice(br#","part":"#);
                out.extend_from_slice(part);
            });
        }
    }

    /// Writes the events of the arguments of a call.
    fn write_call(&mut self, position: &ItemPosition<'_>, item: &[u8], kind: &str, out: &mut Vec<u8>) {
        let (events, member) = match kind {
            "custom_tool_call" => ("response.custom_tool_call_input", "input"),
            _ => ("response.function_call_arguments", "arguments"),
        };
        let text = member_value(item, member).unwrap_or(b"\"\"");
        if string_body(text).is_some_and(|text| !text.is_empty()) {
            self.write_event(&format!("{events}.delta"), out, |out| {
                position.write(out);
                out.extend_from_slice(br#","delta":"#);
                out.extend_from_slice(text);
            });
        }
        self.write_event(&format!("{events}.done"), out, |out| {
            position.write(out);
            if let Some(name) = member_value(item, "name").filter(|_| member == "arguments") {
                out.extend_from_slice(br#","name":"#);
                out.extend_from_slice(name);
            }
            let _ = write!(out, r#","{member}":"#);
            out.extend_from_slice(text);
        });
    }
}

/// Id and index of the item to which an event belongs.
struct ItemPosition<'a> {
    /// Id, as JSON.
    id: &'a [u8],
    index: usize,
}

impl ItemPosition<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#","item_id":"#);
        out.extend_from_slice(self.id);
        let _ = write!(out, r#","output_index":{}"#, self.index);
    }
}

/// Names of an item's part in the events of a stream.
struct PartNames {
    part: &'static str,
    events: &'static str,
    text: &'static str,
    position: &'static str,
}

impl PartNames {
    fn of(kind: &str) -> Option<Self> {
        let (part, events, text, position) = match kind {
            "output_text" => ("content_part", "output_text", "text", "content_index"),
            "refusal" => ("content_part", "refusal", "refusal", "content_index"),
            "reasoning_text" => ("content_part", "reasoning_text", "text", "content_index"),
            "summary_text" => ("reasoning_summary_part", "reasoning_summary_text", "text", "summary_index"),
            _ => return None,
        };
        Some(Self { part, events, text, position })
    }
}

fn write_response(response: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(br#","response":"#);
    out.extend_from_slice(response);
}

/// Writes an output item as it is in its opening event: without content.
fn write_open_item(item: &[u8], out: &mut Vec<u8>) {
    const OPEN: [(&str, &[u8]); 5] = [
        ("status", b"\"in_progress\""),
        ("content", b"[]"),
        ("summary", b"[]"),
        ("arguments", b"\"\""),
        ("input", b"\"\""),
    ];
    write_emptied(item, &OPEN, out);
}

/// Writes an object with the given values for some of its members, and without sealed reasoning.
fn write_emptied(object: &[u8], values: &[(&str, &[u8])], out: &mut Vec<u8>) {
    out.push(b'{');
    let start = out.len();
    for (name, value) in members(object).filter(|(name, _)| name != "encrypted_content") {
        if out.len() > start {
            out.push(b',');
        }
        json::write_str(out, &name);
        out.push(b':');
        let other = values.iter().find(|(known, _)| *known == name);
        out.extend_from_slice(other.map_or(value, |(_, other)| other));
    }
    out.push(b'}');
}
