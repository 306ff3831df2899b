//! Failures of the provider, or of the gateway's own account there, that a provider reports with the status of a client
//! error: a key, a balance, a model name, a rate limit or an overload.
//!
//! A code in a member of its own always counts. A phrase counts unless the request contains it.

use super::error_signals::ErrorSignals;
use super::request_echo;
use penstock_core::UpstreamErrorKind;

/// Codes and types of errors, in lower case, with the status that they stand for.
const CODES: &[(u16, &[&str])] = &[
    (
        401,
        &[
            "authentication_error",
            "authentication_failed",
            "api_key_invalid",
            "incorrect_api_key",
            "invalid_api_key",
            "invalid_authentication",
            "invalid_authentication_error",
            "unauthenticated",
            "unauthorized",
        ],
    ),
    (
        402,
        &[
            "arrearage",
            "billing_error",
            "billing_hard_limit_reached",
            "billing_not_active",
            "insufficient_balance",
            "insufficient_credits",
            "insufficient_quota",
            "insufficient_user_quota",
            "payment_required",
            "exceeded_current_quota_error",
        ],
    ),
    (
        403,
        &[
            "access_terminated",
            "account_deactivated",
            "data_residency_mismatch",
            "organization_disabled",
            "permission_denied",
            "permission_error",
            "unsupported_country_region_territory",
        ],
    ),
    (
        404,
        &[
            "deploymentnotfound",
            "deployment_not_found",
            "invalid_model",
            "model_decommissioned",
            "model_deprecated",
            "model_not_available",
            "model_not_exist",
            "model_not_found",
        ],
    ),
    (
        429,
        &[
            "rate_limit_error",
            "rate_limit_exceeded",
            "rate_limit_reached_error",
            "rate_limited",
            "ratelimitexceeded",
            "resource_exhausted",
            "throttling",
            "throttling.ratequota",
            "throttling.allocationquota",
            "too_many_requests",
        ],
    ),
    (
        503,
        &[
            "capacity_exceeded",
            "engine_overloaded",
            "engine_overloaded_error",
            "model_overloaded",
            "overloaded",
            "overloaded_error",
            "server_overloaded",
            "service_unavailable",
            "service_unavailable_error",
        ],
    ),
];

/// Phrases of messages, in lower case, with the status that they stand for. `*` stands for one word, such as a name.
const PHRASES: &[(u16, &[&str])] = &[
    (
        401,
        &[
            "api key not valid",
            "incorrect api key",
            "invalid api key",
            "invalid api-key",
            "invalid api token",
            "api key is expired",
            "api key expired",
            "api key has expired",
            "api key is invalid",
            "api key has been disabled",
            "api key has been revoked",
            "invalid x-api-key",
            "no api key provided",
            "missing api key",
        ],
    ),
    (
        402,
        &[
            "credit balance is too low",
            "insufficient balance",
            "insufficient credit",
            "insufficient quota",
            "insufficient funds",
            "exceeded your current quota",
            "exceeded your monthly",
            "exceeded your quota",
            "your quota has been exceeded",
            "billing is disabled",
            "billing is not enabled",
            "billing hard limit",
            "account is not active",
            "account is in good standing",
            "account is overdue",
            "out of credits",
            "requires more credits",
            "payment required",
            "\u{4f59}\u{989d}\u{4e0d}\u{8db3}",
            "\u{6b20}\u{8d39}",
        ],
    ),
    (
        403,
        &[
            "organization has been disabled",
            "organization has been restricted",
            "organization * has been disabled",
            "organization must be verified",
            "organization * must be verified",
            "account has been suspended",
            "account has been disabled",
            "account has been deactivated",
            "account has been blocked",
            "account * has been suspended",
            "account * has been disabled",
            "account * has been deactivated",
            "account is suspended",
            "account is disabled",
            "location is not supported for the api",
            "country, region, or territory not supported",
            "do not have access to the model",
            "does not have access to the model",
            "does not have access to model",
        ],
    ),
    (
        404,
        &[
            "model not exist",
            "invalid model:",
            "invalid model name",
            "unknown model:",
            "no such model",
            "model not found",
            "model * not found",
            "model * was not found",
            "model * does not exist",
            "model * has been decommissioned",
            "model * has been deprecated",
            "model * is deprecated",
            "model * is gone",
            "model does not exist",
            "is not a valid model",
            "non-serverless model",
            "no endpoints found for",
            "deployment for this resource does not exist",
        ],
    ),
    (
        429,
        &[
            "rate limit reached",
            "rate limit exceeded",
            "rate limit has been",
            "exceeded the rate limit",
            "exceeded your rate limit",
            "too many requests",
            "too many concurrent",
            "concurrency limit",
            "tokens per minute",
            "tokens per min (tpm)",
            "tokens per day",
            "requests per minute",
            "requests per min (rpm)",
            "requests per day",
            "requests per second",
        ],
    ),
    (
        503,
        &[
            "no healthy upstream",
            "upstream connect error or disconnect",
            "server is overloaded",
            "currently overloaded",
            "temporarily overloaded",
            "model is overloaded",
            "engine is overloaded",
            "server is busy",
            "service is busy",
            "model is busy",
            "service is unavailable",
            "service unavailable",
            "temporarily unavailable",
            "currently unavailable",
            "capacity exceeded",
            "over capacity",
            "model loading",
            "model is loading",
            "loading model",
            "currently loading",
            "request failed during generation",
            "enginedeaderror",
            "engine core",
            "enginecore",
            "out of memory",
            "cuda error",
            "hip error",
            "no space left on device",
        ],
    ),
];

/// Words of a message about a file that the engine could not load from a URL of the client. The phrases of such a
/// message are ignored, because they may be about the client's file server.
const DOWNLOAD_WORDS: [&str; 7] =
    ["url=", "from url", "download", "fetch", "image_url", "load image", "load audio"];
/// Maximum bytes of the word that `*` stands for.
const MAX_WORD_BYTES: usize = 100;

impl ErrorSignals {
    /// Returns the failure of the provider, or of the gateway's account there, that a code or phrase states; `None` if
    /// there is none.
    pub(super) fn provider_fault(&self, request: &[u8]) -> Option<UpstreamErrorKind> {
        let of_code = CODES.iter().find(|(_, codes)| codes.iter().any(|code| self.has_code(code)));
        let is_download = DOWNLOAD_WORDS.iter().any(|word| self.text.contains(word));
        let of_phrase = || {
            let mut stated: Vec<(u16, &str)> = Vec::new();
            for (status, phrases) in PHRASES.iter().filter(|_| !is_download) {
                let found = phrases.iter().filter_map(|phrase| find_phrase(&self.text, phrase));
                stated.extend(found.map(|found| (*status, found)));
            }
            request_echo::remove_echoed_phrases(request, &mut stated);
            stated.first().map(|(status, _)| *status)
        };
        let status = of_code.map(|(status, _)| *status).or_else(of_phrase)?;
        Some(match status {
            401..=404 => UpstreamErrorKind::Credentials(status),
            _ => UpstreamErrorKind::Status(status),
        })
    }
}

/// Returns the first part of a text that matches a phrase.
fn find_phrase<'t>(text: &'t str, phrase: &str) -> Option<&'t str> {
    let Some((before, after)) = phrase.split_once('*') else {
        return text.find(phrase).and_then(|at| text.get(at..at + phrase.len()));
    };
    text.match_indices(before).find_map(|(start, _)| {
        let rest = text.get(start + before.len()..)?;
        // Only a part is searched, because the first half of the phrase may occur many times.
        let prefix = rest.as_bytes().get(..MAX_WORD_BYTES + after.len()).unwrap_or(rest.as_bytes());
        let end = memchr::memmem::find(prefix, after.as_bytes())?;
        let is_word = rest.get(..end).is_some_and(|word| !word.contains(char::is_whitespace));
        is_word.then(|| text.get(start..start + before.len() + end + after.len()))?
    })
}
