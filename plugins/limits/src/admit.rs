//! Reservation from a key and its account together: both admit a request, or neither is changed.

use crate::meter::{Cost, Denied, Held, Limits, Meter, Work};
use std::time::Duration;

/// Meter with the limits that apply to it.
#[derive(Debug)]
pub struct Metered<'m> {
    /// Recorded usage.
    pub meter: &'m mut Meter,
    /// Applicable limits.
    pub limits: &'m Limits,
}

/// Reservations of one request.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Reservation from the key.
    pub key: Held,
    /// Reservation from the account.
    pub account: Held,
}

/// Owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Limit of the key itself.
    Key,
    /// Limit of the account, shared by all its keys.
    Account,
}

impl Whose {
    /// Name in errors and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Account => "account",
        }
    }
}

/// Reserves the maximum usage of a request from a key and its account, or from neither.
///
/// # Errors
/// Returns the limit with the longest wait and its owner. After that wait the same request passes, if no other requests
/// come meanwhile.
pub fn admit(
    key: Metered<'_>,
    account: Metered<'_>,
    cost: &Cost,
    work: Work,
    now: Duration,
) -> Result<Admitted, (Whose, Denied)> {
    let by_key = key.meter.check(key.limits, cost, work, now).err();
    let by_account = account.meter.check(account.limits, cost, work, now).err();
    match (by_key, by_account) {
        (None, None) => Ok(Admitted {
            key: key.meter.take(key.limits, cost, work, now),
            account: account.meter.take(account.limits, cost, work, now),
        }),
        (Some(denied), Some(longer)) if longer.wait > denied.wait => Err((Whose::Account, longer)),
        (Some(denied), _) => Err((Whose::Key, denied)),
        (None, Some(denied)) => Err((Whose::Account, denied)),
    }
}
