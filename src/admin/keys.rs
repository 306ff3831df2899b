//! Keys at run time: made, listed, revoked. A key is shown once, when it is made.

use crate::house::House;
use crate::vault::off_thread;
use penstock_auth::{Key, Scopes};
use penstock_contract::{Code, Refusal};
use penstock_storage::keys::{KeyDigest, KeyLimits, KeyRecord, KeyStore, Revocation};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a new key may do unless told otherwise.
const DEFAULT_SCOPES: &str = "inference.*";
/// The account of keys that name none.
const DEFAULT_ACCOUNT: &str = "default";
/// Keys listed at once.
const LISTED: usize = 1_000;
/// Longest name of a key or an account.
const NAME: usize = 200;

/// A new key as it is asked for.
pub struct Wanted {
    /// What its owner calls it.
    pub name: String,
    /// Account it draws on.
    pub account: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Models it may use; `None` for all.
    pub models: Option<Vec<String>>,
    /// Unix seconds.
    pub expires: Option<u64>,
}

impl Wanted {
    /// A key with this name and what a new key has by default.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            account: DEFAULT_ACCOUNT.to_owned(),
            scopes: vec![DEFAULT_SCOPES.to_owned()],
            models: None,
            expires: None,
        }
    }

    /// From the body of a request.
    ///
    /// # Errors
    /// The field that is not what it has to be.
    pub fn read(body: &Value, now: u64) -> Result<Self, Refusal> {
        if let Some(unknown) = body.as_object().and_then(|members| {
            let known = ["name", "account", "scopes", "models", "expires"];
            members.keys().find(|key| !known.contains(&key.as_str()))
        }) {
            return Err(Refusal::invalid(unknown.clone(), "This field is not known."));
        }
        let name = text(body, "name")?.unwrap_or_default();
        let mut wanted = Self::named(&name);
        if let Some(account) = text(body, "account")? {
            wanted.account = account;
        }
        if let Some(scopes) = texts(body, "scopes")? {
            wanted.scopes = scopes;
        }
        wanted.models = texts(body, "models")?;
        wanted.expires = match body.get("expires").filter(|value| !value.is_null()) {
            None => None,
            Some(value) => Some(value.as_u64().filter(|at| *at > now).ok_or_else(|| {
                Refusal::invalid("expires", "expires has to be a Unix time in seconds that is not over.")
            })?),
        };
        wanted.check()?;
        Ok(wanted)
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.account.is_empty() || self.account.contains('\0') {
            return Err(Refusal::invalid("account", "account has to be a name."));
        }
        let scopes: Vec<&str> = self.scopes.iter().map(String::as_str).collect();
        Scopes::parse(scopes).map(|_| ()).map_err(|unknown| Refusal::invalid("scopes", unknown.to_string()))
    }
}

/// Makes a key and writes it down; returns the record and the key's only showing.
///
/// # Errors
/// What the store says.
pub fn make(
    keys: &KeyStore,
    pepper: &[u8; 32],
    wanted: Wanted,
    now: u64,
) -> Result<(KeyRecord, String), String> {
    let key = Key::generate(&mut |bytes: &mut [u8]| rand::fill(bytes));
    let record = KeyRecord {
        id: key.public_id().to_owned(),
        digest: KeyDigest(penstock_auth::digest(pepper, &key)),
        name: wanted.name,
        account: wanted.account,
        scopes: wanted.scopes,
        models: wanted.models,
        limits: KeyLimits::default(),
        expires: wanted.expires,
        created: now,
        last_used: None,
        revoked: None,
    };
    keys.insert(&record).map_err(|error| error.to_string())?;
    Ok((record, key.reveal().to_owned()))
}

/// `POST /admin/keys`.
///
/// # Errors
/// What is wrong with the request, or with the store.
pub async fn create(house: &Arc<House>, body: &Value) -> Result<Value, Refusal> {
    let now = house.clock.unix();
    let wanted = Wanted::read(body, now)?;
    let (keys, pepper) = (house.vault.keys.clone(), house.vault.pepper);
    let (record, key) = off_thread(move || make(&keys, &pepper.0, wanted, now)).await.map_err(store)?;
    house.keyring.add(&record);
    let mut shown = told(&record);
    if let Some(members) = shown.as_object_mut() {
        members.insert("key".to_owned(), key.into());
    }
    Ok(shown)
}

/// A key for the demo's greeting.
///
/// # Errors
/// What the store says.
pub async fn create_demo(house: &Arc<House>) -> Result<String, String> {
    let (keys, pepper, now) = (house.vault.keys.clone(), house.vault.pepper, house.clock.unix());
    let (record, key) = off_thread(move || make(&keys, &pepper.0, Wanted::named("demo"), now)).await?;
    house.keyring.add(&record);
    Ok(key)
}

/// `GET /admin/keys`.
///
/// # Errors
/// What the store says.
pub async fn list(house: &Arc<House>) -> Result<Value, Refusal> {
    let keys = house.vault.keys.clone();
    let all = off_thread(move || every(&keys)).await.map_err(store)?;
    Ok(json!({ "data": all.iter().map(told).collect::<Vec<_>>() }))
}

/// Every key of the store.
///
/// # Errors
/// What the store says.
pub fn every(keys: &KeyStore) -> Result<Vec<KeyRecord>, String> {
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = keys.list(None, after.as_deref(), LISTED).map_err(|error| error.to_string())?;
        all.extend(page.keys);
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

/// `POST /admin/keys/{id}/revoke`.
///
/// # Errors
/// No such key, or what the store says.
pub async fn revoke(house: &Arc<House>, id: &str) -> Result<Value, Refusal> {
    let (keys, now, owned) = (house.vault.keys.clone(), house.clock.unix(), id.to_owned());
    let found = off_thread(move || keys.revoke(&owned, now)).await.map_err(store)?;
    if found == Revocation::Unknown {
        return Err(Refusal::because(Code::NotFound, "There is no key with this id."));
    }
    house.keyring.revoke(id);
    Ok(json!({ "id": id, "revoked": true, "already": found == Revocation::Already }))
}

/// A key as it may be told: all but its digest.
#[must_use]
pub fn told(record: &KeyRecord) -> Value {
    json!({
        "id": record.id,
        "name": record.name,
        "account": record.account,
        "scopes": record.scopes,
        "models": record.models,
        "created": record.created,
        "last_used": record.last_used,
        "expires": record.expires,
        "revoked": record.revoked,
    })
}

fn store(why: String) -> Refusal {
    Refusal::because(Code::Internal, why)
}

fn text(body: &Value, field: &str) -> Result<Option<String>, Refusal> {
    match body.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() <= NAME => Ok(Some(text.clone())),
        Some(_) => Err(Refusal::invalid(field, format!("{field} has to be a text of at most {NAME} bytes."))),
    }
}

fn texts(body: &Value, field: &str) -> Result<Option<Vec<String>>, Refusal> {
    let wrong = || Refusal::invalid(field, format!("{field} has to be a list of texts."));
    match body.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().map(Some).ok_or_else(wrong)
        }
        Some(_) => Err(wrong()),
    }
}
