//! Tasks of image and transcription models, and generated images before they are sent to the client.

use bytes::Bytes;
use rust_decimal::Decimal;
use std::fmt;
use std::str::FromStr;

/// Width and height of an image in pixels, each 1 to 16384.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageSize {
    /// Horizontal pixels.
    pub width: u32,
    /// Vertical pixels.
    pub height: u32,
}

impl ImageSize {
    /// Maximum width and height, in pixels.
    pub const MAX_SIDE_PIXELS: u32 = 16_384;

    /// Returns the number of pixels of the image.
    #[must_use]
    pub fn pixel_count(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

impl FromStr for ImageSize {
    type Err = ();

    /// Parses `<width>x<height>`, as in `1024x768`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let side = |text: &str| {
            let digits =
                text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
            text.parse().ok().filter(|side| digits && (1..=Self::MAX_SIDE_PIXELS).contains(side)).ok_or(())
        };
        let (width, height) = text.split_once('x').ok_or(())?;
        Ok(Self { width: side(width)?, height: side(height)? })
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}x{}", self.width, self.height)
    }
}

/// Parameters of an image generation.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageTask {
    /// Prompt, a JSON string with its quotes.
    pub prompt: Bytes,
    /// Number of images, 1 to 10.
    pub n: u32,
    /// Image size; `None` for the model's default.
    pub size: Option<ImageSize>,
    /// True if the client wants the images in the response instead of their URLs.
    pub as_base64: bool,
}

/// Format of a transcript.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TranscriptFormat {
    /// JSON with the text.
    #[default]
    Json,
    /// JSON with the text, its segments and, if requested, its words.
    Verbose,
    /// Plain text.
    Text,
    /// Subtitles, `SubRip`.
    Srt,
    /// Subtitles, `WebVTT`.
    Vtt,
}

/// Parameters of a transcription.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscriptionTask {
    /// Language of the speech, ISO 639-1; detected if absent.
    pub language: Option<Box<str>>,
    /// Text with the vocabulary that the model should expect (`prompt`).
    pub prompt: Option<Box<str>>,
    /// Sampling temperature as it was sent, 0 to 1.
    pub temperature: Option<Box<str>>,
    /// Format of the transcript.
    pub format: TranscriptFormat,
    /// True if the client wants a timestamp for each word ([`TranscriptFormat::Verbose`]).
    pub word_timestamps: bool,
    /// Metadata of the uploaded audio file.
    pub audio: AudioInput,
}

/// Basis of the duration of an audio file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DurationBasis {
    /// Frames or samples that were counted.
    #[default]
    Counted,
    /// Values that the file states, because the frames of its codec are not counted. The audio may be longer.
    Stated,
}

/// Metadata of an uploaded audio file, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AudioInput {
    /// File extension by which a provider recognises the format.
    pub extension: &'static str,
    /// Content type of the file.
    pub content_type: &'static str,
    /// Duration of the file in seconds, more than zero; `None` if the file contains none, or states more than its bytes
    /// can hold.
    pub seconds: Option<Decimal>,
    /// Basis of the duration.
    pub basis: DurationBasis,
    /// Size in bytes.
    pub bytes: u64,
}

impl AudioInput {
    /// Minimum bytes per second of audio, for a file whose duration was not counted: 8 kbit/s.
    const MIN_BYTES_PER_SECOND: u64 = 1_000;
    /// Typical bytes per second of audio, if the duration is unknown: 128 kbit/s.
    pub const TYPICAL_BYTES_PER_SECOND: u64 = 16_000;
    /// Maximum bytes per second of audio: uncompressed, 32 bits, eight channels at 192 kHz.
    const MAX_BYTES_PER_SECOND: u64 = 6_144_000;

    /// Returns the maximum seconds to charge, whose price is reserved. This is the duration that was counted in the
    /// file; otherwise the longest duration that its bytes can hold, but at least the duration that the file states.
    #[must_use]
    pub fn max_seconds(&self) -> Decimal {
        let longest = Decimal::from(self.bytes / Self::MIN_BYTES_PER_SECOND + 1);
        match (self.seconds, self.basis) {
            (Some(seconds), DurationBasis::Counted) => seconds,
            (Some(seconds), DurationBasis::Stated) => seconds.max(longest),
            (None, _) => longest,
        }
    }

    /// Returns the seconds to charge, to the millisecond and never zero: the duration that was counted in the file. If
    /// the file only states a duration, the duration reported by the provider (`claimed`) can raise it; if the file
    /// states none, the reported duration is charged, or without a report an estimate from the bytes. A reported
    /// duration counts only as far as the file's bytes can hold it.
    #[must_use]
    pub fn charged_seconds(&self, claimed: Option<Decimal>) -> Decimal {
        let of = |rate: u64| Decimal::from(self.bytes).checked_div(Decimal::from(rate)).unwrap_or_default();
        let estimated = || claimed.unwrap_or_else(|| of(Self::TYPICAL_BYTES_PER_SECOND));
        let least = of(Self::MAX_BYTES_PER_SECOND).max(Decimal::new(1, 3));
        let seconds = match (self.seconds, self.basis) {
            (Some(seconds), DurationBasis::Counted) => seconds,
            (Some(seconds), DurationBasis::Stated) => {
                claimed.map_or(seconds, |claimed| claimed.min(self.max_seconds()).max(seconds))
            }
            (None, _) => estimated().min(self.max_seconds()).max(least),
        };
        seconds.round_dp(3)
    }
}

/// Image returned by a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedImage {
    /// Image data or URL.
    pub source: ImageSource,
    /// Prompt as revised by the provider, a JSON string with its quotes.
    pub revised_prompt: Option<Bytes>,
}

/// Content of an image, or the place to fetch it from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// Base64 data in the response.
    Base64(Bytes),
    /// URL at which the provider serves the image.
    Url(Box<str>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_two_plain_numbers() {
        assert_eq!("1024x768".parse(), Ok(ImageSize { width: 1024, height: 768 }));
        for invalid in
            ["", "x", "1024", "1024x", "0x5", "01x5", "+1x5", "1024X768", "1x2x3", "99999x1", "1 x1", "-1x1"]
        {
            assert_eq!(invalid.parse::<ImageSize>(), Err(()), "{invalid}");
        }
    }
}
