//! Key set of a provider (RFC 7517), in the form that `ring` verifies signatures with.

use crate::error::OpenIdError;
use crate::signature::PublicKey;
use serde_json::Value;

/// Maximum number of keys that are read from a key set.
const MAX_KEYS: usize = 64;
/// Maximum length of a key id, in bytes.
const MAX_KEY_ID_BYTES: usize = 255;

/// Keys that verify the tokens of a provider.
#[derive(Clone, Debug, Default)]
pub struct KeySet(Vec<(Option<String>, PublicKey)>);

impl KeySet {
    /// Parses a key set. Keys of other kinds or for other uses are left out.
    ///
    /// # Errors
    /// Returns an error if the text is not a key set.
    pub fn parse(text: &[u8]) -> Result<Self, OpenIdError> {
        let document: Value = serde_json::from_slice(text).map_err(|_| OpenIdError::InvalidKeySet)?;
        let keys = document.get("keys").and_then(Value::as_array).ok_or(OpenIdError::InvalidKeySet)?;
        let read = |key: &Value| {
            let text = |name: &str| key.get(name).and_then(Value::as_str);
            let signs = text("use").is_none_or(|of| of == "sig");
            let id = text("kid").map(str::to_owned).filter(|id| id.len() <= MAX_KEY_ID_BYTES);
            PublicKey::parse(key).filter(|_| signs).map(|key| (id, key))
        };
        Ok(Self(keys.iter().filter_map(read).take(MAX_KEYS).collect()))
    }

    /// Returns the keys that may have signed a token with this key id; all keys if the token has no key id.
    pub(crate) fn candidates<'k>(&'k self, key_id: Option<&'k str>) -> impl Iterator<Item = &'k PublicKey> {
        let fits = move |id: &Option<String>| key_id.is_none() || id.as_deref() == key_id;
        self.0.iter().filter(move |(id, _)| fits(id)).map(|(_, key)| key)
    }

    /// Returns true if there is a key with this id; for `None`, if there is any key.
    #[must_use]
    pub fn has_key(&self, key_id: Option<&str>) -> bool {
        self.candidates(key_id).next().is_some()
    }
}
