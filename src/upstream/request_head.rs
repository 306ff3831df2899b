//! Heads of requests to a provider: attempts, health checks, token counts and energy queries. All carry the same
//! headers, so that a provider does not refuse one kind of request and accept another. Only requests to other hosts,
//! for images, carry no secrets.

use crate::config::settings::{BaseUrl, Provider};
use http::{HeaderName, HeaderValue, header};
use penstock_core::{Dialect, KeyHeader};
use pingora_http::RequestHeader;

/// Builds a request head without secrets, for any host.
///
/// # Errors
/// Returns an error if the path cannot be sent.
pub fn unauthenticated_head(
    method: &str,
    base: &BaseUrl,
    path: &str,
) -> pingora_error::Result<RequestHeader> {
    let mut head = RequestHeader::build(method, path.as_bytes(), Some(12))?;
    head.insert_header(header::HOST, &*base.authority)?;
    head.insert_header(header::ACCEPT_ENCODING, "identity")?;
    head.insert_header(header::USER_AGENT, concat!("penstock/", env!("CARGO_PKG_VERSION")))?;
    Ok(head)
}

/// Builds a request head for the provider's own host only: it contains the API key in the form of the dialect, and the
/// configured headers.
///
/// # Errors
/// Returns an error if the path or a configured header cannot be sent.
pub fn authenticated_head(
    method: &str,
    provider: &Provider,
    dialect: Dialect,
    path: &str,
) -> pingora_error::Result<RequestHeader> {
    let conventions = dialect.spec().http;
    let mut head = unauthenticated_head(method, &provider.base_url, path)?;
    if let Some(key) = &provider.api_key {
        match conventions.key_header {
            KeyHeader::Bearer => {
                head.insert_header(header::AUTHORIZATION, secret(&format!("Bearer {}", key.reveal()))?)?;
            }
            KeyHeader::ApiKey => {
                head.insert_header(HeaderName::from_static("x-api-key"), secret(key.reveal())?)?;
            }
        }
    }
    if let Some((name, value)) = conventions.version_header {
        head.insert_header(HeaderName::from_static(name), value)?;
    }
    for (name, value) in &provider.headers {
        head.insert_header(name.to_string(), secret(value.reveal())?)?;
    }
    Ok(head)
}

/// Returns a header value that is marked as sensitive, so that HTTP/2 does not store it in its HPACK table.
fn secret(value: &str) -> pingora_error::Result<HeaderValue> {
    let mut value = HeaderValue::from_str(value).map_err(|_| pingora_error::Error::new_str("header"))?;
    value.set_sensitive(true);
    Ok(value)
}
