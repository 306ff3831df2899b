//! MPEG audio: every frame is counted, so that variable rates are exact. Tags and noise between frames are skipped; the
//! first frame does not count if an encoder wrote it to describe the others.

use super::bits::{be32, le32};
use super::container_parser::{AudioDuration, ContainerParser, MinimumDuration, ParserStep};

/// Ticks per second: every sample rate of MPEG audio divides it.
const RATE: u64 = 14_112_000;
/// Kilobits per second by index: version 1 layers I, II, III, then version 2 layers I, II and III.
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
struct FrameHeader {
    /// Length in bytes, with the header.
    length: usize,
    samples: u32,
    rate: u32,
    /// Bits that all frames of a stream share: version, layer, sample rate.
    kind: u32,
}

impl FrameHeader {
    fn read(ahead: &[u8]) -> Option<Self> {
        let head = be32(ahead, 0)?;
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
        // A slot is four bytes in layer I, else one.
        let slot = if layer == 3 { 4 } else { 1 };
        let slots = samples / 8 / slot * u32::from(kilobits) * 1000 / rate + (head >> 9 & 1);
        let length = usize::try_from(slots * slot).ok().filter(|length| *length > 4)?;
        Some(Self { length, samples, rate, kind: head & 0xfffe_0c00 })
    }
}

/// Bytes that identify a tag and its length.
pub(super) const TAG_LENGTH: usize = 16;

/// Returns the bytes of a tag at this position, from its first [`TAG`] bytes: ID3v2 at the start, ID3v1 and APE at the
/// end.
pub(super) fn tag_length(ahead: &[u8]) -> Option<u64> {
    if ahead.starts_with(b"TAG") {
        return Some(128);
    }
    if ahead.starts_with(b"APETAGEX") {
        return le32(ahead, 12).map(|size| u64::from(size) + 32);
    }
    if !ahead.starts_with(b"ID3") {
        return None;
    }
    let [flags, size @ ..] = ahead.get(5..10)? else { return None };
    let size = size.iter().try_fold(0u64, |sum, byte| (*byte < 128).then(|| sum << 7 | u64::from(*byte)))?;
    let footer = if flags & 0x10 == 0 { 0 } else { 10 };
    Some(size + 10 + footer)
}

/// Returns true if a file with this start is MPEG audio.
pub(super) fn is_mpeg_audio(start: &[u8]) -> bool {
    FrameHeader::read(start).is_some()
}

/// Parser of a sequence of frames.
#[derive(Debug, Default)]
pub(super) struct MpegParser {
    ticks: u64,
    /// Shared bits of the frames so far.
    kind: Option<u32>,
    /// True if the last element ended here, so that a frame needs no second one as confirmation.
    synced: bool,
    /// True within noise: the number of bytes skipped at once depends on the chunks of the input, so no tag may begin
    /// at their end. Frames are found anywhere.
    noise: bool,
}

impl MpegParser {
    fn count(&mut self, frame: FrameHeader, ahead: &[u8]) -> ParserStep {
        if self.kind.is_some() || !is_info_frame(ahead, frame.length) {
            self.ticks += u64::from(frame.samples) * (RATE / u64::from(frame.rate));
        }
        (self.kind, self.synced, self.noise) = (Some(frame.kind), true, false);
        ParserStep::Skip(frame.length as u64)
    }

    fn matches_stream(&self, frame: &FrameHeader) -> bool {
        self.kind.is_none_or(|kind| kind == frame.kind)
    }
}

/// Returns true if the first frame only describes the others.
fn is_info_frame(ahead: &[u8], length: usize) -> bool {
    let frame = ahead.get(..length.min(ahead.len()).min(64)).unwrap_or_default();
    let names: [&[u8]; 3] = [b"Xing", b"Info", b"VBRI"];
    frame.windows(4).skip(4).any(|four| names.contains(&four))
}

impl ContainerParser for MpegParser {
    /// Returns no minimum by bytes, because each frame is counted.
    fn minimum(&self) -> MinimumDuration {
        MinimumDuration { bytes: Some(0), rate: MinimumDuration::LOSSY, millis: 0 }
    }

    fn step(&mut self, ahead: &[u8]) -> ParserStep {
        if ahead.len() < TAG_LENGTH {
            return ParserStep::Need(TAG_LENGTH);
        }
        if let Some(length) = tag_length(ahead).filter(|_| !self.noise) {
            return ParserStep::Skip(length);
        }
        if let Some(frame) = FrameHeader::read(ahead) {
            if self.synced && self.matches_stream(&frame) {
                return self.count(frame, ahead);
            }
            // A change of the frame kind is accepted if a second frame confirms it: decoders continue with them.
            if ahead.len() < frame.length + TAG_LENGTH {
                return ParserStep::Need(frame.length + TAG_LENGTH);
            }
            let behind = ahead.get(frame.length..).unwrap_or_default();
            let follows = FrameHeader::read(behind).is_some_and(|next| next.kind == frame.kind);
            if follows || tag_length(behind).is_some() {
                return self.count(frame, ahead);
            }
        }
        (self.synced, self.noise) = (false, true);
        let noise = ahead.iter().skip(1).position(|byte| *byte == 0xff).map_or(ahead.len(), |at| at + 1);
        ParserStep::Skip(noise as u64)
    }

    fn end(&mut self, mut ahead: &[u8], missing: u64) -> AudioDuration {
        // The last frames have no following frame as confirmation.
        if missing == 0 {
            while let Some(frame) = FrameHeader::read(ahead).filter(|frame| self.matches_stream(frame)) {
                let Some(behind) = ahead.get(frame.length..) else { break };
                self.count(frame, ahead);
                ahead = behind;
            }
        }
        if self.kind.is_none() || self.ticks == 0 {
            return AudioDuration::NoAudio;
        }
        AudioDuration::from_ticks(self.ticks, RATE)
    }
}
