//! Test that `docs/errors.md` lists every error of the table in both dialects, with the envelopes that are really sent
//! as examples. With `PENSTOCK_BLESS` set, the test rewrites the page.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::{ApiError, ErrorCode};
use penstock_http_wire::error::{chat_envelope, messages_envelope};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "# Errors

Every error has a stable `code`. Clients should distinguish errors by this code, or by the error type that their client
library provides. The `message` is written for people and can change. The response headers `x-request-id` and
`request-id` contain the id of the request. The body of the error and the log of the gateway contain the same id.

This page is generated from the table in `plugins/core/src/error_catalog.rs` and the texts in
`plugins/http-wire/tests/errors.rs`; do not edit it. The test `the_page_of_errors_is_current` compares the page with
these sources. If `PENSTOCK_BLESS` is set, the test rewrites the page.
";

const DETAILS: &str = "
`details.name` is the error type of the chat completions format. It is the same in both formats. `details` can have
these additional members:

- `INFERENCE_3207`: `context_length` and `input_tokens`. The gateway stops counting tokens one token after the end of
  the context window, but not before 32,768 tokens. If it stopped early, or if a provider refused the prompt without a
  token count, `input_tokens_at_least` is `true`. Requests that only count tokens are refused in the same way.
- 404 for an unknown path: `path`, if the gateway recognises the path that the client probably meant.
- 404 for an unknown flavor: `flavors`, the list of flavors.
- Limits and budgets: `resets_at`, the time of the reset in RFC 3339 format, if it is known.
- `INFERENCE_3103`: `attempts`, a list with one object for each failed attempt. Its members are `provider`, `reason` and
  `ms`, the duration in milliseconds. `reason` is `unavailable`, `rate_limited`, `timeout` or `refused`; the log of the
  gateway has more information. If the client selected a flavor other than `:balanced`, the message of the error
  recommends `:balanced`.

";

const STREAMS: &str = "## Errors in a stream

After a stream has started, its HTTP status is 200 and cannot change. If the stream fails and no other provider can
continue it, the gateway sends the error as the last event:

| Endpoint | Error event | End of the stream |
|---|---|---|
| chat completions, text completions | `data: {\"error\": …}` with the chat completions format | `data: [DONE]` follows. No chunk has a `finish_reason` |
| messages | `event: error` with the messages format | there is no `message_stop` event |
| responses | `event: response.failed`. Its `response` has the status `failed`, and `code` and `message` in `response.error` | there is no `response.completed` or `response.incomplete` event |
| responses, before the first event of the response | `event: error` with `code`, `message` and `param` | no event follows |
| stream of a background response | `event: response.failed` if the response failed or was cancelled. `event: error` if the gateway cannot read the stored response | after `error`, the response itself continues, and the client can continue the stream with `starting_after` |
| speech with `stream_format: \"sse\"` | `data: {\"error\": …}` with the chat completions format | there is no `speech.audio.done` event |
| speech without `stream_format: \"sse\"` | none | the connection is closed before the end of the audio |

On responses, `code` is one of the codes of that dialect, such as `server_error`; see
[responses.md](responses.md#answers).

The official client libraries raise an exception for error events of chat completions, text completions and messages.
For responses they return `response.failed` like any other event, so the application must check for it.

## Retries

- `Retry-After` is the time to wait before the next attempt, in seconds. If a limit is reached (429),
  `x-ratelimit-reset` is the end of this time as a Unix timestamp.
- `x-should-retry: false` tells clients not to retry automatically. The gateway sends it for conflicts (409), for limits
  (429) if the wait is longer than 60 seconds or if the request can never fit within the limit, and if the model
  generated output that cannot be forwarded (503 without `Retry-After`).
- Without `Retry-After`, retry with exponential backoff and a maximum number of attempts. This also applies to a 500.

The official client libraries follow `Retry-After` and `x-should-retry` automatically. For a large number of requests,
use [batches](batches.md), which are not subject to the same rate limits.
";

const ELSEWHERE: &str = "
## Comparison with other services

The table lists typical errors of other services and the corresponding errors of Penstock. It is intended for clients
that were written for another service.

| Case | OpenAI | Anthropic | OpenRouter | LiteLLM proxy | vLLM | Penstock |
|---|---|---|---|---|---|---|
| Unknown model | 404 `model_not_found` | 404 `not_found_error` | 400 or 404 | 400 | 404 `NotFoundError` | 404 `INFERENCE_3101`, `model_not_found` |
| API key missing or invalid | 401 `invalid_api_key` | 401 `authentication_error` | 401 | 401 | 401 | 401 `AUTH_1001`, `invalid_api_key` |
| API key without permission | 403 | 403 `permission_error` | 403 | 401 or 403 | - | 403 `AUTH_1003`, `insufficient_scope` |
| Insufficient credits | 429 `insufficient_quota` | 402 `billing_error` | 402 | 400 `budget_exceeded` | - | 402 `BILLING_4001`, `insufficient_credits` |
| Budget of the API key exceeded | 429 `insufficient_quota` | - | 402 or 403 | 400 `budget_exceeded` | - | 402 `BILLING_4002`, `budget_exceeded` |
| Invalid field | 400 `invalid_request_error` | 400 `invalid_request_error` | 400 | 400 or 422 | 400 `BadRequestError` | 400 `INFERENCE_3201`, `invalid_request_error` |
| Unsupported parameter | 400 `unsupported_parameter` | 400 `invalid_request_error` | ignored | 400 | ignored | 400 `INFERENCE_3202`, `unsupported_parameter`; ignored if it does not affect the output |
| Input too long | 400 `context_length_exceeded` | 400 `invalid_request_error` | 400 | 400 | 400 `BadRequestError` | 400 `INFERENCE_3207`, `context_length_exceeded` |
| Body too large | 413 | 413 `request_too_large` | 413 | 413 | 413 | 413 `RESOURCE_5004`, `request_too_large` |
| Content refused | 400 `content_policy_violation` | 200 with a `stop_reason` | 403 | 400 | - | 400 `INFERENCE_3203`, `content_policy_violation` |
| Too many requests or tokens | 429 `rate_limit_exceeded` | 429 `rate_limit_error` | 429 | 429 | - | 429 `RATE_2001`, `rate_limit_exceeded` |
| Upstream failure | 500 or 502 | 500 `api_error` | 502 | 500 | 500 | 503 `INFERENCE_3103`, `service_unavailable`, after all providers were tried |
| Upstream timeout | 504 | 504 `timeout_error` | 408 or 504 | 408 or 504 | - | 503 `INFERENCE_3103`, `service_unavailable` |
| Overload | 503 | 529 `overloaded_error` | 503 | 503 | 503 | 503 `SERVER_9002`, `service_unavailable` |

Penstock never returns 502, 504 or 529. Features that are not supported are listed in [scope.md](scope.md).
";

/// Returns the advice on retries for an error. A new code needs an entry.
fn retry_advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::RateLimited | ErrorCode::Unavailable | ErrorCode::Overloaded => "yes, after `Retry-After`",
        ErrorCode::RequestTimeout => "yes",
        ErrorCode::Internal | ErrorCode::StorageFull => "yes, with a maximum number of attempts",
        ErrorCode::InsufficientCredits => {
            "after `Retry-After`, if present; otherwise after a grant of credits"
        }
        ErrorCode::BudgetExceeded => {
            "after `Retry-After`, if present (at the latest with the next budget period); otherwise only with a lower \
             `max_tokens`"
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
        | ErrorCode::PreconditionFailed
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
    let mut page = format!("{INTRODUCTION}\n## Format\n\n");
    page += &example(
        "Chat completions and all other endpoints except those of messages:",
        &chat_envelope(&refusal, id),
    );
    page += &example(
        "Messages endpoints. The invalid field is in `details.param`, and `details.error_code` repeats the code:",
        &messages_envelope(&refusal, id),
    );
    page += "## Codes\n\n| Status | Code | Type, chat completions | Type, messages | Default message | Retry |\n\
             |---|---|---|---|---|---|\n";
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
    page + DETAILS + STREAMS + ELSEWHERE
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
        "docs/errors.md differs from its sources"
    );
}
