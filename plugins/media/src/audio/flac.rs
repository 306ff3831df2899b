//! FLAC: frames are counted by their headers, each verified by its checksum and by its number. The sample count in the
//! first block is used only if no frame is found.

use super::bits::be32;
use super::container_parser::{AudioDuration, ContainerParser, MinimumDuration, ParserStep};
use super::flac_frame::{FlacFrame, FrameSequence, parse_frame_header, parse_stream_info};

/// Number of ticks per second, the unit in which durations are summed.
const RATE: u64 = 1_000_000_000;
/// Maximum bytes per second of a file in which no frame is found.
const WITHOUT_FRAMES: u64 = 16_000;
/// Minimum samples per second of audio.
const MIN_RATE: u32 = 1_000;
/// Maximum length of a frame header in bytes.
const HEAD: usize = 16;
/// Length in bytes of the start of a file: the marker, a block header, and the first block (STREAMINFO).
const INFO: usize = 4 + 4 + 34;

/// Parser of a FLAC stream.
#[derive(Debug, Default)]
pub(super) struct FlacParser {
    state: FlacState,
    info: Option<(u32, u64)>,
    /// Frames so far.
    frames: FrameSequence,
    /// Frames found inside the current metadata block. They count only if the file ends before the block is complete.
    block_frames: FrameSequence,
    /// Number of bytes in which frames were searched.
    searched: u64,
    /// Sum of the ticks of all frames; known at the end of the file.
    ticks: u64,
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
    /// Returns the frame at this position and its ticks; `None` if there is no frame.
    fn frame(&self, input: &[u8]) -> Option<(FlacFrame, u64)> {
        let known = self.info.map_or(0, |(rate, _)| rate);
        let frame = parse_frame_header(input)?;
        // Some decoders use the sample rate of the frame, others the rate of the stream. The lower rate gives the
        // longer duration, unless no audio has that rate.
        let rates = [frame.rate, known].into_iter().filter(|rate| *rate > 0);
        let rate = rates.clone().filter(|rate| *rate >= MIN_RATE).min().or(rates.min())?;
        Some((frame, u64::from(frame.samples) * RATE / u64::from(rate)))
    }

    /// Adds the frame at this position, or searches the next possible frame. Returns the number of bytes to skip; 0 if
    /// more bytes are needed.
    fn pass(&mut self, input: &[u8]) -> usize {
        if input.first() != Some(&0xff) {
            return memchr::memchr(0xff, input).unwrap_or(input.len());
        }
        if input.len() < HEAD {
            return 0;
        }
        self.add_frame(input)
    }

    /// Adds the frame at this position, if there is one; returns the number of bytes to skip.
    fn add_frame(&mut self, input: &[u8]) -> usize {
        let Some((frame, ticks)) = self.frame(input) else { return 1 };
        let sum = if self.state == FlacState::Frames { &mut self.frames } else { &mut self.block_frames };
        sum.add(&frame, ticks);
        frame.header
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
        self.block_frames = FrameSequence::default();
    }
}

impl ContainerParser for FlacParser {
    fn minimum_duration(&self) -> MinimumDuration {
        let rate =
            if self.ticks == 0 { WITHOUT_FRAMES } else { MinimumDuration::MAX_UNCOMPRESSED_BYTES_PER_SECOND };
        MinimumDuration::from_all_bytes(rate)
    }

    fn has_audio_data(&self) -> bool {
        self.ticks > 0
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
                self.searched = self.searched.saturating_add(passed);
                self.enter_block(left - passed, last);
                ParserStep::Skip(passed)
            }
            FlacState::Frames => match self.pass(input) {
                0 => ParserStep::Need(HEAD),
                passed => {
                    self.searched = self.searched.saturating_add(passed as u64);
                    ParserStep::Skip(passed as u64)
                }
            },
        }
    }

    fn end(&mut self, input: &[u8], missing: u64) -> AudioDuration {
        if self.state == FlacState::Frames && missing == 0 {
            let mut rest = input;
            while !rest.is_empty() {
                let passed = self.add_frame(rest);
                rest = rest.get(passed..).unwrap_or_default();
            }
        }
        let frames = [&self.frames, &self.block_frames].map(|frames| frames.ticks(self.searched));
        self.ticks = frames.into_iter().fold(0, u64::saturating_add);
        match self.info {
            Some(_) if self.ticks > 0 => AudioDuration::from_ticks(self.ticks, RATE),
            Some((rate, samples)) if rate > 0 => AudioDuration::from_ticks(samples, u64::from(rate)),
            _ => AudioDuration::NoAudio,
        }
    }
}
