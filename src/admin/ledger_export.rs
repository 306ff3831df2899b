//! Admin request for the ledger's entries of a period, with amounts in credits and kWh.

use super::credits::{requested_account, run_blocking};
use super::openapi::page_schema;
use super::request::{AdminRequest, LedgerReply};
use super::routes::{AdminRoute, RouteHandler};
use crate::billing::entry_pages::parse_position;
use crate::billing::ledger_export::entries_of_period;
use crate::billing::{Ledger, format};
use crate::storage::stores::OpenStorage;
use penstock_core::ApiError;
use penstock_core::calendar::format_rfc3339;
use penstock_ledger::Wallet;
use penstock_usage::{RangeError, UsageRange};
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};

const QUERY: [&str; 4] = ["account", "from", "to", "after"];
/// Members of an entry that are amounts in the smallest unit of its wallet.
const AMOUNTS: [&str; 5] = ["amount", "held", "was", "charged", "granted"];

/// Routes of the ledger export.
pub const ROUTES: &[AdminRoute] = &[AdminRoute::get(
    "/admin/ledger/entries",
    "listLedgerEntries",
    "Lists charges, ends without a charge, grants and corrections of a period, of all accounts or of one",
    RouteHandler::Ledger(|stores, ledger, asked| Box::pin(entries(stores, ledger, asked))),
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
            "charged": text("Change of what is charged: a charge, or the amount after its correction less the amount before, negative for a refund. The sum is what was charged."),
            "granted": text("Change of what is granted, by a grant or by its correction."),
            "eur": text("EUR, exact, with the sign of `charged`: a correction that refunds a charge is negative, so that the sum is what was charged."),
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

async fn entries(
    stores: &OpenStorage,
    ledger: &Ledger,
    asked: &AdminRequest,
) -> Result<LedgerReply, ApiError> {
    let account = requested_account(stores, ledger, asked, &QUERY).await?;
    let range = UsageRange::parse(
        asked.query_parameter("from", &QUERY)?,
        asked.query_parameter("to", &QUERY)?,
        asked.now,
    )
    .map_err(|error: RangeError| ApiError::invalid(error.parameter(), error.to_string()))?;
    let invalid = || {
        let expected = "after: expected `next` of the page before, or the number of an entry of the period";
        ApiError::invalid("after", expected)
    };
    let after = asked.query_parameter("after", &QUERY)?;
    let after = after.map(|text| parse_position(text).ok_or_else(invalid)).transpose()?.unwrap_or_default();
    let store = ledger.store.clone();
    let page = run_blocking(move || entries_of_period(&store, range, account.as_deref(), &after)).await?;
    let page = page.ok_or_else(invalid)?;
    let data: Vec<Value> = page.entries.into_iter().map(entry_json).collect();
    let next = page.next.as_deref().map(position_json);
    Ok(LedgerReply::Json(200, json!({ "data": data, "has_more": next.is_some(), "next": next })))
}

/// Returns an export position (cursor) as JSON: one number, or several numbers as a text separated by commas.
fn position_json(position: &[u64]) -> Value {
    match position {
        [number] => (*number).into(),
        numbers => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",").into(),
    }
}

/// Returns an entry with its time as text, and its amounts in credits or kWh.
fn entry_json(entry: Value) -> Value {
    let Value::Object(mut members) = entry else { return Value::Null };
    add_changes(&mut members);
    let wallet = members.get("wallet").and_then(Value::as_str).and_then(Wallet::from_name);
    let shown = members.into_iter().filter_map(|(name, value)| {
        let value = match (&*name, wallet) {
            ("at", _) => format_rfc3339(value.as_u64()?).into(),
            (name, Some(wallet)) if AMOUNTS.contains(&name) => {
                format::amount_to_decimal(wallet, value.as_i64()?).normalize().to_string().into()
            }
            ("prev" | "hash" | "sum", _) => return None,
            _ => value,
        };
        let name = match &*name {
            "seq" => "entry".to_owned(),
            "of" => "from_entry".to_owned(),
            _ => name,
        };
        Some((name, value))
    });
    Value::Object(shown.collect::<Map<String, Value>>())
}

/// Adds the change of the charged or granted amount to an entry. The ledger records the EUR of a correction as the
/// refunded amount. This function negates it, so that a refund reduces the charged EUR.
fn add_changes(members: &mut Map<String, Value>) {
    let amount = |name: &str| members.get(name).and_then(Value::as_i64);
    let name = |name: &str| members.get(name).and_then(Value::as_str);
    let (is_correction, kind) = match name("act") {
        Some("correct") => (true, name("what")),
        kind => (false, kind),
    };
    let change = amount("amount").map(|amount_now| {
        let before = if is_correction { amount("was").unwrap_or_default() } else { 0 };
        amount_now.saturating_sub(before)
    });
    let column = match kind {
        Some("settle") => "charged",
        Some("grant") => "granted",
        _ => return,
    };
    let eur = name("eur").and_then(|eur| Decimal::from_str_exact(eur).ok());
    members.insert(column.to_owned(), change.into());
    if let (true, Some(eur)) = (is_correction, eur) {
        let change = if eur.is_zero() { eur } else { -eur };
        members.insert("eur".to_owned(), change.normalize().to_string().into());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn the_amounts_of_charges_and_corrections_add_up() {
        let correction = |what: &str, amount: i64, was: i64, eur: &str| {
            entry_json(
                json!({ "seq": 2, "at": 0, "act": "correct", "of": 1, "what": what, "wallet": "credits",
                "amount": amount, "was": was, "eur": eur }),
            )
        };
        let charge = entry_json(json!({ "seq": 1, "at": 0, "act": "settle", "wallet": "credits",
            "amount": 2_000_000, "held": 3_000_000, "eur": "0.02" }));
        assert_eq!(
            (&charge["charged"], &charge["eur"], &charge["held"]),
            (&json!("2"), &json!("0.02"), &json!("3"))
        );
        let refund = correction("settle", 500_000, 2_000_000, "0.015");
        assert_eq!((&refund["charged"], &refund["eur"]), (&json!("-1.5"), &json!("-0.015")));
        assert_eq!((&refund["from_entry"], refund.get("of")), (&json!(1), None));
        let raised = correction("settle", 3_000_000, 2_000_000, "-0.01");
        assert_eq!((&raised["charged"], &raised["eur"]), (&json!("1"), &json!("0.01")));
        let taken = correction("grant", 4_000_000, 10_000_000, "0");
        assert_eq!(
            (&taken["granted"], &taken["eur"], taken.get("charged")),
            (&json!("-6"), &json!("0"), None)
        );
        let grant = entry_json(
            json!({ "seq": 3, "at": 0, "act": "grant", "wallet": "energy", "amount": 1_500_000_000 }),
        );
        assert_eq!((&grant["granted"], grant.get("eur")), (&json!("1.5"), None));
        let unused = entry_json(json!({ "seq": 4, "at": 0, "act": "void", "wallet": "credits", "held": 7 }));
        assert!(unused.get("charged").is_none() && unused.get("granted").is_none());
    }
}
