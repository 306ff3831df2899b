//! Auth: what a key looks like, how it is recognised, and what it allows.
//!
//! Promises: a mistyped key is refused without a look-up; a secret is never
//! shown by `Debug` and has no `Display`; digests are compared in constant
//! time. Randomness, the pepper and the store of keys are the house's.

mod digest;
mod key;
mod presented;
mod scope;

pub use digest::{digest, pepper_check, verify};
pub use key::{Key, Malformed, PATTERN};
pub use presented::presented;
pub use scope::{Scope, Scopes, UnknownScopes};
