//! `docs/errors.md` lists every error as the table has it, in both dialects, and its examples are what is really sent.
//! With `PENSTOCK_BLESS` set, this test writes the page anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_contract::{Code, Refusal};
use penstock_wire::error::{chat_envelope, messages_envelope};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "# Errors

Every error of the gateway has a stable `code`: branch on that, or on the type that your client library knows. The
`message` is for people and may change. `x-request-id` and `request-id` name the exchange; the same id stands in the
body and in the operator's log.

This page is generated from the table of errors in `plugins/contract/src/table.rs`; do not edit it. The test
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
  minute.
- Without `Retry-After`, wait longer after each attempt, and give up after a few. A 500 may be tried again as well, but
  only a few times.

The official client libraries follow `Retry-After` and `x-should-retry` by themselves. For sustained high volume, use
[batches](batches.md): they are not subject to the same rate limits.
";

/// Whether the same request may pass later. A new code has to say so.
fn again(code: Code) -> &'static str {
    match code {
        Code::RateLimited | Code::Unavailable | Code::Overloaded => "yes, after `Retry-After`",
        Code::RequestTimeout => "yes",
        Code::Internal | Code::StorageFull => "a few times",
        Code::InsufficientCredits | Code::BudgetExceeded => {
            "if there is a `Retry-After`; else when there is money"
        }
        Code::InvalidRequest
        | Code::Unsupported
        | Code::ContextLength
        | Code::ContentRefused
        | Code::InvalidKey
        | Code::InsufficientScope
        | Code::ModelNotFound
        | Code::NotFound
        | Code::MethodNotAllowed
        | Code::Conflict
        | Code::TooLarge
        | Code::UnsupportedMediaType
        | Code::RangeNotSatisfiable
        | Code::TargetTooLong
        | Code::HeadTooLarge
        | Code::Misdirected => "no",
    }
}

fn example(title: &str, envelope: &[u8]) -> String {
    let value: Value = serde_json::from_slice(envelope).unwrap();
    format!("{title}\n\n```json\n{}\n```\n\n", serde_json::to_string_pretty(&value).unwrap())
}

fn page() -> String {
    let refusal =
        Refusal::invalid("top_p", "top_p: expected a number from 0 to 1, got a number out of range.");
    let id = "req_k3v7m2qhx5a4nq7rd6twbcyl";
    let mut page = format!("{INTRODUCTION}\n## Shape\n\n");
    page +=
        &example("Chat completions, and every endpoint but those of messages:", &chat_envelope(&refusal, id));
    page +=
        &example("Messages; a field that is to blame stands in `details`:", &messages_envelope(&refusal, id));
    page += "## Codes\n\n| Status | Code | Type, chat | Type, messages | Meaning | Try again |\n|---|---|---|---|---|---|\n";
    let mut codes = Code::ALL;
    codes.sort_by_key(|code| (code.row().status, code.row().code));
    for code in codes {
        let row = code.row();
        writeln!(
            page,
            "| {} | `{}` | `{}` | `{}` | {} | {} |",
            row.status,
            row.code,
            row.chat_type,
            row.messages_type,
            row.sentence,
            again(code)
        )
        .unwrap();
    }
    page += "\n`INFERENCE_3207` has `details.context_length` and `details.input_tokens`.\n\n";
    page += "`INFERENCE_3103` may have `details.attempts`: for each failed attempt the `provider`, a `reason` and its\n\
             milliseconds, `ms`. Reasons are `unavailable`, `rate_limited`, `timeout` and `refused`; the log of the gateway\n\
             says more. Its message recommends `:balanced` where another flavor was asked for.\n\n";
    page + STREAMS
}

#[test]
fn the_page_of_errors_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = page();
    if std::env::var_os("PENSTOCK_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == page,
        "docs/errors.md is not what the table says"
    );
}
