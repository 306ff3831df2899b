//! Test that `docs/errors.md` lists every error of the table in both dialects, with the envelopes that are really sent
//! as examples. With `PENSTOCK_BLESS` set, the test rewrites the page.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::{ApiError, ErrorCode};
use penstock_http_wire::error::{chat_envelope, messages_envelope};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "# Errors

Every error of the gateway has a stable `code`: branch on that, or on the type that your client library knows. The
`message` is for people and may change. `x-request-id` and `request-id` name the exchange; the same id stands in the
body and in the operator's log.

This page is generated from the table of errors in `plugins/core/src/error_catalog.rs`; do not edit it. The test
`the_page_of_errors_is_current` fails when they differ, and writes it anew when `PENSTOCK_BLESS` is set.
";

const STREAMS: &str = "## Errors in a stream

Once a stream has begun, its status is 200 and stays so. If it cannot be completed, and no other provider can continue
it, the error comes as an event with the same envelope:

- chat completions: `data: {\"error\": …}`, then `data: [DONE]`. No chunk has a `finish_reason`.
- messages: `event: error`. There is no `message_stop`.

The client libraries raise an exception for either.

## When to try again

- `Retry-After` says how many seconds to wait. For a limit (429), `x-ratelimit-reset` says the same as a Unix time.
- `x-should-retry: false` says not to try again by itself: what is in the way stays there, or the wait is longer than a
  minute, or the model wrote tool calls that cannot be passed on (a 503 without `Retry-After`).
- Without `Retry-After`, wait longer after each attempt, and give up after a few. A 500 may be tried again as well, but
  only a few times.

The official client libraries follow `Retry-After` and `x-should-retry` by themselves. For sustained high volume, use
[batches](batches.md): they are not subject to the same rate limits.
";

const ELSEWHERE: &str = "
## Codes of other services

For clients that were written for another service: what it usually answers, and what this gateway answers.

| Case | OpenAI | Anthropic | OpenRouter | LiteLLM proxy | vLLM | Here |
|---|---|---|---|---|---|---|
| Unknown model | 404 `model_not_found` | 404 `not_found_error` | 400 or 404 | 400 | 404 `NotFoundError` | 404 `INFERENCE_3101`, `model_not_found` |
| Key missing or wrong | 401 `invalid_api_key` | 401 `authentication_error` | 401 | 401 | 401 | 401 `AUTH_1001`, `invalid_api_key` |
| Key without permission | 403 | 403 `permission_error` | 403 | 401 or 403 | - | 403 `AUTH_1003`, `insufficient_scope` |
| Out of funds | 429 `insufficient_quota` | 402 `billing_error` | 402 | 400 `budget_exceeded` | - | 402 `BILLING_4001`, `insufficient_credits` |
| Budget of the key used up | 429 `insufficient_quota` | - | 402 or 403 | 400 `budget_exceeded` | - | 402 `BILLING_4002`, `budget_exceeded` |
| Field not valid | 400 `invalid_request_error` | 400 `invalid_request_error` | 400 | 400 or 422 | 400 `BadRequestError` | 400 `INFERENCE_3201`, `invalid_request_error` |
| Parameter not supported | 400 `unsupported_parameter` | 400 `invalid_request_error` | dropped | 400 | dropped | 400 `INFERENCE_3202`, `unsupported_parameter`, or dropped where the answer does not depend on it |
| Input too long | 400 `context_length_exceeded` | 400 `invalid_request_error` | 400 | 400 | 400 `BadRequestError` | 400 `INFERENCE_3207`, `context_length_exceeded` |
| Body too large | 413 | 413 `request_too_large` | 413 | 413 | 413 | 413 `RESOURCE_5004`, `request_too_large` |
| Content refused | 400 `content_policy_violation` | a `stop_reason` | 403 | 400 | - | 400 `INFERENCE_3203`, `content_policy_violation` |
| Too many requests or tokens | 429 `rate_limit_exceeded` | 429 `rate_limit_error` | 429 | 429 | - | 429 `RATE_2001`, `rate_limit_exceeded` |
| Upstream failed | 500 or 502 | 500 `api_error` | 502 | 500 | 500 | 503 `INFERENCE_3103`, `service_unavailable`, after all providers were tried |
| Upstream too slow | 504 | 504 `timeout_error` | 408 or 504 | 408 or 504 | - | 503 `INFERENCE_3103`, `service_unavailable` |
| Overloaded | 503 | 529 `overloaded_error` | 503 | 503 | 503 | 503 `SERVER_9002`, `service_unavailable` |

There is no 502, 504 or 529 here. What is not offered at all is listed in [scope.md](scope.md).
";

/// Hint on whether a retry may succeed. A new code needs an entry.
fn retry_advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::RateLimited | ErrorCode::Unavailable | ErrorCode::Overloaded => "yes, after `Retry-After`",
        ErrorCode::RequestTimeout => "yes",
        ErrorCode::Internal | ErrorCode::StorageFull => "a few times",
        ErrorCode::InsufficientCredits | ErrorCode::BudgetExceeded => {
            "if there is a `Retry-After`; else when there is money"
        }
        ErrorCode::InvalidRequest
        | ErrorCode::Unsupported
        | ErrorCode::ContextLength
        | ErrorCode::ContentRefused
        | ErrorCode::InvalidKey
        | ErrorCode::InsufficientScope
        | ErrorCode::ModelNotFound
        | ErrorCode::NotFound
        | ErrorCode::MethodNotAllowed
        | ErrorCode::Conflict
        | ErrorCode::TooLarge
        | ErrorCode::UnsupportedMediaType
        | ErrorCode::RangeNotSatisfiable
        | ErrorCode::TargetTooLong
        | ErrorCode::HeadTooLarge
        | ErrorCode::Misdirected => "no",
    }
}

fn example(title: &str, envelope: &[u8]) -> String {
    let value: Value = serde_json::from_slice(envelope).unwrap();
    format!("{title}\n\n```json\n{}\n```\n\n", serde_json::to_string_pretty(&value).unwrap())
}

fn errors_page() -> String {
    let refusal =
        ApiError::invalid("top_p", "top_p: expected a number from 0 to 1, got a number out of range.");
    let id = "req_k3v7m2qhx5a4nq7rd6twbcyl";
    let mut page = format!("{INTRODUCTION}\n## Shape\n\n");
    page +=
        &example("Chat completions, and every endpoint but those of messages:", &chat_envelope(&refusal, id));
    page += &example(
        "Messages; a field that is to blame stands in `details`, which also repeats the code:",
        &messages_envelope(&refusal, id),
    );
    page += "## Codes\n\n| Status | Code | Name; type, chat | Type, messages | Meaning | Try again |\n|---|---|---|---|---|---|\n";
    let mut codes = ErrorCode::ALL;
    codes.sort_by_key(|code| (code.spec().status, code.spec().code));
    for code in codes {
        let row = code.spec();
        writeln!(
            page,
            "| {} | `{}` | `{}` | `{}` | {} | {} |",
            row.status,
            row.code,
            row.chat_type,
            row.messages_type,
            row.message,
            retry_advice(code)
        )
        .unwrap();
    }
    page += "\n`details.name` is the error's name in both dialects. `INFERENCE_3207` also has `details.context_length` and\n\
             `details.input_tokens`. Counting stops one token beyond the context window (and not before 32,768 tokens); where it\n\
             stopped, or where a provider refused a prompt without a count, `details.input_tokens_at_least` is `true`. A token\n\
             count of such a prompt is refused in the same way. A 404 for an unknown path has `details.path` where the right one is known, and an unknown flavor `details.flavors`. Limits\n\
             and budgets have `details.resets_at`, RFC 3339, if they begin anew at a certain time.\n\n";
    page += "`INFERENCE_3103` may have `details.attempts`: for each failed attempt the `provider`, a `reason` and its\n\
             milliseconds, `ms`. Reasons are `unavailable`, `rate_limited`, `timeout` and `refused`; the log of the gateway\n\
             says more. Its message recommends `:balanced` where another flavor was asked for.\n\n";
    page + STREAMS + ELSEWHERE
}

#[test]
fn the_page_of_errors_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = errors_page();
    if std::env::var_os("PENSTOCK_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == page,
        "docs/errors.md is not what the table says"
    );
}
