//! Format and duration of an audio upload, from its content.
//!
//! Bytes are pushed as they arrive; file names and content types are ignored. Formats: WAV (also RF64), MPEG audio
//! (MP3, MPGA; bare or in an MPEG program stream), MP4 and M4A (also fragmented), WebM and Matroska, Ogg, FLAC. Nothing
//! is decoded: headers are parsed, frames are counted, the rest is skipped, and at most [`MOST_AHEAD`] bytes are
//! buffered for any input. A duration in a header counts only within the limits that frames and bytes set.

mod bits;
mod flac;
mod mp4;
mod mpeg;
mod ogg;
mod opus;
mod program;
mod walk;
mod wav;
mod webm;

use rust_decimal::Decimal;
use walk::{Floor, Span, Track, Walk};

/// Limit on the bytes that are buffered to parse one element.
pub const MOST_AHEAD: usize = 256 << 10;

/// Maximum accepted duration, in seconds: a month.
pub(crate) const MOST_SECONDS: u64 = 31 * 24 * 3600;

/// Container, or bare stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
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

impl Format {
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
pub struct Sound {
    /// Format of the file.
    pub format: Format,
    /// Duration in seconds, three places: counted in frames or samples, never less than the minimum for its bytes.
    /// `None` if the file does not contain it, or claims more than its bytes can hold.
    pub seconds: Option<Decimal>,
}

/// Reason for which an upload is no audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSound {
    /// Upload has no bytes.
    Empty,
    /// Format is unknown.
    Unknown,
    /// Format is known, but the file has no audio.
    Silent(Format),
}

/// Meter of an audio file while it arrives.
#[derive(Debug, Default)]
pub struct Meter {
    state: State,
    bytes: u64,
}

#[derive(Debug)]
enum State {
    /// First bytes, until the format is known; `pass` more bytes of a tag are skipped.
    Start { held: Vec<u8>, pass: u64, tagged: bool },
    /// Recognised audio format.
    Sound(Format, Track),
    /// Unknown format.
    Unknown,
}

impl Default for State {
    fn default() -> Self {
        Self::Start { held: Vec::new(), pass: 0, tagged: false }
    }
}

/// Bytes that identify every format, and the length of every tag before one.
const MAGIC: usize = mpeg::TAG;

impl Meter {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        match &mut self.state {
            State::Unknown => {}
            State::Sound(_, track) => track.push(bytes),
            State::Start { held, .. } => {
                held.extend_from_slice(bytes);
                self.begin();
            }
        }
    }

    /// Skips tags and detects the format, once there are enough bytes.
    fn begin(&mut self) {
        let State::Start { held, pass, tagged } = &mut self.state else { return };
        loop {
            let passed = usize::try_from(*pass).unwrap_or(usize::MAX).min(held.len());
            held.drain(..passed);
            *pass -= passed as u64;
            if *pass > 0 || held.len() < MAGIC {
                return;
            }
            match mpeg::tag(held) {
                Some(length) => (*pass, *tagged) = (length, true),
                None => break,
            }
        }
        self.state = match format(held, *tagged) {
            Some(format) => {
                let mut track = Track::new(walker(format));
                track.push(held);
                State::Sound(format, track)
            }
            None => State::Unknown,
        };
    }

    /// Ends the upload and returns the result.
    ///
    /// # Errors
    /// Returns the reason for which the upload is no audio.
    pub fn end(self) -> Result<Sound, NoSound> {
        if self.bytes == 0 {
            return Err(NoSound::Empty);
        }
        let State::Sound(format, track) = self.state else { return Err(NoSound::Unknown) };
        let (span, floor) = track.end();
        let seconds = match span {
            Span::Ticks { ticks, rate } => seconds(ticks, rate),
            Span::Untold => None,
            Span::Nothing => return Err(NoSound::Silent(format)),
        };
        let most = Decimal::from((self.bytes / least_rate(format)).saturating_add(1).min(MOST_SECONDS));
        let least = least(floor, self.bytes).min(most);
        let bounded = |seconds: Decimal| (seconds <= most).then(|| seconds.max(least));
        let seconds = seconds.and_then(bounded).filter(|seconds| !seconds.is_zero());
        Ok(Sound { format, seconds })
    }
}

/// Returns the minimum bytes per second: silence takes almost none in a codec that omits it.
const fn least_rate(format: Format) -> u64 {
    match format {
        Format::Flac => 1,
        Format::Wav | Format::Mp3 | Format::Mpeg | Format::Mp4 | Format::Webm | Format::Ogg => 100,
    }
}

/// Returns the minimum duration of this number of bytes, three places.
fn least(floor: Floor, bytes: u64) -> Decimal {
    let sounding = floor.bytes.unwrap_or(bytes).min(bytes);
    let by_bytes = seconds(sounding, floor.rate.max(1)).unwrap_or_default();
    by_bytes.max(Decimal::from(floor.millis.min(MOST_SECONDS * 1000)) / Decimal::ONE_THOUSAND)
}

/// Returns `ticks / rate`, three places, half-even.
fn seconds(ticks: u64, rate: u64) -> Option<Decimal> {
    Some(Decimal::from(ticks).checked_div(Decimal::from(rate))?.round_dp(3))
}

/// Detects the format from the first bytes; `tagged` is true after a tag of MPEG audio.
fn format(start: &[u8], tagged: bool) -> Option<Format> {
    let at = |from: usize, magic: &[u8]| start.get(from..).is_some_and(|rest| rest.starts_with(magic));
    let riff = at(0, b"RIFF") || at(0, b"RF64") || at(0, b"BW64");
    let boxes: [&[u8]; 7] = [b"ftyp", b"styp", b"moov", b"mdat", b"wide", b"free", b"skip"];
    Some(if riff && at(8, b"WAVE") {
        Format::Wav
    } else if at(0, b"fLaC") {
        Format::Flac
    } else if at(0, b"OggS") {
        Format::Ogg
    } else if at(0, &[0x1a, 0x45, 0xdf, 0xa3]) {
        Format::Webm
    } else if at(0, &[0, 0, 1, 0xba]) {
        Format::Mpeg
    } else if boxes.iter().any(|name| at(4, name)) {
        Format::Mp4
    } else if tagged || mpeg::begins(start) {
        Format::Mp3
    } else {
        return None;
    })
}

fn walker(format: Format) -> Box<dyn Walk> {
    match format {
        Format::Wav => Box::new(wav::Wav::default()),
        Format::Mp3 => Box::new(mpeg::Frames::default()),
        Format::Mpeg => Box::new(program::Program::default()),
        Format::Mp4 => Box::new(mp4::Boxes::default()),
        Format::Webm => Box::new(webm::Elements::default()),
        Format::Ogg => Box::new(ogg::Pages::default()),
        Format::Flac => Box::new(flac::Flac::default()),
    }
}
