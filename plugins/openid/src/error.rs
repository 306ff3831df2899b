//! Errors of a sign-in, as sentences for the person who signs in. No message contains a value that the provider sent.

use std::fmt;

/// Failure of a sign-in at an OpenID provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenIdError {
    /// The discovery document is not JSON or lacks an endpoint.
    Discovery,
    /// The discovery document names another issuer than the configured one.
    DiscoveredIssuer,
    /// The URL of an endpoint is not `https`, is too long, or is malformed.
    InsecureEndpoint,
    /// The key set is not JSON.
    InvalidKeySet,
    /// The response of the token endpoint has no ID token.
    MissingIdToken,
    /// The authorization code was used before, has expired, or belongs to another request.
    Code,
    /// The ID token is too large, malformed, or not signed with a supported algorithm.
    MalformedToken,
    /// No key of the provider has the token's key id.
    UnknownKey,
    /// The signature does not match.
    Signature,
    /// The ID token names another issuer than the configured one.
    Issuer,
    /// The ID token was issued for another client.
    Audience,
    /// The ID token has expired, is not valid yet, or lacks a valid `exp` or `iat`.
    OutsideValidity,
    /// The nonce of the ID token belongs to another authorization request.
    Nonce,
    /// The token has no usable `sub`.
    Subject,
}

impl fmt::Display for OpenIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discovery => "The OpenID provider's configuration cannot be read.",
            Self::DiscoveredIssuer => "The OpenID provider's configuration is of another issuer.",
            Self::InsecureEndpoint => {
                "The OpenID provider's configuration has an endpoint that is not a plain https URL."
            }
            Self::InvalidKeySet => "The OpenID provider's keys cannot be read.",
            Self::MissingIdToken => "The OpenID provider's answer has no ID token.",
            Self::Code => "The OpenID provider does not accept the code: it was used before or has expired.",
            Self::MalformedToken => "The ID token is not signed in a supported form.",
            Self::UnknownKey => "The ID token is signed with an unknown key.",
            Self::Signature => "The signature of the ID token does not match.",
            Self::Issuer => "The ID token is of another issuer.",
            Self::Audience => "The ID token is for another application.",
            Self::OutsideValidity => "The ID token has expired, or the clocks differ.",
            Self::Nonce => "The ID token belongs to another sign-in.",
            Self::Subject => "The ID token names no person.",
        })
    }
}

impl std::error::Error for OpenIdError {}
