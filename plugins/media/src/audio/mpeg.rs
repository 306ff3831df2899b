//! MPEG audio: every frame is counted, so that the duration of variable bit rates is exact. Noise between frames is
//! skipped. Tags after the first frame are searched for frames too, because decoders ignore the stated length of such
//! tags. The first frame does not count if it contains only a description of the stream by the encoder (`Xing`,
//! `Info`, `VBRI`).

use super::bits::{be32, le32};
use super::container_parser::{AudioDuration, ContainerParser, MinimumDuration, ParserStep};

/// Ticks per second: a multiple of every sample rate of MPEG audio.
const RATE: u64 = 14_112_000;
/// Kilobits per second by index: one row for each of the layers I, II and III of version 1 and layer I of version 2,
/// and one for layers II and III of version 2.
const BITRATES: [[u16; 15]; 5] = [
    [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];
const SAMPLE_RATES: [u32; 3] = [44_100, 48_000, 32_000];

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Length of the frame in bytes, including its header.
    length: usize,
    pub samples: u32,
    /// Samples per second.
    pub rate: u32,
    /// Bits that all frames of a stream share: version, layer, sample rate.
    kind: u32,
}

impl FrameHeader {
    /// Returns the length of the frame in bytes, including its header.
    pub(super) const fn length(&self) -> usize {
        self.length
    }

    /// Parses the header of the MPEG audio frame at the start of `input`; `None` if it is invalid or incomplete.
    pub(super) fn parse(input: &[u8]) -> Option<Self> {
        let head = be32(input, 0)?;
        let field = |shift: u32, mask: u32| usize::try_from(head >> shift & mask).ok();
        if head >> 21 != 0x7ff {
            return None;
        }
        let (version, layer) = (head >> 19 & 3, head >> 17 & 3);
        if version == 1 || layer == 0 {
            return None;
        }
        let first = version == 3;
        let table = match (first, layer) {
            (true, layer) => 3 - layer,
            (false, 3) => 3,
            (false, _) => 4,
        };
        let kilobits = BITRATES.get(usize::try_from(table).ok()?)?.get(field(12, 15)?).copied()?;
        let rate = SAMPLE_RATES.get(field(10, 3)?).copied()?;
        let rate = match version {
            3 => rate,
            2 => rate / 2,
            _ => rate / 4,
        };
        let samples = match (layer, first) {
            (3, _) => 384,
            (1, false) => 576,
            _ => 1152,
        };
        // Padding is one slot: four bytes in layer I, one byte in the others.
        let slot = if layer == 3 { 4 } else { 1 };
        let slots = samples / 8 / slot * u32::from(kilobits) * 1000 / rate + (head >> 9 & 1);
        let length = usize::try_from(slots * slot).ok().filter(|length| *length > 4)?;
        Some(Self { length, samples, rate, kind: head & 0xfffe_0c00 })
    }
}

/// Number of bytes that identify a tag and its length.
pub(super) const TAG_HEADER_BYTES: usize = 16;
/// Number of bytes of a tag in which at most one frame header is expected by chance. In a header that matches the
/// stream 17 bits are fixed, so random bytes contain such a header about once in 131,072 bytes.
const CHANCE: u64 = 16_384;

/// Returns the length in bytes of the ID3v2 tag at the start of `input`, from its first [`TAG_HEADER_BYTES`] bytes;
/// `None` if there is none. Decoders skip an ID3v2 tag at the start of a file.
pub(super) fn leading_tag_length(input: &[u8]) -> Option<u64> {
    if !input.starts_with(b"ID3") {
        return None;
    }
    let [flags, size @ ..] = input.get(5..10)? else { return None };
    let size = size.iter().try_fold(0u64, |sum, byte| (*byte < 128).then(|| sum << 7 | u64::from(*byte)))?;
    let footer = if flags & 0x10 == 0 { 0 } else { 10 };
    Some(size + 10 + footer)
}

/// Returns the length in bytes of the tag at the start of `input`: ID3v2, or ID3v1 and APE, which occur at the end of a
/// file. `None` if there is no tag.
pub(super) fn tag_length(input: &[u8]) -> Option<u64> {
    if input.starts_with(b"TAG") {
        return Some(128);
    }
    if input.starts_with(b"APETAGEX") {
        return le32(input, 12).map(|size| u64::from(size) + 32);
    }
    leading_tag_length(input)
}

/// Returns true if a file with this start is MPEG audio.
pub(super) fn is_mpeg_audio(start: &[u8]) -> bool {
    FrameHeader::parse(start).is_some()
}

/// Number of bytes from the start of a file in which its first frame is searched, and number of bytes of the file that
/// this search reads: the first frame has up to 2,881 bytes, and the second one must follow.
const MAX_BYTES_BEFORE_FRAMES: usize = 4 << 10;
pub(super) const FRAME_SEARCH_BYTES: usize = 8 << 10;

/// Returns true if two frames of one kind follow each other near the start of a file. A recording that was cut from a
/// stream begins inside a frame, and some files begin with padding.
pub(super) fn begins_with_frames(start: &[u8]) -> bool {
    let searched = start.get(..MAX_BYTES_BEFORE_FRAMES).unwrap_or(start);
    memchr::memchr_iter(0xff, searched).any(|at| {
        let frame = start.get(at..).unwrap_or_default();
        FrameHeader::parse(frame).is_some_and(|first| {
            let next = frame.get(first.length..).and_then(FrameHeader::parse);
            next.is_some_and(|next| next.kind == first.kind)
        })
    })
}

/// Parser of a sequence of frames.
#[derive(Debug, Default)]
pub(super) struct MpegParser {
    ticks: u64,
    /// Header bits that all frames so far have in common.
    kind: Option<u32>,
    position: MpegPosition,
    tags: TagSums,
}

/// Position of the parser in the stream.
#[derive(Clone, Copy, Debug, Default)]
enum MpegPosition {
    #[default]
    Start,
    /// Position directly after a frame or a tag, where the next one is expected.
    Synced,
    /// Position inside noise. The number of bytes that are skipped at once depends on the chunks of the input, so a tag
    /// is not recognised directly after noise. Frames are recognised at any position.
    Noise,
    /// Position inside an apparent tag, with its length and the number of bytes that remain.
    Tag { length: u64, left: u64 },
}

/// Contents of all apparent tags.
#[derive(Clone, Copy, Debug, Default)]
struct TagSums {
    /// Number of bytes in all tags so far.
    bytes: u64,
    /// Number of bytes in complete tags.
    complete: u64,
    /// Number of frames found inside tags, and the ticks of these frames.
    frames: u64,
    ticks: u64,
}

impl TagSums {
    /// Returns true if the tags contain more frames than appear by chance.
    const fn have_audio(&self) -> bool {
        self.frames > 3 + self.bytes / CHANCE
    }
}

impl MpegParser {
    fn count(&mut self, frame: FrameHeader, input: &[u8]) -> ParserStep {
        let ticks = u64::from(frame.samples) * (RATE / u64::from(frame.rate));
        if let MpegPosition::Tag { .. } = self.position {
            (self.tags.frames, self.tags.ticks) = (self.tags.frames + 1, self.tags.ticks + ticks);
            self.kind = self.kind.or(Some(frame.kind));
        } else {
            if self.kind.is_some() || !is_info_frame(input, frame.length) {
                self.ticks += ticks;
            }
            (self.kind, self.position) = (Some(frame.kind), MpegPosition::Synced);
        }
        ParserStep::Skip(frame.length as u64)
    }

    fn matches_stream(&self, frame: &FrameHeader) -> bool {
        self.kind.is_some_and(|kind| kind == frame.kind)
    }

    /// Adds the ticks of the frame at this position, or skips noise up to the next byte with which a frame may begin.
    fn frame(&mut self, input: &[u8]) -> ParserStep {
        if let Some(frame) = FrameHeader::parse(input) {
            if self.matches_stream(&frame) {
                return self.count(frame, input);
            }
            // A frame of another kind (version, layer, sample rate) is accepted if a second frame of that kind
            // follows: decoders accept it too.
            if input.len() < frame.length + TAG_HEADER_BYTES {
                return ParserStep::Need(frame.length + TAG_HEADER_BYTES);
            }
            let behind = input.get(frame.length..).unwrap_or_default();
            let synced = matches!(self.position, MpegPosition::Synced);
            let follows = FrameHeader::parse(behind).is_some_and(|next| synced || next.kind == frame.kind);
            if follows || tag_length(behind).is_some() {
                return self.count(frame, input);
            }
        }
        if !matches!(self.position, MpegPosition::Tag { .. }) {
            self.position = MpegPosition::Noise;
        }
        let rest = input.get(1..).unwrap_or_default();
        ParserStep::Skip(memchr::memchr(0xff, rest).map_or(input.len(), |at| at + 1) as u64)
    }

    /// Parses bytes inside a tag of which `left` bytes remain.
    fn tag(&mut self, input: &[u8], length: u64, left: u64) -> ParserStep {
        let step = self.frame(input);
        let ParserStep::Skip(passed) = step else { return step };
        self.pass_tag(passed.min(left), length, left);
        ParserStep::Skip(passed.min(left))
    }

    fn pass_tag(&mut self, passed: u64, length: u64, left: u64) {
        let left = left.saturating_sub(passed);
        self.tags.bytes += passed;
        self.position = MpegPosition::Tag { length, left };
        if left == 0 {
            self.tags.complete = self.tags.complete.saturating_add(length);
            self.position = MpegPosition::Synced;
        }
    }
}

/// Returns true if the first frame contains only a description of the stream instead of audio.
fn is_info_frame(input: &[u8], length: usize) -> bool {
    let frame = input.get(..length.min(input.len()).min(64)).unwrap_or_default();
    let names: [&[u8]; 3] = [b"Xing", b"Info", b"VBRI"];
    frame.windows(4).skip(4).any(|four| names.contains(&four))
}

impl ContainerParser for MpegParser {
    fn minimum_duration(&self) -> MinimumDuration {
        let excluded = if self.tags.have_audio() { 0 } else { self.tags.complete };
        MinimumDuration { excluded, max_byte_rate: MinimumDuration::MAX_LOSSY_BYTES_PER_SECOND }
    }

    fn step(&mut self, input: &[u8]) -> ParserStep {
        if input.len() < TAG_HEADER_BYTES {
            return ParserStep::Need(TAG_HEADER_BYTES);
        }
        if let MpegPosition::Start | MpegPosition::Synced = self.position
            && let Some(length) = tag_length(input)
        {
            self.position = MpegPosition::Tag { length, left: length };
        }
        match self.position {
            MpegPosition::Tag { length, left } => self.tag(input, length, left),
            _ => self.frame(input),
        }
    }

    fn end(&mut self, mut input: &[u8], missing: u64) -> AudioDuration {
        // The last frames of a file count even if no frame follows that confirms them.
        while missing == 0 && !input.is_empty() {
            let frame =
                FrameHeader::parse(input).filter(|frame| self.kind.is_none_or(|kind| kind == frame.kind));
            let passed = match frame.filter(|frame| frame.length <= input.len()) {
                Some(frame) => {
                    self.count(frame, input);
                    frame.length
                }
                None => 1,
            };
            input = input.get(passed..).unwrap_or_default();
            if let MpegPosition::Tag { length, left } = self.position {
                self.pass_tag(passed as u64, length, left);
            }
        }
        if self.tags.have_audio() {
            self.ticks = self.ticks.saturating_add(self.tags.ticks);
        }
        if self.kind.is_none() || self.ticks == 0 {
            return AudioDuration::NoAudio;
        }
        AudioDuration::from_ticks(self.ticks, RATE)
    }
}
