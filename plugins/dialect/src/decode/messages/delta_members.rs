//! Members of the `delta` of a `content_block_delta` event.

use crate::json_cursor;

/// Kind of a delta, by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeltaKind {
    /// Text of the answer.
    Text,
    /// Text of a thinking block.
    Thinking,
    /// Fragment of the JSON text of a tool's input.
    InputJson,
    /// Signature of a thinking block.
    Signature,
    /// Delta of another type of the messages API: a citation, or a summary of the conversation.
    Other,
    /// Delta of a type that clients do not know.
    Unknown,
}

impl DeltaKind {
    fn from_type_name(name: &str) -> Self {
        match name {
            "text_delta" => Self::Text,
            "thinking_delta" => Self::Thinking,
            "input_json_delta" => Self::InputJson,
            "signature_delta" => Self::Signature,
            "citations_delta" | "compaction_delta" => Self::Other,
            _ => Self::Unknown,
        }
    }

    /// Returns true if the content of the delta is one string.
    pub(crate) const fn is_string(self) -> bool {
        matches!(self, Self::Text | Self::Thinking | Self::InputJson | Self::Signature)
    }

    /// Returns the type of the delta and the name of its string; `None` if it has no string that is appended to the
    /// block.
    const fn names(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Text => Some(("text_delta", "text")),
            Self::Thinking => Some(("thinking_delta", "thinking")),
            Self::InputJson => Some(("input_json_delta", "partial_json")),
            Self::Signature | Self::Other | Self::Unknown => None,
        }
    }
}

/// Known members of a delta.
pub(crate) struct DeltaMembers<'a> {
    pub(crate) kind: DeltaKind,
    /// Value of the member with the text, signature or JSON text; it may be null.
    pub(crate) content: Option<&'a [u8]>,
}

impl<'a> DeltaMembers<'a> {
    /// Parses a delta; `None` if its type is absent or no string.
    pub(crate) fn parse(delta: &'a [u8]) -> Option<Self> {
        let (mut kind, mut text, mut thinking, mut partial_json, mut signature) =
            (None, None, None, None, None);
        for (key, value) in json_cursor::members(delta) {
            match &*key {
                "type" => kind = json_cursor::parse_string(value),
                "text" => text = Some(value),
                "thinking" => thinking = Some(value),
                "partial_json" => partial_json = Some(value),
                "signature" => signature = Some(value),
                _ => {}
            }
        }
        let kind = DeltaKind::from_type_name(&kind?);
        // Some serializers write the members of other types too, as empty strings or null.
        let own = match kind {
            DeltaKind::Text => text,
            DeltaKind::Thinking => thinking,
            DeltaKind::InputJson => partial_json,
            DeltaKind::Signature => signature,
            DeltaKind::Other | DeltaKind::Unknown => None,
        };
        Some(Self { kind, content: own.or(text).or(thinking).or(partial_json).or(signature) })
    }

    /// Returns true if the delta adds nothing to its block.
    pub(crate) fn is_empty(&self) -> bool {
        self.kind.is_string() && self.content.is_none_or(|content| matches!(content, b"\"\"" | b"null"))
    }
}

/// Builds an event that appends text, the body of a JSON string, to the block `index`; `None` for a kind without text.
pub(super) fn make_delta_event(index: usize, kind: DeltaKind, escaped: &[u8]) -> Option<Vec<u8>> {
    let (name, member) = kind.names()?;
    let head =
        format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{name}","{member}":""#);
    Some([head.as_bytes(), escaped, br#""}}"#].concat())
}
