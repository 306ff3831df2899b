//! Admin requests for keys: create, list, change, rotate, revoke. A secret is shown once, when it is created.

use super::accounts;
use super::input::{Fields, Given};
use super::openapi::{answered, page, reference};
use super::request::{Asked, Done, Effect, difference, failed};
use super::routes::{Route, Work};
use crate::auth::account_json;
use crate::state::House;
use crate::storage::stores::Vault;
use penstock_auth::{Key, Scopes};
use penstock_contract::{Code, Refusal};
use penstock_storage::keys::{KeyDigest, KeyLimits, KeyRecord, Previous, Revocation};
use serde_json::{Value, json};
use std::sync::Arc;

/// Default scopes of a new key.
pub const DEFAULT_SCOPES: &str = "inference.*";
/// Request members that create a key.
pub const CREATE: [&str; 6] = ["name", "account", "scopes", "models", "limits", "expires"];
/// Request members that change a key.
pub const CHANGE: [&str; 5] = ["name", "scopes", "models", "limits", "expires"];
/// Request members of a rotation.
pub const ROTATE: [&str; 1] = ["overlap_seconds"];
/// Query parameters of the list.
pub const LIST: [&str; 3] = ["account", "after", "limit"];
/// Default and maximum time for which the previous secret stays valid after a rotation, in seconds.
pub const OVERLAP: (u64, u64) = (86_400, 7 * 86_400);

/// Routes of keys.
pub const ROUTES: &[Route] = &[
    Route::get("/admin/keys", "listKeys", "Lists keys", Work::Store(list))
        .query(&LIST)
        .answers(200, || page(reference("Key"))),
    Route::post("/admin/keys", "createKey", "Creates a key and shows it once", Work::Store(create))
        .may_hold(&CREATE)
        .answers(201, || reference("NewKey")),
    Route::get("/admin/keys/{id}", "getKey", "Shows a key, without its secret", Work::Store(get))
        .answers(200, || reference("Key")),
    Route::patch(
        "/admin/keys/{id}",
        "changeKey",
        "Changes a key: name, scopes, models, limits, expiry",
        Work::Store(change),
    )
    .body(&CHANGE, &[])
    .answers(200, || reference("Key")),
    Route::post(
        "/admin/keys/{id}/revoke",
        "revokeKey",
        "Revokes a key at once, and closes its open streams",
        Work::Store(revoke),
    )
    .answers(200, || answered(&["id", "revoked", "already"])),
    Route::post(
        "/admin/keys/{id}/rotate",
        "rotateKey",
        "Gives a key a new secret and shows it once; the old one stays valid for a while",
        Work::Store(rotate),
    )
    .may_hold(&ROTATE)
    .answers(200, || reference("NewKey")),
];

/// Requested properties of a new or changed key.
struct Wanted<'b> {
    fields: Fields<'b>,
    name: Given<String>,
    scopes: Given<Vec<String>>,
    models: Given<Vec<String>>,
    expires: Given<u64>,
}

impl<'b> Wanted<'b> {
    fn read(asked: &'b Asked, known: &[&str]) -> Result<Self, Refusal> {
        let fields = Fields::of(&asked.body, known)?;
        let wanted = Self {
            name: fields.text("name")?,
            scopes: fields.texts("scopes")?,
            models: fields.texts("models")?,
            expires: fields.future("expires", asked.now)?,
            fields,
        };
        if let Given::Some(scopes) = &wanted.scopes {
            let unknown =
                |unknown: penstock_auth::UnknownScopes| Refusal::invalid("scopes", format!("{unknown}."));
            Scopes::parse(scopes).map_err(unknown)?;
        }
        wanted.fields.limits(&mut KeyLimits::default())?;
        Ok(wanted)
    }

    /// Applies the requested properties to a key.
    fn onto(&self, key: &mut KeyRecord) {
        match &self.name {
            Given::Absent => {}
            Given::Null => key.name = String::new(),
            Given::Some(name) => key.name.clone_from(name),
        }
        match &self.scopes {
            Given::Absent => {}
            Given::Null => key.scopes = vec![DEFAULT_SCOPES.to_owned()],
            Given::Some(scopes) => key.scopes.clone_from(scopes),
        }
        self.models.clone().onto(&mut key.models);
        self.expires.clone().onto(&mut key.expires);
        // The limits were validated in `read`.
        self.fields.limits(&mut key.limits).ok();
    }
}

fn list(vault: &Vault, asked: &Asked) -> Result<Done, Refusal> {
    let limit = asked.limit(&LIST)?;
    let (account, after) = (asked.query("account", &LIST)?, asked.query("after", &LIST)?);
    let page = vault.keys.list(account, after, limit).map_err(failed)?;
    let data: Vec<Value> = page.keys.iter().map(told).collect();
    Ok(Done::told(json!({ "data": data, "has_more": page.next.is_some(), "next": page.next })))
}

fn create(vault: &Vault, asked: &Asked) -> Result<Done, Refusal> {
    let wanted = Wanted::read(asked, &CREATE)?;
    let account = wanted.fields.text("account")?.some().unwrap_or_else(|| account_json::DEFAULT.to_owned());
    let (account, made) = accounts::named(vault, asked, &account)?;
    let key = Key::generate(&mut random);
    let mut record = KeyRecord {
        id: key.public_id().to_owned(),
        digest: KeyDigest(penstock_auth::digest(&vault.pepper.0, &key)),
        name: String::new(),
        account: account.id.clone(),
        scopes: vec![DEFAULT_SCOPES.to_owned()],
        models: None,
        limits: KeyLimits::default(),
        expires: None,
        created: asked.now,
        previous: None,
        rotated: None,
        last_used: None,
        revoked: None,
    };
    wanted.onto(&mut record);
    let said = asked.said("key.create", &record.id, told(&record));
    vault.keys.insert(&record, &said).map_err(failed)?;
    let account = made.then(|| Box::new(account));
    Ok(Done { status: 201, answer: shown(&record, &key), effect: Effect::Key(Box::new(record), account) })
}

fn get(vault: &Vault, asked: &Asked) -> Result<Done, Refusal> {
    let key = vault.keys.get(&asked.id).map_err(failed)?.ok_or_else(nobody)?;
    Ok(Done::told(told(&key)))
}

fn change(vault: &Vault, asked: &Asked) -> Result<Done, Refusal> {
    let wanted = Wanted::read(asked, &CHANGE)?;
    let changed = vault.keys.change(&asked.id, |key| {
        let before = told(key);
        wanted.onto(key);
        let after = told(key);
        (before != after).then(|| asked.said("key.change", &key.id, difference(&before, &after)))
    });
    let key = changed.map_err(failed)?.ok_or_else(nobody)?;
    Ok(Done { status: 200, answer: told(&key), effect: Effect::Key(Box::new(key), None) })
}

fn revoke(vault: &Vault, asked: &Asked) -> Result<Done, Refusal> {
    Fields::of(&asked.body, &[])?;
    let said = asked.said("key.revoke", &asked.id, json!({}));
    let already = match vault.keys.revoke(&asked.id, &said).map_err(failed)? {
        Revocation::Unknown => return Err(nobody()),
        found => found == Revocation::Already,
    };
    let key = vault.keys.get(&asked.id).map_err(failed)?.ok_or_else(nobody)?;
    let answer = json!({ "id": key.id, "revoked": true, "already": already });
    Ok(Done { status: 200, answer, effect: Effect::Key(Box::new(key), None) })
}

fn rotate(vault: &Vault, asked: &Asked) -> Result<Done, Refusal> {
    let fields = Fields::of(&asked.body, &ROTATE)?;
    let overlap = fields.number("overlap_seconds", 0, OVERLAP.1)?.some().unwrap_or(OVERLAP.0);
    let key = Key::renew(&asked.id, &mut random).ok_or_else(nobody)?;
    let digest = KeyDigest(penstock_auth::digest(&vault.pepper.0, &key));
    let over =
        |record: &KeyRecord| record.revoked.is_some() || record.expires.is_some_and(|end| end <= asked.now);
    let changed = vault.keys.change(&asked.id, |record| {
        if over(record) {
            return None;
        }
        let until = asked.now.saturating_add(overlap);
        record.previous = (overlap > 0).then_some(Previous { digest: record.digest, until });
        record.digest = digest;
        record.rotated = Some(asked.now);
        Some(asked.said("key.rotate", &record.id, json!({ "overlap_seconds": overlap })))
    });
    let record = changed.map_err(failed)?.ok_or_else(nobody)?;
    if over(&record) {
        let message = "This key is revoked or expired; create a new one instead.";
        return Err(Refusal::because(Code::Conflict, message));
    }
    Ok(Done { status: 200, answer: shown(&record, &key), effect: Effect::Key(Box::new(record), None) })
}

/// Creates the key that the demo prints, through the admin functions.
///
/// # Errors
/// Returns the error of the store.
pub async fn create_demo(house: &Arc<House>) -> Result<String, String> {
    let made =
        create_in(house, &json!({ "name": "demo" })).await.map_err(|refusal| refusal.message.into_owned())?;
    made.get("key").and_then(Value::as_str).map(str::to_owned).ok_or_else(|| "No key was created.".to_owned())
}

/// Creates a key in a running gateway, through the admin functions.
///
/// # Errors
/// Returns an error if the requested properties are invalid, or the error of the store.
pub async fn create_in(house: &Arc<House>, wanted: &Value) -> Result<Value, Refusal> {
    let asked = Asked {
        body: wanted.clone(),
        who: "gateway".to_owned(),
        now: house.clock.unix(),
        ..Asked::default()
    };
    super::done_in(house, create, asked).await.map(|done| done.answer)
}

/// Reads all keys of the store.
///
/// # Errors
/// Returns the error of the store.
pub fn every(vault: &Vault) -> Result<Vec<Value>, Refusal> {
    let mut all = Vec::new();
    let mut asked = Asked::default();
    loop {
        let page = list(vault, &asked)?.answer;
        all.extend(page.get("data").and_then(Value::as_array).into_iter().flatten().cloned());
        match page.get("next").and_then(Value::as_str) {
            Some(next) => asked.query = vec![("after".to_owned(), next.to_owned())],
            None => return Ok(all),
        }
    }
}

/// JSON object of a key in answers, without its digests.
#[must_use]
pub fn told(record: &KeyRecord) -> Value {
    json!({
        "id": record.id,
        "name": record.name,
        "account": record.account,
        "scopes": record.scopes,
        "models": record.models,
        "limits": account_json::limits(&record.limits),
        "created": record.created,
        "last_used": record.last_used,
        "expires": record.expires,
        "rotated": record.rotated,
        "previous_good_until": record.previous.map(|previous| previous.until),
        "revoked": record.revoked,
    })
}

/// JSON object of a new key, with its secret.
fn shown(record: &KeyRecord, key: &Key) -> Value {
    let mut shown = told(record);
    if let Some(members) = shown.as_object_mut() {
        members.insert("key".to_owned(), key.reveal().into());
    }
    shown
}

fn nobody() -> Refusal {
    Refusal::because(Code::NotFound, "There is no key of this id.")
}

fn random(bytes: &mut [u8]) {
    rand::fill(bytes);
}
