//! Rules for the names of objects.

use std::io::{Error, ErrorKind, Result};

/// Maximum length of a key of S3 in bytes. A key is a prefix, a slash and a name.
const MAX_KEY: usize = 1024;
/// Maximum length of a name in bytes.
const MAX_NAME: usize = 512;
/// Maximum length of the prefix of a bucket in bytes.
pub const MAX_PREFIX_BYTES: usize = MAX_KEY - 1 - MAX_NAME;

/// Checks the name of an object or of a folder: parts of letters, digits, `.`, `_` and `-`, separated by `/`.
///
/// # Errors
/// Returns `InvalidInput` for any other character, for empty parts, for `.` and `..`, and for a name of more than 512
/// bytes.
pub fn check_name(name: &str) -> Result<()> {
    if is_valid_name(name) { Ok(()) } else { Err(Error::from(ErrorKind::InvalidInput)) }
}

/// Checks the prefix of a bucket, which has the form of a name.
///
/// # Errors
/// Same as [`check_name`], and `InvalidInput` for more than [`MAX_PREFIX_BYTES`] bytes.
pub fn check_prefix(prefix: &str) -> Result<()> {
    check_name(prefix)?;
    if prefix.len() <= MAX_PREFIX_BYTES { Ok(()) } else { Err(Error::from(ErrorKind::InvalidInput)) }
}

/// Returns true if the name follows the rules that [`check_name`] states.
pub fn is_valid_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_letter);
    name.len() <= MAX_NAME && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_and_the_longest_name_are_a_key() {
        let (prefix, name) = ("p".repeat(MAX_PREFIX_BYTES), "n".repeat(MAX_NAME));
        assert!(check_prefix(&prefix).is_ok() && is_valid_name(&name));
        assert_eq!(format!("{prefix}/{name}").len(), MAX_KEY);
        assert!(check_prefix(&format!("{prefix}p")).is_err());
    }

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
