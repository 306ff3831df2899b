//! Part of an output item: its kind, and a record of the text that was emitted for it.

use crate::decode::text_channel::TextChannel;
use crate::json_cursor;
use crate::partial_json::{JsonState, PartialJson};
use bytes::Bytes;

/// Maximum bytes of stored arguments. Longer arguments are compared only by their fingerprint.
const MAX_ARGUMENTS_BYTES: usize = 1 << 20;

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
    /// Returns an item that has only its type and can have parts of this kind; `None` if such an item needs more
    /// members.
    pub(super) const fn minimal_item_json(self) -> Option<&'static [u8]> {
        match self {
            Self::Text | Self::Refusal => Some(br#"{"type":"message"}"#),
            Self::Reasoning | Self::Summary => Some(br#"{"type":"reasoning"}"#),
            Self::Arguments => None,
        }
    }
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

/// Part with emitted text.
///
/// Text is compared by fingerprints, so that it need not be stored. Only arguments are stored too.
#[derive(Debug)]
pub(super) struct DecodedPart {
    pub(super) key: PartKey,
    /// Length of the emitted text, in bytes.
    len: usize,
    exact: Fingerprint,
    /// Fingerprint of the text without white space.
    letters: Fingerprint,
    /// Argument text emitted so far; `None` for other texts and above [`MAX_ARGUMENTS_BYTES`].
    arguments: Option<String>,
}

/// Result of comparing the complete text of a part with the text that was emitted for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FinalTextComparison<'a> {
    /// Equal, apart from white space and the notation of JSON arguments: all of the text was emitted.
    Emitted,
    /// Rest of the complete text, which begins with the emitted text.
    Continues(&'a str),
    /// Different: the emitted text is not a prefix of the complete text.
    Contradicts,
}

impl DecodedPart {
    /// Creates a part from which no text was emitted yet.
    pub(super) fn new(key: PartKey) -> Self {
        Self {
            key,
            len: 0,
            exact: Fingerprint::EMPTY,
            letters: Fingerprint::EMPTY,
            arguments: (key.0 == PartKind::Arguments).then(String::new),
        }
    }

    /// Records text that was emitted. Updates `stored_bytes`: adds the bytes that are stored of the text, and
    /// subtracts bytes that are no longer stored.
    pub(super) fn record_emitted_text(&mut self, text: &str, stored_bytes: &mut usize) {
        self.len += text.len();
        self.exact = text.bytes().fold(self.exact, Fingerprint::then);
        self.letters = letters(text).fold(self.letters, Fingerprint::then);
        if self.len > MAX_ARGUMENTS_BYTES {
            let removed = self.arguments.take().map_or(0, |arguments| arguments.len());
            *stored_bytes = stored_bytes.saturating_sub(removed);
        }
        if let Some(arguments) = &mut self.arguments {
            arguments.push_str(text);
            *stored_bytes += text.len();
        }
    }

    /// Compares the complete text of the part with the emitted text. Differences in white space, and in the notation of
    /// JSON arguments, are ignored, because some engines format the text of the end event differently.
    pub(super) fn compare_final_text<'a>(&self, whole: &'a str) -> FinalTextComparison<'a> {
        if whole.get(..self.len).is_some_and(|start| Fingerprint::of(start.bytes()) == self.exact) {
            let rest = whole.get(self.len..).unwrap_or_default();
            return if rest.is_empty() {
                FinalTextComparison::Emitted
            } else {
                FinalTextComparison::Continues(rest)
            };
        }
        if Fingerprint::of(letters(whole)) == self.letters || self.is_same_object(whole) {
            FinalTextComparison::Emitted
        } else {
            FinalTextComparison::Contradicts
        }
    }

    /// Returns true if the part and `whole` are arguments with the same JSON value.
    fn is_same_object(&self, whole: &str) -> bool {
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        let own =
            self.arguments.as_deref().filter(|_| whole.len() <= 2 * MAX_ARGUMENTS_BYTES).and_then(parse);
        own.is_some() && own == parse(whole)
    }
}

/// Returns the bytes of a text without ASCII white space.
fn letters(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().filter(|byte| !byte.is_ascii_whitespace())
}

/// 64-bit FNV-1a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint(u64);

impl Fingerprint {
    const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    fn then(self, byte: u8) -> Self {
        Self((self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    fn of(bytes: impl Iterator<Item = u8>) -> Self {
        bytes.fold(Self::EMPTY, Self::then)
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
pub(super) struct LastParts(Vec<(TextChannel, (usize, PartKey))>);

impl LastParts {
    /// Records that text of a channel was last added to this part, given as the number of its item and its key.
    /// Channels of arguments are ignored, because each has only one part.
    pub(super) fn set_last(&mut self, channel: TextChannel, part: (usize, PartKey)) {
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
    pub(super) fn is_last(&self, channel: TextChannel, part: (usize, PartKey)) -> bool {
        let last = self.0.iter().find(|(known, _)| *known == channel);
        last.is_none_or(|(_, last)| *last == part)
    }
}
