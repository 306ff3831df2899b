//! Sign-in in progress, stored in a cookie of the browser: the values that the provider's response has to match. The
//! cookie is encrypted and authenticated with a key derived from the pepper, so that every gateway of a fleet can read
//! it, and nothing has to be stored before the person is known.

use crate::storage::stores::Pepper;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use serde::{Deserialize, Serialize};

/// Time within which a person has to sign in at the provider, in seconds.
pub const PENDING_SECONDS: u64 = 600;
/// Maximum length of the cookie's value; browsers accept 4096 bytes.
const MAX_COOKIE_BYTES: usize = 4_000;
/// Label (HKDF `info`) from which the key of the cookie is derived.
const LABEL: &[u8] = b"console sign-in 1";

/// State of a sign-in in progress: the values that the OpenID provider's response must match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingSignIn {
    /// Random text that the provider sends back with the code.
    pub state: String,
    /// Random text that the provider writes into the ID token.
    pub nonce: String,
    /// PKCE code verifier of the sign-in.
    pub verifier: String,
    /// URL to which the provider sends the browser.
    pub redirect_uri: String,
    /// Time at which the sign-in began, Unix seconds.
    pub created: u64,
    /// SHA-256 of the invitation's token, if the person was invited.
    pub invitation: Option<String>,
    /// Id of an earlier session of the browser, which this sign-in ends.
    pub previous: Option<String>,
    /// Path and query of the page that the sign-in leads to; `None` for the first page of the site.
    #[serde(default)]
    pub wanted: Option<String>,
}

impl PendingSignIn {
    /// Encrypts the values, for the cookie of a site; `None` if they are too long.
    pub fn to_cookie_value(&self, pepper: &Pepper, site: &str) -> Option<String> {
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut text = serde_json::to_vec(self).ok()?;
        let data = Aad::from(site.as_bytes());
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        key(pepper)?.seal_in_place_append_tag(nonce_of, data, &mut text).ok()?;
        let sealed = URL_SAFE_NO_PAD.encode([&nonce[..], &text].concat());
        (sealed.len() <= MAX_COOKIE_BYTES).then_some(sealed)
    }

    /// Decrypts the cookie of a site; `None` if it is not of this gateway and site, or too old. `now` is in Unix
    /// seconds.
    pub fn from_cookie_value(cookie: &str, pepper: &Pepper, site: &str, now: u64) -> Option<Self> {
        if cookie.len() > MAX_COOKIE_BYTES {
            return None;
        }
        let mut sealed = URL_SAFE_NO_PAD.decode(cookie).ok()?;
        let (nonce, text) = sealed.split_first_chunk_mut::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let text = key(pepper)?.open_in_place(nonce, Aad::from(site.as_bytes()), text).ok()?;
        let pending: Self = serde_json::from_slice(text).ok()?;
        (now < pending.created.saturating_add(PENDING_SECONDS)).then_some(pending)
    }
}

fn key(pepper: &Pepper) -> Option<LessSafeKey> {
    let secret = Salt::new(HKDF_SHA256, b"penstock").extract(&pepper.0);
    let derived = secret.expand(&[LABEL], &AES_256_GCM).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(derived)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_cookie_is_of_its_gateway_site_and_time() {
        let pending = PendingSignIn {
            state: "s".repeat(64),
            nonce: "n".repeat(64),
            verifier: "v".repeat(64),
            redirect_uri: "https://account.example.eu/dashboard/sign-in/openid/return".to_owned(),
            created: 1_000,
            invitation: Some("i".repeat(64)),
            previous: Some("p".repeat(64)),
            wanted: Some("/".repeat(1_000)),
        };
        let (pepper, other) = (Pepper([1; 32]), Pepper([2; 32]));
        let sealed = pending.to_cookie_value(&pepper, "/dashboard/").unwrap();
        assert_eq!(
            PendingSignIn::from_cookie_value(&sealed, &pepper, "/dashboard/", 1_599).unwrap(),
            pending
        );
        assert!(PendingSignIn::from_cookie_value(&sealed, &pepper, "/dashboard/", 1_600).is_none());
        assert!(PendingSignIn::from_cookie_value(&sealed, &pepper, "/console/", 1_000).is_none());
        assert!(PendingSignIn::from_cookie_value(&sealed, &other, "/dashboard/", 1_000).is_none());
        assert_ne!(pending.to_cookie_value(&pepper, "/dashboard/").unwrap(), sealed);
        for cut in 0..sealed.len() {
            let cut = sealed.get(..cut).unwrap();
            assert!(PendingSignIn::from_cookie_value(cut, &pepper, "/dashboard/", 1_000).is_none());
        }
        assert!(PendingSignIn::from_cookie_value("é", &pepper, "/dashboard/", 1_000).is_none());
        let long = PendingSignIn { redirect_uri: "x".repeat(4_000), ..pending };
        assert!(long.to_cookie_value(&pepper, "/dashboard/").is_none());
    }
}
