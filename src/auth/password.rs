//! Passwords of console users: Argon2id with the parameters that OWASP recommends (19 MiB, two passes). Hashing and
//! verification block for about 20 ms and need that memory.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use penstock_core::ApiError;

/// Minimum length of a password, in characters.
pub const MIN_CHARS: usize = 12;
/// Maximum length of a password, in bytes.
const MAX_BYTES: usize = 1_024;
const SALT_BYTES: usize = 16;

/// Checks the length of a new password.
///
/// # Errors
/// Returns 400 that names the field `password`.
pub fn check_length(password: &str) -> Result<(), ApiError> {
    if password.chars().count() < MIN_CHARS || password.len() > MAX_BYTES {
        let expected =
            format!("password: expected {MIN_CHARS} characters or more, and {MAX_BYTES} bytes or fewer");
        return Err(ApiError::invalid("password", expected));
    }
    Ok(())
}

/// Hashes a password with a random salt, in PHC format.
///
/// # Errors
/// Returns 400 if the password is too short or too long, 500 if it cannot be hashed.
pub fn hash(password: &str) -> Result<String, ApiError> {
    check_length(password)?;
    let mut salt = [0; SALT_BYTES];
    rand::fill(&mut salt);
    let failed = |_| ApiError::new(penstock_core::ErrorCode::Internal);
    Argon2::default()
        .hash_password_with_salt(password.as_bytes(), &salt)
        .map(|hash| hash.to_string())
        .map_err(failed)
}

/// Returns true if a password matches a hash. Without a hash, the call takes as long and returns false, so that the
/// duration does not reveal whether a user exists. A password that is too long never matches and is not hashed.
#[must_use]
pub fn verify(password: &str, hash: Option<&str>) -> bool {
    if password.len() > MAX_BYTES {
        return false;
    }
    let parsed = hash.and_then(|hash| PasswordHash::new(hash).ok());
    match parsed {
        Some(parsed) => Argon2::default().verify_password(password.as_bytes(), &parsed).is_ok(),
        None => {
            Argon2::default().hash_password_with_salt(password.as_bytes(), &[0; SALT_BYTES]).ok();
            false
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_same_password_matches_its_hash() {
        let hashed = hash("correct horse battery").unwrap();
        assert!(hashed.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hashed}");
        assert!(verify("correct horse battery", Some(&hashed)));
        for other in ["", "correct horse batter", "Correct horse battery", "correct horse battery "] {
            assert!(!verify(other, Some(&hashed)), "{other}");
        }
        assert!(!verify("correct horse battery", None));
        assert!(!verify("correct horse battery", Some("no hash")));
        assert_ne!(hash("correct horse battery").unwrap(), hashed, "each hash has its own salt");
    }

    #[test]
    fn a_password_has_a_minimum_and_a_maximum_length() {
        for refused in ["", "short", &"x".repeat(1_025)] {
            assert_eq!(hash(refused).unwrap_err().param.as_deref(), Some("password"));
        }
        assert!(check_length(&"é".repeat(12)).is_ok());
    }
}
