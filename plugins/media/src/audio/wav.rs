//! WAV: the duration is the number of data bytes divided by the bytes of a sample, as in decoders. The frames of MPEG
//! audio and the blocks of speech codecs are counted. Other compressed files use the sample count of the `fact` chunk, if
//! it is plausible for the number of bytes, or else the byte rate of the header.

use super::bits::{le16, le32, le64};
use super::container_parser::{
    AudioDuration, ContainerParser, MinimumDuration, MissingData, ParsedAudio, ParserDriver, ParserStep,
};
use super::mpeg::MpegParser;
use super::wav_encoding::{CodecBlock, WavEncoding};
use penstock_core::DurationBasis;

/// Values of the data size by which a header says that the length was still unknown.
const OPEN_ENDED: [u32; 2] = [0, u32::MAX];

/// Smallest size that encoders write as a placeholder while the length is unknown: 0x7FFFFFFF and 0xFFFFFFFF, also less
/// the length of a header, and `SoX`'s 0x7FFFF000.
const MIN_PLACEHOLDER: u64 = 0x7fff_0000;

/// Maximum bytes per second of unknown codecs: 320 kbit/s.
const UNKNOWN_CODEC_RATE: u64 = 40_000;

/// Parser of a WAV file: RIFF or RF64.
#[derive(Debug, Default)]
pub(super) struct WavParser {
    coding: WavEncoding,
    channels: u16,
    sample_rate: u32,
    /// Bytes per second, from the format chunk.
    byte_rate: u32,
    /// Bytes of one sample in all channels; 0 if the header does not state it.
    block: u32,
    /// Number of samples, from the fact chunk.
    samples: u64,
    /// True for RF64, whose data may be longer than a 32-bit size can state; `long` is then the length of the data,
    /// if the file states it.
    is_long: bool,
    long: Option<u64>,
    /// Parser of the frames, for MPEG audio.
    frames: Option<ParserDriver>,
    data: u64,
    /// Number of bytes that the data lacks of its stated length.
    missing: u64,
    state: WavState,
    basis: DurationBasis,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum WavState {
    #[default]
    Head,
    Chunks,
    /// State inside MPEG audio, which lasts to the end of the file.
    Frames,
    /// State after the header of the data chunk: the bytes that are skipped are the data.
    Data,
    /// State at a chunk after the data; `data` is true if the last chunk was another data chunk.
    AfterData {
        data: bool,
    },
    /// State inside bytes after the data that are not a chunk.
    Rest,
}

impl WavParser {
    fn format(&mut self, chunk: &[u8]) -> Option<()> {
        let tag = le16(chunk, 8)?;
        self.channels = le16(chunk, 10)?;
        self.sample_rate = le32(chunk, 12)?;
        self.byte_rate = le32(chunk, 16)?;
        // The extensible format names the actual encoding in its extension.
        let extended = tag == 0xfffe && le32(chunk, 4).is_some_and(|size| size >= 26);
        let bits = le16(chunk, 22)?;
        self.coding = WavEncoding::from_tag(if extended { le16(chunk, 32)? } else { tag }, bits);
        self.frames =
            (self.coding == WavEncoding::Mpeg).then(|| ParserDriver::new(Box::new(MpegParser::default())));
        // Some decoders use the stated block size, others the computed one. The smaller one gives the longer duration.
        let stated = u32::from(le16(chunk, 20)?);
        let counted = u32::from(self.channels) * u32::from(bits.div_ceil(8));
        self.block = if stated == 0 || counted == 0 { stated.max(counted) } else { stated.min(counted) };
        Some(())
    }

    /// Parses a chunk that precedes the data.
    fn chunk(&mut self, name: &[u8], size: u32, input: &[u8]) -> ParserStep {
        match name {
            b"fmt " => drop(self.format(input)),
            b"ds64" => self.long = le64(input, 16),
            b"fact" => self.samples = le32(input, 8).map_or(0, u64::from),
            b"data" => {
                self.state = WavState::Data;
                self.data = match self.long.filter(|_| self.is_long) {
                    Some(long) if long > 0 && OPEN_ENDED.contains(&size) => long,
                    Some(long) if long > 0 => long.max(u64::from(size)),
                    _ if OPEN_ENDED.contains(&size) => u64::MAX - 8,
                    _ => u64::from(size),
                };
                if self.frames.is_some() {
                    (self.state, self.data) = (WavState::Frames, 0);
                    return ParserStep::Skip(8);
                }
                // A padding byte follows data of odd length.
                let padding = if self.data < u64::from(u32::MAX) { self.data % 2 } else { 0 };
                return ParserStep::Skip(self.data.saturating_add(8 + padding));
            }
            _ => {}
        }
        skip_chunk(size)
    }

    /// Parses the bytes after the data. Chunks other than data chunks contain no audio; bytes that are not a chunk
    /// count as data.
    fn trailing_chunk(&mut self, input: &[u8]) -> ParserStep {
        if !input.iter().take(4).all(|byte| matches!(byte, b' '..=b'~')) {
            self.state = WavState::Rest;
            return ParserStep::Skip(u64::MAX);
        }
        let Some(size) = le32(input, 4) else { return ParserStep::Need(8) };
        let data = input.starts_with(b"data");
        if data {
            self.data = self.data.saturating_add(u64::from(size));
        }
        self.state = WavState::AfterData { data };
        skip_chunk(size)
    }

    /// Passes bytes to the parser of MPEG audio.
    fn push_frames(&mut self, bytes: &[u8]) -> ParserStep {
        if let Some(frames) = &mut self.frames {
            frames.push(bytes);
        }
        self.data = self.data.saturating_add(bytes.len() as u64);
        ParserStep::Skip(bytes.len() as u64)
    }

    /// Returns the duration computed from the number of data bytes.
    fn counted(&self, data: u64) -> AudioDuration {
        let rate = u64::from(self.sample_rate);
        let sample_rate = rate.saturating_mul(u64::from(self.channels));
        match self.coding {
            WavEncoding::Plain => AudioDuration::from_ticks(data, rate.saturating_mul(u64::from(self.block))),
            WavEncoding::Companded => AudioDuration::from_ticks(data, sample_rate),
            WavEncoding::Adpcm { bits } => {
                AudioDuration::from_ticks(data.saturating_mul(8) / u64::from(bits), sample_rate)
            }
            WavEncoding::Blocks(CodecBlock { bytes, samples, rate: own }) => {
                let own = own.map_or(rate, u64::from);
                let rate = if rate == 0 { own } else { rate.min(own) };
                AudioDuration::from_ticks((data / bytes).saturating_mul(samples), rate)
            }
            WavEncoding::Mpeg | WavEncoding::Other { .. } | WavEncoding::Unknown => {
                AudioDuration::from_ticks(data, u64::from(self.byte_rate))
            }
        }
    }

    /// Returns the duration that the header claims for data that is not counted: `counted` by the byte rate, or
    /// `stated` by the number of samples. The data of a known codec is never shorter than at its maximum byte rate; the
    /// duration of an unknown codec is unknown if its bytes are too many for it.
    fn claimed(&self, data: u64, counted: AudioDuration, stated: AudioDuration) -> AudioDuration {
        let claimed = stated.or(counted);
        if let WavEncoding::Other { max_byte_rate } = self.coding {
            return claimed.longer(AudioDuration::from_ticks(data, max_byte_rate));
        }
        let least = AudioDuration::from_ticks(data, UNKNOWN_CODEC_RATE);
        if claimed.nanoseconds() < least.nanoseconds() { AudioDuration::Unknown } else { claimed }
    }
}

/// Returns true if `stated_samples` may be the number of samples in data that could hold `max_samples` of ADPCM.
const fn may_be_sample_count(stated_samples: u64, max_samples: u64) -> bool {
    stated_samples >= max_samples / 16 * 15 && stated_samples <= max_samples
}

/// Skips a chunk and its padding.
fn skip_chunk(size: u32) -> ParserStep {
    let size = u64::from(size);
    ParserStep::Skip(8 + size + size % 2)
}

impl ContainerParser for WavParser {
    fn duration_basis(&self) -> DurationBasis {
        self.basis
    }

    fn minimum_duration(&self) -> MinimumDuration {
        MinimumDuration::from_all_bytes(match self.coding {
            WavEncoding::Other { .. } | WavEncoding::Unknown | WavEncoding::Mpeg => {
                MinimumDuration::MAX_LOSSY_BYTES_PER_SECOND
            }
            WavEncoding::Plain
            | WavEncoding::Companded
            | WavEncoding::Adpcm { .. }
            | WavEncoding::Blocks(_) => MinimumDuration::MAX_UNCOMPRESSED_BYTES_PER_SECOND,
        })
    }

    fn missing_data(&self) -> Option<MissingData> {
        let is_stated = self.data < MIN_PLACEHOLDER && self.missing > 0;
        is_stated.then(|| MissingData { bytes: self.missing, stated: self.counted(self.data) })
    }

    fn step(&mut self, input: &[u8]) -> ParserStep {
        match self.state {
            WavState::Head => {
                self.state = WavState::Chunks;
                self.is_long = !input.starts_with(b"RIFF");
                return ParserStep::Skip(12);
            }
            WavState::Chunks => {}
            WavState::Frames => return self.push_frames(input),
            WavState::Data | WavState::AfterData { .. } => return self.trailing_chunk(input),
            WavState::Rest => return ParserStep::Skip(u64::MAX),
        }
        let (Some(name), Some(size)) = (input.get(..4), le32(input, 4)) else { return ParserStep::Need(8) };
        let body = match name {
            b"fmt " if size >= 26 => 34,
            b"fmt " | b"ds64" => 24,
            b"fact" => 12,
            _ => 8,
        };
        if input.len() < body {
            return ParserStep::Need(body);
        }
        self.chunk(name, size, input)
    }

    fn end(&mut self, _: &[u8], missing: u64) -> AudioDuration {
        if let Some(ParsedAudio { duration: duration @ AudioDuration::Ticks { .. }, .. }) =
            self.frames.take().map(ParserDriver::end)
        {
            return duration;
        }
        if matches!(self.state, WavState::Data | WavState::AfterData { data: true }) {
            self.missing = missing;
        }
        let data = match self.state {
            WavState::Head | WavState::Chunks => 0,
            WavState::Data | WavState::AfterData { data: true } => self.data.saturating_sub(missing),
            WavState::Frames | WavState::AfterData { data: false } => self.data,
            WavState::Rest => self.data.saturating_add(u64::MAX - missing),
        };
        if data == 0 {
            return AudioDuration::NoAudio;
        }
        let counted = self.counted(data);
        let stated = AudioDuration::from_ticks(self.samples, u64::from(self.sample_rate));
        // A truncated file states the sample count of the complete file, so that count is not used.
        let whole = missing == 0 && self.state != WavState::Rest;
        match (self.coding, counted, stated) {
            (WavEncoding::Other { .. } | WavEncoding::Unknown | WavEncoding::Mpeg, _, _) => {
                self.basis = DurationBasis::Stated;
                self.claimed(data, counted, if whole { stated } else { AudioDuration::Unknown })
            }
            // Up to a sixteenth of each block are bytes that contain no samples, so a stated count may be that much
            // lower, and never higher.
            (WavEncoding::Adpcm { .. }, AudioDuration::Ticks { ticks, .. }, AudioDuration::Ticks { .. })
                if whole && may_be_sample_count(self.samples, ticks / u64::from(self.channels.max(1))) =>
            {
                stated
            }
            _ => counted,
        }
    }
}
