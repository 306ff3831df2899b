//! Heads of what a provider is asked: attempts, and beside them checks, counts, what it drew. All carry the same, or a
//! provider that is fine would seem to refuse some.

use crate::config::settings::{BaseUrl, Provider};
use http::{HeaderName, HeaderValue, header};
use penstock_core::{Dialect, KeyHeader};
use pingora_http::RequestHeader;

/// A head for any host: nothing in it is secret.
///
/// # Errors
/// The path cannot be sent.
pub fn bare(method: &str, base: &BaseUrl, path: &str) -> pingora_error::Result<RequestHeader> {
    let mut head = RequestHeader::build(method, path.as_bytes(), Some(12))?;
    head.insert_header(header::HOST, &*base.authority)?;
    head.insert_header(header::ACCEPT_ENCODING, "identity")?;
    head.insert_header(header::USER_AGENT, concat!("penstock/", env!("CARGO_PKG_VERSION")))?;
    Ok(head)
}

/// A head for the provider's own host and no other: its key, as the dialect has it, and the headers of its
/// configuration.
///
/// # Errors
/// The path, or a header of the configuration, cannot be sent.
pub fn signed(
    method: &str,
    provider: &Provider,
    dialect: Dialect,
    path: &str,
) -> pingora_error::Result<RequestHeader> {
    let conventions = dialect.spec().http;
    let mut head = bare(method, &provider.base_url, path)?;
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

/// A value that HTTP/2 keeps in no table.
fn secret(value: &str) -> pingora_error::Result<HeaderValue> {
    let mut value = HeaderValue::from_str(value).map_err(|_| pingora_error::Error::new_str("header"))?;
    value.set_sensitive(true);
    Ok(value)
}
