//! An answer as it is performed: a head, pieces with the time each is due, an end.

use bytes::Bytes;
use std::time::Duration;

/// Status and headers.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// The status.
    pub status: u16,
    /// Header names in lower case, values.
    pub headers: Vec<(&'static str, String)>,
    /// Length of the body; `None`: not known before.
    pub length: Option<usize>,
}

/// What comes before the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing.
    #[default]
    Nothing,
    /// The end of the connection.
    Cut,
    /// Silence.
    Hold,
}

/// A part of the body.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Its bytes.
    pub bytes: Bytes,
    /// It leaves when so many tokens are due.
    pub tokens: u32,
    /// Silence comes before it.
    pub hold: bool,
    /// It travels alone.
    pub alone: bool,
}

impl Piece {
    /// A piece that leaves with so many tokens.
    pub(super) fn new(bytes: impl Into<Bytes>, tokens: u32) -> Self {
        Self { bytes: bytes.into(), tokens, hold: false, alone: false }
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// What comes before the head.
    pub before: Before,
    /// The head.
    pub head: Head,
    /// The head leaves at once, not with the first piece.
    pub early: bool,
    /// Pause after each byte of the head.
    pub drip: Option<Duration>,
    /// The body.
    pub pieces: Vec<Piece>,
    /// The first token comes later by this.
    pub later: Duration,
    /// The connection is cut at the end.
    pub cut: bool,
}

impl Script {
    /// A plain answer at once.
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

    /// A plain JSON answer at once.
    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::plain(status, "application/json", body.to_string())
    }
}
