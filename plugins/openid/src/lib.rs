//! OpenID Connect without I/O: the provider's discovery document and keys, the URL for the sign-in, the request for a
//! token, and the verification of the ID token. The caller sends the requests and passes the current time.
//!
//! - `ProviderMetadata` and `KeySet` parse what a provider publishes; both limit the size of what they retain.
//! - [`AuthorizationRequest`] is the authorization code flow with PKCE (S256), state and nonce.
//! - [`verify_id_token`] accepts asymmetric signatures only (RS, PS, ES, EdDSA), verified by `ring`.
//! - [`claim_texts`] reads roles, accounts and names from the claims.

mod authorization;
mod claims;
mod discovery;
mod error;
mod id_token;
mod key_set;
mod signature;
#[cfg(test)]
mod tests;

pub use authorization::{AuthorizationRequest, ClientSecretMethod, TokenRequest, code_challenge};
pub use claims::{MAX_CLAIM_TEXTS, claim_texts};
pub use discovery::{ProviderMetadata, discovery_url};
pub use error::OpenIdError;
pub use id_token::{ExpectedClaims, IdToken, unverified_key_id, verify_id_token};
pub use key_set::KeySet;
