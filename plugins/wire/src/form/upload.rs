//! A form that brings one file, in a part that is called `file`, among fields in any order. Fields are held until
//! they are whole; the file goes on as it comes.

use super::{Broken, Event, Form, Part, boundary};
use bytes::Bytes;
use penstock_contract::{Code, Refusal};
use std::fmt::Display;

/// The part that is the file.
pub const FILE: &str = "file";

/// What an upload consists of.
#[derive(Debug)]
pub enum Piece {
    /// The file begins.
    File(Part),
    /// Bytes of the file; never empty.
    Content(Bytes),
    /// A field and its whole value.
    Field(String, Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Awaited,
    Reading,
    Read,
}

/// Such a form on its way through.
#[derive(Debug)]
pub struct Upload {
    form: Form,
    /// What the file is called in refusals.
    noun: &'static str,
    /// Longest value of a field, in bytes.
    most_field: usize,
    file: File,
    /// The part that is being read; its value, unless it is the file.
    part: Option<(String, Vec<u8>)>,
}

impl Upload {
    /// A form of this content type, its file called by a noun in refusals.
    ///
    /// # Errors
    /// It is no form, or nothing says where its parts end.
    pub fn new(content_type: &str, noun: &'static str, most_field: usize) -> Result<Self, Refusal> {
        let sentence = "This path reads forms; send content-type: multipart/form-data.";
        let boundary = boundary(content_type)
            .ok_or_else(|| Refusal::because(Code::UnsupportedMediaType, sentence))?
            .ok_or_else(|| {
                wrong("content-type", "expected multipart/form-data with a boundary, but it is missing")
            })?;
        Ok(Self { form: Form::new(&boundary), noun, most_field, file: File::Awaited, part: None })
    }

    /// Takes the next bytes and gives on what they complete.
    ///
    /// # Errors
    /// What is wrong, naming the part; what `take` finds wrong.
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

    /// The form is over, and its file was in it.
    ///
    /// # Errors
    /// It is cut short, naming the part, or the file is missing, in which case `missing` says what was expected.
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

/// A refusal that names a part and says what is wrong with it.
pub fn wrong(name: &str, sentence: impl Display) -> Refusal {
    Refusal::invalid(name, format!("{name}: {sentence}."))
}

/// A word of the client's own that may be repeated to it: short and plain.
#[must_use]
pub fn shown(name: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']');
    (!name.is_empty() && name.len() <= 64 && name.bytes().all(plain)).then_some(name)
}
