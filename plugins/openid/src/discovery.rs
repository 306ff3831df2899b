//! Discovery document of a provider (OpenID Connect Discovery 1.0).

use crate::authorization::ClientSecretMethod;
use crate::error::OpenIdError;
use serde_json::Value;

/// Maximum length of an endpoint's URL, in bytes.
const MAX_URL_BYTES: usize = 2_048;

/// Returns the URL of the discovery document of an issuer.
#[must_use]
pub fn discovery_url(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
}

/// Endpoints of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderMetadata {
    /// Page at which a person signs in.
    pub authorization_endpoint: String,
    /// Endpoint that exchanges a code for tokens.
    pub token_endpoint: String,
    /// URL of the provider's key set.
    pub jwks_uri: String,
    /// Page that ends the person's session at the provider; `None` if the provider has no such page.
    pub end_session_endpoint: Option<String>,
    /// Method by which the client's secret is sent.
    pub secret_method: ClientSecretMethod,
    /// True if responses of the authorization endpoint name the issuer (RFC 9207).
    pub sends_issuer: bool,
}

impl ProviderMetadata {
    /// Parses the document of `issuer`. Endpoints have to be `https`, unless the issuer is `http` itself.
    ///
    /// # Errors
    /// Returns an error if the document is not of this issuer, or an endpoint is missing or invalid.
    pub fn parse(document: &[u8], issuer: &str) -> Result<Self, OpenIdError> {
        let document: Value = serde_json::from_slice(document).map_err(|_| OpenIdError::Discovery)?;
        let text = |name: &str| document.get(name).and_then(Value::as_str);
        if text("issuer") != Some(issuer) {
            return Err(OpenIdError::DiscoveredIssuer);
        }
        let allows_http = issuer.starts_with("http://");
        let endpoint = |name: &str| match text(name) {
            None => Err(OpenIdError::Discovery),
            Some(url) if is_endpoint(url, allows_http) => Ok(url.to_owned()),
            Some(_) => Err(OpenIdError::InsecureEndpoint),
        };
        let end_session_endpoint = text("end_session_endpoint").map(|_| endpoint("end_session_endpoint"));
        let methods = document.get("token_endpoint_auth_methods_supported").and_then(Value::as_array);
        let has_method = |name: &str| {
            methods.is_none_or(|methods| methods.iter().any(|method| method.as_str() == Some(name)))
        };
        // Without a list of methods, the standard's default is `client_secret_basic`.
        let secret_method = if has_method("client_secret_basic") || !has_method("client_secret_post") {
            ClientSecretMethod::Basic
        } else {
            ClientSecretMethod::Post
        };
        Ok(Self {
            authorization_endpoint: endpoint("authorization_endpoint")?,
            token_endpoint: endpoint("token_endpoint")?,
            jwks_uri: endpoint("jwks_uri")?,
            end_session_endpoint: end_session_endpoint.transpose()?,
            secret_method,
            sends_issuer: document.get("authorization_response_iss_parameter_supported")
                == Some(&Value::Bool(true)),
        })
    }
}

fn is_endpoint(url: &str, allows_http: bool) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://").filter(|_| allows_http));
    let authority = rest.and_then(|rest| rest.split(['/', '?']).next()).unwrap_or_default();
    url.len() <= MAX_URL_BYTES
        && !authority.is_empty()
        && !authority.contains('@')
        && url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\' && byte != b'#')
}
