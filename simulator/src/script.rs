//! Script of an answer: the head, the pieces of the body with the time at which each is due, and the end.

use bytes::Bytes;
use std::time::Duration;

/// Status and headers.
#[derive(Clone, Debug)]
pub(super) struct ScriptHead {
    /// Status code.
    pub status: u16,
    /// Header names in lower case, with values.
    pub headers: Vec<(&'static str, String)>,
    /// Length of the body; `None` if it is not known when the head is sent.
    pub length: Option<usize>,
}

/// Action before the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HeadAction {
    /// The head is sent.
    #[default]
    Nothing,
    /// The connection is closed instead.
    Cut,
    /// The head is delayed until the fault is released.
    Hold,
}

/// Part of the body.
#[derive(Clone, Debug)]
pub(super) struct BodyPiece {
    /// Bytes of the piece.
    pub bytes: Bytes,
    /// Number of tokens after which the piece is sent.
    pub tokens: u32,
    /// True if the playback stops before this piece until the fault is released.
    pub hold: bool,
    /// True if the piece is sent in its own packet.
    pub alone: bool,
}

impl BodyPiece {
    /// Creates a piece that is sent after `tokens` tokens.
    pub(super) fn new(bytes: impl Into<Bytes>, tokens: u32) -> Self {
        Self { bytes: bytes.into(), tokens, hold: false, alone: false }
    }
}

/// Scripted answer.
#[derive(Clone, Debug)]
pub(super) struct ResponseScript {
    /// Action before the head.
    pub before: HeadAction,
    /// Response head.
    pub head: ScriptHead,
    /// True if the head is sent at once; otherwise it is sent together with the first piece.
    pub head_at_once: bool,
    /// Pause after each byte of the head.
    pub head_byte_delay: Option<Duration>,
    /// Pieces of the body.
    pub pieces: Vec<BodyPiece>,
    /// Extra delay of the first token.
    pub first_token_delay: Duration,
    /// True if the connection is cut after the last piece.
    pub cut: bool,
}

impl ResponseScript {
    /// Creates a plain answer without delay.
    pub(super) fn plain(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self {
            before: HeadAction::Nothing,
            head: ScriptHead {
                status,
                headers: vec![("content-type", content_type.to_owned())],
                length: Some(body.len()),
            },
            head_at_once: false,
            head_byte_delay: None,
            pieces: vec![BodyPiece::new(body, 0)],
            first_token_delay: Duration::ZERO,
            cut: false,
        }
    }

    /// Creates a plain JSON answer without delay.
    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::plain(status, "application/json", body.to_string())
    }
}
