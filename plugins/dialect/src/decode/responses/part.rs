//! Part of an output item: its kind, and a record of the text that was emitted for it.

use super::text_record::TextRecord;
use crate::decode::text_channel::TextChannel;
use crate::json_cursor;
use crate::partial_json::{JsonState, PartialJson};
use bytes::Bytes;
use penstock_json_scan::json;

/// Kind of text in a part of an output item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// `output_text`.
    Text,
    /// `refusal`.
    Refusal,
    /// `reasoning_text`.
    Reasoning,
    /// `summary_text`. An item shows either its summary or its reasoning, whichever has text first.
    Summary,
    /// Arguments of a function call.
    Arguments,
}

impl PartKind {
    /// Kinds of the parts that an item has in a list.
    pub(super) const OF_LISTS: [Self; 4] = [Self::Text, Self::Refusal, Self::Reasoning, Self::Summary];
}

/// Returns the kind and the text of a part object; `None` for unknown types. The text is a JSON value, and `None` if it
/// is absent.
pub(super) fn part_kind_and_text(part: &[u8]) -> Option<(PartKind, Option<&[u8]>)> {
    let name = json_cursor::member_value(part, "type").and_then(json_cursor::parse_string)?;
    let (kind, member) = PartKind::kind_and_text_member(&name)?;
    Some((kind, json_cursor::member_value(part, member)))
}

/// Returns the log probabilities of a text in the format of the chat dialect; `None` if the list is empty or the part
/// is not text.
pub(super) fn chat_logprobs(kind: PartKind, list: &[u8]) -> Option<Bytes> {
    let has_tokens = json_cursor::is_array(list) && json_cursor::elements(list).next().is_some();
    let without_lines = json::replace_line_breaks(list);
    let list = without_lines.as_deref().unwrap_or(list);
    (kind == PartKind::Text && has_tokens)
        .then(|| Bytes::from([br#"{"content":"#, list, br#","refusal":null}"#].concat()))
}

/// Kind and index of a part.
pub(super) type PartKey = (PartKind, u64);

/// Type of an event about a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartEvent {
    /// Fragment of text in the member `delta`.
    Delta(PartKind),
    /// Complete text in the named member.
    Complete(PartKind, &'static str),
    /// Start of the part, with the object `part`.
    Added,
    /// End of the part, with the object `part`.
    Done,
}

impl PartEvent {
    /// Parses the type of an event; returns `None` if it is not about a part with text.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (part, stage) = name.strip_prefix("response.")?.rsplit_once('.')?;
        let (kind, whole) = match (part, stage) {
            ("content_part" | "reasoning_part" | "reasoning_summary_part", "added") => {
                return Some(Self::Added);
            }
            ("content_part" | "reasoning_part" | "reasoning_summary_part", "done") => {
                return Some(Self::Done);
            }
            ("output_text", _) => (PartKind::Text, "text"),
            ("refusal", _) => (PartKind::Refusal, "refusal"),
            ("reasoning_text", _) => (PartKind::Reasoning, "text"),
            ("reasoning_summary_text", _) => (PartKind::Summary, "text"),
            ("function_call_arguments", _) => (PartKind::Arguments, "arguments"),
            _ => return None,
        };
        match stage {
            "delta" => Some(Self::Delta(kind)),
            "done" => Some(Self::Complete(kind, whole)),
            _ => None,
        }
    }
}

impl PartKind {
    /// Returns the kind of a part with this `type`, and the name of the member that has its text; `None` for an unknown
    /// type.
    pub(super) fn kind_and_text_member(part_type: &str) -> Option<(Self, &'static str)> {
        match part_type {
            "output_text" => Some((Self::Text, "text")),
            "refusal" => Some((Self::Refusal, "refusal")),
            "reasoning_text" | "text" => Some((Self::Reasoning, "text")),
            "summary_text" => Some((Self::Summary, "text")),
            _ => None,
        }
    }
}

/// Deltas of a part so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartProgress {
    /// At most one delta had the newest index. The engine may raise the index with each delta, so a higher index may
    /// still belong to this part.
    OneDelta,
    /// Two or more deltas had the same index, so the engine does not raise the index with each delta: a higher index
    /// belongs to another part.
    SeveralDeltas,
    /// An event stated the complete text.
    Ended,
}

/// Decoder of one part of an output item, with the text that has been emitted.
#[derive(Debug)]
pub(super) struct OutputPartDecoder {
    pub(super) kind: PartKind,
    /// First and last index that deltas gave to this part. They differ at engines that raise the index with each
    /// delta.
    indexes: (u64, u64),
    progress: PartProgress,
    pub(super) text: TextRecord,
}

impl OutputPartDecoder {
    /// Creates a part from which no text was emitted yet.
    pub(super) fn new((kind, index): PartKey) -> Self {
        let text = TextRecord::new(kind == PartKind::Arguments);
        Self { kind, indexes: (index, index), progress: PartProgress::OneDelta, text }
    }

    /// Returns true if this is the part of `key`.
    pub(super) fn has_key(&self, (kind, index): PartKey) -> bool {
        self.kind == kind && (self.indexes.0..=self.indexes.1).contains(&index)
    }

    /// Returns true if this part is of the same kind and after the part of `key`.
    pub(super) fn is_after(&self, (kind, index): PartKey) -> bool {
        self.kind == kind && self.indexes.0 > index
    }

    /// Returns true if deltas gave several indexes to this part.
    pub(super) const fn has_several_indexes(&self) -> bool {
        self.indexes.0 != self.indexes.1
    }

    /// Returns true if an event has stated the complete text.
    pub(super) fn is_ended(&self) -> bool {
        self.progress == PartProgress::Ended
    }

    /// Records that an event has stated the complete text.
    pub(super) const fn mark_ended(&mut self) {
        self.progress = PartProgress::Ended;
    }

    /// Records a further delta of the part.
    pub(super) fn count_delta(&mut self) {
        if self.progress == PartProgress::OneDelta {
            self.progress = PartProgress::SeveralDeltas;
        }
    }

    /// Gives the index of a delta to this part if the engine raises the index with each delta; returns true in this
    /// case. Two deltas with the same index, or the end of the part, show that the next index is that of another part.
    pub(super) fn extend_to(&mut self, (kind, index): PartKey) -> bool {
        let is_raised =
            self.kind == kind && self.progress == PartProgress::OneDelta && index > self.indexes.1;
        if is_raised {
            self.indexes.1 = index;
        }
        is_raised
    }
}

/// Text in an event that starts a part or an item. Most providers send an empty text there, some the complete text.
#[derive(Debug)]
pub(super) struct InitialText {
    pub(super) key: PartKey,
    pub(super) text: String,
}

impl InitialText {
    /// Returns the number of bytes of memory that the text occupies.
    pub(super) const fn stored_bytes(&self) -> usize {
        size_of::<Self>() + self.text.len()
    }

    /// Returns true if the first delta of the part continues this initial text. Returns false if the delta repeats
    /// the initial text, or if the initial text is already a complete call.
    pub(super) fn is_continued_by(&self, delta: &str) -> bool {
        let repeats = self.text.starts_with(delta) || delta.starts_with(&self.text);
        let is_whole_call = || {
            let is_call = self.key.0 == PartKind::Arguments;
            is_call && PartialJson::new().push(&self.text) != JsonState::Incomplete
        };
        !repeats && !is_whole_call()
    }
}

/// Last part with text in each text channel. Only the last part can get more text: the missing end of an earlier part
/// can no longer be emitted in order.
#[derive(Debug, Default)]
pub(super) struct LastParts(Vec<(TextChannel, (usize, usize))>);

impl LastParts {
    /// Records that text of a channel was last added to this part, given as the number of its item and its position in
    /// the item. Channels of arguments are ignored, because each has only one part.
    pub(super) fn set_last(&mut self, channel: TextChannel, part: (usize, usize)) {
        if matches!(channel, TextChannel::Arguments(_)) {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == channel) {
            Some((_, last)) => *last = part,
            None => self.0.push((channel, part)),
        }
    }

    /// Returns true if text can still be added to this part: it is the last part of its channel, its channel has no
    /// text so far, or its channel is that of a call's arguments.
    pub(super) fn is_last(&self, channel: TextChannel, part: (usize, usize)) -> bool {
        let last = self.0.iter().find(|(known, _)| *known == channel);
        last.is_none_or(|(_, last)| *last == part)
    }
}
