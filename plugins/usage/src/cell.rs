//! Dimensions of a rollup.

use crate::price_class::PriceClass;
use std::fmt;
use std::sync::Arc;

/// Seconds per hour.
const HOUR_SECONDS: u64 = 3_600;

/// Hour in UTC, as hours since 1970-01-01T00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HourNumber(pub u32);

impl HourNumber {
    /// Returns the hour that contains a time in Unix seconds.
    #[must_use]
    pub fn from_unix(unix: u64) -> Self {
        Self(u32::try_from(unix / HOUR_SECONDS).unwrap_or(u32::MAX))
    }

    /// Returns the first second of the hour, in Unix seconds.
    #[must_use]
    pub fn start(self) -> u64 {
        u64::from(self.0) * HOUR_SECONDS
    }
}

/// Outcome of the requests or ledger entries that a rollup sums up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageOutcome {
    /// Requests with a charge.
    Charged,
    /// Requests that no provider could answer.
    Failed,
    /// Requests whose client disconnected before any output.
    Disconnected,
    /// Lines of batches, and background responses, that were cancelled before any output.
    Cancelled,
    /// Requests in flight when the process ended, or whose charge could not be recorded.
    Interrupted,
    /// Corrections of charges.
    Corrected,
    /// Grants and corrections of grants.
    Granted,
}

impl UsageOutcome {
    /// All usage outcomes.
    pub const ALL: [Self; 7] = [
        Self::Charged,
        Self::Failed,
        Self::Disconnected,
        Self::Cancelled,
        Self::Interrupted,
        Self::Corrected,
        Self::Granted,
    ];

    /// Returns the name used in rows and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Charged => "charged",
            Self::Failed => "failed",
            Self::Disconnected => "left",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Corrected => "corrected",
            Self::Granted => "granted",
        }
    }

    /// Returns the outcome with this name; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }

    /// Returns the outcome of a request that ended without a charge; `why` is the reason in its ledger entry.
    #[must_use]
    pub fn from_void_reason(why: &str) -> Self {
        match why {
            "failed" => Self::Failed,
            "left" => Self::Disconnected,
            "cancelled" => Self::Cancelled,
            _ => Self::Interrupted,
        }
    }
}

impl fmt::Display for UsageOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Dimensions of a rollup. A dimension is empty if the ledger entry does not name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RollupDimensions {
    /// Account; empty for the whole gateway.
    pub account: Arc<str>,
    /// Hour in UTC in which the ledger entries were made.
    pub hour: HourNumber,
    /// Public id of the key; empty for the whole gateway.
    pub key: Arc<str>,
    /// Catalogue id of the model.
    pub model: Arc<str>,
    /// Provider that answered.
    pub provider: Arc<str>,
    /// City and country of the provider's data centre.
    pub location: Arc<str>,
    /// Id of the pricing terms.
    pub terms: Arc<str>,
    /// Outcome of the requests.
    pub outcome: UsageOutcome,
    /// Class of the price of charged requests.
    pub price: PriceClass,
}

impl RollupDimensions {
    /// Returns the dimensions of the rollup of the whole gateway that also counts these entries: without account and
    /// key.
    #[must_use]
    pub fn to_gateway_wide(&self) -> Self {
        Self { account: Arc::from(""), key: Arc::from(""), ..self.clone() }
    }
}
