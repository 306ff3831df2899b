//! Format and duration of an audio upload, from its content.
//!
//! Bytes are pushed as they arrive; file names and content types are ignored. Frames of MPEG audio are also found a few
//! kilobytes behind the start. Formats: WAV (also RF64), MPEG audio
//! (MP3, MPGA; bare or in an MPEG program stream), MP4 and M4A (also fragmented), WebM and Matroska, Ogg, FLAC.
//! Nothing is decoded: headers are parsed, frames are counted, the rest is skipped. For any input at most twice
//! [`MAX_BUFFERED_BYTES`] are buffered, and the time is linear in its length. A duration in a header is used only if
//! it is plausible for the frames and bytes of the file. After lost sync the parser searches the next element, like
//! decoders; bytes that belong to no element count as audio.

mod aac;
mod bits;
mod container_parser;
mod flac;
mod flac_frame;
mod mp4;
mod mp4_media;
mod mp4_track;
mod mpeg;
mod mpeg_ps;
mod ogg;
mod ogg_stream;
mod opus;
mod vorbis;
mod wav;
mod wav_encoding;
mod webm;
mod webm_track;

use container_parser::{AudioDuration, ContainerParser, MinimumDuration, ParsedAudio, ParserDriver};
use penstock_core::{AudioInput, DurationBasis};
use rust_decimal::Decimal;

/// Limit on the bytes that are buffered to parse one element of an audio container.
pub const MAX_BUFFERED_BYTES: usize = 256 << 10;

/// Maximum accepted duration, in seconds: a month.
pub(crate) const MAX_DURATION_SECONDS: u64 = 31 * 24 * 3600;

/// Container format, or format of a stream without a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AudioFormat {
    /// RIFF or RF64 with a `WAVE` form.
    Wav,
    /// MPEG audio, layer I, II or III.
    Mp3,
    /// MPEG program stream.
    Mpeg,
    /// ISO base media: MP4, M4A, QuickTime.
    Mp4,
    /// WebM or Matroska.
    Webm,
    /// Ogg container.
    Ogg,
    /// FLAC stream.
    Flac,
}

impl AudioFormat {
    /// Returns the file extension that providers expect.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Wav => "wav",
            Self::Mp3 => "mp3",
            Self::Mpeg => "mpeg",
            Self::Mp4 => "mp4",
            Self::Webm => "webm",
            Self::Ogg => "ogg",
            Self::Flac => "flac",
        }
    }

    /// Returns the content type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Wav => "audio/wav",
            Self::Mp3 => "audio/mpeg",
            Self::Mpeg => "video/mpeg",
            Self::Mp4 => "audio/mp4",
            Self::Webm => "audio/webm",
            Self::Ogg => "audio/ogg",
            Self::Flac => "audio/flac",
        }
    }
}

/// Detected format and duration of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AudioInfo {
    /// Format of the file.
    pub format: AudioFormat,
    /// Duration in seconds with three decimals: counted in frames or samples, and never below the minimum for the bytes
    /// of the file. `None` if the file does not contain its duration, or states more than its bytes can hold and
    /// nothing could be counted.
    pub seconds: Option<Decimal>,
    /// Basis of the duration.
    pub basis: DurationBasis,
    /// False if the file has only headers, which may state a duration.
    pub has_audio_data: bool,
    /// Audio data that the header states beyond the end of the file; `None` if it states none, or a placeholder.
    pub missing_audio: Option<MissingAudio>,
}

/// Audio data that a header states and the file does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingAudio {
    /// Number of missing bytes.
    pub bytes: u64,
    /// Duration of the complete audio in seconds, with three decimals.
    pub stated_seconds: Decimal,
}

/// Reason why an upload is not audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioError {
    /// Upload has no bytes.
    Empty,
    /// Format is unknown.
    UnknownFormat,
    /// File of a supported format without audio.
    NoAudio(AudioFormat),
}

/// Meter of the duration of an audio file that arrives in pieces.
#[derive(Debug, Default)]
pub struct AudioMeter {
    state: MeterState,
    bytes: u64,
    /// Number of bytes of the tags in front of the audio file.
    tags: u64,
}

/// Tag in front of the audio, in which frames are searched in case the file ends inside of it.
#[derive(Debug)]
struct LeadingTag {
    /// Stated length in bytes.
    length: u64,
    frames: ParserDriver,
}

#[derive(Debug)]
enum MeterState {
    /// Buffered start of the file, until its format is known. `pass` is the number of bytes of a tag that are still
    /// to be skipped; `tagged` is true after a tag. `tag` searches frames in the current tag, which count if the file
    /// ends inside of it: then its stated length is wrong.
    Start { held: Vec<u8>, pass: u64, tagged: bool, tag: Option<LeadingTag> },
    /// Recognised audio format.
    Audio(AudioFormat, ParserDriver),
    /// File in an unknown format.
    Unknown,
}

impl MeterState {
    /// Begins to parse a file of this format, which starts with these bytes.
    fn parsing(format: AudioFormat, start: &[u8]) -> Self {
        let mut driver = ParserDriver::new(parser_for(format));
        driver.push(start);
        Self::Audio(format, driver)
    }
}

impl Default for MeterState {
    fn default() -> Self {
        Self::Start { held: Vec::new(), pass: 0, tagged: false, tag: None }
    }
}

/// Number of bytes that suffice to identify a format that begins at the start of the file, and to read the length of any
/// tag in front of it.
const MAGIC_LENGTH: usize = mpeg::TAG_HEADER_BYTES;

impl AudioMeter {
    /// Buffers and parses the next bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        match &mut self.state {
            MeterState::Unknown => {}
            MeterState::Audio(_, track) => track.push(bytes),
            MeterState::Start { held, .. } => {
                held.extend_from_slice(bytes);
                self.detect_format();
            }
        }
    }

    /// Skips tags and detects the format, once there are enough bytes.
    fn detect_format(&mut self) {
        let MeterState::Start { held, pass, tagged, tag } = &mut self.state else { return };
        // The bytes before `start` are skipped. They are removed once for all tags, since each removal moves the rest.
        let mut start = 0;
        let is_incomplete = loop {
            let rest = held.get(start..).unwrap_or_default();
            let passed = usize::try_from(*pass).unwrap_or(usize::MAX).min(rest.len());
            if let Some(tag) = tag {
                tag.frames.push(rest.get(..passed).unwrap_or_default());
            }
            start += passed;
            *pass -= passed as u64;
            let rest = rest.get(passed..).unwrap_or_default();
            if *pass > 0 || rest.len() < MAGIC_LENGTH {
                break true;
            }
            let Some(length) = mpeg::leading_tag_length(rest) else { break false };
            (*pass, *tagged) = (length, true);
            *tag = Some(LeadingTag { length, frames: ParserDriver::new(parser_for(AudioFormat::Mp3)) });
            self.tags = self.tags.saturating_add(length);
        };
        held.drain(..start);
        if is_incomplete {
            return;
        }
        let searched = held.get(..mpeg::FRAME_SEARCH_BYTES);
        let found = detect_audio_format(held, *tagged)
            .or_else(|| searched.filter(|start| mpeg::begins_with_frames(start)).map(|_| AudioFormat::Mp3));
        match found {
            Some(format) => self.state = MeterState::parsing(format, held),
            None if searched.is_some() => self.state = MeterState::Unknown,
            None => {}
        }
    }

    /// Ends the upload and returns the result.
    ///
    /// # Errors
    /// Returns the reason why the upload is not audio.
    pub fn end(mut self) -> Result<AudioInfo, AudioError> {
        if self.bytes == 0 {
            return Err(AudioError::Empty);
        }
        self.end_start();
        let MeterState::Audio(format, track) = self.state else { return Err(AudioError::UnknownFormat) };
        let ParsedAudio { duration, counted, minimum: mut floor, has_audio_data, missing_data, basis } =
            track.end();
        floor.excluded = floor.excluded.saturating_add(self.tags);
        if duration == AudioDuration::NoAudio {
            return Err(AudioError::NoAudio(format));
        }
        let (stated, counted) = (duration_seconds(duration), duration_seconds(counted));
        let most = maximum_seconds(format, self.bytes);
        let least = minimum_seconds(floor, self.bytes).min(most);
        // A stated duration that is too long for the bytes leaves the counted one, which is cut to what they can hold.
        let plausible = stated.filter(|seconds| *seconds <= most);
        let seconds = plausible.or_else(|| usable_count(counted?.min(most), basis, self.bytes));
        let seconds = seconds.map(|seconds| seconds.max(least)).filter(|seconds| !seconds.is_zero());
        let missing_audio = missing_data.and_then(|missing| {
            let stated_seconds = duration_seconds(missing.stated)?;
            Some(MissingAudio { bytes: missing.bytes, stated_seconds })
        });
        Ok(AudioInfo { format, seconds, basis, has_audio_data, missing_audio })
    }

    /// Ends a file whose format is not known yet: a short one, and one that ends inside a tag.
    fn end_start(&mut self) {
        let MeterState::Start { held, pass, tag, .. } = &mut self.state else { return };
        match tag.take() {
            Some(tag) if *pass > 0 => {
                self.tags = self.tags.saturating_sub(tag.length);
                self.state = MeterState::Audio(AudioFormat::Mp3, tag.frames);
            }
            _ if mpeg::begins_with_frames(held) => self.state = MeterState::parsing(AudioFormat::Mp3, held),
            _ => {}
        }
    }
}

/// Returns the longest accepted duration of a file of this size, in seconds.
fn maximum_seconds(format: AudioFormat, bytes: u64) -> Decimal {
    Decimal::from((bytes / minimum_byte_rate(format)).saturating_add(1).min(MAX_DURATION_SECONDS))
}

/// Returns the counted duration of a file that states an implausible one. Where the file only states its duration, the
/// count leaves out audio, so it is `None` if it is shorter than the estimate for a file of unknown duration.
fn usable_count(counted: Decimal, basis: DurationBasis, bytes: u64) -> Option<Decimal> {
    let estimate = || seconds(bytes, AudioInput::TYPICAL_BYTES_PER_SECOND).unwrap_or_default();
    match basis {
        DurationBasis::Counted => Some(counted),
        DurationBasis::Stated => Some(counted).filter(|counted| *counted >= estimate()),
    }
}

/// Returns the minimum number of bytes per second of a format. It is low, because a codec may omit silence.
const fn minimum_byte_rate(format: AudioFormat) -> u64 {
    match format {
        AudioFormat::Flac => 1,
        AudioFormat::Wav
        | AudioFormat::Mp3
        | AudioFormat::Mpeg
        | AudioFormat::Mp4
        | AudioFormat::Webm
        | AudioFormat::Ogg => 100,
    }
}

/// Returns the minimum duration of a file of this size, in seconds with three decimals. Bytes of elements that the
/// file declares as no audio count as well, but at the rate of uncompressed audio.
fn minimum_seconds(floor: MinimumDuration, bytes: u64) -> Decimal {
    let of = |bytes, rate: u64| seconds(bytes, rate.max(1)).unwrap_or_default();
    let sounding = of(bytes.saturating_sub(floor.excluded), floor.max_byte_rate);
    sounding.max(of(bytes, MinimumDuration::MAX_UNCOMPRESSED_BYTES_PER_SECOND))
}

/// Returns a duration in seconds with three decimals; `None` if it is unknown.
fn duration_seconds(duration: AudioDuration) -> Option<Decimal> {
    match duration {
        AudioDuration::Ticks { ticks, rate } => seconds(ticks, rate),
        AudioDuration::Unknown | AudioDuration::NoAudio => None,
    }
}

/// Returns `ticks / rate` seconds with three decimals, rounded half to even; `None` if `rate` is zero.
fn seconds(ticks: u64, rate: u64) -> Option<Decimal> {
    Some(Decimal::from(ticks).checked_div(Decimal::from(rate))?.round_dp(3))
}

/// Detects the format from the first bytes; `tagged` is true after a tag of MPEG audio. `None` for an unknown format.
fn detect_audio_format(start: &[u8], tagged: bool) -> Option<AudioFormat> {
    let at = |from: usize, magic: &[u8]| start.get(from..).is_some_and(|rest| rest.starts_with(magic));
    let riff = at(0, b"RIFF") || at(0, b"RF64") || at(0, b"BW64");
    let boxes: [&[u8]; 7] = [b"ftyp", b"styp", b"moov", b"mdat", b"wide", b"free", b"skip"];
    Some(if riff && at(8, b"WAVE") {
        AudioFormat::Wav
    } else if at(0, b"fLaC") {
        AudioFormat::Flac
    } else if at(0, b"OggS") {
        AudioFormat::Ogg
    } else if at(0, &[0x1a, 0x45, 0xdf, 0xa3]) {
        AudioFormat::Webm
    } else if at(0, &[0, 0, 1, 0xba]) {
        AudioFormat::Mpeg
    } else if boxes.iter().any(|name| at(4, name)) {
        AudioFormat::Mp4
    } else if tagged || mpeg::tag_length(start).is_some() || mpeg::is_mpeg_audio(start) {
        AudioFormat::Mp3
    } else {
        return None;
    })
}

/// Returns true if the bytes begin with a frame of MPEG audio.
pub(crate) fn is_mpeg_audio(start: &[u8]) -> bool {
    mpeg::is_mpeg_audio(start)
}

/// Returns the length in bytes of the frame of MPEG audio at the start of `start`; `None` if there is none.
pub(crate) fn mpeg_frame_length(start: &[u8]) -> Option<usize> {
    mpeg::FrameHeader::parse(start).map(|header| header.length())
}

/// Returns the length in bytes of the ID3v2 tag at the start of `start`; `None` if there is none.
pub(crate) fn id3_tag_length(start: &[u8]) -> Option<u64> {
    mpeg::leading_tag_length(start)
}

/// Returns the length in bytes of the ADTS frame (AAC) at the start of `start`; `None` if there is none.
pub(crate) fn adts_frame_length(start: &[u8]) -> Option<usize> {
    let [0xff, second, third, fourth, fifth, sixth, ..] = *start else { return None };
    let length = usize::from(fourth & 3) << 11 | usize::from(fifth) << 3 | usize::from(sixth) >> 5;
    let is_header = second & 0xf6 == 0xf0 && (third >> 2 & 15) < 13;
    (is_header && length > 7).then_some(length)
}

fn parser_for(format: AudioFormat) -> Box<dyn ContainerParser> {
    match format {
        AudioFormat::Wav => Box::new(wav::WavParser::default()),
        AudioFormat::Mp3 => Box::new(mpeg::MpegParser::default()),
        AudioFormat::Mpeg => Box::new(mpeg_ps::ProgramStreamParser::default()),
        AudioFormat::Mp4 => Box::new(mp4::Mp4Parser::default()),
        AudioFormat::Webm => Box::new(webm::WebmParser::default()),
        AudioFormat::Ogg => Box::new(ogg::OggParser::default()),
        AudioFormat::Flac => Box::new(flac::FlacParser::default()),
    }
}
