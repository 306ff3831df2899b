//! Reader of secrets and files that the configuration refers to.

use super::super::raw::SecretRef;
use super::super::read::describe_io_error;
use super::super::secret::SecretText;
use super::SettingsResolver;
use super::key_path::KeyPath;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Maximum sizes of secrets and of PEM files, in bytes.
const MAX_SECRET_BYTES: u64 = 64 << 10;
const MAX_PEM_BYTES: u64 = 4 << 20;
/// Maximum size of a tokenizer file, in bytes.
const MAX_TOKENIZER_BYTES: u64 = 256 << 20;

impl SettingsResolver<'_> {
    /// Reads a secret. Its text is never part of a message.
    pub fn read_secret(&mut self, reference: &SecretRef, spot: &KeyPath<'_>) -> Option<SecretText> {
        let text = match (&reference.env, &reference.file) {
            (Some(name), None) => match (self.environment.env)(name) {
                Some(text) => text,
                None => {
                    self.report_secret_mistake(
                        &spot.child("env"),
                        format!("The environment variable {name} is not set."),
                        "Set it where the gateway is started, or write `{ file = \"…\" }`.",
                    );
                    return None;
                }
            },
            (None, Some(file)) => {
                let at = spot.child("file");
                let path = at.resolve_file_path(file);
                self.watched_files.push(path.clone());
                match read_text(&path, MAX_SECRET_BYTES) {
                    Ok(text) => text,
                    Err(why) => {
                        self.report_mistake(
                            &at,
                            format!("The file {} cannot be read: {why}.", path.display()),
                            "",
                        );
                        return None;
                    }
                }
            }
            _ => {
                self.report_secret_mistake(
                    spot,
                    "A secret has exactly one source.",
                    "Write either `{ env = \"NAME\" }` or `{ file = \"/path\" }`.",
                );
                return None;
            }
        };
        let text = text.trim_end();
        if text.is_empty() {
            self.report_secret_mistake(
                spot,
                "The secret is empty.",
                "Store the secret in the referenced variable or file.",
            );
            return None;
        }
        if text.chars().any(char::is_control) {
            self.report_secret_mistake(
                spot,
                "The secret has a line break or another control character in it.",
                "Store only the secret there, in one line.",
            );
            return None;
        }
        Some(SecretText::new(text))
    }

    /// Returns the path of a PEM file after checking that it has a section whose label ends with `part`, such as
    /// `PRIVATE KEY`.
    pub fn check_pem_file(&mut self, written: &str, part: &str, spot: &KeyPath<'_>) -> Option<PathBuf> {
        let path = spot.resolve_file_path(written);
        self.watched_files.push(path.clone());
        match read_text(&path, MAX_PEM_BYTES) {
            Err(why) => {
                self.report_mistake(spot, format!("The file {} cannot be read: {why}.", path.display()), "");
                None
            }
            Ok(text) if has_pem_section(&text, part) => Some(path),
            Ok(_) => {
                let why = format!("There is no `-----BEGIN … {part}-----` in {}.", path.display());
                self.report_mistake(
                    spot,
                    why,
                    "It must be PEM; `openssl x509` and `openssl pkey` turn other forms into it.",
                );
                None
            }
        }
    }

    /// Reads a tokenizer file.
    pub fn read_tokenizer_file(&mut self, written: &str, spot: &KeyPath<'_>) -> Option<Vec<u8>> {
        let path = spot.resolve_file_path(written);
        let mut bytes = Vec::new();
        let read = |file: File| {
            file.take(MAX_TOKENIZER_BYTES).read_to_end(&mut bytes).map_err(|error| describe_io_error(&error))
        };
        let why = match open_regular_file(&path).and_then(read) {
            Ok(0) => "it is empty".to_owned(),
            Ok(_) => return Some(bytes),
            Err(why) => why,
        };
        self.report_mistake(spot, format!("The file {} cannot be read: {why}.", path.display()), "");
        None
    }
}

fn has_pem_section(text: &str, part: &str) -> bool {
    text.lines().any(|line| {
        let label = line.trim().strip_prefix("-----BEGIN ").and_then(|line| line.strip_suffix("-----"));
        label.is_some_and(|label| label.ends_with(part))
    })
}

/// Opens a file if it is a regular file. Reading a pipe could block forever, and a device could be endless.
fn open_regular_file(path: &Path) -> Result<File, String> {
    let kind = std::fs::metadata(path).map_err(|error| describe_io_error(&error))?.file_type();
    if kind.is_dir() {
        return Err("it is a folder".to_owned());
    }
    if !kind.is_file() {
        return Err("it is a pipe or a device, and must be a regular file".to_owned());
    }
    File::open(path).map_err(|error| describe_io_error(&error))
}

/// Reads a text file of at most `most` bytes.
pub(super) fn read_text(path: &Path, most: u64) -> Result<String, String> {
    let file = open_regular_file(path)?;
    let mut text = String::new();
    match file.take(most + 1).read_to_string(&mut text) {
        Ok(_) if u64::try_from(text.len()).unwrap_or(u64::MAX) > most => {
            Err("it is far too large".to_owned())
        }
        Ok(_) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Err("it is not text".to_owned()),
        Err(error) => Err(describe_io_error(&error)),
    }
}
