//! Authorization code flow with PKCE (RFC 6749, RFC 7636): URL of the sign-in, and the request for the tokens.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use penstock_core::percent::{PATH_SEGMENT, encode};
use ring::digest::{SHA256, digest};

/// Method by which the client's secret is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientSecretMethod {
    /// Secret in the header `authorization`.
    Basic,
    /// Secret in the body.
    Post,
}

/// Returns the code challenge of a verifier, by the method S256.
#[must_use]
pub fn code_challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))
}

/// Authorization request, which the browser sends by following a URL.
#[derive(Clone, Copy, Debug)]
pub struct AuthorizationRequest<'a> {
    /// Id of the client.
    pub client_id: &'a str,
    /// URL to which the browser returns.
    pub redirect_uri: &'a str,
    /// Scopes, including `openid`.
    pub scopes: &'a [Box<str>],
    /// Random text that the provider sends back with the code.
    pub state: &'a str,
    /// Random text that the provider writes into the ID token.
    pub nonce: &'a str,
    /// Code verifier; only its challenge is sent.
    pub verifier: &'a str,
}

impl AuthorizationRequest<'_> {
    /// Returns the URL of the request at the authorization endpoint.
    #[must_use]
    pub fn url(&self, endpoint: &str) -> String {
        let joiner = if endpoint.contains('?') { '&' } else { '?' };
        let pairs = [
            ("response_type", "code"),
            ("client_id", self.client_id),
            ("redirect_uri", self.redirect_uri),
            ("scope", &self.scopes.join(" ")),
            ("state", self.state),
            ("nonce", self.nonce),
            ("code_challenge", &code_challenge(self.verifier)),
            ("code_challenge_method", "S256"),
        ];
        format!("{endpoint}{joiner}{}", form(&pairs))
    }
}

/// Request that exchanges a code for tokens.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    /// Id of the client.
    pub client_id: &'a str,
    /// Secret of the client; `None` for a public client.
    pub client_secret: Option<&'a str>,
    /// Method by which the secret is sent.
    pub secret_method: ClientSecretMethod,
    /// Code that the authorization endpoint returned.
    pub code: &'a str,
    /// URL to which the browser returned.
    pub redirect_uri: &'a str,
    /// Code verifier of the authorization request.
    pub verifier: &'a str,
}

impl TokenRequest<'_> {
    /// Returns the body as a URL-encoded form.
    #[must_use]
    pub fn body(&self) -> String {
        let mut pairs = vec![
            ("grant_type", "authorization_code"),
            ("code", self.code),
            ("redirect_uri", self.redirect_uri),
            ("code_verifier", self.verifier),
        ];
        let posted = self.client_secret.filter(|_| self.secret_method == ClientSecretMethod::Post);
        if self.client_secret.is_none() || posted.is_some() {
            pairs.push(("client_id", self.client_id));
        }
        pairs.extend(posted.map(|secret| ("client_secret", secret)));
        form(&pairs)
    }

    /// Returns the value of the header `authorization`; `None` if the secret is not sent in it.
    #[must_use]
    pub fn authorization_header(&self) -> Option<String> {
        let secret = self.client_secret.filter(|_| self.secret_method == ClientSecretMethod::Basic)?;
        // Client id and secret are form-encoded before they are joined (RFC 6749, 2.3.1).
        let joined = format!("{}:{}", encode(self.client_id, PATH_SEGMENT), encode(secret, PATH_SEGMENT));
        Some(format!("Basic {}", STANDARD.encode(joined)))
    }
}

fn form(pairs: &[(&str, &str)]) -> String {
    let encoded = pairs.iter().map(|(name, value)| format!("{name}={}", encode(value, PATH_SEGMENT)));
    encoded.collect::<Vec<_>>().join("&")
}
