//! Signatures of tokens (RFC 7515, RFC 7518, RFC 8037), verified by `ring`. Only asymmetric algorithms are supported,
//! so a token without a signature or with a shared secret is always refused.

use crate::error::OpenIdError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature as rules;
use serde_json::Value;

/// Algorithm of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureAlgorithm {
    /// RSA, with this padding and hash.
    Rsa(RsaScheme),
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

/// Padding and hash of an RSA signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RsaScheme {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
}

impl SignatureAlgorithm {
    /// Returns the algorithm with this name in the header member `alg`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rsa(RsaScheme::Rs256),
            "RS384" => Self::Rsa(RsaScheme::Rs384),
            "RS512" => Self::Rsa(RsaScheme::Rs512),
            "PS256" => Self::Rsa(RsaScheme::Ps256),
            "PS384" => Self::Rsa(RsaScheme::Ps384),
            "PS512" => Self::Rsa(RsaScheme::Ps512),
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }
}

impl RsaScheme {
    fn parameters(self) -> &'static rules::RsaParameters {
        match self {
            Self::Rs256 => &rules::RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &rules::RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &rules::RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &rules::RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &rules::RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &rules::RSA_PSS_2048_8192_SHA512,
        }
    }
}

/// Public key of a key set. It verifies only signatures by algorithms of its own kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// Modulus and exponent.
    Rsa {
        /// Modulus, big-endian.
        modulus: Vec<u8>,
        /// Exponent, big-endian.
        exponent: Vec<u8>,
    },
    /// Point on P-256, uncompressed.
    P256(Vec<u8>),
    /// Point on P-384, uncompressed.
    P384(Vec<u8>),
    /// Key of Ed25519.
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// Parses a JSON Web Key; `None` for other kinds and malformed keys.
    pub fn parse(key: &Value) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let point = || {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == y.len()).then(|| [&[4][..], &x, &y].concat())
        };
        match (text("kty")?, text("crv")) {
            ("RSA", _) => Some(Self::Rsa { modulus: bytes("n")?, exponent: bytes("e")? }),
            ("EC", Some("P-256")) => point().map(Self::P256),
            ("EC", Some("P-384")) => point().map(Self::P384),
            ("OKP", Some("Ed25519")) => bytes("x").map(Self::Ed25519),
            _ => None,
        }
    }

    /// Verifies the signature of a message.
    ///
    /// # Errors
    /// Returns `Signature` if the signature does not match, or if the algorithm is not of the key's kind.
    pub fn verify(
        &self,
        algorithm: SignatureAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), OpenIdError> {
        let check = |rule: &'static dyn rules::VerificationAlgorithm, key: &[u8]| {
            rules::UnparsedPublicKey::new(rule, key).verify(message, signature)
        };
        let verified = match (self, algorithm) {
            (Self::Rsa { modulus: n, exponent: e }, SignatureAlgorithm::Rsa(rule)) => {
                rules::RsaPublicKeyComponents { n, e }.verify(rule.parameters(), message, signature)
            }
            (Self::P256(key), SignatureAlgorithm::Es256) => check(&rules::ECDSA_P256_SHA256_FIXED, key),
            (Self::P384(key), SignatureAlgorithm::Es384) => check(&rules::ECDSA_P384_SHA384_FIXED, key),
            (Self::Ed25519(key), SignatureAlgorithm::EdDsa) => check(&rules::ED25519, key),
            _ => return Err(OpenIdError::Signature),
        };
        verified.map_err(|_| OpenIdError::Signature)
    }
}
