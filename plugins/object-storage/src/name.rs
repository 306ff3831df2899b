//! Rules for the names of objects.

use std::io::{Error, ErrorKind, Result};

/// Maximum length of a name in bytes; with a prefix, the key stays below the limit of S3 of 1024 bytes.
const MAX_NAME: usize = 512;

/// Checks the name of an object or of a folder: parts of letters, digits, `.`, `_` and `-`, separated by `/`.
///
/// # Errors
/// Returns `InvalidInput` for any other character, for empty parts, and for `.` and `..`.
pub fn check_name(name: &str) -> Result<()> {
    if is_valid_name(name) { Ok(()) } else { Err(Error::from(ErrorKind::InvalidInput)) }
}

/// Returns true if the name is valid.
pub fn is_valid_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_letter);
    name.len() <= MAX_NAME && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_folder() {
        for name in ["a", "files/file-1", ".store", "parts/file-1/0-9.a_b"] {
            assert!(is_valid_name(name), "{name}");
        }
        let long = "a".repeat(MAX_NAME + 1);
        for name in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a b", "a\n", "ä", "a?b", "a%2f", &long]
        {
            assert!(!is_valid_name(name), "{name}");
        }
    }
}
