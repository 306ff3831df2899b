//! Admin requests for accounts: create, list, change, suspend.

use super::input::{PatchValue, RequestFields};
use super::openapi::{page_schema, schema_ref};
use super::request::{
    AdminRequest, AdminResponse, KeyCacheUpdate, KeyChangeResponse, changed_fields, store_error_response,
};
use super::routes::{AdminRoute, RouteHandler};
use super::version::{ExpectedVersion, object_version, with_version};
use crate::auth::account_json::{ACCOUNT_STATES, DEFAULT_ACCOUNT_ID, account_to_json};
use crate::http::field_errors::FieldErrors;
use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::StoreError;
use penstock_storage::accounts::{AccountRecord, AccountState};
use penstock_storage::keys::KeyLimits;
use serde_json::{Value, json};

/// Request members that create an account.
pub const CREATE_MEMBERS: [&str; 3] = ["id", "name", "limits"];
/// Request members that change an account.
pub const CHANGE_MEMBERS: [&str; 4] = ["name", "state", "limits", "version"];
/// Query parameters of the request that lists accounts.
pub const LIST_QUERY_PARAMETERS: [&str; 2] = ["after", "limit"];
/// Maximum length of a new account's id, in bytes.
const MAX_ID_BYTES: usize = 64;

/// Routes of accounts.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get("/admin/accounts", "listAccounts", "Lists accounts", RouteHandler::Store(list))
        .with_query_parameters(&LIST_QUERY_PARAMETERS)
        .with_response(200, || page_schema(schema_ref("Account"))),
    AdminRoute::post(
        "/admin/accounts",
        "createAccount",
        "Creates an account",
        RouteHandler::KeyChange(create),
    )
    .with_body(&CREATE_MEMBERS, &["id"])
    .with_response(201, || schema_ref("Account")),
    AdminRoute::get("/admin/accounts/{id}", "getAccount", "Shows an account", RouteHandler::Store(get))
        .with_response(200, || schema_ref("Account")),
    AdminRoute::patch(
        "/admin/accounts/{id}",
        "changeAccount",
        "Changes an account: name, state, limits; with `version`, only if it is unchanged",
        RouteHandler::KeyChange(change),
    )
    .with_body(&CHANGE_MEMBERS, &[])
    .with_response(200, || schema_ref("Account")),
];

fn list(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let limit = asked.page_limit(&LIST_QUERY_PARAMETERS)?;
    let page = stores
        .accounts
        .list(asked.query_parameter("after", &LIST_QUERY_PARAMETERS)?, limit)
        .map_err(store_error_response)?;
    let data: Vec<Value> = page.accounts.iter().map(account_json).collect();
    Ok(AdminResponse::ok(json!({ "data": data, "has_more": page.next.is_some(), "next": page.next })))
}

fn create(stores: &OpenStorage, asked: &AdminRequest) -> Result<KeyChangeResponse, ApiError> {
    let fields = RequestFields::parse(&asked.body, &CREATE_MEMBERS)?;
    let mut errors = FieldErrors::default();
    let id = errors.unwrap_or_record(new_id(&fields));
    let mut limits = KeyLimits::default();
    errors.unwrap_or_record(fields.apply_limits(&mut limits));
    let name = errors.unwrap_or_record(fields.text_value("name")).into_option().unwrap_or_else(|| id.clone());
    errors.into_result()?;
    let account = AccountRecord { id, name, created: asked.now, state: AccountState::Active, limits };
    insert(stores, asked, &account)?;
    let response = AdminResponse { status: 201, answer: account_json(&account) };
    Ok((response, KeyCacheUpdate::Account(Box::new(account))))
}

/// Returns the id of a new account.
fn new_id(fields: &RequestFields<'_>) -> Result<String, ApiError> {
    fields.text_value("id")?.into_option().filter(|id| is_valid_id(id)).ok_or_else(|| {
        let expected =
            format!("1 to {MAX_ID_BYTES} letters, digits, `.`, `_` or `-`, the first a letter or a digit");
        ApiError::invalid("id", format!("id has to be {expected}."))
    })
}

fn insert(stores: &OpenStorage, asked: &AdminRequest, account: &AccountRecord) -> Result<(), ApiError> {
    let entry = asked.audit_entry("account.create", &account.id, account_to_json(account));
    stores.accounts.insert(account, &entry).map_err(|error| match error {
        StoreError::Guard { .. } => {
            ApiError::with_message(ErrorCode::Conflict, "There is an account of this id already.")
                .with_param("id")
        }
        error => store_error_response(error),
    })
}

/// Returns the account for which the request creates a key, and true if this call created the account. Returns 400 if
/// the account does not exist and may not be created implicitly.
pub(super) fn find_or_create(
    stores: &OpenStorage,
    asked: &AdminRequest,
    id: &str,
) -> Result<(AccountRecord, bool), ApiError> {
    if let Some(account) = stores.accounts.get(id).map_err(store_error_response)? {
        return Ok((account, false));
    }
    if !is_implicit(stores, id)? {
        let message = "There is no account of this id; make it first (penstock accounts create).";
        return Err(ApiError::invalid("account", message));
    }
    let account = AccountRecord {
        id: id.to_owned(),
        name: id.to_owned(),
        created: asked.now,
        state: AccountState::Active,
        limits: KeyLimits::default(),
    };
    insert(stores, asked, &account)?;
    Ok((account, true))
}

/// Returns true if an account may be created implicitly, with its first key. This applies to the default account and
/// to accounts that the keys of earlier versions refer to.
fn is_implicit(stores: &OpenStorage, id: &str) -> Result<bool, ApiError> {
    Ok(id == DEFAULT_ACCOUNT_ID
        || !stores.keys.list(Some(id), None, 1).map_err(store_error_response)?.keys.is_empty())
}

/// Checks that an account exists or may be created implicitly, so that a mistyped id is refused.
///
/// # Errors
/// Returns 404 if the account neither exists nor may be created implicitly, or the error of the store.
pub(super) fn check_account_exists(stores: &OpenStorage, id: &str) -> Result<(), ApiError> {
    let there = stores.accounts.get(id).map_err(store_error_response)?.is_some() || is_implicit(stores, id)?;
    let message = || format!("There is no account {id}; make it first (penstock accounts create).");
    if there {
        Ok(())
    } else {
        Err(ApiError::with_message(ErrorCode::NotFound, message()).with_param("account"))
    }
}

fn get(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let account =
        stores.accounts.get(&asked.id).map_err(store_error_response)?.ok_or_else(account_not_found)?;
    Ok(AdminResponse::ok(account_json(&account)))
}

fn change(stores: &OpenStorage, asked: &AdminRequest) -> Result<KeyChangeResponse, ApiError> {
    let fields = RequestFields::parse(&asked.body, &CHANGE_MEMBERS)?;
    let mut errors = FieldErrors::default();
    let name = errors.unwrap_or_record(fields.text_value("name"));
    let state = errors.unwrap_or_record(fields.choice("state", &ACCOUNT_STATES));
    if state == PatchValue::Null {
        errors.add(ApiError::invalid("state", "state has to be active or suspended."));
    }
    errors.unwrap_or_record(fields.apply_limits(&mut KeyLimits::default()));
    errors.into_result()?;
    let expected = ExpectedVersion::parse(&fields)?;
    let changed = stores.accounts.change(&asked.id, |account| {
        if !expected.matches(|| object_version(&account_to_json(account))) {
            return None;
        }
        let before = account_to_json(account);
        match &name {
            PatchValue::Absent => {}
            PatchValue::Null => account.name = account.id.clone(),
            PatchValue::Some(name) => account.name.clone_from(name),
        }
        if let PatchValue::Some(state) = state {
            account.state = state;
        }
        // The limits were already validated above, so this cannot fail.
        fields.apply_limits(&mut account.limits).ok();
        let after = account_to_json(account);
        (before != after)
            .then(|| asked.audit_entry("account.change", &account.id, changed_fields(&before, &after)))
    });
    let account = changed.map_err(store_error_response)?.ok_or_else(account_not_found)?;
    expected.require_match("account")?;
    let response = AdminResponse { status: 200, answer: account_json(&account) };
    Ok((response, KeyCacheUpdate::Account(Box::new(account))))
}

/// Returns the JSON object of an account in responses, with its version.
pub(super) fn account_json(account: &AccountRecord) -> Value {
    let fields = account_to_json(account);
    let version = object_version(&fields);
    with_version(fields, version)
}

fn is_valid_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    id.len() <= MAX_ID_BYTES
        && id.bytes().all(plain)
        && id.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

fn account_not_found() -> ApiError {
    ApiError::with_message(ErrorCode::NotFound, "There is no account of this id.")
}
