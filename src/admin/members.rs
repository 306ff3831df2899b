//! OpenAPI schemas of the members of admin requests and answers. The same name has the same meaning in all of them.

use super::openapi::reference;
use super::{accounts, keys};
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
        "id" => about("string", "What it is called for good: of a key the 16 characters after `sk-svc-`, of an account 1 to 64 letters, digits, `.`, `_` or `-`."),
        "name" => maybe("string", "What people call it."),
        "account" => about("string", "The account that it draws on; `default` unless given."),
        "state" => json!({ "enum": accounts::STATES.map(|(word, _)| word), "description": "No key of a suspended account is good." }),
        "scopes" => json!({ "type": ["array", "null"], "items": { "type": "string" }, "description": "What it may do; `inference.*` unless given." }),
        "models" => json!({ "type": ["array", "null"], "items": { "type": "string" }, "description": "The catalogue's ids of the models that it may use; `null` for all." }),
        "limits" => reference("Limits"),
        "now" => reference("Now"),
        "warnings" => texts("What is odd about what was written, such as that it matches nothing."),
        "created" => time("When it was made"),
        "expires" => time("When it is good no more"),
        "last_used" => time("When it was last used"),
        "rotated" => time("When its secret was last made anew"),
        "previous_good_until" => time("Until when the secret before is good"),
        "overlap_seconds" => json!({ "type": "integer", "minimum": 0, "maximum": keys::OVERLAP.1, "default": keys::OVERLAP.0, "description": "How long the old secret stays good." }),
        "key" => about("string", "The key itself, shown this once; in a list of warnings its id."),
        "requests_per_minute" | "tokens_per_minute" | "concurrent" => json!({ "type": ["integer", "null"], "minimum": 1, "description": match name {
            "requests_per_minute" => "Requests per minute; a rested key may send a minute's worth at once.",
            "tokens_per_minute" => "Tokens per minute, input and output; over-use is debt.",
            _ => "Requests at the same time.",
        } }),
        "budget_per_day" => credits("What may be spent from midnight to midnight, UTC"),
        "budget_per_month" => credits("What may be spent in a calendar month, UTC"),
        "requests_at_work" => about("integer", "Requests that are being answered."),
        "requests_left" => maybe("integer", "Requests that would pass now."),
        "tokens_left" => maybe("integer", "Tokens that would pass now."),
        "tokens_owed" => about("integer", "Tokens over the limit, to be waited off."),
        "spent_today" => about("string", "Credits spent since midnight, UTC."),
        "spent_this_month" => about("string", "Credits spent in this calendar month, UTC."),
        "revoked" => json!({ "type": ["integer", "boolean", "null"], "description": "When it was revoked, Unix seconds; `true` in the answer of a revocation." }),
        "already" => about("boolean", "It was revoked before."),
        _ => return None,
    })
}

/// Members of batches and files.
#[rustfmt::skip]
fn stored(name: &str) -> Option<Value> {
    Some(match name {
        "endpoint" => about("string", "Path that every line of the batch requests."),
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
        "metadata" => about("object", "Pairs that the owner keeps with the batch."),
        "filename" => about("string", "Name that the owner gave to the file."),
        "purpose" => about("string", "`batch` for requests, `batch_output` for results."),
        "bytes" => about("integer", "Size of the contents in bytes."),
        "lines" => about("integer", "Requests in the file."),
        "sha256" => maybe("string", "SHA-256 of the contents in hexadecimal, once the file is complete."),
        "deleted" => about("boolean", "`true`: the file is gone."),
        _ => return None,
    })
}

/// Members of the audit log, the ledger and the configuration.
#[rustfmt::skip]
fn written(name: &str) -> Option<Value> {
    Some(match name {
        "number" => about("integer", "The entry's number, from 1."),
        "at" => about("integer", "When, Unix seconds."),
        "who" => about("string", "Who, as far as known."),
        "what" => about("string", "What was done, such as `key.revoke`."),
        "target" => about("string", "The account or key that was changed."),
        "change" => about("object", "The new one, or for each field what it was and what it is."),
        "good" => about("boolean", "Every entry follows from the one before, and whatever else is checked fits."),
        "entries" => about("integer", "Entries of the log or of the ledger."),
        "first_bad" => maybe("integer", "The first entry that does not fit."),
        "credits" => json!({ "description": "Credits: in a request the amount, with at most six decimals; in an answer `balance`, `reserved`, `available`." }),
        "energy_kwh" => about("object", "The energy wallet in kWh: `balance`, `reserved`, `available`."),
        "kwh" => json!({ "type": ["string", "number", "null"], "description": "Kilowatt-hours instead of credits, with at most nine decimals." }),
        "note" => maybe("string", "Why; it stands in the ledger."),
        "entry" => about("integer", "The number of the entry in the ledger."),
        "accounts" => json!({ "description": "Accounts that have entries." }),
        "open_reserves" => about("integer", "Reserves without an end."),
        "first_misfit" => maybe("object", "The first entry that does not follow from the ones before it, and why."),
        "balances" => texts("Balances that are not the sum of their entries."),
        "second_copy" => texts("Where the second copy differs."),
        "day" | "month" => about("string", "Which, UTC."),
        "charges" => about("integer", "Charges of the day."),
        "charged" | "computed_again" => about("object", "Sums in credits, kWh and EUR, as exact text."),
        "same" => about("boolean", "Every charge comes out as it was."),
        "first_different_entry" => maybe("integer", "The first that does not."),
        "boundary" => about("string", "What is counted."),
        "methodologies" | "grid_sources" | "places" => texts("Of the charges of this month."),
        "terms" => json!({ "type": "array", "items": { "type": "object" }, "description": "Prices and place that charges refer to." }),
        "config" => about("string", "The version that runs now."),
        "changes" => json!({ "type": "array", "items": { "type": "object" }, "description": "Keys of the configuration that have another value than before: `key`, `old` and `new`, of which null is not set; secrets are `***`." }),
        "more_changes" => about("integer", "Keys that changed beyond the 200 listed."),
        "next_start" => texts("What of it counts from the next start or upgrade only, as the configuration names it."),
        _ => return None,
    })
}
