//! Versions of stored objects, for optimistic locking: a request that contains a version changes the object only if
//! no other request has changed it since the client read it.

use super::input::RequestFields;
use penstock_core::{ApiError, ErrorCode, hex};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::cell::Cell;

/// Number of bytes of the digest that a version contains, as hexadecimal text.
const VERSION_BYTES: usize = 8;

/// Version that a request expects, with the result of its comparison with the stored object.
#[derive(Debug)]
pub(super) struct ExpectedVersion {
    version: Option<String>,
    is_current: Cell<bool>,
}

impl ExpectedVersion {
    /// Reads the member `version` of a request.
    ///
    /// # Errors
    /// Returns 400 if the value is not a text.
    pub(super) fn parse(fields: &RequestFields<'_>) -> Result<Self, ApiError> {
        let version = fields.text_value("version")?.into_option();
        Ok(Self { version, is_current: Cell::new(true) })
    }

    /// Compares the expected version with that of the stored object; a request without a version always matches.
    pub(super) fn matches(&self, stored: impl FnOnce() -> String) -> bool {
        self.is_current.set(self.version.as_ref().is_none_or(|version| *version == stored()));
        self.is_current.get()
    }

    /// Checks the result of the last comparison. `object` names the object in the message.
    ///
    /// # Errors
    /// Returns 409 if the stored object had another version.
    pub(super) fn require_match(&self, object: &str) -> Result<(), ApiError> {
        if self.is_current.get() {
            return Ok(());
        }
        let message = format!(
            "The {object} was changed by another request since it was read, so nothing was changed now."
        );
        Err(ApiError::with_message(ErrorCode::Conflict, message).with_param("version"))
    }
}

/// Returns the version of an object: a digest of everything that a request can change.
pub(super) fn object_version(fields: &Value) -> String {
    let digest = Sha256::digest(fields.to_string().as_bytes());
    hex::encode(digest.iter().take(VERSION_BYTES))
}

/// Adds the version to the JSON of an object.
pub(super) fn with_version(mut object: Value, version: String) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.insert("version".to_owned(), version.into());
    }
    object
}
