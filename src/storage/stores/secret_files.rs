//! Files of the secrets next to a store: the pepper and the admin token.

use penstock_core::hex;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Minimum length of an admin token in characters. A generated token has 64, and an empty file must not grant access.
const MIN_TOKEN_CHARS: usize = 32;

/// Reads a secret file, or creates it so that only its owner can read it. The file appears completely or not at all, so
/// that a crash cannot leave a partial secret.
pub(super) fn read_or_create(path: &Path, make: fn() -> String) -> Result<String, String> {
    if let Some(text) = read_secret(path)? {
        return Ok(text);
    }
    let text = make();
    write_secret(path, &text)?;
    Ok(text)
}

/// Writes a secret file, and replaces an existing one.
pub(super) fn write_secret(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| file_error(path, &error);
    let temporary: PathBuf = path.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)?;
    if let Some(folder) = path.parent() {
        fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    }
    Ok(())
}

/// Reads a secret file, if it exists.
pub(super) fn read_secret(path: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path, &error)),
    }
}

pub(super) fn file_error(path: &Path, error: &std::io::Error) -> String {
    format!("The file {} cannot be used: {error}.", path.display())
}

/// Checks the length of an admin token.
pub(super) fn check_token_length(path: &Path, token: String) -> Result<String, String> {
    let length = token.chars().count();
    if length >= MIN_TOKEN_CHARS {
        return Ok(token);
    }
    Err(format!(
        "The admin token in {} has {length} characters, and has to have at least {MIN_TOKEN_CHARS}. Delete the file: the next \
         start makes a new one.",
        path.display()
    ))
}

/// Returns 32 random bytes in hexadecimal.
pub(super) fn hex_secret() -> String {
    hex::encode(&rand::random::<[u8; 32]>())
}

pub(super) fn parse_hex_secret(text: &str) -> Option<[u8; 32]> {
    hex::decode(text.as_bytes())
}
