//! Incremental parsing of a file that arrives in pieces: a format parser inspects the next bytes and returns how many
//! to skip.

use super::MOST_AHEAD;
use std::fmt::Debug;

/// Result of a parser step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Call again when at least this many bytes are available.
    Need(usize),
    /// Skip this many bytes; they need not be available yet.
    Pass(u64),
    /// Ignore the rest of the file.
    Stop,
}

/// Duration of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// Number of ticks, with ticks per second; the rate is more than zero.
    Ticks { ticks: u64, rate: u64 },
    /// File does not contain the duration.
    Untold,
    /// File has no audio.
    Nothing,
}

impl Span {
    /// Creates a duration; unknown if there are no ticks, or no rate.
    pub(super) fn of(ticks: u64, rate: u64) -> Self {
        if ticks == 0 || rate == 0 { Self::Untold } else { Self::Ticks { ticks, rate } }
    }
}

/// Minimum duration, based on parsed content and not on claims of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    /// Bytes of audio; `None` for all bytes of the file.
    pub bytes: Option<u64>,
    /// Maximum bytes per second.
    pub rate: u64,
    /// Minimum milliseconds for the number of frames.
    pub millis: u64,
}

impl Floor {
    /// Maximum rate of uncompressed audio: 32 bits, eight channels at 192 kHz.
    pub(super) const PLAIN: u64 = 6_144_000;
    /// Maximum rate of lossy audio: 640 kbit/s.
    pub(super) const LOSSY: u64 = 80_000;

    /// Creates a minimum by all bytes of the file.
    pub(super) const fn of(rate: u64) -> Self {
        Self { bytes: None, rate, millis: 0 }
    }
}

/// Parser of one format.
pub(super) trait Walk: Debug + Send {
    /// Returns the minimum duration, after the last bytes.
    fn floor(&self) -> Floor {
        Floor::of(Floor::PLAIN)
    }

    /// Inspects the available bytes; there is at least one.
    fn step(&mut self, ahead: &[u8]) -> Step;

    /// Ends the file. `ahead` are the last bytes, and `missing` bytes that were to be skipped never arrived.
    fn end(&mut self, ahead: &[u8], missing: u64) -> Span;
}

/// Parser with its input buffer.
#[derive(Debug)]
pub(super) struct Track {
    walk: Box<dyn Walk>,
    held: Vec<u8>,
    /// Number of bytes to skip.
    pass: u64,
    /// Number of bytes needed for the next step.
    need: usize,
    stopped: bool,
}

impl Track {
    pub(super) fn new(walk: Box<dyn Walk>) -> Self {
        Self { walk, held: Vec::new(), pass: 0, need: 1, stopped: false }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !self.stopped && !bytes.is_empty() {
            if self.held.is_empty() {
                bytes = self.go(bytes);
                if !self.stopped {
                    self.held.extend_from_slice(bytes);
                }
                return;
            }
            // Only the missing bytes of the element are buffered, so that little is copied.
            let lacks = self.need.saturating_sub(self.held.len()).max(1).min(bytes.len());
            let (completes, rest) = bytes.split_at(lacks);
            self.held.extend_from_slice(completes);
            bytes = rest;
            let held = std::mem::take(&mut self.held);
            let left = self.go(&held).len();
            self.held = held;
            self.held.drain(..self.held.len() - left);
        }
    }

    /// Parses these bytes as far as possible; returns the rest.
    fn go<'b>(&mut self, mut ahead: &'b [u8]) -> &'b [u8] {
        loop {
            let passed = usize::try_from(self.pass).unwrap_or(usize::MAX).min(ahead.len());
            self.pass -= passed as u64;
            ahead = ahead.get(passed..).unwrap_or_default();
            if ahead.is_empty() || ahead.len() < self.need {
                return ahead;
            }
            match self.walk.step(ahead) {
                Step::Need(need) if need > ahead.len() && need <= MOST_AHEAD => {
                    self.need = need;
                    return ahead;
                }
                Step::Pass(pass) if pass > 0 => (self.pass, self.need) = (pass, 1),
                Step::Need(_) | Step::Pass(_) | Step::Stop => {
                    self.stopped = true;
                    return &[];
                }
            }
        }
    }

    /// Returns the duration and its minimum.
    pub(super) fn end(mut self) -> (Span, Floor) {
        let span = self.walk.end(&self.held, self.pass);
        (span, self.walk.floor())
    }
}
