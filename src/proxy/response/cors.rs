//! Cross-origin requests (Fetch standard, section 3.3): the origin whose scripts may read a response, and the request
//! headers that these scripts may send.

use super::head::ResponseHead;
use crate::config::settings::CorsPolicy;
use http::header;

/// Response headers that browsers may read.
const EXPOSED: &str = "x-request-id, request-id, retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, \
     x-penstock-provider, x-penstock-flavor, x-penstock-attempts, x-token-count-method, x-environment-impact, \
     x-billing-cost, x-should-retry, content-disposition, content-range, etag, x-ratelimit-limit-requests, \
     x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, \
     x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, anthropic-ratelimit-requests-limit, \
     anthropic-ratelimit-requests-remaining, anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, \
     anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset";
/// Request headers that browsers may send if the preflight names none: headers that client libraries add automatically.
const ALLOWED: &str = "authorization, content-type, range, if-match, if-none-match, user-agent, x-api-key, \
     anthropic-version, anthropic-beta, anthropic-dangerous-direct-browser-access, openai-organization, openai-project, openai-beta, \
     idempotency-key, x-stainless-arch, x-stainless-lang, x-stainless-os, x-stainless-package-version, \
     x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, x-stainless-timeout, \
     x-stainless-helper, x-stainless-helper-method, x-stainless-async, x-stainless-poll-helper, x-stainless-custom-poll-interval";
/// Maximum length in bytes of a header name that is repeated in a preflight response.
const MAX_HEADER_NAME_BYTES: usize = 128;
/// Maximum number of header names that are repeated in a preflight response.
const MAX_HEADER_NAMES: usize = 128;

/// Origin of the requesting web page, with its permission to read the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CrossOrigin {
    /// The request has no origin, or CORS is off.
    #[default]
    None,
    /// The request has no origin, and responses differ by origin, because origins are listed.
    Absent,
    /// Any origin is allowed.
    Any,
    /// The origin is in the configured list.
    Listed(Box<str>),
    /// The origin is not in the configured list.
    Refused,
}

impl CrossOrigin {
    /// Evaluates the `Origin` header of a request under the CORS policy.
    #[must_use]
    pub fn from_request(origin: Option<&[u8]>, cors: &CorsPolicy) -> Self {
        match (origin, cors) {
            (None, CorsPolicy::Origins(_)) => Self::Absent,
            (None, _) | (_, CorsPolicy::Off) => Self::None,
            (Some(_), CorsPolicy::Any) => Self::Any,
            (Some(origin), CorsPolicy::Origins(listed)) => {
                let found = listed.iter().find(|one| origin.eq_ignore_ascii_case(one.as_bytes()));
                found.map_or(Self::Refused, |one| Self::Listed(one.clone()))
            }
        }
    }

    /// Returns true if the gateway answers a preflight of this origin: CORS is on and the request has an origin. The
    /// answer to an origin that is not listed has no `Access-Control-Allow-*` fields.
    #[must_use]
    pub const fn answers_preflight(&self) -> bool {
        !matches!(self, Self::None | Self::Absent)
    }
}

impl ResponseHead {
    /// Adds the CORS headers of a response.
    #[must_use]
    pub fn with_cors(self, origin: &CrossOrigin) -> Self {
        let head = match origin {
            CrossOrigin::None => return self,
            CrossOrigin::Absent | CrossOrigin::Refused => return self.with_field(header::VARY, "Origin"),
            CrossOrigin::Any => self.with_field(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
            CrossOrigin::Listed(origin) => self
                .with_field(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.as_bytes())
                .with_field(header::VARY, "Origin"),
        };
        head.with_field(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED)
    }

    /// Adds the CORS headers of a preflight response. `asked` is the value of `Access-Control-Request-Headers`.
    #[must_use]
    pub fn with_preflight(self, origin: &CrossOrigin, asked: Option<&[u8]>) -> Self {
        let head = self.with_cors(origin);
        if !matches!(origin, CrossOrigin::Any | CrossOrigin::Listed(_)) {
            return head;
        }
        let names = asked.map(join_field_names).filter(|names| !names.is_empty());
        head.with_field(header::ACCESS_CONTROL_ALLOW_HEADERS, names.as_deref().unwrap_or(ALLOWED))
            .with_field(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, DELETE, OPTIONS")
            .with_field(header::ACCESS_CONTROL_MAX_AGE, "86400")
    }
}

/// Returns the list in `Access-Control-Request-Headers` without its invalid field names (RFC 9110 section 5.6.2).
fn join_field_names(asked: &[u8]) -> String {
    let mut names = String::new();
    for name in asked
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|name| is_name(name))
        .take(MAX_HEADER_NAMES)
    {
        if !names.is_empty() {
            names.push_str(", ");
        }
        names.extend(name.iter().map(|byte| char::from(*byte)));
    }
    names
}

fn is_name(name: &[u8]) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    (1..=MAX_HEADER_NAME_BYTES).contains(&name.len()) && name.iter().all(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_header_names_are_repeated() {
        assert_eq!(join_field_names(b"x-title,http-referer , baggage"), "x-title, http-referer, baggage");
        assert_eq!(join_field_names(b"X-Fern-Language"), "X-Fern-Language");
        assert_eq!(join_field_names(b"a b,,x:y, \xff,ok,(no)"), "ok");
        assert_eq!(join_field_names(b""), "");
        let longest = "x".repeat(MAX_HEADER_NAME_BYTES);
        assert_eq!(join_field_names(longest.as_bytes()), longest);
        assert_eq!(join_field_names(format!("{longest}x").as_bytes()), "");
        let many = vec!["h"; MAX_HEADER_NAMES + 1].join(",");
        assert_eq!(join_field_names(many.as_bytes()).split(',').count(), MAX_HEADER_NAMES);
    }

    #[test]
    fn an_origin_is_checked_against_the_setting() {
        let listed = CorsPolicy::Origins(vec!["https://app.example.eu".into()]);
        let of = |origin: Option<&str>, cors: &CorsPolicy| {
            CrossOrigin::from_request(origin.map(str::as_bytes), cors)
        };
        assert_eq!(of(None, &CorsPolicy::Any), CrossOrigin::None);
        assert_eq!(of(None, &CorsPolicy::Off), CrossOrigin::None);
        assert_eq!(of(None, &listed), CrossOrigin::Absent);
        assert!(!CrossOrigin::Absent.answers_preflight() && CrossOrigin::Refused.answers_preflight());
        assert_eq!(of(Some("https://x.example"), &CorsPolicy::Off), CrossOrigin::None);
        assert_eq!(of(Some("null"), &CorsPolicy::Any), CrossOrigin::Any);
        assert_eq!(
            of(Some("https://app.example.eu"), &listed),
            CrossOrigin::Listed("https://app.example.eu".into())
        );
        for other in [
            "https://app.example.eu.evil.example",
            "http://app.example.eu",
            "https://app.example.eu:8443",
            "null",
            "",
        ] {
            assert_eq!(of(Some(other), &listed), CrossOrigin::Refused, "{other}");
        }
    }
}
