//! Streaming parser of a transcription request: a form whose parts come in any order. Only the small parts are
//! buffered; the audio passes through as it arrives.

use super::fields::{MAX_PROMPT_BYTES, TranscriptionFields};
use crate::audio::{AudioError, AudioFormat, AudioMeter};
use bytes::Bytes;
use penstock_core::{ApiError, AudioInput, TranscriptionTask};
use penstock_http_wire::form::upload::{self, FILE_PART_NAME, UploadFormEvent, part_error};

/// Parser of a transcription form.
#[derive(Debug)]
pub struct TranscriptionFormParser {
    form: upload::UploadFormParser,
    fields: TranscriptionFields,
    meter: AudioMeter,
    bytes: u64,
}

impl TranscriptionFormParser {
    /// Creates the parser of a form with this content type.
    ///
    /// # Errors
    /// Returns an error if the content type is not that of a form, or has no boundary.
    pub fn new(content_type: &str) -> Result<Self, ApiError> {
        let form = upload::UploadFormParser::new(content_type, "audio", MAX_PROMPT_BYTES)?;
        Ok(Self { form, fields: TranscriptionFields::default(), meter: AudioMeter::default(), bytes: 0 })
    }

    /// Parses the next bytes of the form, and appends the bytes of the audio to `sound`.
    ///
    /// # Errors
    /// Returns an error that names the invalid part.
    pub fn push(&mut self, bytes: Bytes, sound: &mut Vec<Bytes>) -> Result<(), ApiError> {
        self.form.push(bytes, |piece| {
            match piece {
                UploadFormEvent::File(_) => {}
                UploadFormEvent::Content(content) => {
                    self.meter.push(&content);
                    self.bytes += content.len() as u64;
                    sound.push(content);
                }
                UploadFormEvent::Field(name, value) => self.fields.read_field(&name, &value)?,
            }
            Ok(())
        })
    }

    /// Ends the form and returns the model's name and the task.
    ///
    /// # Errors
    /// Returns a refusal that names the missing, truncated or unrecognised part.
    pub fn end(self) -> Result<(Box<str>, TranscriptionTask), ApiError> {
        self.form.end("an audio file")?;
        let sound = self.meter.end().map_err(|none| part_error(FILE_PART_NAME, audio_error(none)))?;
        let heard = AudioInput {
            extension: sound.format.extension(),
            content_type: sound.format.content_type(),
            seconds: sound.seconds,
            basis: sound.basis,
            bytes: self.bytes,
        };
        self.fields.finish(heard)
    }
}

fn audio_error(none: AudioError) -> String {
    const FORMATS: &str = "MP3, MP4, MPEG, MPGA, M4A, WAV, WEBM, OGG or FLAC";
    match none {
        AudioError::Empty => "expected audio, got a file of 0 bytes".to_owned(),
        AudioError::UnknownFormat => format!("expected audio in {FORMATS}, got something else"),
        AudioError::NoAudio(format) => format!("expected audio, got {} without audio", format_label(format)),
    }
}

const fn format_label(format: AudioFormat) -> &'static str {
    match format {
        AudioFormat::Wav => "a WAV file",
        AudioFormat::Mp3 => "an MP3 file",
        AudioFormat::Mpeg => "an MPEG file",
        AudioFormat::Mp4 => "an MP4 file",
        AudioFormat::Webm => "a WEBM file",
        AudioFormat::Ogg => "an OGG file",
        AudioFormat::Flac => "a FLAC file",
    }
}
