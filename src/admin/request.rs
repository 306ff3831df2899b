//! What an administrator asks and is answered: the same for the listener of a running gateway and for the command line
//! on a store.

use penstock_contract::{Code, Refusal};
use penstock_storage::StoreError;
use penstock_storage::accounts::AccountRecord;
use penstock_storage::audit::Said;
use penstock_storage::keys::KeyRecord;
use serde_json::{Value, json};

/// Rows of a page unless told otherwise, and at most.
pub const PAGE: usize = 1_000;

/// One request.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// What `{id}` stands for.
    pub id: String,
    /// Names and values of the query, decoded.
    pub query: Vec<(String, String)>,
    /// The body, an object.
    pub body: Value,
    /// Who asks, for the audit log.
    pub who: String,
    /// Unix seconds.
    pub now: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Done {
    /// HTTP status.
    pub status: u16,
    /// The answer.
    pub answer: Value,
    /// What the keyring has to learn.
    pub effect: Effect,
}

/// What the keyring has to learn.
#[derive(Debug)]
pub enum Effect {
    /// Nothing.
    None,
    /// A key as it is now, and the account that was made for it, if one was.
    Key(Box<KeyRecord>, Option<Box<AccountRecord>>),
    /// An account as it is now.
    Account(Box<AccountRecord>),
}

impl Done {
    pub(super) fn told(answer: Value) -> Self {
        Self { status: 200, answer, effect: Effect::None }
    }
}

/// What the ledger is answered with.
#[derive(Debug)]
pub enum Told {
    /// A status and a JSON object.
    Json(u16, Value),
    /// Lines of the ledger.
    Lines(Vec<u8>),
}

impl Asked {
    /// The entry of the audit log for a change.
    pub(super) fn said(&self, what: &str, target: &str, change: Value) -> Said {
        Said { at: self.now, who: self.who.clone(), what: what.to_owned(), target: target.to_owned(), change }
    }

    /// A value of the query; other names than those known are refused.
    pub(super) fn query(&self, name: &str, known: &[&str]) -> Result<Option<&str>, Refusal> {
        if let Some((unknown, _)) = self.query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            let message = format!("This parameter is not known; known are {}.", known.join(", "));
            return Err(Refusal::invalid(unknown.clone(), message));
        }
        Ok(self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()))
    }

    /// The parameter `limit`: rows of a page.
    pub(super) fn limit(&self, known: &[&str]) -> Result<usize, Refusal> {
        let Some(text) = self.query("limit", known)? else { return Ok(PAGE) };
        let wrong = || Refusal::invalid("limit", format!("limit has to be a whole number from 1 to {PAGE}."));
        text.parse().ok().filter(|limit| (1..=PAGE).contains(limit)).ok_or_else(wrong)
    }
}

/// The fields that differ, as `name: [before, after]`.
pub(super) fn difference(before: &Value, after: &Value) -> Value {
    let mut changed = serde_json::Map::new();
    for (name, now) in after.as_object().into_iter().flatten() {
        let then = before.get(name).unwrap_or(&Value::Null);
        match (then, now) {
            (then, now) if then == now => {}
            (Value::Object(_), Value::Object(_)) => {
                changed.insert(name.clone(), difference(then, now));
            }
            (then, now) => {
                changed.insert(name.clone(), json!([then, now]));
            }
        }
    }
    Value::Object(changed)
}

/// What the store says, as a refusal.
pub(super) fn failed(error: StoreError) -> Refusal {
    match error {
        StoreError::Full => Refusal::new(Code::StorageFull),
        StoreError::Guard { .. } => {
            Refusal::because(Code::Conflict, "Somebody else changed this at the same time; try again.")
        }
        error => Refusal::because(Code::Internal, error.to_string()),
    }
}
