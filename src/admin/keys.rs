//! Admin requests for keys: create, list, change, rotate, revoke. A secret is shown only once, in the response that
//! creates it.

use super::accounts;
use super::input::{PatchValue, RequestFields};
use super::openapi::{page_schema, response_schema, schema_ref};
use super::request::{
    AdminRequest, AdminResponse, KeyCacheUpdate, KeyChangeResponse, changed_fields, store_error_response,
};
use super::routes::{AdminRoute, RouteHandler};
use super::version::{ExpectedVersion, object_version, with_version};
use crate::auth::account_json;
use crate::http::field_errors::FieldErrors;
use crate::state::AppState;
use crate::storage::stores::OpenStorage;
use penstock_auth::{ApiKey, KeyScopes};
use penstock_core::calendar::format_rfc3339;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::keys::{KeyDigest, KeyLimits, KeyRecord, PreviousSecret, RevokeOutcome};
use serde_json::{Value, json};
use std::cell::Cell;
use std::sync::Arc;

/// Default scopes of a new key.
pub const DEFAULT_SCOPES: &str = "inference.*";
/// Request members that create a key.
pub const CREATE_MEMBERS: [&str; 7] =
    ["name", "account", "scopes", "models", "limits", "store_responses", "expires"];
/// Request members that change a key.
pub const CHANGE_MEMBERS: [&str; 7] =
    ["name", "scopes", "models", "limits", "store_responses", "expires", "version"];
/// Request members of a rotation.
pub const ROTATE_MEMBERS: [&str; 2] = ["overlap_seconds", "end_previous"];
/// Query parameters of the request that lists keys.
pub const LIST_QUERY_PARAMETERS: [&str; 3] = ["account", "after", "limit"];
/// Default and maximum time for which the previous secret stays valid after a rotation, in seconds.
pub const DEFAULT_AND_MAX_OVERLAP_SECONDS: (u64, u64) = (86_400, 7 * 86_400);

/// Routes of keys.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get("/admin/keys", "listKeys", "Lists keys", RouteHandler::Store(list))
        .with_query_parameters(&LIST_QUERY_PARAMETERS)
        .with_response(200, || page_schema(schema_ref("Key"))),
    AdminRoute::post(
        "/admin/keys",
        "createKey",
        "Creates a key and shows it once",
        RouteHandler::KeyChange(create),
    )
    .with_optional_body(&CREATE_MEMBERS)
    .with_response(201, || schema_ref("NewKey")),
    AdminRoute::get(
        "/admin/keys/{id}",
        "getKey",
        "Shows a key, without its secret",
        RouteHandler::Store(get),
    )
    .with_response(200, || schema_ref("Key")),
    AdminRoute::patch(
        "/admin/keys/{id}",
        "changeKey",
        "Changes a key: name, scopes, models, limits, storage of responses, expiry; with `version`, only if it is unchanged",
        RouteHandler::KeyChange(change),
    )
    .with_body(&CHANGE_MEMBERS, &[])
    .with_response(200, || schema_ref("Key")),
    AdminRoute::post(
        "/admin/keys/{id}/revoke",
        "revokeKey",
        "Revokes a key at once, and closes its open streams",
        RouteHandler::KeyChange(revoke),
    )
    .with_response(200, || response_schema(&["id", "revoked", "already"])),
    AdminRoute::post(
        "/admin/keys/{id}/rotate",
        "rotateKey",
        "Gives a key a new secret and shows it once; the old one stays valid for a while; 409 if that would end an earlier one",
        RouteHandler::KeyChange(rotate),
    )
    .with_optional_body(&ROTATE_MEMBERS)
    .with_response(200, || schema_ref("NewKey")),
];

/// Requested properties of a new or changed key.
struct KeyPatch<'b> {
    fields: RequestFields<'b>,
    name: PatchValue<String>,
    scopes: PatchValue<Vec<String>>,
    models: PatchValue<Vec<String>>,
    store_responses: PatchValue<bool>,
    expires: PatchValue<u64>,
}

impl<'b> KeyPatch<'b> {
    fn parse(asked: &'b AdminRequest, member_names: &[&str]) -> Result<Self, ApiError> {
        let fields = RequestFields::parse(&asked.body, member_names)?;
        let mut errors = FieldErrors::default();
        let wanted = Self {
            name: errors.unwrap_or_record(fields.text_value("name")),
            scopes: errors.unwrap_or_record(fields.text_list("scopes")),
            models: errors.unwrap_or_record(fields.text_list("models")),
            store_responses: errors.unwrap_or_record(fields.bool("store_responses")),
            expires: errors.unwrap_or_record(fields.future_time("expires", asked.now)),
            fields,
        };
        if let PatchValue::Some(scopes) = &wanted.scopes
            && let Err(unknown) = KeyScopes::parse(scopes)
        {
            errors.add(ApiError::invalid("scopes", format!("{unknown}.")));
        }
        errors.unwrap_or_record(wanted.fields.apply_limits(&mut KeyLimits::default()));
        errors.into_result()?;
        Ok(wanted)
    }

    /// Applies the requested properties to a key.
    fn apply_to(&self, key: &mut KeyRecord) {
        match &self.name {
            PatchValue::Absent => {}
            PatchValue::Null => key.name = String::new(),
            PatchValue::Some(name) => key.name.clone_from(name),
        }
        match &self.scopes {
            PatchValue::Absent => {}
            PatchValue::Null => key.scopes = vec![DEFAULT_SCOPES.to_owned()],
            PatchValue::Some(scopes) => key.scopes.clone_from(scopes),
        }
        self.models.clone().apply_to(&mut key.models);
        match self.store_responses {
            PatchValue::Absent => {}
            PatchValue::Null => key.store_responses = false,
            PatchValue::Some(stores) => key.store_responses = stores,
        }
        self.expires.clone().apply_to(&mut key.expires);
        // The limits were already validated in `parse`, so this cannot fail.
        self.fields.apply_limits(&mut key.limits).ok();
    }
}

fn list(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let limit = asked.page_limit(&LIST_QUERY_PARAMETERS)?;
    let (account, after) = (
        asked.query_parameter("account", &LIST_QUERY_PARAMETERS)?,
        asked.query_parameter("after", &LIST_QUERY_PARAMETERS)?,
    );
    account.map_or(Ok(()), |account| accounts::check_account_exists(stores, account))?;
    let page = stores.keys.list(account, after, limit).map_err(store_error_response)?;
    let data: Vec<Value> = page.keys.iter().map(key_json).collect();
    Ok(AdminResponse::ok(json!({ "data": data, "has_more": page.next.is_some(), "next": page.next })))
}

fn create(stores: &OpenStorage, asked: &AdminRequest) -> Result<KeyChangeResponse, ApiError> {
    let wanted = KeyPatch::parse(asked, &CREATE_MEMBERS)?;
    let account = wanted
        .fields
        .text_value("account")?
        .into_option()
        .unwrap_or_else(|| account_json::DEFAULT_ACCOUNT_ID.to_owned());
    let (account, made) = accounts::find_or_create(stores, asked, &account)?;
    let key = ApiKey::generate(&mut fill_random);
    let mut record = KeyRecord {
        scopes: vec![DEFAULT_SCOPES.to_owned()],
        ..KeyRecord::new(
            key.public_id(),
            KeyDigest(penstock_auth::key_digest(&stores.pepper.0, &key)),
            account.id.clone(),
            asked.now,
        )
    };
    wanted.apply_to(&mut record);
    let entry = asked.audit_entry("key.create", &record.id, key_fields(&record));
    stores.keys.insert(&record, &entry).map_err(store_error_response)?;
    let account = made.then(|| Box::new(account));
    let response = AdminResponse { status: 201, answer: new_key_json(&record, &key) };
    Ok((response, KeyCacheUpdate::Key(Box::new(record), account)))
}

fn get(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let key = stores.keys.get(&asked.id).map_err(store_error_response)?.ok_or_else(key_not_found)?;
    Ok(AdminResponse::ok(key_json(&key)))
}

fn change(stores: &OpenStorage, asked: &AdminRequest) -> Result<KeyChangeResponse, ApiError> {
    let wanted = KeyPatch::parse(asked, &CHANGE_MEMBERS)?;
    let expected = ExpectedVersion::parse(&wanted.fields)?;
    let changed = stores.keys.change(&asked.id, |key| {
        if !expected.matches(|| key_version(key)) {
            return None;
        }
        let before = key_fields(key);
        wanted.apply_to(key);
        let after = key_fields(key);
        (before != after).then(|| asked.audit_entry("key.change", &key.id, changed_fields(&before, &after)))
    });
    let key = changed.map_err(store_error_response)?.ok_or_else(key_not_found)?;
    expected.require_match("key")?;
    let response = AdminResponse { status: 200, answer: key_json(&key) };
    Ok((response, KeyCacheUpdate::Key(Box::new(key), None)))
}

fn revoke(stores: &OpenStorage, asked: &AdminRequest) -> Result<KeyChangeResponse, ApiError> {
    RequestFields::parse(&asked.body, &[])?;
    let entry = asked.audit_entry("key.revoke", &asked.id, json!({}));
    let already = match stores.keys.revoke(&asked.id, &entry).map_err(store_error_response)? {
        RevokeOutcome::UnknownKey => return Err(key_not_found()),
        found => found == RevokeOutcome::AlreadyRevoked,
    };
    let key = stores.keys.get(&asked.id).map_err(store_error_response)?.ok_or_else(key_not_found)?;
    let answer = json!({ "id": key.id, "revoked": true, "already": already });
    Ok((AdminResponse::ok(answer), KeyCacheUpdate::Key(Box::new(key), None)))
}

fn rotate(stores: &OpenStorage, asked: &AdminRequest) -> Result<KeyChangeResponse, ApiError> {
    let fields = RequestFields::parse(&asked.body, &ROTATE_MEMBERS)?;
    let overlap = fields
        .number_in_range("overlap_seconds", 0, DEFAULT_AND_MAX_OVERLAP_SECONDS.1)?
        .into_option()
        .unwrap_or(DEFAULT_AND_MAX_OVERLAP_SECONDS.0);
    // Without an overlap every earlier secret ends, which is what a request without an overlap asks for.
    let ends_earlier = overlap == 0 || fields.bool("end_previous")?.into_option().unwrap_or(false);
    let key = ApiKey::generate_for_id(&asked.id, &mut fill_random).ok_or_else(key_not_found)?;
    let digest = KeyDigest(penstock_auth::key_digest(&stores.pepper.0, &key));
    let over =
        |record: &KeyRecord| record.revoked.is_some() || record.expires.is_some_and(|end| end <= asked.now);
    let promised_until = Cell::new(None);
    let changed = stores.keys.change(&asked.id, |record| {
        let earlier_end = record.previous.map(|previous| previous.until).filter(|until| *until > asked.now);
        promised_until.set(earlier_end.filter(|_| !ends_earlier));
        if over(record) || promised_until.get().is_some() {
            return None;
        }
        let until = asked.now.saturating_add(overlap);
        record.previous = (overlap > 0).then_some(PreviousSecret { digest: record.digest, until });
        record.digest = digest;
        record.rotated = Some(asked.now);
        Some(asked.audit_entry("key.rotate", &record.id, json!({ "overlap_seconds": overlap })))
    });
    let record = changed.map_err(store_error_response)?.ok_or_else(key_not_found)?;
    if over(&record) {
        let message = "This key is revoked or expired; create a new one instead.";
        return Err(ApiError::with_message(ErrorCode::Conflict, message));
    }
    if let Some(until) = promised_until.get() {
        return Err(earlier_secret_conflict(until));
    }
    let response = AdminResponse { status: 200, answer: new_key_json(&record, &key) };
    Ok((response, KeyCacheUpdate::Key(Box::new(record), None)))
}

/// Returns the refusal of a rotation that would end a secret before the time until which it was to stay valid.
fn earlier_secret_conflict(until: u64) -> ApiError {
    let message = format!(
        "An earlier secret of this key is valid until {}, and another rotation would end it now: rotate again after that \
         time, or with end_previous, or with an overlap of 0, which also ends the present secret at once.",
        format_rfc3339(until)
    );
    ApiError::with_message(ErrorCode::Conflict, message)
}

/// Creates the key that the demo prints, by the same functions as an admin request. Returns its id and the complete
/// key.
///
/// # Errors
/// Returns the error of the store.
pub async fn create_demo_key(app: &Arc<AppState>) -> Result<(Arc<str>, String), String> {
    let made =
        create_key(app, &json!({ "name": "demo" })).await.map_err(|refusal| refusal.message.into_owned())?;
    let member =
        |name| made.get(name).and_then(Value::as_str).ok_or_else(|| "No key was created.".to_owned());
    Ok((member("id")?.into(), member("key")?.to_owned()))
}

/// Creates a key in a running gateway, by the same functions as an admin request; returns its JSON object with its
/// secret.
///
/// # Errors
/// Returns an error if the requested properties are invalid, or the error of the store.
pub async fn create_key(app: &Arc<AppState>, properties: &Value) -> Result<Value, ApiError> {
    let asked = AdminRequest {
        body: properties.clone(),
        actor: "gateway".to_owned(),
        now: app.clock.unix_seconds(),
        ..AdminRequest::default()
    };
    super::run_key_change(app, create, asked).await.map(|done| done.answer)
}

/// Returns the JSON objects of all keys of the store.
///
/// # Errors
/// Returns the error of the store.
pub fn all_keys_json(stores: &OpenStorage) -> Result<Vec<Value>, ApiError> {
    let mut all = Vec::new();
    let mut asked = AdminRequest::default();
    loop {
        let page = list(stores, &asked)?.answer;
        all.extend(page.get("data").and_then(Value::as_array).into_iter().flatten().cloned());
        match page.get("next").and_then(Value::as_str) {
            Some(next) => asked.query = vec![("after".to_owned(), next.to_owned())],
            None => return Ok(all),
        }
    }
}

/// Returns the JSON object of a key in responses, without its digests.
#[must_use]
pub fn key_json(record: &KeyRecord) -> Value {
    with_version(key_fields(record), key_version(record))
}

/// Returns the version of a key: a digest of everything that a request can change. The last use of the key is not
/// part of it.
fn key_version(record: &KeyRecord) -> String {
    let mut fields = key_fields(record);
    if let Some(members) = fields.as_object_mut() {
        members.remove("last_used");
    }
    object_version(&fields)
}

fn key_fields(record: &KeyRecord) -> Value {
    json!({
        "id": record.id,
        "name": record.name,
        "account": record.account,
        "scopes": record.scopes,
        "models": record.models,
        "limits": account_json::limits_to_json(&record.limits),
        "store_responses": record.store_responses,
        "created": record.created,
        "last_used": record.last_used,
        "expires": record.expires,
        "rotated": record.rotated,
        "previous_good_until": record.previous.map(|previous| previous.until),
        "revoked": record.revoked,
    })
}

/// Returns the JSON object of a new key, with its secret.
fn new_key_json(record: &KeyRecord, key: &ApiKey) -> Value {
    let mut shown = key_json(record);
    if let Some(members) = shown.as_object_mut() {
        members.insert("key".to_owned(), key.reveal().into());
    }
    shown
}

fn key_not_found() -> ApiError {
    ApiError::with_message(ErrorCode::NotFound, "There is no key of this id.")
}

fn fill_random(bytes: &mut [u8]) {
    rand::fill(bytes);
}
