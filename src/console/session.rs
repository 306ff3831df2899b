//! Sessions of signed-in persons. All functions but [`run_blocking`] block.

use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode, hex};
use penstock_storage::StoreError;
use penstock_storage::sessions::{SessionChangeOutcome, SessionRecord};
use penstock_storage::users::UserRecord;
use sha2::{Digest, Sha256};
use std::cell::Cell;

/// Time without a request of the person after which a session ends, in seconds.
pub const IDLE_SECONDS: u64 = 30 * 60;
/// Time after the sign-in at which a session ends, in seconds.
pub const MAX_AGE_SECONDS: u64 = 12 * 3_600;
/// Accuracy of the stored time of the last request, in seconds. The time is stored again only after this interval.
const SEEN_SECONDS: u64 = 60;
/// Maximum number of sessions of all persons.
const MAX_SESSIONS: usize = 10_000;
/// Maximum number of sessions of one person, so that no person can use up the sessions of the others.
pub const MAX_USER_SESSIONS: usize = 20;

/// Maximum number of sent forms that a session remembers; older ones are forgotten.
const MAX_USED_FORMS: usize = 64;
/// Number of bytes of a form's digest.
const FORM_DIGEST_BYTES: usize = 12;

/// Valid session and the person to whom it belongs.
#[derive(Clone, Debug)]
pub struct ActiveSession {
    /// SHA-256 of the session id.
    pub digest: [u8; 32],
    /// Record of the session.
    pub record: SessionRecord,
    /// Person to whom the session belongs.
    pub user: UserRecord,
}

impl ActiveSession {
    /// Returns the name of the author of changes, for the audit log.
    pub fn audit_actor(&self, address: &str) -> String {
        format!("{} from {address}", self.user.name)
    }
}

/// Returns true if the session has ended at `now`, in Unix seconds.
pub fn has_ended(session: &SessionRecord, now: u64) -> bool {
    now >= session.seen.saturating_add(IDLE_SECONDS) || now >= session.created.saturating_add(MAX_AGE_SECONDS)
}

/// Returns the session with this id. If it has ended or its person may no longer sign in, removes it and returns
/// `None`. If `extends` is true, the end of the session is postponed. `now` is in Unix seconds.
///
/// # Errors
/// Returns the error of the store.
pub fn find_session(
    stores: &OpenStorage,
    id: &str,
    now: u64,
    extends: bool,
) -> Result<Option<ActiveSession>, ApiError> {
    let digest: [u8; 32] = Sha256::digest(id.as_bytes()).into();
    let Some(mut record) = stores.sessions.get(&digest).map_err(store_error_response)? else {
        return Ok(None);
    };
    let user = stores.users.get(&record.user).map_err(store_error_response)?;
    let valid = user.filter(|user| user.disabled.is_none() && user.generation == record.generation);
    let Some(user) = valid.filter(|_| !has_ended(&record, now)) else {
        stores.sessions.remove(&digest).map_err(store_error_response)?;
        return Ok(None);
    };
    if extends && now >= record.seen.saturating_add(SEEN_SECONDS) {
        record.seen = now;
        let touch = |session: &mut SessionRecord| {
            session.seen = now;
            true
        };
        stores.sessions.change(&digest, touch).map_err(store_error_response)?;
    }
    Ok(Some(ActiveSession { digest, record, user }))
}

/// Returns a predicate that is true for the sessions to remove before `user` gets a new session: sessions that have
/// ended, and further sessions of the user after the first `MAX_USER_SESSIONS - 1`. The predicate counts, so it must
/// be called exactly once for each session, in any order.
pub fn removal_predicate_for_user(user: &str, now: u64) -> impl Fn(&SessionRecord) -> bool {
    let own = Cell::new(0);
    move |session| {
        if has_ended(session, now) {
            return true;
        }
        if session.user != user {
            return false;
        }
        own.set(own.get() + 1);
        own.get() >= MAX_USER_SESSIONS
    }
}

/// Starts a session with a new id; returns the id.
///
/// # Errors
/// Returns 503 if there are too many sessions, or the error of the store.
pub fn start_session(stores: &OpenStorage, user: &UserRecord, now: u64) -> Result<String, ApiError> {
    let open = stores
        .sessions
        .remove_where(removal_predicate_for_user(&user.name, now))
        .map_err(store_error_response)?;
    if open >= MAX_SESSIONS {
        return Err(ApiError::new(ErrorCode::Overloaded).with_retry_after(60));
    }
    let (id, form_token) = (random_text(), random_text());
    let record = SessionRecord {
        user: user.name.clone(),
        generation: user.generation,
        created: now,
        seen: now,
        form_token,
        used_forms: Vec::new(),
    };
    stores.sessions.put(&Sha256::digest(id.as_bytes()).into(), &record).map_err(store_error_response)?;
    Ok(id)
}

/// Records that a form of the session is sent. Returns `Unchanged` if it was sent before, so that it must not have an
/// effect again, and `Missing` if the session has ended.
///
/// # Errors
/// Returns the error of the store.
pub fn record_form_submission(
    stores: &OpenStorage,
    digest: &[u8; 32],
    form: &str,
) -> Result<SessionChangeOutcome, ApiError> {
    let hash = hex::encode(Sha256::digest(form.as_bytes()).iter().take(FORM_DIGEST_BYTES));
    let claim = |session: &mut SessionRecord| {
        let is_new = !session.used_forms.contains(&hash);
        if is_new {
            let surplus = (session.used_forms.len() + 1).saturating_sub(MAX_USED_FORMS);
            session.used_forms.drain(..surplus);
            session.used_forms.push(hash.clone());
        }
        is_new
    };
    stores.sessions.change(digest, claim).map_err(store_error_response)
}

fn random_text() -> String {
    let mut bytes = [0_u8; 32];
    rand::fill(&mut bytes);
    hex::encode(bytes.iter())
}

/// Returns the refusal for an error of the store, without internal details: persons without a session may see it. The
/// log has the details.
pub fn store_error_response(error: StoreError) -> ApiError {
    match error {
        StoreError::Full => ApiError::new(ErrorCode::StorageFull),
        StoreError::Unreachable { .. }
        | StoreError::Database { .. }
        | StoreError::Reverted
        | StoreError::InUse { .. }
        | StoreError::Evicted { .. }
        | StoreError::Stuck => {
            let message = "The database cannot be reached at the moment; try again shortly.";
            ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5)
        }
        error => log_and_redact_error(&ApiError::with_message(ErrorCode::Internal, error.to_string())),
    }
}

/// Logs an internal error, and returns one without its details.
pub fn log_and_redact_error(error: &ApiError) -> ApiError {
    tracing::error!(name: "console_failed", why = %error.message);
    ApiError::new(ErrorCode::Internal)
}

/// Runs a blocking call on a thread for blocking work.
///
/// # Errors
/// Returns the error of the call.
pub async fn run_blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(call).await.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)))
}
