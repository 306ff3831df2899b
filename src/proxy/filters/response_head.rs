//! Allow-list of the response head: only these fields of a provider's response reach a client.

use http::{HeaderMap, HeaderName};
use pingora_http::ResponseHeader;

/// Name prefixes of further header fields that may reach the client.
const ALLOWED_GROUPS: &[&str] = &["x-penstock-", "x-ratelimit-", "anthropic-ratelimit-"];

/// Removes the fields that are not on the allow-list: [`ProxyHttp::response_filter`] and the failover driver call this
/// for the head of each response of a provider, before its framing is set.
///
/// [`ProxyHttp::response_filter`]: pingora::proxy::ProxyHttp::response_filter
pub fn remove_unlisted_fields(head: &mut impl ResponseFields) {
    let refused: Vec<HeaderName> = head.fields().keys().filter(|name| !is_allowed(name)).cloned().collect();
    for name in &refused {
        head.remove_field(name);
    }
}

/// Header fields of a response head of the gateway or of Pingora.
pub trait ResponseFields {
    /// Returns the header fields of the response.
    fn fields(&self) -> &HeaderMap;

    /// Removes a header field of the response.
    fn remove_field(&mut self, name: &HeaderName);
}

impl ResponseFields for ResponseHeader {
    fn fields(&self) -> &HeaderMap {
        &self.headers
    }

    fn remove_field(&mut self, name: &HeaderName) {
        self.remove_header(name);
    }
}

/// Returns true if the field is on the allow-list. The fields that frame the body are set by the gateway.
fn is_allowed(name: &HeaderName) -> bool {
    // Names in a pattern are compared by their length first, unlike those of a list.
    let is_listed = |name: &str| {
        matches!(
            name,
            "access-control-allow-origin"
                | "access-control-expose-headers"
                | "request-id"
                | "vary"
                | "x-billing-cost"
                | "x-environment-impact"
                | "x-request-id"
        )
    };
    let name = name.as_str();
    is_listed(name) || ALLOWED_GROUPS.iter().any(|group| name.starts_with(group))
}
