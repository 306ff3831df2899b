//! Form with one file, in the part named `file`, and fields in any order. Fields are buffered until they are complete;
//! the file is passed on as it arrives.

use super::{Broken, Event, Form, Part, boundary};
use bytes::Bytes;
use penstock_contract::{Code, Refusal};
use std::fmt::Display;

/// Name of the file part.
pub const FILE: &str = "file";

/// Element of an upload form.
#[derive(Debug)]
pub enum Piece {
    /// Start of the file.
    File(Part),
    /// Bytes of the file; never empty.
    Content(Bytes),
    /// Field with its complete value.
    Field(String, Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Awaited,
    Reading,
    Read,
}

/// Parser of an upload form.
#[derive(Debug)]
pub struct Upload {
    form: Form,
    /// Noun for the file in error messages.
    noun: &'static str,
    /// Maximum length of a field value, in bytes.
    most_field: usize,
    file: File,
    /// Name of the current part, with its value unless it is the file.
    part: Option<(String, Vec<u8>)>,
}

impl Upload {
    /// Returns a parser for this content type; `noun` names the file in error messages.
    ///
    /// # Errors
    /// Returns an error for another content type or a missing boundary.
    pub fn new(content_type: &str, noun: &'static str, most_field: usize) -> Result<Self, Refusal> {
        let sentence = "This path reads forms; send content-type: multipart/form-data.";
        let boundary = boundary(content_type)
            .ok_or_else(|| Refusal::because(Code::UnsupportedMediaType, sentence))?
            .ok_or_else(|| {
                wrong("content-type", "expected multipart/form-data with a boundary, but it is missing")
            })?;
        Ok(Self { form: Form::new(&boundary), noun, most_field, file: File::Awaited, part: None })
    }

    /// Parses the next bytes and passes the resulting elements to `take`.
    ///
    /// # Errors
    /// Returns an error that names the invalid part, or the error of `take`.
    pub fn push(
        &mut self,
        bytes: Bytes,
        mut take: impl FnMut(Piece) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let broken = self.form.push(bytes).err();
        while let Some(event) = self.form.told() {
            let piece = match event {
                Event::Part(part) => self.begin(part)?,
                Event::Content(content) => self.content(content)?,
                Event::Whole => self.whole(),
            };
            if let Some(piece) = piece {
                take(piece)?;
            }
        }
        broken.map_or(Ok(()), |broken| Err(self.broken(broken)))
    }

    /// Checks that the form has ended and had a file.
    ///
    /// # Errors
    /// Returns an error if the form is truncated, which names the part, or if the file is missing; `missing` then
    /// describes the expected file.
    pub fn end(self, missing: &str) -> Result<(), Refusal> {
        self.form.end().map_err(|broken| self.broken(broken))?;
        if self.file != File::Read {
            return Err(wrong(FILE, format_args!("expected {missing}, but it is missing")));
        }
        Ok(())
    }

    fn begin(&mut self, part: Part) -> Result<Option<Piece>, Refusal> {
        if part.name == FILE {
            if self.file != File::Awaited {
                return Err(wrong(FILE, "expected one file, got more than one"));
            }
            self.file = File::Reading;
        } else if part.is_file {
            let other = shown(&part.name).map_or("another".to_owned(), |name| format!("\"{name}\""));
            let noun = self.noun;
            let sentence = format_args!("expected the {noun} in a part of this name, got a file in {other}");
            return Err(wrong(FILE, sentence));
        }
        self.part = Some((part.name.clone(), Vec::new()));
        Ok((self.file == File::Reading).then_some(Piece::File(part)))
    }

    fn content(&mut self, content: Bytes) -> Result<Option<Piece>, Refusal> {
        if self.file == File::Reading {
            return Ok(Some(Piece::Content(content)));
        }
        let Some((name, value)) = &mut self.part else { return Ok(None) };
        if value.len() + content.len() > self.most_field {
            let most = self.most_field;
            return Err(wrong(shown(name).unwrap_or("form"), format_args!("expected at most {most} bytes")));
        }
        value.extend_from_slice(&content);
        Ok(None)
    }

    fn whole(&mut self) -> Option<Piece> {
        let (name, value) = self.part.take()?;
        if self.file == File::Reading {
            self.file = File::Read;
            return None;
        }
        Some(Piece::Field(name, value))
    }

    fn broken(&self, broken: Broken) -> Refusal {
        broken.refusal(self.part.as_ref().and_then(|(name, _)| shown(name)))
    }
}

/// Error that names a part and describes the mistake.
pub fn wrong(name: &str, sentence: impl Display) -> Refusal {
    Refusal::invalid(name, format!("{name}: {sentence}."))
}

/// Text of the client that may be repeated in an error message: short and plain.
#[must_use]
pub fn shown(name: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']');
    (!name.is_empty() && name.len() <= 64 && name.bytes().all(plain)).then_some(name)
}
