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
/// Byte order mark that some editors write at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Maximum size of a tokenizer file, in bytes.
const MAX_TOKENIZER_BYTES: u64 = 256 << 20;

impl SettingsResolver<'_> {
    /// Reads a secret that is sent in a header, or is otherwise ASCII; `None` after a mistake. No message shows
    /// the secret.
    pub fn read_secret(&mut self, reference: &SecretRef, spot: &KeyPath<'_>) -> Option<SecretText> {
        let secret = self.read_unicode_secret(reference, spot)?;
        if secret.reveal().is_ascii() {
            return Some(secret);
        }
        self.report_secret_mistake(
            spot,
            "The secret has a character that is not ASCII.",
            "Store only the secret there, as its issuer shows it.",
        );
        None
    }

    /// Reads a secret that may have characters beyond ASCII, such as the password of a database; `None` after a mistake.
    /// No message shows the secret.
    pub fn read_unicode_secret(&mut self, reference: &SecretRef, spot: &KeyPath<'_>) -> Option<SecretText> {
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
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text).trim_end();
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
        if is_quoted(text) {
            self.report.warnings.push(spot.diagnostic(
                None,
                "The secret has quotation marks around it, which are sent as a part of it.".to_owned(),
                "Store it without them, unless they belong to it.".to_owned(),
            ));
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

/// Returns true for a text between two equal quotation marks.
fn is_quoted(text: &str) -> bool {
    let inner = |mark: char| text.strip_prefix(mark).is_some_and(|rest| rest.ends_with(mark));
    inner('"') || inner('\'')
}

fn is_variable_name(name: &str) -> bool {
    name.len() <= MAX_VARIABLE_NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
