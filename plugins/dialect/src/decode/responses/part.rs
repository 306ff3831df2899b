//! Part of an output item: its kind, and what has been emitted of its text.

use crate::decode::text_channel::TextChannel;
use crate::partial_json::{JsonState, PartialJson};

/// Maximum bytes of stored arguments; longer ones are compared by their fingerprint alone.
const MAX_ARGUMENTS_BYTES: usize = 1 << 20;

/// Kind of text in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// `output_text`.
    Text,
    /// `refusal`.
    Refusal,
    /// `reasoning_text`.
    Reasoning,
    /// `reasoning_summary_text`, used only if the reasoning itself is absent.
    Summary,
    /// Arguments of a function call.
    Arguments,
}

/// Kind and index of a part.
pub(super) type PartKey = (PartKind, u64);

/// Stage of a part that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartEvent {
    /// Piece of text in the member `delta`.
    Delta(PartKind),
    /// Whole text in the named member.
    Whole(PartKind, &'static str),
    /// Object `part` at the beginning of the part.
    Added,
    /// Object `part` at the end of the part.
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
            "done" => Some(Self::Whole(kind, whole)),
            _ => None,
        }
    }
}

impl PartKind {
    /// Returns the kind of a part by its `type`, and the member with its text.
    pub(super) fn of_part(name: &str) -> Option<(Self, &'static str)> {
        match name {
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
/// The emitted text is compared by fingerprints, which need no copy of it. Arguments are stored besides.
#[derive(Debug)]
pub(super) struct DecodedPart {
    pub(super) key: PartKey,
    /// Bytes of the emitted text.
    len: usize,
    exact: Fingerprint,
    /// Fingerprint without white space.
    letters: Fingerprint,
    /// Arguments so far; `None` for other texts and above [`MAX_ARGUMENTS_BYTES`].
    arguments: Option<String>,
}

/// Relation of a whole text to what has been emitted of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WholeText<'a> {
    /// Complete text.
    Emitted,
    /// Text that continues what was emitted; this is the rest.
    Continues(&'a str),
    /// Text that differs from what was emitted.
    Contradicts,
}

impl DecodedPart {
    pub(super) fn new(key: PartKey) -> Self {
        Self {
            key,
            len: 0,
            exact: Fingerprint::EMPTY,
            letters: Fingerprint::EMPTY,
            arguments: (key.0 == PartKind::Arguments).then(String::new),
        }
    }

    /// Records an emitted text; returns the bytes stored of it.
    pub(super) fn record(&mut self, text: &str) -> usize {
        self.len += text.len();
        self.exact = text.bytes().fold(self.exact, Fingerprint::then);
        self.letters = letters(text).fold(self.letters, Fingerprint::then);
        if self.len > MAX_ARGUMENTS_BYTES {
            self.arguments = None;
        }
        let Some(arguments) = &mut self.arguments else { return 0 };
        arguments.push_str(text);
        text.len()
    }

    /// Compares the whole text of the part with what was emitted. Differences of white space, and of the notation of
    /// arguments, are none: engines write the end of a part anew.
    pub(super) fn compare<'a>(&self, whole: &'a str) -> WholeText<'a> {
        if whole.get(..self.len).is_some_and(|start| Fingerprint::of(start.bytes()) == self.exact) {
            let rest = whole.get(self.len..).unwrap_or_default();
            return if rest.is_empty() { WholeText::Emitted } else { WholeText::Continues(rest) };
        }
        if Fingerprint::of(letters(whole)) == self.letters || self.is_same_object(whole) {
            WholeText::Emitted
        } else {
            WholeText::Contradicts
        }
    }

    /// Returns true if both are arguments with the same value.
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

/// Text of a part, received with its beginning. Most providers send an empty text there, some the complete one.
#[derive(Debug)]
pub(super) struct AnnouncedText {
    pub(super) key: PartKey,
    pub(super) text: String,
}

impl AnnouncedText {
    /// Returns true if this first delta of the part continues the text instead of repeating it.
    pub(super) fn is_continued_by(&self, delta: &str) -> bool {
        let repeats = self.text.starts_with(delta) || delta.starts_with(&self.text);
        let is_whole_call = || {
            let is_call = self.key.0 == PartKind::Arguments;
            is_call && PartialJson::new().push(&self.text) != JsonState::Incomplete
        };
        !repeats && !is_whole_call()
    }
}

/// Last part of each channel of text: the missing end of an earlier part can no longer be emitted in order.
#[derive(Debug, Default)]
pub(super) struct LastParts(Vec<(TextChannel, (usize, PartKey))>);

impl LastParts {
    /// Records the part to which text of a channel was added last, by the number of its item and its key.
    pub(super) fn set_last(&mut self, channel: TextChannel, part: (usize, PartKey)) {
        if matches!(channel, TextChannel::Arguments(_)) {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == channel) {
            Some((_, last)) => *last = part,
            None => self.0.push((channel, part)),
        }
    }

    /// Returns true if text can be added to this part. Each call has its own channel.
    pub(super) fn is_last(&self, channel: TextChannel, part: (usize, PartKey)) -> bool {
        let last = self.0.iter().find(|(known, _)| *known == channel);
        last.is_none_or(|(_, last)| *last == part)
    }
}
