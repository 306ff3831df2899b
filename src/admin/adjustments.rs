//! Grants and corrections of credits and energy, written to the ledger.

use super::credits::{check_account, run_blocking};
use super::input::RequestFields;
use super::openapi::schema_ref;
use super::request::{AdminRequest, LedgerReply};
use super::routes::{AdminRoute, RouteHandler};
use crate::auth::account_json::DEFAULT_ACCOUNT;
use crate::billing::{AdjustmentError, Ledger, format, report, rerate};
use crate::storage::stores::Stores;
use penstock_core::{ApiError, ErrorCode};
use penstock_ledger::{CorrectedKind, EntryKind, LedgerEntry, Wallet};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::sync::Arc;

/// Request members of a grant.
pub const GRANT_MEMBERS: [&str; 5] = ["account", "credits", "kwh", "id", "note"];
/// Request members of a correction.
pub const CORRECTION_MEMBERS: [&str; 6] = ["entry", "account", "credits", "kwh", "id", "note"];

/// Routes that write to the ledger.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::post(
        "/admin/credits/grant",
        "grant",
        "Gives an account credits or energy",
        RouteHandler::Ledger(|vault, ledger, asked| Box::pin(handle_grant(vault, ledger, asked))),
    )
    .with_body(&GRANT_MEMBERS, &["account"])
    .with_response(201, || schema_ref("Granted")),
    AdminRoute::post(
        "/admin/credits/correct",
        "correct",
        "Replaces the amount of a charge or a grant",
        RouteHandler::Ledger(|_, ledger, asked| Box::pin(handle_correct(ledger, asked))),
    )
    .with_body(&CORRECTION_MEMBERS, &["entry"])
    .with_response(201, || schema_ref("Granted")),
];

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
        let id = fields.text_value("id")?.into_option().filter(|id| !id.is_empty()).unwrap_or_else(random_id);
        Ok(Self {
            account,
            id,
            wallet,
            amount,
            note: fields.text_value("note")?.into_option().unwrap_or_default(),
        })
    }
}

/// Parsed request for a correction.
#[derive(Debug)]
struct CorrectionRequest {
    entry: u64,
    /// Account to which the entry has to belong; `None` for any.
    account: Option<String>,
    id: String,
    wallet: Wallet,
    instead: i64,
    note: String,
}

impl CorrectionRequest {
    /// Parses a request body.
    ///
    /// # Errors
    /// Returns 400 with the invalid field.
    fn read(body: &Value) -> Result<Self, ApiError> {
        let fields = RequestFields::parse(body, &CORRECTION_MEMBERS)?;
        let entry = body.get("entry").and_then(Value::as_u64);
        let entry = entry.ok_or_else(|| {
            ApiError::invalid("entry", "entry has to be the number of a charge or a grant.")
        })?;
        let (_, wallet, instead) = parse_amount(body)?;
        let id = fields.text_value("id")?.into_option().filter(|id| !id.is_empty()).unwrap_or_else(random_id);
        Ok(Self {
            entry,
            account: fields.text_value("account")?.into_option(),
            id,
            wallet,
            instead,
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
    vault: &Stores,
    ledger: &Ledger,
    asked: &AdminRequest,
) -> Result<LedgerReply, ApiError> {
    let GrantRequest { account, id, wallet, amount, note } = GrantRequest::read(&asked.body)?;
    check_account(vault, &account).await?;
    let wanted = LedgerAdjustment::grant(&account, wallet, amount);
    let (status, entry) = match ledger.grant(&account, &id, wallet, amount, (&note, &asked.actor)).await {
        Ok(entry) => (201, entry),
        Err(AdjustmentError::Duplicate(entry)) => (200, existing_entry(ledger, entry, &id, &wanted).await?),
        Err(why) => return Err(adjustment_refusal(why).with_detail("id", &*id)),
    };
    Ok(LedgerReply::Json(status, adjustment_json(ledger, &account, &id, entry).await?))
}

/// Effect of a grant or correction, to compare two of them.
#[derive(Debug, PartialEq, Eq)]
struct LedgerAdjustment {
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

    /// Converts a ledger entry. Returns `None` if it is neither a grant nor a correction.
    fn of(entry: &LedgerEntry) -> Option<Self> {
        let account = (*entry.account).into();
        match &entry.kind {
            EntryKind::Grant { wallet, amount, .. } => {
                Some(Self { account, wallet: *wallet, amount: *amount, of: None })
            }
            EntryKind::Correct { wallet, new_amount: instead, of, .. } => {
                Some(Self { account, wallet: *wallet, amount: *instead, of: Some(*of) })
            }
            _ => None,
        }
    }

    /// Returns a description for error messages, and the same as JSON for programs.
    fn describe(&self) -> (String, Value) {
        let unit = match self.wallet {
            Wallet::Credits => "credits",
            Wallet::Energy => "kwh",
        };
        let amount = format::to_decimal(self.wallet, self.amount).to_string();
        let sentence = match self.of {
            None => format!("{amount} {unit} to {}", self.account),
            Some(of) => format!("{amount} {unit} in place of entry {of}"),
        };
        (sentence, json!({ "account": self.account, unit: amount, "corrects": self.of }))
    }
}

/// Returns the number of the existing entry with this id if it has the same effect as the request.
///
/// # Errors
/// Returns 409 with both effects if they differ.
async fn existing_entry(
    ledger: &Ledger,
    entry: u64,
    id: &str,
    wanted: &LedgerAdjustment,
) -> Result<u64, ApiError> {
    let book = ledger.store.clone();
    let found = run_blocking(move || report::find_entry(&book, entry)).await?;
    let Some(before) = found.as_ref().and_then(LedgerAdjustment::of) else {
        return Err(adjustment_refusal(AdjustmentError::Duplicate(entry)).with_detail("id", id));
    };
    // An entry can be corrected only once, so the entry's existing correction may have another id.
    let other_id = before.of.is_some() && !has_correction_id(found.as_ref(), id);
    if before == *wanted && !other_id {
        return Ok(entry);
    }
    let ((was, old), (is, new)) = (before.describe(), wanted.describe());
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
        .with_detail("entry", entry)
        .with_detail("id", id)
        .with_detail("before", old)
        .with_detail("asked", new))
}

fn has_correction_id(entry: Option<&LedgerEntry>, wanted: &str) -> bool {
    matches!(entry.map(|entry| &entry.kind), Some(EntryKind::Correct { id, .. }) if **id == *wanted)
}

/// Grants of the demo's account, made once at the first start.
const DEMO_GRANTS: [(&str, Wallet, i64); 2] =
    [("demo", Wallet::Credits, 1_000_000_000_000), ("demo-energy", Wallet::Energy, 1_000_000_000_000)];

/// Grants credits and energy to the demo's account.
///
/// # Errors
/// Returns the reason as one sentence.
pub async fn grant_demo(ledger: &Ledger) -> Result<(), String> {
    for (id, wallet, amount) in DEMO_GRANTS {
        match ledger.grant(DEFAULT_ACCOUNT, id, wallet, amount, ("for trying things out", "the demo")).await {
            Ok(_) | Err(AdjustmentError::Duplicate(_)) => {}
            Err(why) => return Err(adjustment_refusal(why).message.into_owned()),
        }
    }
    Ok(())
}

/// Corrects a charge or a grant.
///
/// # Errors
/// Returns the reason if nothing was corrected.
async fn handle_correct(ledger: &Ledger, asked: &AdminRequest) -> Result<LedgerReply, ApiError> {
    let wanted = CorrectionRequest::read(&asked.body)?;
    let (book, number) = (ledger.store.clone(), wanted.entry);
    let found = run_blocking(move || {
        let found = report::find_entry(&book, number)?;
        // The EUR value of a part of a charge follows from the charge. A free charge has no amount to derive it from,
        // so its tariff is read.
        let unit = match found.as_ref().map(|entry| &entry.kind) {
            Some(EntryKind::Settle { wallet, amount: 0, sale, .. }) => {
                Some(rerate::unit_price(&book, &sale.terms, *wallet)?)
            }
            _ => None,
        };
        Ok((found, unit))
    });
    let (found, unit) = found.await?;
    let (account, act) = correction_act(found, unit, wanted, &asked.actor)?;
    let id = match &act {
        EntryKind::Correct { id, .. } => id.to_string(),
        _ => String::new(),
    };
    let wanted = match &act {
        EntryKind::Correct { wallet, new_amount: instead, of, .. } => Some(LedgerAdjustment {
            account: (*account).into(),
            wallet: *wallet,
            amount: *instead,
            of: Some(*of),
        }),
        _ => None,
    };
    let (status, entry) = match (ledger.record_correction(&account, act).await, wanted) {
        (Ok(entry), _) => (201, entry),
        (Err(AdjustmentError::Duplicate(entry)), Some(wanted)) => {
            (200, existing_entry(ledger, entry, &id, &wanted).await?)
        }
        (Err(why), _) => return Err(adjustment_refusal(why).with_detail("id", &*id)),
    };
    Ok(LedgerReply::Json(status, adjustment_json(ledger, &account, &id, entry).await?))
}

/// Builds the ledger movement that corrects an entry. `unit` is the price of one unit of the wallet in EUR; it is
/// needed for a free charge only.
fn correction_act(
    found: Option<LedgerEntry>,
    unit: Option<Decimal>,
    wanted: CorrectionRequest,
    by: &str,
) -> Result<(Arc<str>, EntryKind), ApiError> {
    let none = || ApiError::invalid("entry", "No charge or grant has this number.");
    let is_of_account =
        |entry: &LedgerEntry| wanted.account.as_ref().is_none_or(|account| **account == *entry.account);
    let entry = found.filter(is_of_account).ok_or_else(none)?;
    let (what, key, wallet, was, eur) = match &entry.kind {
        EntryKind::Settle { key, wallet, amount, sale, .. } => {
            (CorrectedKind::Settle, Some(key.clone()), *wallet, *amount, sale.eur)
        }
        EntryKind::Grant { wallet, amount, .. } => {
            (CorrectedKind::Grant, None, *wallet, *amount, Decimal::ZERO)
        }
        _ => return Err(none()),
    };
    if wallet != wanted.wallet {
        let field = if wallet == Wallet::Credits { "credits" } else { "kwh" };
        return Err(ApiError::invalid(field, format!("This entry is in {}: give {field}.", wallet.name())));
    }
    let change = Decimal::from(was - wanted.instead);
    let eur = match unit {
        Some(unit) => unit.checked_mul(change),
        None => eur.checked_mul(change).and_then(|eur| eur.checked_div(Decimal::from(was))),
    };
    let (id, note) = (wanted.id.into(), wanted.note.into());
    let eur = eur.unwrap_or_default().round_dp(8);
    let act = EntryKind::Correct {
        id,
        of: entry.seq,
        what,
        key,
        wallet,
        previous_amount: was,
        new_amount: wanted.instead,
        eur,
        note,
        by: by.into(),
    };
    Ok((entry.account, act))
}

async fn adjustment_json(ledger: &Ledger, account: &str, id: &str, entry: u64) -> Result<Value, ApiError> {
    let mut balances = format::balances_to_json(account, &ledger.current_balance(account).await?);
    if let Some(members) = balances.as_object_mut() {
        members.insert("id".to_owned(), id.into());
        members.insert("entry".to_owned(), entry.into());
    }
    Ok(balances)
}

fn adjustment_refusal(why: AdjustmentError) -> ApiError {
    match why {
        AdjustmentError::StoreFailing => ApiError::with_message(
            ErrorCode::StorageFull,
            "The store cannot be written at the moment, so nothing was granted or corrected.",
        ),
        AdjustmentError::Duplicate(entry) => ApiError::with_message(
            ErrorCode::Conflict,
            format!("This was already done, as entry {entry} of the ledger. Nothing was changed."),
        )
        .with_detail("entry", entry),
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

/// Reads `credits` or `kwh` (exactly one of them is required) in the smallest unit of the wallet.
fn parse_amount(body: &Value) -> Result<(&'static str, Wallet, i64), ApiError> {
    let given = |field: &str| body.get(field).filter(|value| !value.is_null());
    let (field, wallet, decimal_places, value) = match (given("credits"), given("kwh")) {
        (Some(value), None) => ("credits", Wallet::Credits, 6, value),
        (None, Some(value)) => ("kwh", Wallet::Energy, 9, value),
        _ => return Err(ApiError::invalid("credits", "Give either credits or kwh.")),
    };
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let decimal = Decimal::from_str_exact(&text).ok().filter(|_| value.is_string() || value.is_number());
    let message =
        || format!("{field} has to be a number of 0 or more, with at most {decimal_places} decimals.");
    let amount = decimal
        .filter(|decimal| *decimal >= Decimal::ZERO)
        .and_then(|decimal| format::to_amount(wallet, decimal));
    let amount = amount.ok_or_else(|| ApiError::invalid(field, message()))?;
    Ok((field, wallet, amount))
}

fn random_id() -> String {
    let bits: u128 = rand::random();
    format!("{bits:032x}")
}
