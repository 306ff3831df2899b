//! Ogg: the duration is the last position of each audio stream relative to the first one, but at least the duration of
//! its packets. The durations of chained streams are added. Pages are searched everywhere, even inside other pages,
//! because decoders continue with the next page after an error.

use super::bits::{le32, le64};
use super::container_parser::{AudioDuration, ContainerParser, MinimumDuration, ParserStep};
use super::ogg_stream::{OggCodec, OggStream};
use std::collections::BTreeMap;

/// Ticks per second, the common unit of all streams.
const RATE: u64 = 48_000;
/// Maximum number of streams that are open at the same time. With more streams the duration is unknown.
const MOST_STREAMS: usize = 4096;
/// Number of bytes in a page before its table of segments.
const HEAD: usize = 27;
/// Number of bytes that are read of a stream's first packet.
const FIRST_PACKET: usize = 80;

/// Parser of an Ogg file.
#[derive(Debug, Default)]
pub(super) struct OggParser {
    streams: BTreeMap<u32, OggStream>,
    /// Sum of the durations of streams that ended because a later stream has the same serial number.
    ended: StreamTicks,
    /// True if any stream had audio.
    has_audio: bool,
    has_flac: bool,
    /// True if a packet of audio began in a stream that has ended.
    ended_with_audio: bool,
    too_many: bool,
    /// Bytes of headers and of streams without audio.
    excluded: u64,
    /// Position in the file, and the end of the last page from which bytes were excluded. Apparent pages inside that
    /// page exclude no further bytes, so no byte is excluded twice.
    offset: u64,
    excluded_until: u64,
}

impl OggParser {
    /// Parses the Ogg page at the start of `input`, or skips a byte if there is none.
    fn page(&mut self, input: &[u8]) -> ParserStep {
        let Some(head) = input.get(..HEAD) else { return ParserStep::Need(HEAD) };
        if !head.starts_with(b"OggS") {
            return ParserStep::Skip(1);
        }
        let at = HEAD + head.get(26).map_or(0, |count| usize::from(*count));
        let Some(table) = input.get(HEAD..at) else { return ParserStep::Need(at) };
        let whole = at + table.iter().map(|length| usize::from(*length)).sum::<usize>();
        let Some(body) = input.get(at..whole) else { return ParserStep::Need(whole) };
        let flags = head.get(5).copied().unwrap_or_default();
        let serial = le32(head, 14).unwrap_or_default();
        if flags & 2 != 0 || !self.streams.contains_key(&serial) {
            self.open(serial, body.get(..body.len().min(FIRST_PACKET)).unwrap_or_default());
        }
        if let Some(stream) = self.streams.get_mut(&serial) {
            let excluded = match stream.codec {
                OggCodec::NoAudio => whole as u64,
                _ => {
                    let position = le64(head, 6).unwrap_or(u64::MAX);
                    stream.add_page(table, body, flags & 1 != 0, position)
                }
            };
            if excluded > 0 && self.offset >= self.excluded_until {
                self.excluded += excluded;
                self.excluded_until = self.offset + whole as u64;
            }
        }
        // The body of an apparent page is searched for pages too, because the page may not be real.
        ParserStep::Skip(at as u64)
    }

    /// Opens a stream with this first packet, unless its codec is unknown. An open stream with the same serial number
    /// ends.
    fn open(&mut self, serial: u32, packet: &[u8]) {
        let Some(stream) = OggStream::from_first_packet(packet) else { return };
        self.has_audio |= stream.codec != OggCodec::NoAudio;
        self.has_flac |= stream.codec == OggCodec::Flac;
        if self.streams.len() >= MOST_STREAMS && !self.streams.contains_key(&serial) {
            self.too_many = true;
        } else if let Some(ended) = self.streams.insert(serial, stream) {
            self.ended = self.ended.add(StreamTicks::of(&ended));
            self.ended_with_audio |= ended.has_audio_packet;
        }
    }

    /// Returns the sum of the durations of all streams.
    fn total(&self) -> StreamTicks {
        self.streams.values().map(StreamTicks::of).fold(self.ended, StreamTicks::add)
    }
}

impl ContainerParser for OggParser {
    fn minimum_duration(&self) -> MinimumDuration {
        let rate = if self.has_flac {
            MinimumDuration::MAX_UNCOMPRESSED_BYTES_PER_SECOND
        } else {
            MinimumDuration::MAX_LOSSY_BYTES_PER_SECOND
        };
        MinimumDuration { excluded: self.excluded, max_byte_rate: rate }
    }

    fn has_audio_data(&self) -> bool {
        self.ended_with_audio || self.too_many || self.streams.values().any(|stream| stream.has_audio_packet)
    }

    fn counted_duration(&self) -> Option<AudioDuration> {
        let counted = AudioDuration::from_ticks(self.total().counted, RATE);
        Some(if self.too_many { AudioDuration::Unknown } else { counted })
    }

    fn step(&mut self, input: &[u8]) -> ParserStep {
        let step = match memchr::memchr(b'O', input) {
            Some(0) => self.page(input),
            Some(at) => ParserStep::Skip(at as u64),
            None => ParserStep::Skip(input.len() as u64),
        };
        if let ParserStep::Skip(passed) = step {
            self.offset += passed;
        }
        step
    }

    fn end(&mut self, mut input: &[u8], _: u64) -> AudioDuration {
        // An incomplete page at the end of the file may contain other pages.
        while !input.is_empty() {
            let passed = match self.step(input) {
                ParserStep::Skip(passed) => usize::try_from(passed).unwrap_or(usize::MAX),
                ParserStep::Need(_) => 1,
            };
            input = input.get(passed..).unwrap_or_default();
        }
        if !self.has_audio {
            return AudioDuration::NoAudio;
        }
        if self.too_many {
            return AudioDuration::Unknown;
        }
        AudioDuration::from_ticks(self.total().played, RATE)
    }
}

/// Duration of streams in ticks of [`RATE`].
#[derive(Clone, Copy, Debug, Default)]
struct StreamTicks {
    /// Duration by the positions, but at least that of the packets.
    played: u64,
    /// Duration of the packets alone.
    counted: u64,
}

impl StreamTicks {
    fn of(stream: &OggStream) -> Self {
        let ticks = |samples: u64| {
            let ticks = u128::from(samples) * u128::from(RATE) / u128::from(stream.rate.max(1));
            u64::try_from(ticks).unwrap_or(u64::MAX)
        };
        Self { played: ticks(stream.played_samples()), counted: ticks(stream.packet_samples()) }
    }

    fn add(self, other: Self) -> Self {
        Self {
            played: self.played.saturating_add(other.played),
            counted: self.counted.saturating_add(other.counted),
        }
    }
}
