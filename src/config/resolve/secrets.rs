//! Reader of secrets and files that the configuration refers to.

use super::super::raw::SecretRef;
use super::super::secret::SecretText;
use super::SettingsResolver;
use super::key_path::KeyPath;
use penstock_regular_file::{read_regular_file, read_text_file};

/// Maximum size of a secret, in bytes.
const MAX_SECRET_BYTES: u64 = 64 << 10;
/// Maximum length of the name of an environment variable in messages, in bytes.
const MAX_VARIABLE_NAME: usize = 64;
/// Remedy for a file that is missing or cannot be read.
pub const UNREADABLE_FILE_REMEDY: &str =
    "Write the path of a file that the gateway's user can read; a relative one starts at this configuration.";
/// Maximum size of a tokenizer file, in bytes.
const MAX_TOKENIZER_BYTES: u64 = 256 << 20;

impl SettingsResolver<'_> {
    /// Reads a secret; `None` after a mistake. Its text is never part of a message.
    pub fn read_secret(&mut self, reference: &SecretRef, spot: &KeyPath<'_>) -> Option<SecretText> {
        let text = match (&reference.env, &reference.file) {
            (Some(name), None) => self.read_variable(name, &spot.child("env"))?,
            (None, Some(file)) => {
                let at = spot.child("file");
                let path = at.resolve_file_path(file);
                self.watched_files.push(path.clone());
                match read_text_file(&path, MAX_SECRET_BYTES) {
                    Ok(text) => text,
                    Err(why) => {
                        let why = format!("The file {} cannot be read: {why}.", path.display());
                        self.report_mistake(&at, why, UNREADABLE_FILE_REMEDY);
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

    /// Reads an environment variable that contains a secret; `None` after a mistake.
    fn read_variable(&mut self, name: &str, spot: &KeyPath<'_>) -> Option<String> {
        if let Some(text) = (self.environment.env)(name) {
            return Some(text);
        }
        // The written name may be the secret itself, so the message must not show it.
        if !is_variable_name(name) {
            let why = "It is not the name of an environment variable: letters, digits and `_`.";
            let fix = "Write the name of the variable that contains the secret.";
            self.report_secret_mistake(spot, why, fix);
            return None;
        }
        self.report_secret_mistake(
            spot,
            format!("The environment variable {name} is not set."),
            "Set it where the gateway is started, or write `{ file = \"…\" }`.",
        );
        None
    }

    /// Reads a tokenizer file; `None` after a mistake.
    pub fn read_tokenizer_file(&mut self, written: &str, spot: &KeyPath<'_>) -> Option<Vec<u8>> {
        let path = spot.resolve_file_path(written);
        let why = match read_regular_file(&path, MAX_TOKENIZER_BYTES) {
            Ok(bytes) if bytes.is_empty() => "it is empty".to_owned(),
            Ok(bytes) => return Some(bytes),
            Err(why) => why,
        };
        let why = format!("The file {} cannot be read: {why}.", path.display());
        self.report_mistake(spot, why, UNREADABLE_FILE_REMEDY);
        None
    }
}

fn is_variable_name(name: &str) -> bool {
    name.len() <= MAX_VARIABLE_NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
