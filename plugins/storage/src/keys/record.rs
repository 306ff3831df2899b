//! Row of an API key.

use serde::{Deserialize, Serialize};

use crate::export::{decode_hex, encode_hex};

/// HMAC-SHA-256 of a key's secret. Its debug output is `***`. Compare it in constant time only.
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
        encode_hex(&digest.0)
    }
}

impl TryFrom<String> for KeyDigest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<KeyDigest, &'static str> {
        let bytes = decode_hex(&text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(KeyDigest).ok_or("a digest is 64 hex digits")
    }
}

/// Usage limits of a key, or of all keys of an account together. An absent limit means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLimits {
    /// Limit on requests per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Limit on tokens per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// Limit on requests in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// Budget in micro-credits per day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_per_day: Option<u64>,
    /// Budget in micro-credits per month.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_per_month: Option<u64>,
}

/// Secret that a key had before its last rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousSecret {
    /// HMAC-SHA-256 of the previous secret.
    pub digest: KeyDigest,
    /// Time until which the previous secret is accepted, Unix seconds.
    pub until: u64,
}

/// Record of an API key. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Public id: 16 characters, `[0-9A-Za-z]`.
    pub id: String,
    /// HMAC-SHA-256 of the secret.
    pub digest: KeyDigest,
    /// Display name that the owner chose.
    pub name: String,
    /// Account that pays for the requests of the key.
    pub account: String,
    /// Permission scopes.
    pub scopes: Vec<String>,
    /// Models that the key may use; `None` for all, empty for none.
    #[serde(default)]
    pub models: Option<Vec<String>>,
    /// Usage limits.
    #[serde(default)]
    pub limits: KeyLimits,
    /// True if responses are stored for requests with `store: true`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub store_responses: bool,
    /// Expiry time, if set.
    #[serde(default)]
    pub expires: Option<u64>,
    /// Creation time.
    pub created: u64,
    /// Previous secret of the key, which is accepted for a limited time after a rotation; `None` without such a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousSecret>,
    /// Time of the last rotation of the secret, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated: Option<u64>,
    /// Time of the last use, if any.
    #[serde(default)]
    pub last_used: Option<u64>,
    /// Revocation time, if revoked.
    #[serde(default)]
    pub revoked: Option<u64>,
}

impl KeyRecord {
    /// Creates the record of a key without a name, scopes and limits, which may use all models and does not expire.
    #[must_use]
    pub fn new(id: impl Into<String>, digest: KeyDigest, account: impl Into<String>, created: u64) -> Self {
        Self {
            id: id.into(),
            digest,
            name: String::new(),
            account: account.into(),
            scopes: Vec::new(),
            models: None,
            limits: KeyLimits::default(),
            store_responses: false,
            expires: None,
            created,
            previous: None,
            rotated: None,
            last_used: None,
            revoked: None,
        }
    }
}
