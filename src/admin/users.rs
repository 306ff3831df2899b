//! Admin requests for the persons who may sign in to the console: list, create, invite, change.

use super::accounts;
use super::input::{PatchValue, RequestFields};
use super::openapi::{list_schema, response_schema, schema_ref};
use super::request::{AdminRequest, AdminResponse, store_error_response};
use super::routes::{AdminRoute, RouteHandler};
use super::version::{ExpectedVersion, object_version};
use crate::auth::password;
use crate::http::field_errors::FieldErrors;
use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode, hex};
use penstock_storage::StoreError;
use penstock_storage::audit::ChangeDescription;
use penstock_storage::users::{
    Invitation, MAX_USER_NAME_BYTES, UserChangeOutcome, UserRecord, UserRole, is_valid_user_name,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Request members that create a user.
pub const CREATE_MEMBERS: [&str; 4] = ["name", "role", "account", "password"];
/// Request members that change a user.
pub const CHANGE_MEMBERS: [&str; 3] = ["role", "disabled", "version"];
/// Response members of a user.
pub const USER_MEMBERS: [&str; 7] =
    ["name", "role", "account", "created", "state", "invitation_expires", "version"];
/// Response members of an invitation.
pub const INVITATION_MEMBERS: [&str; 8] =
    ["name", "role", "account", "created", "state", "invitation_expires", "version", "invitation"];
/// Names of the roles in requests.
const ROLES: [(&str, UserRole); 5] = [
    ("admin", UserRole::Admin),
    ("operator", UserRole::Operator),
    ("finance", UserRole::Finance),
    ("viewer", UserRole::Viewer),
    ("account", UserRole::Account),
];
/// States of a user in responses.
const STATES: [&str; 4] = ["active", "invited", "invitation expired", "disabled"];
/// Time for which an invitation is valid, in seconds.
const INVITATION_SECONDS: u64 = 72 * 3_600;

/// Routes of users.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get("/admin/users", "listUsers", "Lists the users of the console", RouteHandler::Store(list))
        .with_response(200, || list_schema(schema_ref("User"))),
    AdminRoute::post(
        "/admin/users",
        "createUser",
        "Creates a user with a password, or with an invitation to choose one",
        RouteHandler::Store(create),
    )
    .with_body(&CREATE_MEMBERS, &["name"])
    .with_response(201, || schema_ref("InvitedUser")),
    AdminRoute::patch(
        "/admin/users/{id}",
        "changeUser",
        "Changes the role of a user, or disables the user and ends all sessions; with `version`, only if the user is unchanged; refused for the last active administrator",
        RouteHandler::Store(change),
    )
    .with_body(&CHANGE_MEMBERS, &[])
    .with_response(200, || schema_ref("User")),
    AdminRoute::post(
        "/admin/users/{id}/invite",
        "inviteUser",
        "Invites a user to choose a new password; the old one and all sessions stay valid until then",
        RouteHandler::Store(invite),
    )
    .with_response(200, || schema_ref("InvitedUser")),
];

fn list(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    asked.query_parameter("", &[])?;
    let users = stores.users.list().map_err(store_error_response)?;
    let data: Vec<Value> = users.iter().map(|user| user_json(user, asked.now)).collect();
    Ok(AdminResponse::ok(json!({ "data": data })))
}

fn create(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let fields = RequestFields::parse(&asked.body, &CREATE_MEMBERS)?;
    let mut errors = FieldErrors::default();
    let name = errors.unwrap_or_record(new_name(&fields));
    let role =
        errors.unwrap_or_record(fields.choice("role", &ROLES)).into_option().unwrap_or(UserRole::Viewer);
    let account = fields.text_value("account").and_then(|id| user_account(stores, role, id.into_option()));
    let account = errors.unwrap_or_record(account);
    errors.into_result()?;
    let chosen = fields.text_value("password")?.into_option();
    let hashed = chosen.as_deref().map(password::hash).transpose()?;
    let (token, invitation) = new_invitation(asked.now);
    let user = UserRecord {
        name,
        role,
        account,
        created: asked.now,
        invitation: hashed.is_none().then_some(invitation),
        password: hashed,
        identity: None,
        disabled: None,
        generation: 0,
    };
    let entry = asked.audit_entry("user.create", &user.name, user_json(&user, asked.now));
    stores.users.insert(&user, &entry).map_err(|error| match error {
        StoreError::Guard { .. } => {
            ApiError::with_message(ErrorCode::Conflict, "There is a user of this name already.")
                .with_param("name")
        }
        error => store_error_response(error),
    })?;
    let mut answer = user_json(&user, asked.now);
    if let (Some(members), true) = (answer.as_object_mut(), user.invitation.is_some()) {
        members.insert("invitation".to_owned(), token.into());
    }
    Ok(AdminResponse { status: 201, ..AdminResponse::ok(answer) })
}

/// Returns the name of a new user.
fn new_name(fields: &RequestFields<'_>) -> Result<String, ApiError> {
    fields.text_value("name")?.into_option().filter(|name| is_valid_user_name(name)).ok_or_else(|| {
        let expected = format!(
            "name: expected 1 to {MAX_USER_NAME_BYTES} letters, digits, `.`, `_`, `-` or `@`, the first a letter or a digit"
        );
        ApiError::invalid("name", expected)
    })
}

/// Checks and returns the account of a new user: a user with the role `account` needs an existing account, and other
/// users must have no account.
fn user_account(
    stores: &OpenStorage,
    role: UserRole,
    account: Option<String>,
) -> Result<Option<String>, ApiError> {
    match (role, account) {
        (UserRole::Account, None) => {
            Err(ApiError::invalid("account", "account: expected the id of an account for the role account"))
        }
        (UserRole::Account, Some(account)) => {
            accounts::check_account_exists(stores, &account)?;
            Ok(Some(account))
        }
        (_, None) => Ok(None),
        (_, Some(_)) => Err(ApiError::invalid("account", "account: expected none for this role")),
    }
}

fn change(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let fields = RequestFields::parse(&asked.body, &CHANGE_MEMBERS)?;
    let role = fields.choice("role", &ROLES)?.into_option();
    let disabled = fields.bool_or_word("disabled")?;
    let expected = ExpectedVersion::parse(&fields)?;
    let is_other_kind = |user: &UserRecord| {
        role.is_some_and(|role| (role == UserRole::Account) != (user.role == UserRole::Account))
    };
    let changed = stores.users.change_unless_last(&asked.id, is_active_admin, |user| {
        if is_other_kind(user) || !expected.matches(|| user_version(user)) {
            return None;
        }
        let before = user.clone();
        user.role = role.unwrap_or(user.role);
        match disabled {
            PatchValue::Some(true) => {
                user.disabled = user.disabled.or(Some(asked.now));
                user.invitation = None;
            }
            PatchValue::Some(false) => user.disabled = None,
            PatchValue::Absent | PatchValue::Null => {}
        }
        if before == *user {
            return None;
        }
        // A new generation ends the sessions of the user, so that a new role applies at the next sign-in.
        user.generation += 1;
        let change = json!({ "role": user.role.name(), "disabled": user.disabled.is_some() });
        Some(asked.audit_entry("user.change", &user.name, change))
    });
    let changed = match changed.map_err(store_error_response)? {
        UserChangeOutcome::Current(user) => user,
        UserChangeOutcome::UnknownUser => return Err(user_not_found()),
        UserChangeOutcome::LastNeeded => {
            let message = "This is the last active administrator; make another user an administrator first.";
            return Err(ApiError::with_message(ErrorCode::Conflict, message));
        }
    };
    if is_other_kind(&changed) {
        let message = "role: expected a role of the same kind; a user of an account stays one, and no other becomes one";
        return Err(ApiError::invalid("role", message));
    }
    expected.require_match("user")?;
    Ok(AdminResponse::ok(user_json(&changed, asked.now)))
}

fn invite(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    RequestFields::parse(&asked.body, &[])?;
    let (token, invitation) = new_invitation(asked.now);
    let user = change_user(stores, &asked.id, |user| {
        if user.disabled.is_some() {
            return None;
        }
        user.invitation = Some(invitation.clone());
        Some(asked.audit_entry("user.invite", &user.name, json!({})))
    })?;
    if user.disabled.is_some() {
        let message = "This user is disabled; enable the user first.";
        return Err(ApiError::with_message(ErrorCode::Conflict, message));
    }
    let mut answer = user_json(&user, asked.now);
    if let Some(members) = answer.as_object_mut() {
        members.insert("invitation".to_owned(), token.into());
    }
    Ok(AdminResponse::ok(answer))
}

fn change_user(
    stores: &OpenStorage,
    name: &str,
    change: impl Fn(&mut UserRecord) -> Option<ChangeDescription>,
) -> Result<UserRecord, ApiError> {
    let changed = stores.users.change(name, change).map_err(store_error_response)?;
    Ok(changed.ok_or_else(user_not_found)?.0)
}

/// Returns true for an administrator who can sign in.
fn is_active_admin(user: &UserRecord) -> bool {
    let can_sign_in = user.password.is_some() || user.identity.is_some();
    user.role == UserRole::Admin && user.disabled.is_none() && can_sign_in
}

fn user_not_found() -> ApiError {
    ApiError::with_message(ErrorCode::NotFound, "There is no user of this name.")
}

/// Creates the administrator whom the demo invites, or invites the existing one again; returns the token of the
/// invitation.
///
/// # Errors
/// Returns the error of the store.
pub fn invite_demo_admin(stores: &OpenStorage, now: u64) -> Result<String, ApiError> {
    const NAME: &str = "admin";
    let asked = AdminRequest {
        id: NAME.to_owned(),
        body: json!({}),
        actor: "gateway".to_owned(),
        now,
        ..AdminRequest::default()
    };
    let invited = match stores.users.get(NAME).map_err(store_error_response)? {
        Some(_) => invite(stores, &asked)?,
        None => create(stores, &AdminRequest { body: json!({ "name": NAME, "role": "admin" }), ..asked })?,
    };
    let token = invited.answer.get("invitation").and_then(Value::as_str);
    token.map(str::to_owned).ok_or_else(|| ApiError::new(ErrorCode::Internal))
}

/// Creates an invitation: its token, and the record that is stored.
fn new_invitation(now: u64) -> (String, Invitation) {
    let mut bytes = [0_u8; 32];
    rand::fill(&mut bytes);
    let token = hex::encode(bytes.iter());
    let digest = hex::encode(Sha256::digest(token.as_bytes()).iter());
    (token, Invitation { digest, expires: now + INVITATION_SECONDS })
}

fn user_json(user: &UserRecord, now: u64) -> Value {
    let invitation = user.invitation.as_ref().filter(|invitation| invitation.expires > now);
    let can_sign_in = user.password.is_some() || user.identity.is_some();
    let state = match (user.disabled, can_sign_in, invitation) {
        (Some(_), ..) => "disabled",
        (None, true, _) => "active",
        (None, false, Some(_)) => "invited",
        (None, false, None) => "invitation expired",
    };
    json!({
        "name": user.name,
        "role": user.role.name(),
        "account": user.account,
        "created": user.created,
        "state": state,
        "invitation_expires": invitation.map(|invitation| invitation.expires),
        "version": user_version(user),
    })
}

/// Returns the schema of a user in responses, with these members.
pub(super) fn user_schema(members: &[&str]) -> Value {
    let mut schema = response_schema(members);
    if let Some(state) = schema.pointer_mut("/properties/state") {
        *state = json!({ "enum": STATES, "description": "State of the user: `invited` until a password is chosen." });
    }
    schema
}

/// Returns the version of a user: a digest of what a request can change, and so not of the password.
fn user_version(user: &UserRecord) -> String {
    object_version(&json!([user.name, user.role.name(), user.account, user.disabled]))
}
