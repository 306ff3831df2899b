//! OpenAPI schemas of the members of admin requests and answers. The same name has the same meaning in all of them.

use super::keys;
use super::openapi::reference;
use serde_json::{Value, json};

/// Schema of the member with this name; `null` if there is none.
pub(super) fn member(name: &str) -> Value {
    held(name).or_else(|| written(name)).or_else(|| stored(name)).unwrap_or_default()
}

fn about(kind: &str, text: &str) -> Value {
    json!({ "type": kind, "description": text })
}

fn maybe(kind: &str, text: &str) -> Value {
    json!({ "type": [kind, "null"], "description": text })
}

fn time(text: &str) -> Value {
    maybe("integer", &format!("{text}, Unix seconds."))
}

fn credits(text: &str) -> Value {
    json!({ "type": ["string", "number", "null"], "description": format!("{text}, credits with at most six decimals.") })
}

fn texts(text: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": text })
}

/// Members of accounts and keys.
#[rustfmt::skip]
fn held(name: &str) -> Option<Value> {
    Some(match name {
        "id" => about("string", "Permanent id: of a key the 16 characters after `sk-svc-`, of an account 1 to 64 letters, digits, `.`, `_` or `-`."),
        "name" => maybe("string", "Display name."),
        "account" => about("string", "Account that pays for the key's requests; `default` by default."),
        "state" => json!({ "enum": crate::auth::account_json::STATES.map(|(word, _)| word), "description": "State of the account; keys of a suspended account are refused." }),
        "scopes" => json!({ "type": ["array", "null"], "items": { "type": "string" }, "description": "Permissions of the key; `inference.*` by default." }),
        "models" => json!({ "type": ["array", "null"], "items": { "type": "string" }, "description": "Ids of the models that the key may use; `null` for all." }),
        "limits" => reference("Limits"),
        "now" => reference("Now"),
        "warnings" => texts("Warnings, such as a limit that matches nothing."),
        "created" => time("Creation time"),
        "expires" => time("Expiry time"),
        "last_used" => time("Time of the last use"),
        "rotated" => time("Time of the last rotation"),
        "previous_good_until" => time("Expiry time of the previous secret"),
        "overlap_seconds" => json!({ "type": "integer", "minimum": 0, "maximum": keys::OVERLAP.1, "default": keys::OVERLAP.0, "description": "Seconds for which the previous secret stays valid." }),
        "key" => about("string", "The complete key, shown only in this answer; in a list of warnings the id of the key."),
        "requests_per_minute" | "tokens_per_minute" | "concurrent" => json!({ "type": ["integer", "null"], "minimum": 1, "description": match name {
            "requests_per_minute" => "Requests per minute; after a pause, up to one minute's worth may be sent at once.",
            "tokens_per_minute" => "Tokens per minute, input and output; an excess is a debt that has to refill first.",
            _ => "Maximum number of concurrent requests.",
        } }),
        "budget_per_day" => credits("Spending limit per day, from midnight to midnight, UTC"),
        "budget_per_month" => credits("Spending limit per calendar month, UTC"),
        "requests_at_work" => about("integer", "Requests in flight."),
        "requests_left" => maybe("integer", "Requests that the rate limit admits now."),
        "tokens_left" => maybe("integer", "Tokens that the rate limit admits now."),
        "tokens_owed" => about("integer", "Tokens used beyond the limit, which have to refill first."),
        "spent_today" => about("string", "Credits spent since midnight, UTC."),
        "spent_this_month" => about("string", "Credits spent in this calendar month, UTC."),
        "revoked" => json!({ "type": ["integer", "boolean", "null"], "description": "Time of the revocation, Unix seconds; `true` in the answer of a revocation." }),
        "already" => about("boolean", "True if the key was revoked before."),
        _ => return None,
    })
}

/// Members of batches and files.
#[rustfmt::skip]
fn stored(name: &str) -> Option<Value> {
    Some(match name {
        "endpoint" => about("string", "Path of the endpoint that every line of the batch requests."),
        "model" => maybe("string", "Model of the first line."),
        "status" => about("string", "Status of the batch or of the file, as its owner reads it."),
        "request_counts" => about("object", "Lines by state."),
        "scheduled" => time("Earliest start, for a batch that waits for a cleaner grid"),
        "started" => time("Start of the first line"),
        "ended" => time("Completion, failure or cancellation"),
        "window_ends" => time("End of the completion window"),
        "input_file_id" => about("string", "File that holds the requests."),
        "output_file_id" => maybe("string", "File that holds the results; `null` before the first result."),
        "output_bytes" => about("integer", "Bytes of results so far."),
        "usage" => about("object", "Tokens of all results."),
        "errors" => maybe("object", "Reasons for the failure of the batch."),
        "metadata" => about("object", "Key-value pairs that the owner attached to the batch."),
        "filename" => about("string", "Name that the owner gave to the file."),
        "purpose" => about("string", "`batch` for requests, `batch_output` for results."),
        "bytes" => about("integer", "Size of the contents in bytes."),
        "lines" => about("integer", "Requests in the file."),
        "sha256" => maybe("string", "SHA-256 of the contents in hexadecimal, once the file is complete."),
        "deleted" => about("boolean", "True: the file was deleted."),
        _ => return None,
    })
}

/// Members of the audit log, the ledger and the configuration.
#[rustfmt::skip]
fn written(name: &str) -> Option<Value> {
    Some(match name {
        "number" => about("integer", "Number of the entry, from 1."),
        "at" => about("integer", "Time of the change, Unix seconds."),
        "who" => about("string", "Author of the change, as far as known."),
        "what" => about("string", "Action, such as `key.revoke`."),
        "target" => about("string", "Changed account or key."),
        "change" => about("object", "New object, or old and new value of each changed field."),
        "good" => about("boolean", "True if every entry follows from the one before, and all other checks passed."),
        "entries" => about("integer", "Number of entries of the log or of the ledger."),
        "first_bad" => maybe("integer", "First entry that does not match the hash chain."),
        "credits" => json!({ "description": "Credits: in a request the amount, with at most six decimals; in an answer `balance`, `reserved`, `available`." }),
        "energy_kwh" => about("object", "The energy wallet in kWh: `balance`, `reserved`, `available`."),
        "kwh" => json!({ "type": ["string", "number", "null"], "description": "Kilowatt-hours instead of credits, with at most nine decimals." }),
        "note" => maybe("string", "Reason, recorded in the ledger."),
        "entry" => about("integer", "Number of the entry in the ledger."),
        "accounts" => json!({ "description": "Accounts that have entries." }),
        "open_reserves" => about("integer", "Number of reservations that are neither settled nor voided."),
        "first_misfit" => maybe("object", "First entry that does not follow from the ones before it, with the reason."),
        "balances" => texts("Balances that are not the sum of their entries."),
        "second_copy" => texts("Differences of the second copy."),
        "day" | "month" => about("string", "Day or month, UTC."),
        "charges" => about("integer", "Number of charges of the day."),
        "charged" | "computed_again" => about("object", "Sums in credits, kWh and EUR, as exact text."),
        "same" => about("boolean", "True if every recomputed charge equals the recorded one."),
        "first_different_entry" => maybe("integer", "First charge that differs when it is recomputed."),
        "boundary" => about("string", "System boundary of the figures."),
        "methodologies" | "grid_sources" | "places" => texts("Values in the charges of this month."),
        "terms" => json!({ "type": "array", "items": { "type": "object" }, "description": "Prices and location to which charges refer." }),
        "config" => about("string", "Version of the running configuration."),
        "changes" => json!({ "type": "array", "items": { "type": "object" }, "description": "Changed keys of the configuration: `key`, `old` and `new`, `null` if not set; secrets are `***`." }),
        "more_changes" => about("integer", "Number of changed keys beyond the 200 listed."),
        "next_start" => texts("Changed keys that take effect only at the next start or upgrade."),
        _ => return None,
    })
}
