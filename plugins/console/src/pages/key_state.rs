//! State of an API key at a time, as its pages show it.

use crate::block::{Cell, CellState, Field, Form};
use serde_json::Value;

/// Returns true if the secret from before the last rotation of a key is valid at `now`, in Unix seconds.
fn has_earlier_secret(key: &Value, now: u64) -> bool {
    key.get("previous_good_until").and_then(Value::as_u64).is_some_and(|end| end > now)
}

/// Adds the field that makes a rotation end the earlier secret of a key, after a confirmation, if there is such a secret
/// at `now`, in Unix seconds.
pub(super) fn with_end_of_earlier_secret(form: Form, key: &Value, now: u64) -> Form {
    if has_earlier_secret(key, now) { form.with_field(Field::hidden("end_previous", "true")) } else { form }
}

/// State of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyState {
    Valid,
    Expired,
    Revoked,
}

impl KeyState {
    /// Returns the state of a key at `now`, in Unix seconds.
    pub(super) fn at(key: &Value, now: u64) -> Self {
        let is_revoked = key.get("revoked").is_some_and(|revoked| !revoked.is_null());
        let is_expired = key.get("expires").and_then(Value::as_u64).is_some_and(|end| end <= now);
        match (is_revoked, is_expired) {
            (true, _) => Self::Revoked,
            (false, true) => Self::Expired,
            (false, false) => Self::Valid,
        }
    }

    /// Returns the table cell with the state.
    pub(super) fn cell(self) -> Cell {
        match self {
            Self::Valid => Cell::text("valid").with_state(CellState::Good),
            Self::Expired => Cell::text("expired").with_state(CellState::Bad),
            Self::Revoked => Cell::text("revoked").with_state(CellState::Bad),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rotation_ends_an_earlier_secret_that_is_valid_only() {
        for (until, is_ended) in [(json!(null), false), (json!(100), false), (json!(101), true)] {
            let form = with_end_of_earlier_secret(
                Form::new("/", "a", "b"),
                &json!({ "previous_good_until": until }),
                100,
            );
            assert_eq!(form.fields.iter().any(|field| field.name == "end_previous"), is_ended, "{until}");
        }
    }

    #[test]
    fn a_key_ends_at_its_expiry_or_revocation() {
        for (key, expected) in [
            (json!({}), KeyState::Valid),
            (json!({ "revoked": null, "expires": null }), KeyState::Valid),
            (json!({ "expires": 101 }), KeyState::Valid),
            (json!({ "expires": 100 }), KeyState::Expired),
            (json!({ "expires": 99, "revoked": 50 }), KeyState::Revoked),
            (json!({ "expires": u64::MAX }), KeyState::Valid),
        ] {
            assert_eq!(KeyState::at(&key, 100), expected, "{key}");
        }
    }
}
