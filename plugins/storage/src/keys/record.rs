//! The row of an API key.

use serde::{Deserialize, Serialize};

use crate::export::{hex, unhex};

/// The HMAC-SHA-256 of a key's secret. Printed as `***`; to be compared in constant time by whoever checks keys.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyDigest(pub [u8; 32]);

impl std::fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl From<KeyDigest> for String {
    fn from(digest: KeyDigest) -> String {
        hex(&digest.0)
    }
}

impl TryFrom<String> for KeyDigest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<KeyDigest, &'static str> {
        let bytes = unhex(&text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(KeyDigest).ok_or("a digest is 64 hex digits")
    }
}

/// What a key, or an account's keys together, may use up. Absent is without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLimits {
    /// Requests per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Tokens per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// Requests at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// Micro-credits per day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_per_day: Option<u64>,
    /// Micro-credits per month.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_per_month: Option<u64>,
}

/// The secret that a key had before its last rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    /// HMAC-SHA-256 of it.
    pub digest: KeyDigest,
    /// Until when it is good, Unix seconds.
    pub until: u64,
}

/// An API key as it is kept. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Public id: 16 characters, `[0-9A-Za-z]`.
    pub id: String,
    /// HMAC-SHA-256 of the secret.
    pub digest: KeyDigest,
    /// What its owner calls it.
    pub name: String,
    /// Account it draws on.
    pub account: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Models it may use; `None` for all, empty for none.
    #[serde(default)]
    pub models: Option<Vec<String>>,
    /// What it may use up.
    #[serde(default)]
    pub limits: KeyLimits,
    /// When it ends, if it does.
    #[serde(default)]
    pub expires: Option<u64>,
    /// When it was made.
    pub created: u64,
    /// The secret before, while it is still good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
    /// When its secret was last made anew, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated: Option<u64>,
    /// When it was last used, if it was.
    #[serde(default)]
    pub last_used: Option<u64>,
    /// When it was revoked, if it was.
    #[serde(default)]
    pub revoked: Option<u64>,
}
