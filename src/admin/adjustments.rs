//! Grants of credits and energy, and the code that they share with corrections: parsing of amounts, and detection of
//! repeated requests.

use super::credits::{check_account_exists, run_blocking};
use super::input::{RequestFields, parse_decimal};
use super::openapi::schema_ref;
use super::request::{AdminRequest, LedgerReply};
use super::routes::{AdminRoute, RouteHandler};
use crate::auth::account_json::DEFAULT_ACCOUNT_ID;
use crate::billing::{AdjustmentError, Ledger, format, report};
use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode};
use penstock_ledger::{EntryKind, LedgerEntry, Wallet};
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// Request members of a grant.
pub const GRANT_MEMBERS: [&str; 5] = ["account", "credits", "kwh", "id", "note"];

/// Maximum number of credits of a grant or of a corrected entry.
const MAX_CREDITS: u64 = 9_000_000_000_000;
/// Maximum energy of a grant or of a corrected entry in kWh.
const MAX_KWH: u64 = 9_000_000_000;

/// Route of grants.
pub const ROUTES: &[AdminRoute] = &[AdminRoute::post(
    "/admin/credits/grant",
    "grant",
    "Gives an account credits or energy",
    RouteHandler::Ledger(|stores, ledger, asked| Box::pin(handle_grant(stores, ledger, asked))),
)
.with_body(&GRANT_MEMBERS, &["account"])
.with_response(201, || schema_ref("Granted"))];

/// Parsed request for a grant.
#[derive(Debug)]
struct GrantRequest {
    account: String,
    id: String,
    wallet: Wallet,
    amount: i64,
    note: String,
}

impl GrantRequest {
    /// Parses a request body.
    ///
    /// # Errors
    /// Returns 400 with the invalid field.
    fn read(body: &Value) -> Result<Self, ApiError> {
        let fields = RequestFields::parse(body, &GRANT_MEMBERS)?;
        let account = fields.text_value("account")?.into_option().filter(|name| !name.is_empty());
        let account =
            account.ok_or_else(|| ApiError::invalid("account", "account has to be the id of an account."))?;
        let (field, wallet, amount) = parse_amount(body)?;
        if amount <= 0 {
            let sentence = format!("{field} has to be more than 0; use a correction to take back a grant.");
            return Err(ApiError::invalid(field, sentence));
        }
        let id = fields.id_value("id")?.into_option().unwrap_or_else(random_id);
        Ok(Self {
            account,
            id,
            wallet,
            amount,
            note: fields.text_value("note")?.into_option().unwrap_or_default(),
        })
    }
}

/// Grants an amount to an existing account. Repeating a request with the same id returns the first grant with status
/// 200, so that a script can retry until it gets an answer.
///
/// # Errors
/// Returns the reason if nothing was granted.
async fn handle_grant(
    stores: &OpenStorage,
    ledger: &Ledger,
    asked: &AdminRequest,
) -> Result<LedgerReply, ApiError> {
    let GrantRequest { account, id, wallet, amount, note } = GrantRequest::read(&asked.body)?;
    check_account_exists(stores, &account).await?;
    let wanted = LedgerAdjustment::grant(&account, wallet, amount);
    let change = json!({ "id": id, amount_member_name(wallet): format_amount(wallet, amount), "note": note });
    let audit = asked.audit_entry("credits.grant", &account, change);
    let (by, note) = (asked.actor.as_str().into(), note.into());
    let act = EntryKind::Grant { id: id.as_str().into(), wallet, amount, note, by };
    let (status, entry) = match ledger.record_grant(&account, act, Some(audit)).await {
        Ok(entry) => (201, entry),
        Err(AdjustmentError::Duplicate(entry)) => {
            (200, check_existing_entry(ledger, entry, &id, &wanted).await?)
        }
        Err(why) => return Err(adjustment_error_response(why).with_details_member("id", &*id)),
    };
    Ok(LedgerReply::Json(status, adjustment_response_json(ledger, &account, &id, entry).await?))
}

/// Account, wallet and amount of a grant or a correction. Values of two requests with the same effect are equal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LedgerAdjustment {
    account: Box<str>,
    wallet: Wallet,
    amount: i64,
    /// Number of the corrected entry; `None` for a grant.
    of: Option<u64>,
}

impl LedgerAdjustment {
    fn grant(account: &str, wallet: Wallet, amount: i64) -> Self {
        Self { account: account.into(), wallet, amount, of: None }
    }

    /// Converts the kind of an entry. Returns `None` if it is neither a grant nor a correction.
    pub(super) fn from_entry_kind(account: &str, movement: &EntryKind) -> Option<Self> {
        let account = account.into();
        match movement {
            EntryKind::Grant { wallet, amount, .. } => {
                Some(Self { account, wallet: *wallet, amount: *amount, of: None })
            }
            EntryKind::Correct { wallet, new_amount, of, .. } => {
                Some(Self { account, wallet: *wallet, amount: *new_amount, of: Some(*of) })
            }
            _ => None,
        }
    }

    /// Converts a ledger entry. Returns `None` if it is neither a grant nor a correction.
    fn of(entry: &LedgerEntry) -> Option<Self> {
        Self::from_entry_kind(&entry.account, &entry.kind)
    }

    /// Describes the grant or correction: as text for error messages, and as JSON.
    fn describe(&self) -> (String, Value) {
        let (unit, amount) = (amount_member_name(self.wallet), format_amount(self.wallet, self.amount));
        let sentence = match self.of {
            None => format!("{amount} {unit} to {}", self.account),
            Some(of) => format!("{amount} {unit} in place of entry {of}"),
        };
        (sentence, json!({ "account": self.account, unit: amount, "corrects": self.of }))
    }
}

/// Returns the number of the existing ledger entry with this id, if that entry has the same effect as the request.
///
/// # Errors
/// Returns 409 with both effects if they differ.
pub(super) async fn check_existing_entry(
    ledger: &Ledger,
    entry: u64,
    id: &str,
    requested: &LedgerAdjustment,
) -> Result<u64, ApiError> {
    let book = ledger.store.clone();
    let found = run_blocking(move || report::find_entry(&book, entry)).await?;
    let Some(before) = found.as_ref().and_then(LedgerAdjustment::of) else {
        return Err(
            adjustment_error_response(AdjustmentError::Duplicate(entry)).with_details_member("id", id)
        );
    };
    // The existing entry may be a correction with another id, because each entry can be corrected only once.
    let other_id = before.of.is_some() && !has_correction_id(found.as_ref(), id);
    if before == *requested && !other_id {
        return Ok(entry);
    }
    let ((was, old), (is, new)) = (before.describe(), requested.describe());
    let sentence = if other_id {
        format!(
            "This entry was corrected before, by entry {entry} ({was}); asked was {is}. Nothing was changed."
        )
    } else {
        format!("The id {id} was used before, for entry {entry}: {was}; asked was {is}. Nothing was changed.")
    };
    let refusal = ApiError::with_message(ErrorCode::Conflict, sentence);
    let refusal = if other_id { refusal.with_param("entry") } else { refusal };
    Err(refusal
        .with_details_member("entry", entry)
        .with_details_member("id", id)
        .with_details_member("before", old)
        .with_details_member("asked", new))
}

fn has_correction_id(entry: Option<&LedgerEntry>, correction_id: &str) -> bool {
    matches!(entry.map(|entry| &entry.kind), Some(EntryKind::Correct { id, .. }) if **id == *correction_id)
}

/// Grants of the demo's account, made once at the first start: id, wallet, and amount in the smallest unit of the
/// wallet.
const DEMO_GRANTS: [(&str, Wallet, i64); 2] =
    [("demo", Wallet::Credits, 1_000_000_000_000), ("demo-energy", Wallet::Energy, 1_000_000_000_000)];

/// Grants credits and energy to the demo's account, unless an earlier start has granted them.
///
/// # Errors
/// Returns the reason as one sentence.
pub async fn grant_demo(ledger: &Ledger) -> Result<(), String> {
    for (id, wallet, amount) in DEMO_GRANTS {
        match ledger
            .grant(DEFAULT_ACCOUNT_ID, id, wallet, amount, ("for trying things out", "the demo"))
            .await
        {
            Ok(_) | Err(AdjustmentError::Duplicate(_)) => {}
            Err(why) => return Err(adjustment_error_response(why).message.into_owned()),
        }
    }
    Ok(())
}

/// Returns the response to a grant or a correction: the balances of the account, and the id and the number of the
/// ledger entry.
pub(super) async fn adjustment_response_json(
    ledger: &Ledger,
    account: &str,
    id: &str,
    entry: u64,
) -> Result<Value, ApiError> {
    let mut balances = format::balances_to_json(account, &ledger.current_balance(account).await?);
    if let Some(members) = balances.as_object_mut() {
        members.insert("id".to_owned(), id.into());
        members.insert("entry".to_owned(), entry.into());
    }
    Ok(balances)
}

pub(super) fn adjustment_error_response(why: AdjustmentError) -> ApiError {
    match why {
        AdjustmentError::StoreFailing => ApiError::with_message(
            ErrorCode::StorageFull,
            "The store cannot be written at the moment, so nothing was granted or corrected.",
        ),
        AdjustmentError::Duplicate(entry) => ApiError::with_message(
            ErrorCode::Conflict,
            format!("This was already done, as entry {entry} of the ledger. Nothing was changed."),
        )
        .with_details_member("entry", entry),
        AdjustmentError::InvalidAmount => ApiError::with_message(
            ErrorCode::InvalidRequest,
            "This amount is not possible: the balance would be out of range.",
        ),
        AdjustmentError::OutcomeUnknown => ApiError::with_message(
            ErrorCode::Internal,
            "The store failed meanwhile, and it is unknown whether this was written; repeat the request with the same id, given in `details`.",
        ),
    }
}

/// Reads `credits` or `kwh` (exactly one is required). Returns the name of the member, the wallet, and the amount in
/// the smallest unit of the wallet.
pub(super) fn parse_amount(body: &Value) -> Result<(&'static str, Wallet, i64), ApiError> {
    let given = |field: &str| body.get(field).filter(|value| !value.is_null());
    let (field, wallet, decimal_places, most, value) = match (given("credits"), given("kwh")) {
        (Some(value), None) => ("credits", Wallet::Credits, 6, MAX_CREDITS, value),
        (None, Some(value)) => ("kwh", Wallet::Energy, 9, MAX_KWH, value),
        _ => return Err(ApiError::invalid("credits", "Give either credits or kwh.")),
    };
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let decimal = parse_decimal(&text).filter(|_| value.is_string() || value.is_number());
    if decimal.is_some_and(|decimal| decimal > Decimal::from(most)) {
        return Err(ApiError::invalid(field, format!("{field} has to be at most {most}.")));
    }
    let message =
        || format!("{field} has to be a number of 0 or more, with at most {decimal_places} decimals.");
    let amount = decimal
        .filter(|decimal| *decimal >= Decimal::ZERO)
        .and_then(|decimal| format::decimal_to_amount(wallet, decimal));
    let amount = amount.ok_or_else(|| ApiError::invalid(field, message()))?;
    Ok((field, wallet, amount))
}

/// Returns the name of the JSON member for an amount of a wallet: `credits` or `kwh`.
pub(super) const fn amount_member_name(wallet: Wallet) -> &'static str {
    match wallet {
        Wallet::Credits => "credits",
        Wallet::Energy => "kwh",
    }
}

/// Returns an amount of a wallet as an exact decimal number of credits or kWh.
pub(super) fn format_amount(wallet: Wallet, amount: i64) -> String {
    format::amount_to_decimal(wallet, amount).to_string()
}

/// Returns a random id of 128 bits, hexadecimal.
pub(super) fn random_id() -> String {
    let bits: u128 = rand::random();
    format!("{bits:032x}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_amount_is_exact_and_an_invalid_one_says_what_is_expected() {
        for (body, expected) in [
            (json!({ "credits": "12.5" }), ("credits", Wallet::Credits, 12_500_000)),
            (json!({ "credits": 1e3 }), ("credits", Wallet::Credits, 1_000_000_000)),
            (json!({ "credits": "1e3" }), ("credits", Wallet::Credits, 1_000_000_000)),
            (json!({ "credits": "9000000000000" }), ("credits", Wallet::Credits, 9_000_000_000_000_000_000)),
            (json!({ "kwh": "0.000000001" }), ("kwh", Wallet::Energy, 1)),
            (json!({ "kwh": "9000000000" }), ("kwh", Wallet::Energy, 9_000_000_000_000_000_000)),
        ] {
            assert_eq!(parse_amount(&body).unwrap(), expected, "{body}");
        }
        for (body, message) in [
            (json!({ "credits": "9000000000000.000001" }), "credits has to be at most 9000000000000."),
            (json!({ "credits": "1e20" }), "credits has to be at most 9000000000000."),
            (json!({ "kwh": "9000000000.1" }), "kwh has to be at most 9000000000."),
            (
                json!({ "credits": "1.0000001" }),
                "credits has to be a number of 0 or more, with at most 6 decimals.",
            ),
            (
                json!({ "credits": "1e-7" }),
                "credits has to be a number of 0 or more, with at most 6 decimals.",
            ),
            (json!({ "credits": "-1" }), "credits has to be a number of 0 or more, with at most 6 decimals."),
            (
                json!({ "credits": "many" }),
                "credits has to be a number of 0 or more, with at most 6 decimals.",
            ),
            (json!({ "credits": true }), "credits has to be a number of 0 or more, with at most 6 decimals."),
            (json!({ "credits": 1, "kwh": 1 }), "Give either credits or kwh."),
        ] {
            assert_eq!(parse_amount(&body).unwrap_err().message, message, "{body}");
        }
    }
}
