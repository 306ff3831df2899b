//! Reservation from a key and its account together: either both admit the request, or neither meter is changed.

use crate::meter::{CostEstimate, LimitExceeded, LimitReservation, UsageLimits, UsageMeter, WorkClass};
use std::time::Duration;

/// Meter with the limits that apply to it.
#[derive(Debug)]
pub struct LimitedMeter<'m> {
    /// Recorded usage.
    pub meter: &'m mut UsageMeter,
    /// Applicable limits.
    pub limits: &'m UsageLimits,
}

/// Reservations of one request.
#[derive(Debug, PartialEq, Eq)]
pub struct ReservationPair {
    /// Reservation from the limits of the API key.
    pub key: LimitReservation,
    /// Reservation from the limits of the account.
    pub account: LimitReservation,
}

/// Owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOwner {
    /// Limit of the key itself.
    Key,
    /// Limit of the account, which all its keys share.
    Account,
}

impl LimitOwner {
    /// Returns the name that errors and metrics use.
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
/// Returns the limit with the longest wait, and its owner. After that wait the same request is admitted, unless other
/// requests use the limit in between.
pub fn reserve_key_and_account(
    key: LimitedMeter<'_>,
    account: LimitedMeter<'_>,
    cost: &CostEstimate,
    work: WorkClass,
    now: Duration,
) -> Result<ReservationPair, (LimitOwner, LimitExceeded)> {
    let by_key = key.meter.check_limits(key.limits, cost, work, now).err();
    let by_account = account.meter.check_limits(account.limits, cost, work, now).err();
    match (by_key, by_account) {
        (None, None) => Ok(ReservationPair {
            key: key.meter.reserve(key.limits, cost, work, now),
            account: account.meter.reserve(account.limits, cost, work, now),
        }),
        (Some(denied), Some(longer)) if longer.retry_after > denied.retry_after => {
            Err((LimitOwner::Account, longer))
        }
        (Some(denied), _) => Err((LimitOwner::Key, denied)),
        (None, Some(denied)) => Err((LimitOwner::Account, denied)),
    }
}
