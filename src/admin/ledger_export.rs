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
    let text = |text: &str| json!({ "type": "string", "description": text });
    let count = |text: &str| json!({ "type": "integer", "description": text });
    json!({ "type": "object", "description": "Entry of the ledger: amounts in credits or kWh, as exact text. Members that are 0, false or unknown are left out.",
        "properties": {
            "entry": { "type": "integer", "description": "Number of the entry." },
            "at": { "type": "string", "description": "Time, RFC 3339." },
            "act": { "enum": ["settle", "void", "grant", "correct"] },
            "account": { "type": "string" },
            "wallet": { "enum": Wallet::ALL.map(Wallet::name) },
            "amount": text("Charge, grant, or the amount after a correction."),
            "held": text("Amount that was reserved for the request."),
            "was": text("Amount before a correction."),
            "eur": text("EUR, exact."),
            "from_entry": { "type": "integer", "description": "Number of the entry that is corrected." },
            "what": { "enum": ["settle", "grant"], "description": "Kind of the entry that is corrected." },
            "id": text("ID of a grant or of a correction."),
            "why": text("Reason of a grant, of a correction, or of an end without a charge."),
            "by": text("Author of a grant or of a correction."),
            "request": { "type": "string" },
            "key": text("Public ID of the key."),
            "model": { "type": "string" },
            "provider": { "type": "string" },
            "terms": text("ID of the pricing terms."),
            "batch": { "type": "boolean" },
            "input": count("Input tokens."),
            "cached": count("Input tokens from a cache, part of `input`."),
            "output": count("Output tokens."),
            "reasoning": count("Tokens of the reasoning, part of `output`."),
            "counted": { "type": "boolean", "description": "True if the gateway counted the tokens, because the provider did not report them." },
            "images": count("Images."),
            "seconds": text("Seconds of audio."),
            "billable_kwh": text("Energy that is charged, kWh."),
            "kwh": text("Energy, kWh."),
            "failed_kwh": text("Energy of failed attempts, part of `kwh`."),
            "g_co2": text("Grams of CO2 equivalent, location-based."),
            "g_co2_low": text("Lower limit of `g_co2`."),
            "g_co2_high": text("Upper limit of `g_co2`."),
            "litres": text("Water, litres."),
        } })
}

async fn entries(vault: &Stores, ledger: &Ledger, asked: &AdminRequest) -> Result<LedgerReply, ApiError> {
    let account = requested_account(vault, ledger, asked, &QUERY).await?;
    let range = UsageRange::parse(asked.query("from", &QUERY)?, asked.query("to", &QUERY)?, asked.now)
        .map_err(|error: RangeError| ApiError::invalid(error.parameter(), error.to_string()))?;
    let invalid = || ApiError::invalid("after", "after: expected the number of an entry of the period");
    let after = asked.query("after", &QUERY)?.map(|text| text.parse::<u64>().map_err(|_| invalid()));
    let (store, after) = (ledger.store.clone(), after.transpose()?);
    let page = run_blocking(move || entries_of_period(&store, range, account.as_deref(), after)).await?;
    let page = page.ok_or_else(invalid)?;
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
