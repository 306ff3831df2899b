//! Verification of an ID token (OpenID Connect Core 1.0, section 3.1.3.7).

use crate::error::OpenIdError;
use crate::key_set::KeySet;
use crate::signature::SignatureAlgorithm;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use subtle::ConstantTimeEq;

/// Maximum size of a token, in bytes.
const MAX_TOKEN_BYTES: usize = 64 * 1024;
/// Maximum length of `sub`, in bytes (the standard's own maximum).
const MAX_SUBJECT_BYTES: usize = 255;
/// Tolerated difference of the clocks, in seconds.
const LEEWAY_SECONDS: u64 = 60;

/// Values that an ID token must have.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedClaims<'a> {
    /// Issuer.
    pub issuer: &'a str,
    /// Id of the client.
    pub client_id: &'a str,
    /// Nonce of the authorization request.
    pub nonce: &'a str,
    /// Current time, Unix seconds.
    pub now: u64,
}

/// ID token whose signature and claims are verified.
#[derive(Clone, Debug)]
pub struct IdToken {
    /// Id of the person, unique at the issuer.
    pub subject: String,
    /// All claims of the token, as a JSON object.
    pub claims: Value,
}

/// Signed token whose signature is not verified yet.
struct SignedToken<'t> {
    algorithm: SignatureAlgorithm,
    key_id: Option<String>,
    /// Header and claims as they were signed.
    message: &'t str,
    claims: &'t str,
    signature: Vec<u8>,
}

impl<'t> SignedToken<'t> {
    /// Splits a token (RFC 7515, compact serialization).
    fn parse(token: &'t str) -> Result<Self, OpenIdError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(OpenIdError::MalformedToken);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(OpenIdError::MalformedToken)?;
        let (header, claims) = message.split_once('.').ok_or(OpenIdError::MalformedToken)?;
        let header = decode_json(header)?;
        let text = |name: &str| header.get(name).and_then(Value::as_str);
        // A token with critical extensions (`crit`) is refused, because the gateway supports none.
        let algorithm = text("alg").filter(|_| header.get("crit").is_none());
        Ok(Self {
            algorithm: algorithm
                .and_then(SignatureAlgorithm::from_name)
                .ok_or(OpenIdError::MalformedToken)?,
            key_id: text("kid").map(str::to_owned),
            message,
            claims,
            signature: URL_SAFE_NO_PAD.decode(signature).map_err(|_| OpenIdError::MalformedToken)?,
        })
    }
}

fn decode_json(part: &str) -> Result<Value, OpenIdError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| OpenIdError::MalformedToken)?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| OpenIdError::MalformedToken)?;
    if value.is_object() { Ok(value) } else { Err(OpenIdError::MalformedToken) }
}

/// Returns the key id that a token states; `None` if it states none. The token is not verified.
///
/// # Errors
/// Returns an error if the token is too large, or is not signed by a supported algorithm.
pub fn unverified_key_id(token: &str) -> Result<Option<String>, OpenIdError> {
    Ok(SignedToken::parse(token)?.key_id)
}

/// Verifies the signature and the claims of a token.
///
/// # Errors
/// Returns an error for the first rule that the token breaks.
pub fn verify_id_token(
    token: &str,
    keys: &KeySet,
    expected: &ExpectedClaims<'_>,
) -> Result<IdToken, OpenIdError> {
    let token = SignedToken::parse(token)?;
    let mut verified = Err(OpenIdError::UnknownKey);
    for key in keys.candidates(token.key_id.as_deref()) {
        verified = key.verify(token.algorithm, token.message.as_bytes(), &token.signature);
        if verified.is_ok() {
            break;
        }
    }
    verified?;
    check_claims(decode_json(token.claims)?, expected)
}

/// Checks the claims that the standard requires.
fn check_claims(claims: Value, expected: &ExpectedClaims<'_>) -> Result<IdToken, OpenIdError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    // The issuer claim must be one string; a list of issuers is refused.
    if text("iss") != Some(expected.issuer) {
        return Err(OpenIdError::Issuer);
    }
    let audience = match claims.get("aud") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(several)) => several.iter().map(|one| one.as_str().unwrap_or_default()).collect(),
        _ => Vec::new(),
    };
    if !audience.contains(&expected.client_id) {
        return Err(OpenIdError::Audience);
    }
    let has_several = audience.len() > 1;
    let authorized = claims.get("azp");
    if (has_several || authorized.is_some()) && authorized.and_then(Value::as_str) != Some(expected.client_id)
    {
        return Err(OpenIdError::Audience);
    }
    check_times(&claims, expected.now)?;
    let is_same = text("nonce").is_some_and(|nonce| nonce.as_bytes().ct_eq(expected.nonce.as_bytes()).into());
    if !is_same || expected.nonce.is_empty() {
        return Err(OpenIdError::Nonce);
    }
    let subject = text("sub").filter(|text| !text.is_empty() && text.len() <= MAX_SUBJECT_BYTES);
    let subject = subject.ok_or(OpenIdError::Subject)?.to_owned();
    Ok(IdToken { subject, claims })
}

fn check_times(claims: &Value, now: u64) -> Result<(), OpenIdError> {
    let seconds =
        |name: &str| claims.get(name).map(|value| numeric_date(value).ok_or(OpenIdError::OutsideValidity));
    let end = seconds("exp").ok_or(OpenIdError::OutsideValidity)??;
    let issued = seconds("iat").ok_or(OpenIdError::OutsideValidity)??;
    let begin = seconds("nbf").transpose()?.unwrap_or(0);
    let latest = now.saturating_add(LEEWAY_SECONDS);
    if end.saturating_add(LEEWAY_SECONDS) <= now || issued > latest || begin > latest {
        return Err(OpenIdError::OutsideValidity);
    }
    Ok(())
}

/// Returns a date as seconds since 1970; `None` if it is no number, negative or too large. Some providers write
/// fractions.
fn numeric_date(value: &Value) -> Option<u64> {
    let fraction = || value.as_f64().filter(|seconds| (0.0..1e15).contains(seconds));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
    value.as_u64().or_else(|| fraction().map(|seconds| seconds as u64))
}
