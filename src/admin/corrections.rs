//! Corrections of charges and grants in the ledger, and previews of such corrections.

use super::adjustments::{
    LedgerAdjustment, adjustment_error_response, adjustment_response_json, amount_member_name,
    check_existing_entry, format_amount, parse_amount, random_id,
};
use super::credits::{check_account_exists, run_blocking};
use super::input::RequestFields;
use super::openapi::schema_ref;
use super::request::{AdminRequest, LedgerReply};
use super::routes::{AdminRoute, RouteHandler};
use crate::billing::correction_value::correction_refund_eur;
use crate::billing::{AdjustmentError, Ledger, report};
use crate::http::field_errors::combine_results;
use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode};
use penstock_ledger::{CorrectedKind, EntryKind, LedgerEntry, Wallet};
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Request members of a correction.
pub const CORRECTION_MEMBERS: [&str; 7] = ["entry", "account", "credits", "kwh", "id", "note", "increase"];
/// Query parameters of the preview of a correction.
const PREVIEW_QUERY: [&str; 4] = ["entry", "account", "credits", "kwh"];

/// Routes of corrections.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::post(
        "/admin/credits/correct",
        "correct",
        "Replaces the amount of a charge or a grant; by a higher one only with `increase`",
        RouteHandler::Ledger(|_, ledger, asked| Box::pin(handle_correct(ledger, asked))),
    )
    .with_body(&CORRECTION_MEMBERS, &["entry"])
    .with_response(201, || schema_ref("Granted")),
    AdminRoute::get(
        "/admin/credits/correction",
        "previewCorrection",
        "Shows what a correction would change",
        RouteHandler::Ledger(|stores, ledger, asked| Box::pin(preview(stores, ledger, asked))),
    )
    .with_query_parameters(&PREVIEW_QUERY)
    .with_response(200, preview_schema),
];

/// Parsed request for a correction.
#[derive(Debug)]
struct CorrectionRequest {
    entry: u64,
    /// Account to which the entry has to belong; `None` for any.
    account: Option<String>,
    id: String,
    wallet: Wallet,
    new_amount: i64,
    note: String,
    /// True if the new amount may be greater than the amount of the entry.
    allows_increase: bool,
}

impl CorrectionRequest {
    /// Parses a request body.
    ///
    /// # Errors
    /// Returns 400 with the invalid field.
    fn read(body: &Value) -> Result<Self, ApiError> {
        let fields = RequestFields::parse(body, &CORRECTION_MEMBERS)?;
        let entry = body.get("entry").and_then(Value::as_u64);
        let entry = entry
            .ok_or_else(|| ApiError::invalid("entry", "entry has to be the number of a charge or a grant."));
        let (entry, (_, wallet, new_amount)) = combine_results(entry, parse_amount(body))?;
        let id = fields.id_value("id")?.into_option().unwrap_or_else(random_id);
        Ok(Self {
            entry,
            account: fields.id_value("account")?.into_option(),
            id,
            wallet,
            new_amount,
            note: fields.text_value("note")?.into_option().unwrap_or_default(),
            allows_increase: fields.bool("increase")?.into_option().unwrap_or_default(),
        })
    }
}

/// Corrects a charge or a grant.
///
/// # Errors
/// Returns the reason if nothing was corrected.
async fn handle_correct(ledger: &Ledger, asked: &AdminRequest) -> Result<LedgerReply, ApiError> {
    let request = CorrectionRequest::read(&asked.body)?;
    let allows_increase = request.allows_increase;
    let (account, movement) = prepare_correction(ledger, request, &asked.actor).await?;
    let facts = CorrectionFacts::of(&movement).ok_or_else(|| ApiError::new(ErrorCode::Internal))?;
    if facts.is_increase() && !allows_increase {
        let (unit, most) = (amount_member_name(facts.wallet), format_amount(facts.wallet, facts.previous));
        let message = format!(
            "{unit} has to be at most {most}, the amount of the entry; send `increase` as true for a higher one."
        );
        return Err(ApiError::invalid(unit, message));
    }
    let wanted = LedgerAdjustment::from_entry_kind(&account, &movement);
    let audit = asked.audit_entry("credits.correct", &account, facts.audited());
    let id = facts.id;
    let (status, entry) = match (ledger.record_correction(&account, movement, Some(audit)).await, wanted) {
        (Ok(entry), _) => (201, entry),
        (Err(AdjustmentError::Duplicate(entry)), Some(wanted)) => {
            (200, check_existing_entry(ledger, entry, &id, &wanted).await?)
        }
        (Err(why), _) => return Err(adjustment_error_response(why).with_details_member("id", &*id)),
    };
    Ok(LedgerReply::Json(status, adjustment_response_json(ledger, &account, &id, entry).await?))
}

/// Returns the effect that a correction would have, without making it.
///
/// # Errors
/// Returns the refusal of the correction; 404 if the account does not exist.
async fn preview(
    stores: &OpenStorage,
    ledger: &Ledger,
    asked: &AdminRequest,
) -> Result<LedgerReply, ApiError> {
    let mut body = Map::new();
    for name in PREVIEW_QUERY {
        let Some(text) = asked.query_parameter(name, &PREVIEW_QUERY)? else { continue };
        let value = match name {
            "entry" => text.parse::<u64>().map_or_else(|_| json!(text), Value::from),
            _ => json!(text),
        };
        body.insert(name.to_owned(), value);
    }
    let request = CorrectionRequest::read(&Value::Object(body))?;
    let of_account = request.account.clone();
    let (account, movement) = match (prepare_correction(ledger, request, &asked.actor).await, of_account) {
        (Err(refusal), Some(account)) => {
            check_account_exists(stores, &account).await?;
            return Err(refusal);
        }
        (found, _) => found?,
    };
    check_not_corrected(ledger, &account, &movement).await?;
    let facts = CorrectionFacts::of(&movement).ok_or_else(|| ApiError::new(ErrorCode::Internal))?;
    let answer = json!({
        "entry": facts.entry,
        "account": &*account,
        "what": facts.kind,
        "wallet": facts.wallet.name(),
        "previous": format_amount(facts.wallet, facts.previous),
        "new": format_amount(facts.wallet, facts.new),
        "difference": format_amount(facts.wallet, facts.new - facts.previous),
        "is_increase": facts.is_increase(),
    });
    Ok(LedgerReply::Json(200, answer))
}

/// Checks that the ledger has no earlier correction of the same entry.
///
/// # Errors
/// Returns 409 with the earlier correction.
async fn check_not_corrected(ledger: &Ledger, account: &str, movement: &EntryKind) -> Result<(), ApiError> {
    let (EntryKind::Correct { of, id, .. }, Some(wanted)) =
        (movement, LedgerAdjustment::from_entry_kind(account, movement))
    else {
        return Ok(());
    };
    let (book, name) = (ledger.store.clone(), crate::billing::correction_entry_name(*of));
    match run_blocking(move || Ok(book.entry_number_by_name(&name)?)).await? {
        Some(entry) => check_existing_entry(ledger, entry, id, &wanted).await.map(drop),
        None => Ok(()),
    }
}

fn preview_schema() -> Value {
    let text = |text: &str| json!({ "type": "string", "description": text });
    json!({ "type": "object", "properties": {
        "entry": { "type": "integer", "description": "Number of the entry that would be corrected." },
        "account": text("Account of the entry."),
        "what": { "enum": ["settle", "grant"], "description": "Kind of the entry: a charge or a grant." },
        "wallet": { "enum": Wallet::ALL.map(Wallet::name) },
        "previous": text("Amount of the entry in credits or kWh, exact."),
        "new": text("Amount after the correction."),
        "difference": text("New amount minus the previous one."),
        "is_increase": { "type": "boolean", "description": "True if the correction needs `increase`." },
    } })
}

/// Data of a correction, taken from the [`EntryKind`] of its ledger entry.
struct CorrectionFacts {
    id: String,
    entry: u64,
    /// Kind of the corrected entry.
    kind: &'static str,
    wallet: Wallet,
    previous: i64,
    new: i64,
    note: String,
}

impl CorrectionFacts {
    /// Returns the data of a correction; `None` for any other kind of ledger entry.
    fn of(movement: &EntryKind) -> Option<Self> {
        let EntryKind::Correct { id, of, what, wallet, previous_amount, new_amount, note, .. } = movement
        else {
            return None;
        };
        let kind = match what {
            CorrectedKind::Settle => "settle",
            CorrectedKind::Grant => "grant",
        };
        let (previous, new) = (*previous_amount, *new_amount);
        Some(Self {
            id: id.to_string(),
            entry: *of,
            kind,
            wallet: *wallet,
            previous,
            new,
            note: note.to_string(),
        })
    }

    const fn is_increase(&self) -> bool {
        self.new > self.previous
    }

    /// Returns the change as the audit log shows it. The number of the new ledger entry is added later, once it is
    /// known.
    fn audited(&self) -> Value {
        let amounts = [self.previous, self.new].map(|amount| format_amount(self.wallet, amount));
        json!({ "corrects": self.entry, "id": self.id, amount_member_name(self.wallet): amounts, "note": self.note })
    }
}

/// Reads the entry to be corrected, and builds the ledger entry that corrects it.
///
/// # Errors
/// Refuses the request if the account has no charge or grant with this number, or if its wallet is another one.
async fn prepare_correction(
    ledger: &Ledger,
    request: CorrectionRequest,
    actor: &str,
) -> Result<(Arc<str>, EntryKind), ApiError> {
    let (book, number, new_amount) = (ledger.store.clone(), request.entry, request.new_amount);
    let found = run_blocking(move || {
        let Some(entry) = report::find_entry(&book, number)? else { return Ok(None) };
        let refund = correction_refund_eur(&book, &entry.kind, new_amount)?;
        Ok(Some((entry, refund)))
    });
    build_correction_entry(found.await?, request, actor)
}

/// Builds the ledger entry (account and kind) that corrects an entry. `found` has the entry and its refund in EUR, see
/// [`correction_refund_eur`].
fn build_correction_entry(
    found: Option<(LedgerEntry, Option<Decimal>)>,
    request: CorrectionRequest,
    actor: &str,
) -> Result<(Arc<str>, EntryKind), ApiError> {
    let none = || ApiError::invalid("entry", "No charge or grant has this number.");
    let is_of_account =
        |entry: &LedgerEntry| request.account.as_ref().is_none_or(|account| **account == *entry.account);
    let (entry, refund) = found.filter(|(entry, _)| is_of_account(entry)).ok_or_else(none)?;
    let (what, key, wallet, was) = match &entry.kind {
        EntryKind::Settle { key, wallet, amount, .. } => {
            (CorrectedKind::Settle, Some(key.clone()), *wallet, *amount)
        }
        EntryKind::Grant { wallet, amount, .. } => (CorrectedKind::Grant, None, *wallet, *amount),
        _ => return Err(none()),
    };
    let field = amount_member_name(wallet);
    if wallet != request.wallet {
        return Err(ApiError::invalid(field, format!("This entry is in {}: give {field}.", wallet.name())));
    }
    let too_large = || ApiError::invalid(field, format!("{field} is too large at the price of the charge."));
    let eur = refund.ok_or_else(too_large)?;
    let (id, note) = (request.id.into(), request.note.into());
    let act = EntryKind::Correct {
        id,
        of: entry.seq,
        what,
        key,
        wallet,
        previous_amount: was,
        new_amount: request.new_amount,
        eur,
        note,
        by: actor.into(),
    };
    Ok((entry.account, act))
}
