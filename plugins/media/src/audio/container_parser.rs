//! Incremental parsing of a file that arrives in pieces: a format parser inspects the next bytes and returns how many
//! to skip.

use super::MAX_BUFFERED_BYTES;
use std::fmt::Debug;

/// Result of a parser step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParserStep {
    /// Call again when at least this many bytes are available.
    Need(usize),
    /// Skip this many bytes; they need not be available yet.
    Skip(u64),
    /// Ignore the rest of the file.
    Stop,
}

/// Duration of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AudioDuration {
    /// Number of ticks, with ticks per second; the rate is more than zero.
    Ticks { ticks: u64, rate: u64 },
    /// File does not contain the duration.
    Unknown,
    /// File has no audio.
    NoAudio,
}

impl AudioDuration {
    /// Creates a duration; unknown if there are no ticks, or no rate.
    pub(super) fn from_ticks(ticks: u64, rate: u64) -> Self {
        if ticks == 0 || rate == 0 { Self::Unknown } else { Self::Ticks { ticks, rate } }
    }
}

/// Minimum duration, based on parsed content and not on claims of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MinimumDuration {
    /// Bytes of audio; `None` for all bytes of the file.
    pub bytes: Option<u64>,
    /// Maximum bytes per second.
    pub rate: u64,
    /// Minimum milliseconds for the number of frames.
    pub millis: u64,
}

impl MinimumDuration {
    /// Maximum rate of uncompressed audio: 32 bits, eight channels at 192 kHz.
    pub(super) const PLAIN: u64 = 6_144_000;
    /// Maximum rate of lossy audio in bytes per second: 640 kbit/s.
    pub(super) const LOSSY: u64 = 80_000;

    /// Creates a minimum by all bytes of the file.
    pub(super) const fn by_all_bytes(rate: u64) -> Self {
        Self { bytes: None, rate, millis: 0 }
    }
}

/// Parser of one format.
pub(super) trait ContainerParser: Debug + Send {
    /// Returns the minimum duration, after the last bytes.
    fn minimum(&self) -> MinimumDuration {
        MinimumDuration::by_all_bytes(MinimumDuration::PLAIN)
    }

    /// Inspects the available bytes; there is at least one.
    fn step(&mut self, ahead: &[u8]) -> ParserStep;

    /// Ends the file. `ahead` are the last bytes, and `missing` bytes that were to be skipped never arrived.
    fn end(&mut self, ahead: &[u8], missing: u64) -> AudioDuration;
}

/// Parser with its input buffer.
#[derive(Debug)]
pub(super) struct ParserDriver {
    parser: Box<dyn ContainerParser>,
    held: Vec<u8>,
    /// Number of bytes to skip.
    pass: u64,
    /// Number of bytes needed for the next step.
    need: usize,
    stopped: bool,
}

impl ParserDriver {
    pub(super) fn new(parser: Box<dyn ContainerParser>) -> Self {
        Self { parser, held: Vec::new(), pass: 0, need: 1, stopped: false }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !self.stopped && !bytes.is_empty() {
            if self.held.is_empty() {
                bytes = self.advance(bytes);
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
            let left = self.advance(&held).len();
            self.held = held;
            self.held.drain(..self.held.len() - left);
        }
    }

    /// Parses these bytes as far as possible; returns the rest.
    fn advance<'b>(&mut self, mut ahead: &'b [u8]) -> &'b [u8] {
        loop {
            let passed = usize::try_from(self.pass).unwrap_or(usize::MAX).min(ahead.len());
            self.pass -= passed as u64;
            ahead = ahead.get(passed..).unwrap_or_default();
            if ahead.is_empty() || ahead.len() < self.need {
                return ahead;
            }
            match self.parser.step(ahead) {
                ParserStep::Need(need) if need > ahead.len() && need <= MAX_BUFFERED_BYTES => {
                    self.need = need;
                    return ahead;
                }
                ParserStep::Skip(pass) if pass > 0 => (self.pass, self.need) = (pass, 1),
                ParserStep::Need(_) | ParserStep::Skip(_) | ParserStep::Stop => {
                    self.stopped = true;
                    return &[];
                }
            }
        }
    }

    /// Returns the duration and its minimum.
    pub(super) fn end(mut self) -> (AudioDuration, MinimumDuration) {
        let span = self.parser.end(&self.held, self.pass);
        (span, self.parser.minimum())
    }
}
