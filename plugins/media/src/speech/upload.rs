//! Streaming parser of a transcription request: a form whose parts come in any order. Only the small parts are
//! buffered; the audio passes through as it arrives.

use super::fields::{Fields, MOST_PROMPT};
use crate::sound::{Format, Meter, NoSound};
use bytes::Bytes;
use penstock_contract::{Heard, Refusal, Transcribe};
use penstock_wire::form::upload::{self, FILE, Piece, wrong};

/// Form that is being parsed.
#[derive(Debug)]
pub struct Upload {
    form: upload::Upload,
    fields: Fields,
    meter: Meter,
    bytes: u64,
}

impl Upload {
    /// Creates the parser of a form with this content type.
    ///
    /// # Errors
    /// Returns a refusal if it is no form, or has no boundary.
    pub fn new(content_type: &str) -> Result<Self, Refusal> {
        let form = upload::Upload::new(content_type, "audio", MOST_PROMPT)?;
        Ok(Self { form, fields: Fields::default(), meter: Meter::default(), bytes: 0 })
    }

    /// Takes the next bytes; those of the audio are appended to `sound`.
    ///
    /// # Errors
    /// Returns a refusal that names the invalid part.
    pub fn push(&mut self, bytes: Bytes, sound: &mut Vec<Bytes>) -> Result<(), Refusal> {
        self.form.push(bytes, |piece| {
            match piece {
                Piece::File(_) => {}
                Piece::Content(content) => {
                    self.meter.push(&content);
                    self.bytes += content.len() as u64;
                    sound.push(content);
                }
                Piece::Field(name, value) => self.fields.take(&name, &value)?,
            }
            Ok(())
        })
    }

    /// Ends the form and returns the model's name and the task.
    ///
    /// # Errors
    /// Returns a refusal that names the missing, truncated or unrecognised part.
    pub fn end(self) -> Result<(Box<str>, Transcribe), Refusal> {
        self.form.end("an audio file")?;
        let sound = self.meter.end().map_err(|none| wrong(FILE, no_sound(none)))?;
        let heard = Heard {
            extension: sound.format.extension(),
            content_type: sound.format.content_type(),
            seconds: sound.seconds,
            bytes: self.bytes,
        };
        self.fields.finish(heard)
    }
}

fn no_sound(none: NoSound) -> String {
    const FORMATS: &str = "MP3, MP4, MPEG, MPGA, M4A, WAV, WEBM, OGG or FLAC";
    match none {
        NoSound::Empty => "expected audio, got a file of 0 bytes".to_owned(),
        NoSound::Unknown => format!("expected audio in {FORMATS}, got something else"),
        NoSound::Silent(format) => format!("expected audio, got {} without audio", kind(format)),
    }
}

const fn kind(format: Format) -> &'static str {
    match format {
        Format::Wav => "a WAV file",
        Format::Mp3 => "an MP3 file",
        Format::Mpeg => "an MPEG file",
        Format::Mp4 => "an MP4 file",
        Format::Webm => "a WEBM file",
        Format::Ogg => "an OGG file",
        Format::Flac => "a FLAC file",
    }
}
