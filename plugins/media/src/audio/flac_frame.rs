//! Headers of FLAC frames, and the sequence of frames by their numbers.

use super::bits::{be16, be32, be64};

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlacFrame {
    /// Length of the header in bytes.
    pub header: usize,
    /// Number of samples of a channel.
    pub samples: u32,
    /// Samples per second; 0 if the frame has the rate of the stream.
    pub rate: u32,
    number: FrameNumber,
    /// Number of the frame that follows this one.
    next: FrameNumber,
}

/// Number of a frame in its stream; for blocks of variable size the number of its first sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FrameNumber(u64);

impl FrameNumber {
    /// Returns the number that follows `number`, the one of a frame of this many samples.
    fn after(number: u64, samples: u32, is_variable: bool) -> Self {
        Self(number.saturating_add(if is_variable { u64::from(samples) } else { 1 }))
    }
}

/// Count of frames, the sum of their samples, and the sum of their ticks.
#[derive(Clone, Copy, Debug, Default)]
struct FrameSum {
    count: u64,
    samples: u64,
    ticks: u64,
}

impl FrameSum {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.samples = self.samples.saturating_add(other.samples);
        self.ticks = self.ticks.saturating_add(other.ticks);
    }
}

/// Sum of the frames of a stream. The content of frames may contain bytes that look like the header of a frame, with a
/// valid checksum, but hardly with the number that is expected next.
#[derive(Debug, Default)]
pub(super) struct FrameSequence {
    /// Frames whose number was expected.
    expected: FrameSum,
    /// Number of the next frame.
    next: FrameNumber,
    /// Last frame with an unexpected number, and the number after it. If a frame with that number follows, the stream
    /// continues there.
    candidate: Option<(FrameNumber, FrameSum)>,
    /// All other frames with an unexpected number.
    unexpected: FrameSum,
}

impl FrameSequence {
    /// Compressed audio contains fewer false headers than one in this number of bytes.
    const BYTES_PER_FALSE_HEADER: u64 = 256 << 10;
    /// False headers are left out only if their samples are fewer than those of the frames divided by this.
    const MAX_FALSE_SHARE: u64 = 8;

    /// Adds the next frame of the file, which lasts this number of ticks.
    pub(super) fn add(&mut self, frame: &FlacFrame, ticks: u64) {
        let added = FrameSum { count: 1, samples: u64::from(frame.samples), ticks };
        if frame.number == self.next {
            self.expected.add(added);
            self.next = frame.next;
            return;
        }
        match self.candidate.replace((frame.next, added)) {
            Some((next, before)) if next == frame.number => {
                self.expected.add(before);
                self.expected.add(added);
                (self.next, self.candidate) = (frame.next, None);
            }
            Some((_, before)) => self.unexpected.add(before),
            None => {}
        }
    }

    /// Returns the ticks of all frames. Frames with an unexpected number count if they are more, or have more samples,
    /// than the false headers in `searched` bytes.
    pub(super) fn ticks(&self, searched: u64) -> u64 {
        let mut others = self.unexpected;
        if let Some((_, last)) = self.candidate {
            others.add(last);
        }
        let are_false = others.count <= 1 + searched / Self::BYTES_PER_FALSE_HEADER
            && others.samples <= self.expected.samples / Self::MAX_FALSE_SHARE;
        self.expected.ticks.saturating_add(if are_false { 0 } else { others.ticks })
    }
}

/// Returns sample rate and number of samples (0: unknown) of a STREAMINFO block; `None` if the block is incomplete.
pub(super) fn parse_stream_info(block: &[u8]) -> Option<(u32, u64)> {
    let rate = be32(block, 10)? >> 12;
    let samples = be64(block, 10)? & 0xf_ffff_ffff;
    Some((rate, samples))
}

/// Reserved code of the size of a sample (RFC 9639, section 9.1.4).
const RESERVED_SAMPLE_SIZE: u32 = 3;

/// Reads the header of a frame; `None` if it is invalid or incomplete.
pub(super) fn parse_frame_header(input: &[u8]) -> Option<FlacFrame> {
    let head = be32(input, 0)?;
    let field = |shift: u32, mask: u32| head >> shift & mask;
    // Checks the sync code and the reserved bits, then the channel assignment and the sample size.
    if head >> 18 != 0x3ffe || field(17, 1) != 0 || field(0, 1) != 0 {
        return None;
    }
    if field(4, 15) > 10 || field(1, 7) == RESERVED_SAMPLE_SIZE {
        return None;
    }
    let (block, rate) = (field(12, 15), field(8, 15));
    let (number, length) = number(input.get(4..)?)?;
    let mut at = 4 + length;
    let samples = match block {
        0 => return None,
        1 => 192,
        2..=5 => 576 << (block - 2),
        6 => u32::from(*input.get(at)?) + 1,
        7 => u32::from(be16(input, at)?) + 1,
        _ => 256 << (block - 8),
    };
    at += match block {
        6 => 1,
        7 => 2,
        _ => 0,
    };
    const RATES: [u32; 12] =
        [0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000];
    let (extra, hertz) = match rate {
        12 => (1, u32::from(*input.get(at)?) * 1000),
        13 => (2, u32::from(be16(input, at)?)),
        14 => (2, u32::from(be16(input, at)?) * 10),
        _ => (0, RATES.get(usize::try_from(rate).ok()?).copied()?),
    };
    at += extra;
    let checksum = input.get(..at)?.iter().fold(0, |sum, byte| checksum(sum ^ *byte));
    let next = FrameNumber::after(number, samples, field(16, 1) == 1);
    let frame = FlacFrame { header: at + 1, samples, rate: hertz, number: FrameNumber(number), next };
    (*input.get(at)? == checksum).then_some(frame)
}

/// Reads a number that is encoded like a character in UTF-8; returns it and its length in bytes, at most seven.
fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = match first.leading_ones() {
        0 => 1,
        ones @ 2..=7 => ones as usize,
        _ => return None,
    };
    let rest = bytes.get(1..length)?;
    let first = u64::from(first) & (0x7f >> (length - usize::from(length == 1)));
    let number = rest.iter().fold(first, |sum, byte| sum << 6 | u64::from(byte & 0x3f));
    rest.iter().all(|byte| byte >> 6 == 2).then_some((number, length))
}

/// Computes one byte of a CRC-8 with the polynomial 0x07.
fn checksum(byte: u8) -> u8 {
    (0..8).fold(byte, |sum, _| if sum & 0x80 == 0 { sum << 1 } else { sum << 1 ^ 7 })
}
