//! OpenAPI schemas of the members of admin requests and responses. The same name has the same meaning in all of them.

use super::keys;
use super::openapi::schema_ref;
use serde_json::{Value, json};

/// Returns the OpenAPI schema of the JSON member with this name; `null` if the name is unknown.
pub(super) fn json_member_schema(name: &str) -> Value {
    account_member(name)
        .or_else(|| ledger_member(name))
        .or_else(|| invoice_member(name))
        .or_else(|| batch_member(name))
        .unwrap_or_default()
}

fn describe_member(kind: &str, text: &str) -> Value {
    json!({ "type": kind, "description": text })
}

fn nullable_member(kind: &str, text: &str) -> Value {
    json!({ "type": [kind, "null"], "description": text })
}

fn nullable_time(text: &str) -> Value {
    nullable_member("integer", &format!("{text}, Unix seconds."))
}

fn nullable_credits(text: &str) -> Value {
    json!({ "type": ["string", "number", "null"], "description": format!("{text}, credits with at most six decimals.") })
}

fn text_list(text: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": text })
}

/// Returns the OpenAPI schema of a member of accounts or keys; `None` for other names.
#[rustfmt::skip]
fn account_member(name: &str) -> Option<Value> {
    Some(match name {
        "id" => describe_member("string", "Permanent id: of a key the 16 characters after `sk-svc-`, of an account 1 to 64 letters, digits, `.`, `_` or `-`."),
        "name" => nullable_member("string", "Display name."),
        "account" => nullable_member("string", "Account of a key, a batch, a file or a balance; of a user with the role `account`. A new key has `default` by default."),
        "state" => json!({ "enum": crate::auth::account_json::ACCOUNT_STATES.map(|(word, _)| word), "description": "State of the account; keys of a suspended account are refused." }),
        "scopes" => json!({ "type": ["array", "null"], "items": { "type": "string" }, "description": "Permissions of the key; `inference.*` by default." }),
        "models" => json!({ "type": ["array", "null"], "items": { "type": "string" }, "description": "Ids of the models that the key may use; `null` for all." }),
        "limits" => schema_ref("Limits"),
        "store_responses" => json!({ "type": ["boolean", "null"], "description": "True if responses of `/v1/responses` are stored for requests with `store: true`; false by default." }),
        "now" => schema_ref("Now"),
        "warnings" => text_list("Warnings, such as a limit that matches nothing."),
        "created" => json!({ "type": ["integer", "string", "null"], "description": "Creation time, Unix seconds; of an invoice or credit note, RFC 3339." }),
        "expires" => nullable_time("Expiry time"),
        "last_used" => nullable_time("Time of the last use"),
        "rotated" => nullable_time("Time of the last rotation"),
        "previous_good_until" => nullable_time("Expiry time of the previous secret"),
        "overlap_seconds" => json!({ "type": "integer", "minimum": 0, "maximum": keys::DEFAULT_AND_MAX_OVERLAP_SECONDS.1, "default": keys::DEFAULT_AND_MAX_OVERLAP_SECONDS.0, "description": "Seconds for which the previous secret stays valid." }),
        "end_previous" => json!({ "type": "boolean", "default": false, "description": "True to end at once a secret from before the last rotation that is still valid; otherwise the request is refused (409), unless `overlap_seconds` is 0." }),
        "key" => describe_member("string", "The complete key, shown only in this answer; in the list of what matches nothing, the id of the key."),
        "requests_per_minute" | "tokens_per_minute" | "concurrent" => json!({ "type": ["integer", "null"], "minimum": 1, "description": match name {
            "requests_per_minute" => "Requests per minute; after a pause, up to one minute's worth may be sent at once.",
            "tokens_per_minute" => "Tokens per minute, input and output; an excess is a debt that has to refill first.",
            _ => "Maximum number of concurrent requests.",
        } }),
        "budget_per_day" => nullable_credits("Spending limit per day, from midnight to midnight, UTC"),
        "budget_per_month" => nullable_credits("Spending limit per calendar month, UTC"),
        "requests_at_work" => describe_member("integer", "Requests in flight."),
        "requests_left" => nullable_member("integer", "Requests that the rate limit admits now."),
        "tokens_left" => nullable_member("integer", "Tokens that the rate limit admits now."),
        "tokens_owed" => describe_member("integer", "Tokens used beyond the limit, which have to refill first."),
        "spent_today" => describe_member("string", "Credits spent since midnight, UTC."),
        "spent_this_month" => describe_member("string", "Credits spent in this calendar month, UTC."),
        "revoked" => json!({ "type": ["integer", "boolean", "null"], "description": "Time of the revocation, Unix seconds; `true` in the answer of a revocation." }),
        "version" => describe_member("string", "Version of the object, which each change replaces. In a request that changes it, the version that was read: if it has another one meanwhile, the answer is 409 and nothing is changed."),
        "already" => describe_member("boolean", "True if the key was revoked before."),
        _ => return None,
    })
}

/// Returns the OpenAPI schema of a member of batches or files; `None` for other names.
#[rustfmt::skip]
fn batch_member(name: &str) -> Option<Value> {
    Some(match name {
        "endpoint" => describe_member("string", "Path of the endpoint that every line of the batch requests."),
        "model" => nullable_member("string", "Model of the first line."),
        "status" => describe_member("string", "Status of the batch or of the file, as its owner reads it."),
        "request_counts" => describe_member("object", "Lines by state."),
        "scheduled" => nullable_time("Earliest start, for a batch that waits for a cleaner grid"),
        "started" => nullable_time("Start of the first line"),
        "ended" => nullable_time("Completion, failure or cancellation"),
        "window_ends" => nullable_time("End of the completion window"),
        "input_file_id" => describe_member("string", "File that holds the requests."),
        "output_file_id" => nullable_member("string", "File that holds the results; `null` before the first result."),
        "output_bytes" => describe_member("integer", "Bytes of results so far."),
        "usage" => describe_member("object", "Tokens of all results."),
        "errors" => nullable_member("object", "Reasons for the failure of the batch."),
        "metadata" => describe_member("object", "Key-value pairs that the owner attached to the batch."),
        "filename" => describe_member("string", "Name that the owner gave to the file."),
        "purpose" => describe_member("string", "`batch` for requests, `batch_output` for results."),
        "bytes" => describe_member("integer", "Size of the contents in bytes."),
        "lines" => json!({ "type": ["integer", "array"], "description": "Number of requests in the file; of an invoice or credit note, its lines: sums by model, location and unit prices, and corrections." }),
        "sha256" => nullable_member("string", "SHA-256 of the contents in hexadecimal, once the file is complete."),
        "deleted" => describe_member("boolean", "True: the file was deleted."),
        _ => return None,
    })
}

/// Returns the OpenAPI schema of a member of invoices or credit notes; `None` for other names.
#[rustfmt::skip]
fn invoice_member(name: &str) -> Option<Value> {
    Some(match name {
        "invoice" => describe_member("string", "Number of the invoice that the credit note corrects."),
        "invoice_from" => describe_member("string", "First day of the invoice, necessary only if an earlier version gave its number to two invoices of the account."),
        "is_draft" => describe_member("boolean", "True until the invoice or credit note is issued."),
        "can_issue" => describe_member("boolean", "True if the document can be issued now: an invoice if `issue_state` is `ready`, a credit note if its corrections credit an amount."),
        "issue_state" => json!({ "enum": super::invoice::InvoiceIssueState::ALL.map(super::invoice::InvoiceIssueState::name), "description": "`issued`, `ready` to be issued, or why it cannot be: the period has not ended at least an hour ago, there is no seller, no amount above 0.00 EUR, or an issued invoice has days in common. A credit note whose corrections credit no amount is `empty`." }),
        "overlaps" => nullable_member("string", "Number of the issued invoice that has days in common."),
        "issued" => nullable_member("string", "Time of issue, RFC 3339."),
        "seller" | "customer" => nullable_member("object", "Party of the invoice: `name`, `address` (lines), `vat_id`."),
        "keys" | "days" | "locations" => json!({ "type": "array", "items": { "type": "object" }, "description": "Sums by key, day or location; each adds up to the total." }),
        "net_eur" | "vat_eur" | "total_eur" => describe_member("string", "Amount in EUR, rounded to cents."),
        "vat_percent" => describe_member("string", "VAT rate in percent."),
        "notes" => text_list("Sentences below the sums: the operator's note, prices, methods of the footprint."),
        _ => return None,
    })
}

/// Returns the OpenAPI schema of a member of the audit log, the ledger, usage, users or reloads; `None` for other
/// names.
#[rustfmt::skip]
fn ledger_member(name: &str) -> Option<Value> {
    Some(match name {
        "number" => json!({ "type": ["integer", "string", "null"], "description": "Number of the entry, from 1; of an invoice or credit note, consecutive for its seller and year, and `null` until it is issued." }),
        "at" => describe_member("integer", "Time of the change, Unix seconds."),
        "who" => describe_member("string", "Author of the change, as far as known."),
        "what" => describe_member("string", "Action, such as `key.revoke`."),
        "target" => describe_member("string", "Id or name of what was changed: an account, key, user, batch, file, invoice or credit note."),
        "change" => describe_member("object", "New object, or old and new value of each changed field."),
        "good" => describe_member("boolean", "True if every entry follows from the one before, and all other checks passed."),
        "entries" => describe_member("integer", "Number of entries of the log or of the ledger."),
        "first_bad" => nullable_member("integer", "First entry that does not match the hash chain."),
        "credits" => json!({ "description": "Credits: in a request the amount, with at most six decimals; in an answer `balance`, `reserved`, `available`." }),
        "energy_kwh" => describe_member("object", "The energy wallet in kWh: `balance`, `reserved`, `available`."),
        "kwh" => json!({ "type": ["string", "number", "null"], "description": "Kilowatt-hours instead of credits, with at most nine decimals." }),
        "increase" => describe_member("boolean", "True to confirm that the amount after the correction is above that of the entry."),
        "note" => nullable_member("string", "Reason, recorded in the ledger."),
        "entry" => describe_member("integer", "Number of the entry in the ledger."),
        "accounts" => json!({ "description": "Accounts that have entries." }),
        "open_reserves" => describe_member("integer", "Number of reservations that are neither settled nor voided."),
        "first_misfit" => nullable_member("object", "First entry that does not follow from the ones before it, with the reason."),
        "balances" => text_list("Balances that are not the sum of their entries."),
        "checkpoint" => describe_member("string", "Number and SHA-256 of the last entry of each chain: `number:hash`, separated by commas."),
        "second_copy" => text_list("Differences of the second copy."),
        "day" => describe_member("string", "Day, UTC."),
        "month" => nullable_member("string", "Month, UTC; `null` if the period is not a month."),
        "charges" => describe_member("integer", "Number of charges of the day."),
        "charged" | "computed_again" => describe_member("object", "Sums in credits, kWh and EUR, as exact text."),
        "same" => describe_member("boolean", "True if every recomputed charge equals the recorded one."),
        "first_different_entry" => nullable_member("integer", "First charge that differs when it is recomputed."),
        "boundary" => describe_member("string", "System boundary of the figures."),
        "methodologies" | "grid_sources" | "places" => text_list("Distinct values in the charges of the period."),
        "terms" => json!({ "type": "array", "items": { "type": "object" }, "description": "Prices and location to which charges refer." }),
        "object" => json!({ "const": "usage" }),
        "from" | "to" => describe_member("string", "First or last day, UTC, included."),
        "group_by" => text_list("Dimensions of the rows."),
        "data" => json!({ "type": "array", "items": { "type": "object" }, "description": "A row for each group: its dimensions, and sums of requests, tokens, energy, carbon, water and money." }),
        "total" => describe_member("object", "Sums of all rows."),
        "role" => json!({ "enum": penstock_storage::users::UserRole::ALL.map(penstock_storage::users::UserRole::name), "description": "Role, which decides what the console shows and allows; `viewer` by default." }),
        "password" => describe_member("string", "Password of 12 characters or more; without it the answer has an invitation."),
        "disabled" => json!({ "enum": [true, false, "true", "false"], "description": "`true` ends all sessions and refuses the sign-in." }),
        "invitation" => describe_member("string", "Token for `/console/invitation/TOKEN` or, for the role `account`, `/dashboard/invitation/TOKEN`; valid once and for 72 hours; shown only in this answer."),
        "invitation_expires" => nullable_time("End of the open invitation"),
        "rollups" => describe_member("integer", "Number of hourly sums that were compared."),
        "left_out_from" => nullable_member("string", "First hour, UTC, that was left out with all later hours, because entries were written meanwhile; null if all were compared."),
        "differences" => text_list("Rollups that differ from the ledger."),

        "config" => describe_member("string", "Version of the running configuration."),
        "changes" => json!({ "type": "array", "items": { "type": "object" }, "description": "Changed keys of the configuration: `key`, `old` and `new`, `null` if not set; secrets are `***`." }),
        "more_changes" => describe_member("integer", "Number of changed keys beyond the 200 listed."),
        "next_start" => text_list("Changed keys that take effect only at the next start or upgrade."),
        _ => return None,
    })
}
