//! Authentication: format of API keys, their recognition, and their scopes.
//!
//! Guarantees: a mistyped key is refused without a look-up; `Debug` never shows a secret, and there is no `Display`;
//! digests are compared in constant time. The caller provides the randomness, the pepper and the key store.

mod credentials;
mod digest;
mod key;
mod scope;

pub use credentials::presented_keys;
pub use digest::{KeyDigester, digests_equal, key_digest, pepper_fingerprint};
pub use key::{ApiKey, KEY_PATTERN, MalformedKey};
pub use scope::{KeyScope, KeyScopes, UnknownScopes};
