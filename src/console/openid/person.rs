//! User of a person whom the OpenID provider has named: found by issuer and subject, created from the claims, or linked
//! by an invitation. All functions block.

use crate::config::settings::OpenIdSettings;
use crate::console::session::store_error_response;
use crate::console::sign_in::{find_invited_user, own_user_audit_entry};
use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode};
use penstock_openid::{IdToken, claim_texts};
use penstock_storage::StoreError;
use penstock_storage::users::{OidcIdentity, UserRecord, UserRole, is_valid_user_name};

/// Person named by a verified ID token.
#[derive(Clone, Debug)]
pub struct OpenIdPerson {
    issuer: String,
    subject: String,
    name: Option<String>,
    role: Option<UserRole>,
    account: Option<String>,
}

/// Circumstances of a sign-in: client address, time and invitation.
#[derive(Clone, Debug)]
pub struct SignInContext {
    /// Address of the client.
    pub address: String,
    /// Current time, Unix seconds.
    pub now: u64,
    /// SHA-256 of the invitation's token, if the person was invited.
    pub invitation: Option<String>,
}

impl OpenIdPerson {
    /// Reads the claims that the settings select.
    pub fn new(token: &IdToken, settings: &OpenIdSettings) -> Self {
        let first = |path: &str| claim_texts(&token.claims, path).first().map(|text| (*text).to_owned());
        Self {
            issuer: settings.issuer.to_string(),
            subject: token.subject.clone(),
            name: first(&settings.name_claim).filter(|name| is_valid_user_name(name)),
            role: settings.role_from_claim(&claim_texts(&token.claims, &settings.roles_claim)),
            account: settings.account_claim.as_deref().and_then(first),
        }
    }

    fn is(&self, user: &UserRecord) -> bool {
        let is_same = |known: &OidcIdentity| known.issuer == self.issuer && known.subject == self.subject;
        user.identity.as_ref().is_some_and(is_same)
    }

    fn identity(&self, has_claimed_role: bool) -> OidcIdentity {
        OidcIdentity { issuer: self.issuer.clone(), subject: self.subject.clone(), has_claimed_role }
    }

    /// Returns the user of this person: updates role and account of a known user, links the user of an invitation, or
    /// creates a new user.
    ///
    /// # Errors
    /// Returns 403 if the person may not sign in, 409 if the name belongs to another user.
    pub fn find_or_create_user(
        &self,
        stores: &OpenStorage,
        context: &SignInContext,
    ) -> Result<UserRecord, ApiError> {
        let users = stores.users.list().map_err(store_error_response)?;
        match (users.into_iter().find(|user| self.is(user)), &context.invitation) {
            (Some(user), _) if user.disabled.is_some() => Err(refused("This user is disabled.")),
            (Some(user), Some(_)) => {
                let message =
                    format!("You are the user {} already; sign in without the invitation.", user.name);
                Err(ApiError::with_message(ErrorCode::Conflict, message))
            }
            (Some(user), None) => self.update(stores, context, user),
            (None, Some(invitation)) => self.link(stores, context, invitation),
            (None, None) => self.create(stores, context),
        }
    }

    /// Returns the role and the account that the claims give.
    fn claimed(&self, stores: &OpenStorage) -> Result<(UserRole, Option<String>), ApiError> {
        let role = self.role.ok_or_else(|| {
            refused(
                "The OpenID provider names no role of this gateway for you; ask an administrator for one.",
            )
        })?;
        if role != UserRole::Account {
            return Ok((role, None));
        }
        let account = self.account.clone().ok_or_else(|| {
            refused("The OpenID provider names no account for you; ask for an invitation to an account.")
        })?;
        if stores.accounts.get(&account).map_err(store_error_response)?.is_none() {
            return Err(refused("The OpenID provider names an account for you that does not exist here."));
        }
        Ok((role, Some(account)))
    }

    fn update(
        &self,
        stores: &OpenStorage,
        context: &SignInContext,
        user: UserRecord,
    ) -> Result<UserRecord, ApiError> {
        if user.identity.as_ref().is_none_or(|identity| !identity.has_claimed_role) {
            return Ok(user);
        }
        let claimed = self.claimed(stores);
        let is_same = |user: &UserRecord| {
            claimed.as_ref().is_ok_and(|(role, account)| *role == user.role && *account == user.account)
        };
        if is_same(&user) {
            return Ok(user);
        }
        // The change raises the user's generation, which ends the user's sessions. So sessions with a role that was
        // taken away end too.
        let changed = stores.users.change(&user.name, |user| {
            if is_same(user) {
                return None;
            }
            if let Ok((role, account)) = &claimed {
                user.role = *role;
                user.account.clone_from(account);
            }
            user.generation += 1;
            Some(own_user_audit_entry(user, &context.address, context.now, "user.change"))
        });
        let changed = changed.map_err(store_error_response)?.map(|(user, _)| user);
        claimed?;
        changed.ok_or_else(|| ApiError::new(ErrorCode::NotFound))
    }

    fn link(
        &self,
        stores: &OpenStorage,
        context: &SignInContext,
        invitation: &str,
    ) -> Result<UserRecord, ApiError> {
        let used = || ApiError::with_message(ErrorCode::Conflict, "This invitation was used or has expired.");
        let invited = find_invited_user(stores, invitation, context.now)?.ok_or_else(used)?;
        let changed = stores.users.change(&invited.name, |user| {
            let open = user.invitation.as_ref()?;
            if open.digest != invitation || open.expires <= context.now || user.disabled.is_some() {
                return None;
            }
            user.invitation = None;
            user.identity = Some(self.identity(false));
            user.generation += 1;
            Some(own_user_audit_entry(user, &context.address, context.now, "user.link"))
        });
        changed
            .map_err(store_error_response)?
            .filter(|(_, changed)| *changed)
            .map(|(user, _)| user)
            .ok_or_else(used)
    }

    fn create(&self, stores: &OpenStorage, context: &SignInContext) -> Result<UserRecord, ApiError> {
        let (role, account) = self.claimed(stores)?;
        let name = self.name.clone().ok_or_else(|| {
            refused("The OpenID provider gives you no name that a user can have here; ask for an invitation.")
        })?;
        let user = UserRecord {
            name,
            role,
            account,
            created: context.now,
            password: None,
            invitation: None,
            identity: Some(self.identity(true)),
            disabled: None,
            generation: 0,
        };
        let entry = own_user_audit_entry(&user, &context.address, context.now, "user.create");
        match stores.users.insert(&user, &entry) {
            Ok(()) => Ok(user),
            Err(StoreError::Guard { .. }) => self.existing(stores, &user.name),
            Err(error) => Err(store_error_response(error)),
        }
    }

    /// Returns the user of this name if it belongs to this person: another sign-in of the same person may have just
    /// created it.
    fn existing(&self, stores: &OpenStorage, name: &str) -> Result<UserRecord, ApiError> {
        let found = stores.users.get(name).map_err(store_error_response)?;
        found.filter(|user| self.is(user)).ok_or_else(|| {
            let message = format!(
                "The name {name} belongs to another user of this gateway; ask an administrator for an invitation."
            );
            ApiError::with_message(ErrorCode::Conflict, message)
        })
    }
}

fn refused(message: &'static str) -> ApiError {
    ApiError::with_message(ErrorCode::InsufficientScope, message)
}
