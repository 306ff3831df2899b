//! Parser of a form with one file, in the part named `file`, and fields in any order. Fields are buffered until they
//! are complete; the file is passed on as it arrives.

use super::{MultipartError, MultipartEvent, MultipartParser, PartHead, parse_boundary};
use bytes::Bytes;
use penstock_core::{ApiError, ErrorCode};
use std::fmt::Display;

/// Name of the form part that holds the file.
pub const FILE_PART_NAME: &str = "file";

/// Part of an upload form that the parser yields: start of the file, bytes of the file, or another field.
#[derive(Debug)]
pub enum UploadFormEvent {
    /// Start of the file.
    File(PartHead),
    /// Bytes of the file; never empty.
    Content(Bytes),
    /// Form field other than the file, with its name and its complete value.
    Field(String, Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilePartState {
    Awaited,
    Reading,
    Read,
}

/// Parser of an upload form.
#[derive(Debug)]
pub struct UploadFormParser {
    form: MultipartParser,
    /// Noun for the file in error messages.
    noun: &'static str,
    /// Maximum length of a field value, in bytes.
    max_field_bytes: usize,
    file: FilePartState,
    /// Name of the current part, and its value as far as it has arrived; the value of the file stays empty.
    part: Option<(String, Vec<u8>)>,
}

impl UploadFormParser {
    /// Returns a parser for this content type; `noun` names the file in error messages, and `most_field` is the maximum
    /// length of a field value in bytes.
    ///
    /// # Errors
    /// Returns an error for another content type or a missing boundary.
    pub fn new(content_type: &str, noun: &'static str, most_field: usize) -> Result<Self, ApiError> {
        let sentence = "This path reads forms; send content-type: multipart/form-data.";
        let boundary = parse_boundary(content_type)
            .ok_or_else(|| ApiError::with_message(ErrorCode::UnsupportedMediaType, sentence))?
            .ok_or_else(|| {
                part_error("content-type", "expected multipart/form-data with a boundary, but it is missing")
            })?;
        Ok(Self {
            form: MultipartParser::new(&boundary),
            noun,
            max_field_bytes: most_field,
            file: FilePartState::Awaited,
            part: None,
        })
    }

    /// Parses the next bytes and passes the resulting events to `take`.
    ///
    /// # Errors
    /// Returns an error that names the invalid part or the field that is too long, or the error of `take`.
    pub fn push(
        &mut self,
        bytes: Bytes,
        mut take: impl FnMut(UploadFormEvent) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let broken = self.form.push(bytes).err();
        while let Some(event) = self.form.next_event() {
            let piece = match event {
                MultipartEvent::Part(part) => self.start_part(part)?,
                MultipartEvent::Content(content) => self.add_content(content)?,
                MultipartEvent::PartEnd => self.end_part(),
            };
            if let Some(piece) = piece {
                take(piece)?;
            }
        }
        broken.map_or(Ok(()), |broken| Err(self.to_api_error(broken)))
    }

    /// Checks that the form has ended and had a file.
    ///
    /// # Errors
    /// Returns an error that names the part in which the form ends, or an error that asks for `missing` (a description
    /// of the file) if the form has no file.
    pub fn end(self, missing: &str) -> Result<(), ApiError> {
        self.form.check_complete().map_err(|broken| self.to_api_error(broken))?;
        if self.file != FilePartState::Read {
            return Err(part_error(FILE_PART_NAME, format_args!("expected {missing}, but it is missing")));
        }
        Ok(())
    }

    fn start_part(&mut self, part: PartHead) -> Result<Option<UploadFormEvent>, ApiError> {
        if part.name == FILE_PART_NAME {
            if self.file != FilePartState::Awaited {
                return Err(part_error(FILE_PART_NAME, "expected one file, got more than one"));
            }
            self.file = FilePartState::Reading;
        } else if part.is_file {
            let other =
                name_if_quotable(&part.name).map_or("another".to_owned(), |name| format!("\"{name}\""));
            let noun = self.noun;
            let sentence = format_args!("expected the {noun} in a part of this name, got a file in {other}");
            return Err(part_error(FILE_PART_NAME, sentence));
        }
        self.part = Some((part.name.clone(), Vec::new()));
        Ok((self.file == FilePartState::Reading).then_some(UploadFormEvent::File(part)))
    }

    fn add_content(&mut self, content: Bytes) -> Result<Option<UploadFormEvent>, ApiError> {
        if self.file == FilePartState::Reading {
            return Ok(Some(UploadFormEvent::Content(content)));
        }
        let Some((name, value)) = &mut self.part else { return Ok(None) };
        if value.len() + content.len() > self.max_field_bytes {
            let most = self.max_field_bytes;
            return Err(part_error(
                name_if_quotable(name).unwrap_or("form"),
                format_args!("expected at most {most} bytes"),
            ));
        }
        value.extend_from_slice(&content);
        Ok(None)
    }

    fn end_part(&mut self) -> Option<UploadFormEvent> {
        let (name, value) = self.part.take()?;
        if self.file == FilePartState::Reading {
            self.file = FilePartState::Read;
            return None;
        }
        Some(UploadFormEvent::Field(name, value))
    }

    fn to_api_error(&self, broken: MultipartError) -> ApiError {
        broken.to_api_error(self.part.as_ref().and_then(|(name, _)| name_if_quotable(name)))
    }
}

/// Returns an invalid-request error with the part's name and a sentence about its mistake.
pub fn part_error(name: &str, sentence: impl Display) -> ApiError {
    ApiError::invalid(name, format!("{name}: {sentence}."))
}

/// Returns the name if an error message may contain it: it is short and has no special characters.
#[must_use]
pub fn name_if_quotable(name: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']');
    (!name.is_empty() && name.len() <= 64 && name.bytes().all(plain)).then_some(name)
}
