//! Credits and energy: granted, told, corrected, proven; the ledger's pages and
//! monthly statements. The command line uses the same functions on a store that
//! no gateway has open.

use super::accounts::{self, DEFAULT as DEFAULT_ACCOUNT};
use super::desk::Asked;
use super::fields::Fields;
use super::routes::Operation;
use crate::ledger::report::{self, Failed, Monthly};
use crate::ledger::rerate::rerate;
use crate::ledger::{Ledger, Refused, views};
use crate::vault::Vault;
use penstock_contract::{Code, Refusal};
use penstock_ledger::{Act, Day, Ending, Entry, Month, Sums, Wallet};
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A grant as it is asked for.
#[derive(Debug)]
pub struct Grant {
    account: String,
    id: String,
    wallet: Wallet,
    amount: i64,
    note: String,
}

impl Grant {
    /// From the body of a request.
    ///
    /// # Errors
    /// The field that is not what it has to be.
    pub fn read(body: &Value) -> Result<Self, Refusal> {
        let fields = Fields::of(body, &GRANT)?;
        let account = fields.text("account")?.some().filter(|name| !name.is_empty());
        let account =
            account.ok_or_else(|| Refusal::invalid("account", "account has to be the id of one."))?;
        let (field, wallet, amount) = amount(body)?;
        if amount <= 0 {
            let sentence =
                format!("{field} has to be more than 0; what was granted is taken back by a correction.");
            return Err(Refusal::invalid(field, sentence));
        }
        let id = fields.text("id")?.some().filter(|id| !id.is_empty()).unwrap_or_else(random_id);
        Ok(Self { account, id, wallet, amount, note: fields.text("note")?.some().unwrap_or_default() })
    }
}

/// A correction as it is asked for.
#[derive(Debug)]
pub struct Correction {
    entry: u64,
    id: String,
    wallet: Wallet,
    instead: i64,
    note: String,
}

impl Correction {
    /// From the body of a request.
    ///
    /// # Errors
    /// The field that is not what it has to be.
    pub fn read(body: &Value) -> Result<Self, Refusal> {
        let fields = Fields::of(body, &CORRECT)?;
        let entry = body.get("entry").and_then(Value::as_u64);
        let entry = entry
            .ok_or_else(|| Refusal::invalid("entry", "entry has to be the number of a charge or a grant."))?;
        let (_, wallet, instead) = amount(body)?;
        let id = fields.text("id")?.some().filter(|id| !id.is_empty()).unwrap_or_else(random_id);
        Ok(Self { entry, id, wallet, instead, note: fields.text("note")?.some().unwrap_or_default() })
    }
}

/// Makes a grant, to an account that is there.
///
/// # Errors
/// Why it is not made.
pub async fn grant(vault: &Vault, ledger: &Ledger, wanted: Grant, by: &str) -> Result<Value, Refusal> {
    let Grant { account, id, wallet, amount, note } = wanted;
    let (vault, name) = (vault.clone(), account.clone());
    let known = tokio::task::spawn_blocking(move || accounts::known(&vault, &name)).await;
    known.unwrap_or_else(|_| Err(Refusal::new(Code::Internal)))?;
    let entry = ledger
        .grant(&account, &id, wallet, amount, (&note, by))
        .await
        .map_err(|why| refused(why).with("id", &*id))?;
    Ok(made(ledger, &account, &id, entry))
}

/// What the demo's account may spend: granted at the first start, and not again.
const DEMO: [(&str, Wallet, i64); 2] =
    [("demo", Wallet::Credits, 1_000_000_000_000), ("demo-energy", Wallet::Energy, 1_000_000_000_000)];

/// Credits and energy for the demo.
///
/// # Errors
/// One sentence that says why not.
pub async fn grant_demo(ledger: &Ledger) -> Result<(), String> {
    for (id, wallet, amount) in DEMO {
        match ledger.grant(DEFAULT_ACCOUNT, id, wallet, amount, ("for trying things out", "the demo")).await {
            Ok(_) | Err(Refused::Already(_)) => {}
            Err(why) => return Err(refused(why).message.into_owned()),
        }
    }
    Ok(())
}

/// Makes a correction.
///
/// # Errors
/// Why it is not made.
pub async fn correct(ledger: &Arc<Ledger>, wanted: Correction, by: &str) -> Result<Value, Refusal> {
    let (book, number) = (ledger.store.clone(), wanted.entry);
    let found = off_thread(move || report::find(&book, number)).await?;
    let (account, act) = correction(found, wanted, by)?;
    let id = match &act {
        Act::Correct { id, .. } => id.to_string(),
        _ => String::new(),
    };
    let entry = ledger.correct(&account, act).await.map_err(|why| refused(why).with("id", &*id))?;
    Ok(made(ledger, &account, &id, entry))
}

/// The act that corrects an entry.
fn correction(found: Option<Entry>, wanted: Correction, by: &str) -> Result<(Arc<str>, Act), Refusal> {
    let none = || Refusal::invalid("entry", "There is no charge and no grant of this number.");
    let entry = found.ok_or_else(none)?;
    let (what, key, wallet, was, eur) = match &entry.act {
        Act::Settle { key, wallet, amount, sale, .. } => {
            (Ending::Settle, Some(key.clone()), *wallet, *amount, sale.eur)
        }
        Act::Grant { wallet, amount, .. } => (Ending::Grant, None, *wallet, *amount, Decimal::ZERO),
        _ => return Err(none()),
    };
    if wallet != wanted.wallet {
        let field = if wallet == Wallet::Credits { "credits" } else { "kwh" };
        return Err(Refusal::invalid(field, format!("This entry is of {}: write {field}.", wallet.name())));
    }
    let change = Decimal::from(was - wanted.instead);
    let eur = eur.checked_mul(change).and_then(|eur| eur.checked_div(Decimal::from(was)));
    let (id, note) = (wanted.id.into(), wanted.note.into());
    let eur = eur.unwrap_or_default().round_dp(8);
    let act = Act::Correct {
        id,
        of: entry.seq,
        what,
        key,
        wallet,
        was,
        instead: wanted.instead,
        eur,
        note,
        by: by.into(),
    };
    Ok((entry.account, act))
}

fn made(ledger: &Ledger, account: &str, id: &str, entry: u64) -> Value {
    let mut told = views::account(account, &ledger.balance(account));
    if let Some(members) = told.as_object_mut() {
        members.insert("id".to_owned(), id.into());
        members.insert("entry".to_owned(), entry.into());
    }
    told
}

fn refused(why: Refused) -> Refusal {
    match why {
        Refused::Failing => Refusal::because(
            Code::StorageFull,
            "The store takes nothing at the moment, so nothing was granted or corrected.",
        ),
        Refused::Already(entry) => Refusal::because(
            Code::Conflict,
            format!("This was done before: it is entry {entry} of the ledger. Nothing was changed."),
        )
        .with("entry", entry),
        Refused::Impossible => {
            Refusal::because(Code::InvalidRequest, "This amount cannot be: the balance would not fit.")
        }
        Refused::Unknown => Refusal::because(
            Code::Internal,
            "The store failed meanwhile, and it is not known whether this was written; ask again with the same id, which `details` names.",
        ),
    }
}

/// Balances, of one account or of all.
#[must_use]
pub fn balances(ledger: &Ledger, account: Option<&str>) -> Value {
    let names = account.map_or_else(|| ledger.accounts(), |name| vec![name.into()]);
    let each = names.iter().map(|name| views::account(name, &ledger.balance(name)));
    json!({ "data": each.collect::<Vec<_>>() })
}

/// A month added up.
#[must_use]
pub fn statement(monthly: &Monthly) -> Value {
    let texts = |name: &str| -> BTreeSet<String> {
        let each = monthly.terms.values().filter_map(|terms| terms.pointer(name).and_then(Value::as_str));
        each.map(str::to_owned).collect()
    };
    let accounts = monthly.statement.accounts();
    let each = accounts.iter().map(|name| {
        let mut row = sums(&monthly.statement.account(name));
        row.insert("account".to_owned(), (**name).into());
        let keys = monthly.statement.keys(name).filter(|(key, _)| !key.is_empty()).map(|(key, of)| {
            let mut told = sums(of);
            told.insert("key".to_owned(), (**key).into());
            Value::Object(told)
        });
        let models = monthly.statement.models(name).map(|(model, of)| {
            let mut told = sums(of);
            told.insert("model".to_owned(), (**model).into());
            Value::Object(told)
        });
        row.insert("keys".to_owned(), keys.collect());
        row.insert("models".to_owned(), models.collect());
        Value::Object(row)
    });
    json!({
        "month": monthly.month.to_string(),
        "accounts": each.collect::<Vec<_>>(),
        "boundary": "Operational energy at the buildings' meters, failed attempts included; carbon location-based, \
                     lifecycle factors; water on site and of generation. For the customer: scope 3, category 1.",
        "methodologies": texts("/methodology"),
        "grid_sources": texts("/grid/source"),
        "places": texts("/location"),
        "terms": monthly.terms.iter().map(|(id, terms)| json!({ "id": &**id, "terms": terms })).collect::<Vec<_>>(),
    })
}

/// A row's sums; amounts that may be long stand as text.
fn sums(of: &Sums) -> Map<String, Value> {
    let exact = |decimal: Decimal| Value::from(decimal.normalize().to_string());
    let scaled = |amount: i128, places: u32| exact(Decimal::from_i128_with_scale(amount, places));
    let members = [
        ("requests", of.requests.into()),
        ("requests_not_charged", of.uncharged.into()),
        ("requests_counted_by_gateway", of.counted.into()),
        ("input_tokens", of.input.into()),
        ("cached_input_tokens", of.cached.into()),
        ("output_tokens", of.output.into()),
        ("images", of.images.into()),
        ("audio_seconds", exact(of.seconds)),
        ("energy_kwh", exact(of.kwh)),
        ("carbon_g_co2e", exact(of.carbon_g)),
        ("water_liters", exact(of.water_l)),
        ("credits", scaled(of.credits, 6)),
        ("charged_kwh", scaled(of.energy, 9)),
        ("eur", exact(of.eur)),
        ("eur_rounded", of.invoiced().to_string().into()),
        ("granted_credits", scaled(of.granted_credits, 6)),
        ("granted_kwh", scaled(of.granted_energy, 9)),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The month of a query, or the one that is.
///
/// # Errors
/// It is no month.
pub fn month(text: Option<&str>, now: u64) -> Result<Month, Refusal> {
    let wrong = || Refusal::invalid("month", "month has to be a month such as 2026-11.");
    text.map_or_else(|| Ok(Month::of(now)), |text| Month::parse(text).ok_or_else(wrong))
}

/// The day of a query, or the one that is.
///
/// # Errors
/// It is no day.
pub fn day(text: Option<&str>, now: u64) -> Result<Day, Refusal> {
    let wrong = || Refusal::invalid("day", "day has to be a day such as 2026-11-22.");
    text.map_or_else(|| Ok(Day::of(now)), |text| Day::parse(text).ok_or_else(wrong))
}

/// Members of a grant.
pub const GRANT: [&str; 5] = ["account", "credits", "kwh", "id", "note"];
/// Members of a correction.
pub const CORRECT: [&str; 5] = ["entry", "credits", "kwh", "id", "note"];
/// Parameters of the balances.
pub const BALANCES: [&str; 1] = ["account"];
/// Parameters of a day computed again.
pub const RERATE: [&str; 1] = ["day"];
/// Parameters of the ledger's lines.
pub const READ: [&str; 1] = ["after"];
/// Parameters of a statement.
pub const STATEMENT: [&str; 2] = ["month", "account"];
/// Members of a proof.
pub const PROOF: [&str; 7] =
    ["good", "entries", "accounts", "open_reserves", "first_misfit", "balances", "second_copy"];
/// Members of a day computed again.
pub const RERATED: [&str; 6] =
    ["day", "charges", "charged", "computed_again", "same", "first_different_entry"];
/// Members of a statement.
pub const MONTHLY: [&str; 7] =
    ["month", "accounts", "boundary", "methodologies", "grid_sources", "places", "terms"];

/// What is asked of the ledger is answered with.
pub enum Told {
    /// A status and a JSON object.
    Json(u16, Value),
    /// Lines of the ledger.
    Lines(Vec<u8>),
}

/// Whether this is asked of the ledger.
#[must_use]
pub const fn is_one(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::ListBalances
            | Operation::Grant
            | Operation::Correct
            | Operation::VerifyLedger
            | Operation::RerateDay
            | Operation::ReadLedger
            | Operation::Statement
    )
}

/// Does what is asked of the ledger.
///
/// # Errors
/// What is wrong with the request, or with the store.
pub async fn answer(
    vault: &Vault,
    ledger: &Arc<Ledger>,
    operation: Operation,
    asked: &Asked,
) -> Result<Told, Refusal> {
    let store = ledger.store.clone();
    let told = match operation {
        Operation::Grant => {
            let made = grant(vault, ledger, Grant::read(&asked.body)?, &asked.who).await?;
            return Ok(Told::Json(201, made));
        }
        Operation::Correct => {
            let made = correct(ledger, Correction::read(&asked.body)?, &asked.who).await?;
            return Ok(Told::Json(201, made));
        }
        Operation::ListBalances => balances(ledger, asked.query("account", &BALANCES)?),
        Operation::VerifyLedger => off_thread(move || report::verify(&store)).await?.told(),
        Operation::RerateDay => {
            let day = day(asked.query("day", &RERATE)?, asked.now)?;
            off_thread(move || rerate(&store, day)).await?.told(day)
        }
        Operation::Statement => {
            let month = month(asked.query("month", &STATEMENT)?, asked.now)?;
            let account = asked.query("account", &STATEMENT)?.map(str::to_owned);
            statement(&off_thread(move || report::monthly(&store, month, account.as_deref())).await?)
        }
        Operation::ReadLedger => {
            let wrong = || Refusal::invalid("after", "after has to be the number of an entry.");
            let after =
                asked.query("after", &READ)?.map_or(Ok(0), |text| text.parse().map_err(|_| wrong()))?;
            let page = off_thread(move || report::page(&store, after)).await?;
            return Ok(Told::Lines(page.map(|(text, _)| text).unwrap_or_default()));
        }
        _ => return Err(Refusal::new(Code::NotFound)),
    };
    Ok(Told::Json(200, told))
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failed> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Failed("The work on the ledger ended early.".to_owned())))
        .map_err(|Failed(why)| Refusal::because(Code::Internal, why))
}

/// `credits` or `kwh`, exactly one of them, exact to its last place.
fn amount(body: &Value) -> Result<(&'static str, Wallet, i64), Refusal> {
    let given = |field: &str| body.get(field).filter(|value| !value.is_null());
    let (field, wallet, places, value) = match (given("credits"), given("kwh")) {
        (Some(value), None) => ("credits", Wallet::Credits, 6, value),
        (None, Some(value)) => ("kwh", Wallet::Energy, 9, value),
        _ => return Err(Refusal::invalid("credits", "Give either credits or kwh.")),
    };
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let decimal = Decimal::from_str_exact(&text).ok().filter(|_| value.is_string() || value.is_number());
    let wrong = || format!("{field} has to be a number of 0 or more, with at most {places} decimals.");
    let amount = decimal
        .filter(|decimal| *decimal >= Decimal::ZERO)
        .and_then(|decimal| views::amount(wallet, decimal));
    let amount = amount.ok_or_else(|| Refusal::invalid(field, wrong()))?;
    Ok((field, wallet, amount))
}

fn random_id() -> String {
    let bits: u128 = rand::random();
    format!("{bits:032x}")
}
