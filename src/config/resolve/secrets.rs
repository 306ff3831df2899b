//! Reader of secrets and files that the configuration refers to.

use super::super::raw::Reference;
use super::super::read::cause;
use super::super::secret::Secret;
use super::Proof;
use super::key_path::Spot;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Size limits on secrets and PEM files.
const MOST_SECRET: u64 = 64 << 10;
const MOST_PEM: u64 = 4 << 20;
/// Size limit on a tokenizer file.
const MOST_TOKENIZER: u64 = 256 << 20;

impl Proof<'_> {
    /// Reads a secret. Its text is never part of a message.
    pub fn secret(&mut self, reference: &Reference, spot: &Spot<'_>) -> Option<Secret> {
        let text = match (&reference.env, &reference.file) {
            (Some(name), None) => match (self.around.env)(name) {
                Some(text) => text,
                None => {
                    self.wrong_secret(
                        &spot.key("env"),
                        format!("The environment variable {name} is not set."),
                        "Set it where the gateway is started, or write `{ file = \"…\" }`.",
                    );
                    return None;
                }
            },
            (None, Some(file)) => {
                let at = spot.key("file");
                let path = at.file(file);
                self.watched.push(path.clone());
                match content(&path, MOST_SECRET) {
                    Ok(text) => text,
                    Err(why) => {
                        self.wrong(&at, format!("The file {} cannot be read: {why}.", path.display()), "");
                        return None;
                    }
                }
            }
            _ => {
                self.wrong_secret(
                    spot,
                    "A secret has exactly one source.",
                    "Write either `{ env = \"NAME\" }` or `{ file = \"/path\" }`.",
                );
                return None;
            }
        };
        let text = text.trim_end();
        if text.is_empty() {
            self.wrong_secret(
                spot,
                "The secret is empty.",
                "Store the secret in the referenced variable or file.",
            );
            return None;
        }
        if text.chars().any(char::is_control) {
            self.wrong_secret(
                spot,
                "The secret has a line break or another control character in it.",
                "Store only the secret there, in one line.",
            );
            return None;
        }
        Some(Secret::new(text))
    }

    /// Returns the path of a PEM file that contains such a section.
    pub fn pem(&mut self, written: &str, part: &str, spot: &Spot<'_>) -> Option<PathBuf> {
        let path = spot.file(written);
        self.watched.push(path.clone());
        match content(&path, MOST_PEM) {
            Err(why) => {
                self.wrong(spot, format!("The file {} cannot be read: {why}.", path.display()), "");
                None
            }
            Ok(text) if pem_has(&text, part) => Some(path),
            Ok(_) => {
                let why = format!("There is no `-----BEGIN … {part}-----` in {}.", path.display());
                self.wrong(
                    spot,
                    why,
                    "It must be PEM; `openssl x509` and `openssl pkey` turn other forms into it.",
                );
                None
            }
        }
    }

    /// Reads a tokenizer file.
    pub fn bytes(&mut self, written: &str, spot: &Spot<'_>) -> Option<Vec<u8>> {
        let path = spot.file(written);
        let mut bytes = Vec::new();
        let read =
            |file: File| file.take(MOST_TOKENIZER).read_to_end(&mut bytes).map_err(|error| cause(&error));
        let why = match regular(&path).and_then(read) {
            Ok(0) => "it is empty".to_owned(),
            Ok(_) => return Some(bytes),
            Err(why) => why,
        };
        self.wrong(spot, format!("The file {} cannot be read: {why}.", path.display()), "");
        None
    }
}

fn pem_has(text: &str, part: &str) -> bool {
    text.lines().any(|line| {
        let label = line.trim().strip_prefix("-----BEGIN ").and_then(|line| line.strip_suffix("-----"));
        label.is_some_and(|label| label.ends_with(part))
    })
}

/// Opens a regular file. A pipe could block forever, and a device could be endless.
fn regular(path: &Path) -> Result<File, String> {
    let kind = std::fs::metadata(path).map_err(|error| cause(&error))?.file_type();
    if kind.is_dir() {
        return Err("it is a folder".to_owned());
    }
    if !kind.is_file() {
        return Err("it is a pipe or a device, and must be a regular file".to_owned());
    }
    File::open(path).map_err(|error| cause(&error))
}

fn content(path: &Path, most: u64) -> Result<String, String> {
    let file = regular(path)?;
    let mut text = String::new();
    match file.take(most + 1).read_to_string(&mut text) {
        Ok(_) if u64::try_from(text.len()).unwrap_or(u64::MAX) > most => {
            Err("it is far too large".to_owned())
        }
        Ok(_) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Err("it is not text".to_owned()),
        Err(error) => Err(cause(&error)),
    }
}
