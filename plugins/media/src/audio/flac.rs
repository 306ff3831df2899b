//! FLAC: frames are counted by their headers, each verified by its checksum. The sample count in the first block is
//! used only if no frame is found.

use super::bits::{be16, be32, be64};
use super::container_parser::{AudioDuration, ContainerParser, MinimumDuration, ParserStep};

/// Number of ticks per second, the unit in which durations are summed.
const RATE: u64 = 1_000_000_000;
/// Maximum bytes per second of a file in which no frame is found.
const WITHOUT_FRAMES: u64 = 16_000;
/// Maximum length of a frame header in bytes.
const HEAD: usize = 16;
/// Length in bytes of the start of a file: the marker, a block header, and the first block (STREAMINFO).
const INFO: usize = 4 + 4 + 34;

/// Parser of a FLAC stream.
#[derive(Debug, Default)]
pub(super) struct FlacParser {
    state: FlacState,
    info: Option<(u32, u64)>,
    /// Ticks of all frames so far.
    ticks: u64,
    /// Ticks of frames found inside the current metadata block. They count only if the file ends before the block is
    /// complete.
    block_ticks: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FlacState {
    #[default]
    Start,
    /// State before the header of a metadata block.
    Blocks,
    /// State inside a metadata block of which `left` bytes remain; `last` is true for the last block before the frames.
    Block {
        left: u64,
        last: bool,
    },
    Frames,
}

impl FlacParser {
    /// Returns the length of the header and the ticks of the frame at this position; `None` if there is no frame.
    fn frame(&self, input: &[u8]) -> Option<(usize, u64)> {
        let known = self.info.map_or(0, |(rate, _)| rate);
        let (length, samples, rate) = parse_frame_header(input)?;
        // Some decoders use the sample rate of the frame, others the rate of the stream. The lower rate gives the
        // longer duration.
        let rate = [rate, known].into_iter().filter(|rate| *rate > 0).min()?;
        Some((length, u64::from(samples) * RATE / u64::from(rate)))
    }

    /// Adds the ticks of the frame at this position, or searches the next possible frame. Returns the number of bytes
    /// to skip; 0 if more bytes are needed.
    fn pass(&mut self, input: &[u8]) -> usize {
        if input.first() != Some(&0xff) {
            return memchr::memchr(0xff, input).unwrap_or(input.len());
        }
        if input.len() < HEAD {
            return 0;
        }
        let Some((length, ticks)) = self.frame(input) else { return 1 };
        let sum = if self.state == FlacState::Frames { &mut self.ticks } else { &mut self.block_ticks };
        *sum = sum.saturating_add(ticks);
        length
    }

    fn block_header(&mut self, input: &[u8]) -> ParserStep {
        let Some(head) = be32(input, 0) else { return ParserStep::Need(4) };
        if head >> 18 == 0x3ffe {
            // A frame begins although no metadata block was marked as the last one.
            self.state = FlacState::Frames;
            return self.step(input);
        }
        self.enter_block(u64::from(head & 0x00ff_ffff), head >> 31 == 1);
        ParserStep::Skip(4)
    }

    /// Enters a metadata block of which `left` bytes remain.
    fn enter_block(&mut self, left: u64, last: bool) {
        self.state = match (left, last) {
            (0, true) => FlacState::Frames,
            (0, false) => FlacState::Blocks,
            _ => return self.state = FlacState::Block { left, last },
        };
        self.block_ticks = 0;
    }
}

impl ContainerParser for FlacParser {
    fn minimum_duration(&self) -> MinimumDuration {
        let rate =
            if self.ticks == 0 { WITHOUT_FRAMES } else { MinimumDuration::MAX_UNCOMPRESSED_BYTES_PER_SECOND };
        MinimumDuration::from_all_bytes(rate)
    }

    fn counted_duration(&self) -> Option<AudioDuration> {
        Some(AudioDuration::from_ticks(self.ticks, RATE))
    }

    fn step(&mut self, input: &[u8]) -> ParserStep {
        match self.state {
            FlacState::Start => {
                if input.len() < INFO {
                    return ParserStep::Need(INFO);
                }
                self.info = input.get(8..).and_then(parse_stream_info);
                self.state = FlacState::Blocks;
                ParserStep::Skip(4)
            }
            FlacState::Blocks => self.block_header(input),
            FlacState::Block { left, last } => {
                let passed = match self.pass(input) {
                    // At the end of a block, fewer bytes may remain than a frame header needs.
                    0 if left >= HEAD as u64 => return ParserStep::Need(HEAD),
                    passed => (passed.max(1) as u64).min(left),
                };
                self.enter_block(left - passed, last);
                ParserStep::Skip(passed)
            }
            FlacState::Frames => match self.pass(input) {
                0 => ParserStep::Need(HEAD),
                passed => ParserStep::Skip(passed as u64),
            },
        }
    }

    fn end(&mut self, input: &[u8], missing: u64) -> AudioDuration {
        if self.state == FlacState::Frames && missing == 0 {
            let mut rest = input;
            while !rest.is_empty() {
                let (passed, ticks) = self.frame(rest).unwrap_or((1, 0));
                self.ticks = self.ticks.saturating_add(ticks);
                rest = rest.get(passed..).unwrap_or_default();
            }
        }
        self.ticks = self.ticks.saturating_add(self.block_ticks);
        match self.info {
            Some(_) if self.ticks > 0 => AudioDuration::from_ticks(self.ticks, RATE),
            Some((rate, samples)) if rate > 0 => AudioDuration::from_ticks(samples, u64::from(rate)),
            _ => AudioDuration::NoAudio,
        }
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

/// Returns header length, number of samples and sample rate (0: that of the stream) of a frame; `None` if the header is
/// invalid or incomplete.
pub(super) fn parse_frame_header(input: &[u8]) -> Option<(usize, u32, u32)> {
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
    let mut at = 4 + number(input.get(4..)?)?;
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
    (*input.get(at)? == checksum).then_some((at + 1, samples, hertz))
}

/// Returns the length in bytes, at most seven, of a number that is encoded like a character in UTF-8.
fn number(bytes: &[u8]) -> Option<usize> {
    let length = match bytes.first()?.leading_ones() {
        0 => 1,
        ones @ 2..=7 => ones as usize,
        _ => return None,
    };
    let follows = bytes.get(1..length)?.iter().all(|byte| byte >> 6 == 2);
    follows.then_some(length)
}

/// Computes one byte of a CRC-8 with the polynomial 0x07.
fn checksum(byte: u8) -> u8 {
    (0..8).fold(byte, |sum, _| if sum & 0x80 == 0 { sum << 1 } else { sum << 1 ^ 7 })
}
