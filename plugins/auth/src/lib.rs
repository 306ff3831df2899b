//! Authentication: format of API keys, their recognition, and their scopes.
//!
//! Guarantees: a mistyped key is refused without a look-up; `Debug` never shows a secret, and there is no `Display`;
//! digests are compared in constant time. The caller provides the randomness, the pepper and the key store.

mod digest;
mod key;
mod presented;
mod scope;

pub use digest::{digest, pepper_check, verify};
pub use key::{Key, Malformed, PATTERN};
pub use presented::presented;
pub use scope::{Scope, Scopes, UnknownScopes};
