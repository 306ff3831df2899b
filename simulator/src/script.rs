//! Script of an answer: a head, pieces with their due times, an end.

use bytes::Bytes;
use std::time::Duration;

/// Status and headers.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// Status code.
    pub status: u16,
    /// Header names in lower case, with values.
    pub headers: Vec<(&'static str, String)>,
    /// Length of the body; `None` if it is not known before.
    pub length: Option<usize>,
}

/// Action before the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Before {
    /// None.
    #[default]
    Nothing,
    /// Connection is closed.
    Cut,
    /// Silence.
    Hold,
}

/// Part of the body.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Bytes of the piece.
    pub bytes: Bytes,
    /// Number of tokens after which the piece is sent.
    pub tokens: u32,
    /// True if silence precedes it.
    pub hold: bool,
    /// True if it is sent in a packet of its own.
    pub alone: bool,
}

impl Piece {
    /// Creates a piece that is sent after `tokens` tokens.
    pub(super) fn new(bytes: impl Into<Bytes>, tokens: u32) -> Self {
        Self { bytes: bytes.into(), tokens, hold: false, alone: false }
    }
}

/// Scripted answer.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// Action before the head.
    pub before: Before,
    /// Response head.
    pub head: Head,
    /// True if the head is sent at once, not with the first piece.
    pub early: bool,
    /// Pause after each byte of the head.
    pub drip: Option<Duration>,
    /// Pieces of the body.
    pub pieces: Vec<Piece>,
    /// Extra delay of the first token.
    pub later: Duration,
    /// True if the connection is cut at the end.
    pub cut: bool,
}

impl Script {
    /// Creates a plain answer without delay.
    pub(super) fn plain(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self {
            before: Before::Nothing,
            head: Head {
                status,
                headers: vec![("content-type", content_type.to_owned())],
                length: Some(body.len()),
            },
            early: false,
            drip: None,
            pieces: vec![Piece::new(body, 0)],
            later: Duration::ZERO,
            cut: false,
        }
    }

    /// Creates a plain JSON answer without delay.
    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::plain(status, "application/json", body.to_string())
    }
}
