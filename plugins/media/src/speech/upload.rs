//! A transcription's request on its way in: a form whose parts come in any order,
//! of which only the small ones are held. The sound goes on as it comes.

use super::fields::{Fields, MOST_PROMPT, wrong};
use crate::sound::{Format, Meter, NoSound};
use bytes::Bytes;
use penstock_contract::{Code, Heard, Refusal, Transcribe};
use penstock_wire::form::{Broken, Event, Form, Part, boundary};

/// The part that is the sound.
const FILE: &str = "file";
/// Longest value of a field, in bytes.
const MOST_FIELD: usize = MOST_PROMPT;

/// A form that is being read.
#[derive(Debug)]
pub struct Upload {
    form: Form,
    fields: Fields,
    meter: Meter,
    bytes: u64,
    file: File,
    /// The part that is being read; its value, unless it is the sound.
    part: Option<(String, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Awaited,
    Reading,
    Read,
}

impl Upload {
    /// A form of this content type.
    ///
    /// # Errors
    /// It is no form, or nothing says where its parts end.
    pub fn new(content_type: &str) -> Result<Self, Refusal> {
        let sentence = "This path reads forms; send content-type: multipart/form-data.";
        let boundary = boundary(content_type)
            .ok_or_else(|| Refusal::because(Code::UnsupportedMediaType, sentence))?
            .ok_or_else(|| {
                wrong("content-type", "expected multipart/form-data with a boundary, but it is missing")
            })?;
        Ok(Self {
            form: Form::new(&boundary),
            fields: Fields::default(),
            meter: Meter::default(),
            bytes: 0,
            file: File::Awaited,
            part: None,
        })
    }

    /// Takes the next bytes; those of the sound are added to `sound`.
    ///
    /// # Errors
    /// What is wrong, naming the part.
    pub fn push(&mut self, bytes: Bytes, sound: &mut Vec<Bytes>) -> Result<(), Refusal> {
        let broken = self.form.push(bytes).err();
        while let Some(event) = self.form.told() {
            match event {
                Event::Part(part) => self.begin(&part)?,
                Event::Content(content) => self.content(content, sound)?,
                Event::Whole => self.whole()?,
            }
        }
        broken.map_or(Ok(()), |broken| Err(self.broken(broken)))
    }

    fn begin(&mut self, part: &Part) -> Result<(), Refusal> {
        if part.name == FILE {
            if self.file != File::Awaited {
                return Err(wrong(FILE, "expected one file, got more than one"));
            }
            self.file = File::Reading;
        } else if part.is_file {
            let sentence = match shown(&part.name) {
                Some(name) => format!("expected the audio in a part of this name, got a file in \"{name}\""),
                None => "expected the audio in a part of this name, got a file in another".to_owned(),
            };
            return Err(wrong(FILE, sentence));
        }
        self.part = Some((part.name.clone(), Vec::new()));
        Ok(())
    }

    fn content(&mut self, content: Bytes, sound: &mut Vec<Bytes>) -> Result<(), Refusal> {
        if self.file == File::Reading {
            self.meter.push(&content);
            self.bytes += content.len() as u64;
            sound.push(content);
            return Ok(());
        }
        let Some((name, value)) = &mut self.part else { return Ok(()) };
        if value.len() + content.len() > MOST_FIELD {
            let name = shown(name).unwrap_or("form");
            return Err(wrong(name, format!("expected at most {MOST_FIELD} bytes")));
        }
        value.extend_from_slice(&content);
        Ok(())
    }

    fn whole(&mut self) -> Result<(), Refusal> {
        let Some((name, value)) = self.part.take() else { return Ok(()) };
        if self.file == File::Reading {
            self.file = File::Read;
            return Ok(());
        }
        self.fields.take(&name, &value)
    }

    /// The form is over.
    ///
    /// # Errors
    /// What is missing, cut short or no sound, naming the part.
    pub fn end(self) -> Result<(Box<str>, Transcribe), Refusal> {
        self.form.end().map_err(|broken| self.broken(broken))?;
        if self.file != File::Read {
            return Err(wrong(FILE, "expected an audio file, but it is missing"));
        }
        let sound = self.meter.end().map_err(|none| wrong(FILE, no_sound(none)))?;
        let heard = Heard {
            extension: sound.format.extension(),
            content_type: sound.format.content_type(),
            seconds: sound.seconds,
            bytes: self.bytes,
        };
        self.fields.finish(heard)
    }

    fn broken(&self, broken: Broken) -> Refusal {
        let name = self.part.as_ref().and_then(|(name, _)| shown(name));
        broken.refusal(name)
    }
}

fn no_sound(none: NoSound) -> String {
    const FORMATS: &str = "MP3, MP4, MPEG, MPGA, M4A, WAV, WEBM, OGG or FLAC";
    match none {
        NoSound::Empty => "expected audio, got a file of 0 bytes".to_owned(),
        NoSound::Unknown => format!("expected audio in {FORMATS}, got something else"),
        NoSound::Silent(format) => format!("expected audio, got {} in which nothing sounds", kind(format)),
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

/// A name of the client's own that may be repeated to it: short and an identifier.
fn shown(name: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']');
    (!name.is_empty() && name.len() <= 64 && name.bytes().all(plain)).then_some(name)
}
