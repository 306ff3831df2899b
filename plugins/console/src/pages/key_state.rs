//! State of an API key at a time, as its pages show it.

use crate::block::{Cell, CellState};
use serde_json::Value;

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
