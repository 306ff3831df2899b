//! Admin request for the ledger's entries of a period, with amounts in credits and kWh.

use super::credits::{requested_account, run_blocking};
use super::openapi::page_schema;
use super::request::{AdminRequest, LedgerReply};
use super::routes::{AdminRoute, RouteHandler};
use crate::billing::ledger_export::entries_of_period;
use crate::billing::{Ledger, format};
use crate::storage::stores::Stores;
use penstock_core::ApiError;
use penstock_core::calendar::format_rfc3339;
use penstock_ledger::Wallet;
use penstock_usage::{RangeError, UsageRange};
use serde_json::{Map, Value, json};

const QUERY: [&str; 4] = ["account", "from", "to", "after"];
/// Members of an entry that are amounts in the smallest unit of its wallet.
const AMOUNTS: [&str; 3] = ["amount", "held", "was"];

/// Routes of the export.
pub const ROUTES: &[AdminRoute] = &[AdminRoute::get(
    "/admin/ledger/entries",
    "listLedgerEntries",
    "Lists charges, ends without a charge, grants and corrections of a period, of all accounts or of one",
    RouteHandler::Ledger(|vault, ledger, asked| Box::pin(entries(vault, ledger, asked))),
)
.with_query_parameters(&QUERY)
.with_response(200, || page_schema(entry_schema()))];

fn entry_schema() -> Value {
    json!({ "type": "object", "description": "Entry of the ledger: amounts in credits or kWh, as exact text.",
        "properties": {
            "entry": { "type": "integer", "description": "Number of the entry." },
            "at": { "type": "string", "description": "Time, RFC 3339." },
            "act": { "enum": ["settle", "void", "grant", "correct"] },
            "account": { "type": "string" },
            "wallet": { "enum": Wallet::ALL.map(Wallet::name) },
            "amount": { "type": "string" },
            "eur": { "type": "string" },
        } })
}

async fn entries(vault: &Stores, ledger: &Ledger, asked: &AdminRequest) -> Result<LedgerReply, ApiError> {
    let account = requested_account(vault, ledger, asked, &QUERY).await?;
    let range = UsageRange::parse(asked.query("from", &QUERY)?, asked.query("to", &QUERY)?, asked.now)
        .map_err(|error: RangeError| ApiError::invalid(error.parameter(), error.to_string()))?;
    let wrong = || ApiError::invalid("after", "after: expected the number of an entry of the period");
    let after = asked.query("after", &QUERY)?.map(|text| text.parse::<u64>().map_err(|_| wrong()));
    let (store, after) = (ledger.store.clone(), after.transpose()?);
    let page = run_blocking(move || entries_of_period(&store, range, account.as_deref(), after)).await?;
    let page = page.ok_or_else(wrong)?;
    let data: Vec<Value> = page.entries.into_iter().map(entry_json).collect();
    Ok(LedgerReply::Json(200, json!({ "data": data, "has_more": page.next.is_some(), "next": page.next })))
}

/// Returns an entry with its time as text, and its amounts in credits or kWh.
fn entry_json(entry: Value) -> Value {
    let Value::Object(members) = entry else { return Value::Null };
    let wallet = members.get("wallet").and_then(Value::as_str).and_then(Wallet::from_name);
    let shown = members.into_iter().filter_map(|(name, value)| {
        let value = match (&*name, wallet) {
            ("at", _) => format_rfc3339(value.as_u64()?).into(),
            (name, Some(wallet)) if AMOUNTS.contains(&name) => {
                format::to_decimal(wallet, value.as_i64()?).normalize().to_string().into()
            }
            ("prev" | "hash" | "sum", _) => return None,
            _ => value,
        };
        let name = if name == "seq" { "entry".to_owned() } else { name };
        Some((name, value))
    });
    Value::Object(shown.collect::<Map<String, Value>>())
}
