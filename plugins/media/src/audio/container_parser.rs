//! Incremental parsing of a file that arrives in pieces: a format parser inspects the next bytes and returns how many
//! to skip.

use super::MAX_BUFFERED_BYTES;
use penstock_core::DurationBasis;
use std::fmt::Debug;

/// Instruction that a parser returns after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParserStep {
    /// The parser needs at least this many bytes to continue.
    Need(usize),
    /// The parser skips this many bytes, which need not be available yet.
    Skip(u64),
}

/// Duration of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AudioDuration {
    /// Number of ticks, and number of ticks per second (`rate`), which is more than zero.
    Ticks { ticks: u64, rate: u64 },
    /// File does not contain the duration.
    Unknown,
    /// File has no audio.
    NoAudio,
}

impl AudioDuration {
    /// Creates a duration of `ticks` at `rate` ticks per second; the duration is unknown if one of the two is 0.
    pub(super) fn from_ticks(ticks: u64, rate: u64) -> Self {
        if ticks == 0 || rate == 0 { Self::Unknown } else { Self::Ticks { ticks, rate } }
    }

    /// Returns the duration in nanoseconds; 0 if it is unknown.
    pub(super) fn nanoseconds(&self) -> u128 {
        match self {
            Self::Ticks { ticks, rate } => u128::from(*ticks) * 1_000_000_000 / u128::from(*rate).max(1),
            Self::Unknown | Self::NoAudio => 0,
        }
    }

    /// Returns the other duration if this duration is unknown, otherwise this one.
    pub(super) fn or(self, other: Self) -> Self {
        if self == Self::Unknown { other } else { self }
    }

    /// Returns the longer duration.
    pub(super) fn longer(self, other: Self) -> Self {
        if other.nanoseconds() > self.nanoseconds() { other } else { self }
    }
}

/// Audio data that a file states and does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MissingData {
    /// Number of bytes that the data lacks.
    pub bytes: u64,
    /// Duration of the complete data.
    pub stated: AudioDuration,
}

/// Minimum duration, computed from the number of bytes in the file and not from values in its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MinimumDuration {
    /// Bytes of complete elements without audio; all other bytes of the file count as audio.
    pub excluded: u64,
    /// Highest possible rate of the audio, in bytes per second.
    pub max_byte_rate: u64,
}

impl MinimumDuration {
    /// Maximum rate of uncompressed audio in bytes per second: 32 bits, eight channels at 192 kHz.
    pub(super) const MAX_UNCOMPRESSED_BYTES_PER_SECOND: u64 = 6_144_000;
    /// Maximum rate of lossy audio in bytes per second: 640 kbit/s.
    pub(super) const MAX_LOSSY_BYTES_PER_SECOND: u64 = 80_000;

    /// Creates a minimum for which all bytes of the file count as audio.
    pub(super) const fn from_all_bytes(rate: u64) -> Self {
        Self { excluded: 0, max_byte_rate: rate }
    }
}

/// Sum of the bytes of elements without audio. An element is added once it is known to be complete: when the file
/// continues after the element, or ends exactly where the element ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExcludedBytes {
    sum: u64,
    pending: u64,
}

impl ExcludedBytes {
    /// Confirms the previous element, and starts an element of `bytes` bytes at the current position.
    pub(super) fn begin_element(&mut self, bytes: u64) {
        self.commit_pending_bytes();
        self.pending = bytes;
    }

    /// Adds the bytes of the last element, which is complete, to the sum.
    pub(super) fn commit_pending_bytes(&mut self) {
        self.sum = self.sum.saturating_add(std::mem::take(&mut self.pending));
    }

    /// Ends the file; `missing` is the number of bytes that the file lacks to complete the last element.
    pub(super) fn end_file(&mut self, missing: u64) {
        if missing == 0 {
            self.commit_pending_bytes();
        }
        self.pending = 0;
    }

    /// Returns the number of excluded bytes.
    pub(super) const fn sum(&self) -> u64 {
        self.sum
    }
}

/// Parser of one format.
pub(super) trait ContainerParser: Debug + Send {
    /// Returns the minimum duration. Called after the end of the file.
    fn minimum_duration(&self) -> MinimumDuration {
        MinimumDuration::from_all_bytes(MinimumDuration::MAX_UNCOMPRESSED_BYTES_PER_SECOND)
    }

    /// Returns the basis of the duration. Called after the end of the file.
    fn duration_basis(&self) -> DurationBasis {
        DurationBasis::Counted
    }

    /// Returns the duration of the counted packets or frames alone, for a format whose [`Self::end`] may return a
    /// longer one that the file states; `Unknown` if nothing was counted. `None` for a format whose duration is always
    /// the counted one. Called after the end of the file.
    fn counted_duration(&self) -> Option<AudioDuration> {
        None
    }

    /// Returns false if the file has only headers, whatever duration they state. Called after the end of the file; a
    /// format whose [`Self::end`] returns `NoAudio` for such a file needs no check of its own.
    fn has_audio_data(&self) -> bool {
        true
    }

    /// Returns the audio data that the file states and does not contain; `None` if it is complete, or its format states
    /// no length of its data. Called after the end of the file.
    fn missing_data(&self) -> Option<MissingData> {
        None
    }

    /// Inspects the available bytes, at least one.
    fn step(&mut self, input: &[u8]) -> ParserStep;

    /// Parses the end of the file and returns the duration. `input` has the last bytes that are not parsed yet, and
    /// `missing` is the number of bytes that were still to be skipped; 0 if the file is complete.
    fn end(&mut self, input: &[u8], missing: u64) -> AudioDuration;
}

/// Result of parsing a complete file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParsedAudio {
    pub duration: AudioDuration,
    /// Duration of the counted packets or frames alone; `Unknown` if nothing was counted.
    pub counted: AudioDuration,
    /// Minimum duration for the number of bytes.
    pub minimum: MinimumDuration,
    /// False for a file that has only headers.
    pub has_audio_data: bool,
    pub missing_data: Option<MissingData>,
    pub basis: DurationBasis,
}

/// Parser of an audio file with its input buffer.
#[derive(Debug)]
pub(super) struct ParserDriver {
    parser: Box<dyn ContainerParser>,
    /// Buffered bytes of the file; the bytes before `start` are already parsed.
    held: Vec<u8>,
    start: usize,
    /// Number of bytes of the file still to be skipped.
    pass: u64,
    /// Number of bytes needed for the next step.
    need: usize,
    /// True once the parser can make no progress; all further bytes are ignored.
    stopped: bool,
}

impl ParserDriver {
    /// Creates a driver with an empty buffer.
    pub(super) fn new(parser: Box<dyn ContainerParser>) -> Self {
        Self { parser, held: Vec::new(), start: 0, pass: 0, need: 1, stopped: false }
    }

    /// Buffers and parses the next bytes of the file.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !self.stopped && !bytes.is_empty() {
            let held = self.held.len() - self.start;
            if held == 0 {
                self.held.clear();
                self.start = 0;
                let left = self.advance(bytes);
                self.held.extend_from_slice(left);
                return;
            }
            // Only the bytes that the current element still needs are copied into the buffer; the rest is parsed in
            // place.
            let lacks = self.need.saturating_sub(held).max(1).min(bytes.len());
            let (completes, rest) = bytes.split_at(lacks);
            self.held.extend_from_slice(completes);
            bytes = rest;
            let held = std::mem::take(&mut self.held);
            let left = self.advance(held.get(self.start..).unwrap_or_default()).len();
            self.held = held;
            self.start = self.held.len() - left;
            // The unparsed bytes move to the front only when more than half of the buffer is parsed; so the total
            // time is linear.
            if self.start > self.held.len() / 2 {
                self.held.drain(..self.start);
                self.start = 0;
            }
        }
    }

    /// Parses the bytes as far as possible; returns the unparsed rest.
    fn advance<'b>(&mut self, mut input: &'b [u8]) -> &'b [u8] {
        loop {
            let passed = usize::try_from(self.pass).unwrap_or(usize::MAX).min(input.len());
            self.pass -= passed as u64;
            input = input.get(passed..).unwrap_or_default();
            if input.is_empty() || input.len() < self.need {
                return input;
            }
            match self.parser.step(input) {
                ParserStep::Need(need) if need > input.len() && need <= MAX_BUFFERED_BYTES => {
                    self.need = need;
                    return input;
                }
                ParserStep::Skip(pass) if pass > 0 => (self.pass, self.need) = (pass, 1),
                ParserStep::Need(_) | ParserStep::Skip(_) => {
                    self.stopped = true;
                    return &[];
                }
            }
        }
    }

    /// Parses the end of the file, and returns the durations of the whole file.
    pub(super) fn end(mut self) -> ParsedAudio {
        let duration = self.parser.end(self.held.get(self.start..).unwrap_or_default(), self.pass);
        let basis = self.parser.duration_basis();
        let counted = self.parser.counted_duration().unwrap_or(match basis {
            DurationBasis::Counted => duration,
            DurationBasis::Stated => AudioDuration::Unknown,
        });
        ParsedAudio {
            duration,
            counted,
            minimum: self.parser.minimum_duration(),
            has_audio_data: self.parser.has_audio_data(),
            missing_data: self.parser.missing_data(),
            basis,
        }
    }
}
