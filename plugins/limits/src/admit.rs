//! A key and its account at once: both let an ask through, or neither is touched.

use crate::meter::{Cost, Denied, Held, Limits, Meter, Work};
use std::time::Duration;

/// A meter and the limits that it is measured by.
#[derive(Debug)]
pub struct Metered<'m> {
    /// The use.
    pub meter: &'m mut Meter,
    /// The limits.
    pub limits: &'m Limits,
}

/// What was taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted {
    /// From the key.
    pub key: Held,
    /// From the account.
    pub account: Held,
}

/// Whose limit is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The key's own.
    Key,
    /// The account's, which all its keys share.
    Account,
}

impl Whose {
    /// The word for refusals and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Account => "account",
        }
    }
}

/// Takes what an ask may use from a key and its account, or from neither.
///
/// # Errors
/// The limit that is longest in the way, and whose it is: after that wait the same ask passes if
/// nobody else asks meanwhile.
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
