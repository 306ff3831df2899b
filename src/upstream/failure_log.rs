//! Log events of provider failures. The first failure of a category is logged at once; further ones are logged at most
//! every five minutes, with the number of failures since the last event and a remedy. Each ejection and each recovery
//! of an offer is logged once.

use super::offer::OfferState;
use crate::config::settings::LogLevel;
use crate::telemetry::log;
use crate::telemetry::throttle::ThrottledLog;
use penstock_core::{UpstreamErrorKind, is_timeout_status};
use penstock_routing::BreakerState;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Minimum interval between two log events of the same category.
const LOG_INTERVAL: Duration = Duration::from_secs(300);

/// Category of failures of a provider or of one of its offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureCategory {
    /// The connection failed.
    Unreachable,
    /// The TLS handshake failed.
    Tls,
    /// The provider refused the gateway's key (status 401 or 403).
    Key,
    /// The provider does not know the model name or the path (status 404).
    Name,
    /// The provider requires a payment (status 402).
    Unpaid,
    /// The gateway exceeded its quota at the provider (status 429).
    Exhausted,
    /// The provider sent nothing before a timeout of the gateway.
    Silent,
    /// The provider answered with the status of a timeout.
    TimedOut,
    /// Any other failure of the provider: an error status, a reset, or a malformed or truncated response.
    Failing,
}

/// Number of failure categories.
const CATEGORY_COUNT: usize = 9;

/// Log throttles of one provider or offer, one for each category of failures; created at the first event.
#[derive(Debug, Default)]
pub struct FailureLogs(OnceLock<Box<[ThrottledLog; CATEGORY_COUNT]>>);

impl FailureLogs {
    fn category_log(&self, category: FailureCategory) -> Option<&ThrottledLog> {
        let all = self
            .0
            .get_or_init(|| Box::new(std::array::from_fn(|_| ThrottledLog::with_interval(LOG_INTERVAL))));
        all.get(category as usize)
    }
}

impl FailureCategory {
    /// Returns the category of an upstream error; `None` if the provider did not cause the error.
    const fn from_error(kind: UpstreamErrorKind) -> Option<Self> {
        Some(match kind {
            UpstreamErrorKind::Connect => Self::Unreachable,
            UpstreamErrorKind::Tls => Self::Tls,
            UpstreamErrorKind::Credentials(402) => Self::Unpaid,
            UpstreamErrorKind::Credentials(404) => Self::Name,
            UpstreamErrorKind::Credentials(_) => Self::Key,
            UpstreamErrorKind::Status(429) => Self::Exhausted,
            UpstreamErrorKind::Status(status) if is_timeout_status(status) => Self::TimedOut,
            UpstreamErrorKind::FirstByteTimeout
            | UpstreamErrorKind::FirstTokenTimeout
            | UpstreamErrorKind::IdleTimeout => Self::Silent,
            UpstreamErrorKind::Status(_)
            | UpstreamErrorKind::Reset
            | UpstreamErrorKind::Malformed
            | UpstreamErrorKind::InBandError
            | UpstreamErrorKind::Truncated => Self::Failing,
            UpstreamErrorKind::Caller
            | UpstreamErrorKind::DeadlineExceeded
            | UpstreamErrorKind::Diverged
            | UpstreamErrorKind::NoDescriptors
            | UpstreamErrorKind::ModelOutput => return None,
        })
    }

    /// Returns true if the category concerns all offers of the provider. Such failures are logged once for all of them.
    const fn is_provider_wide(self) -> bool {
        matches!(self, Self::Unreachable | Self::Tls | Self::Key | Self::Unpaid)
    }

    const fn level(self) -> LogLevel {
        match self {
            Self::Unreachable | Self::Tls | Self::Key | Self::Name | Self::Unpaid => LogLevel::Error,
            Self::Exhausted | Self::Silent | Self::TimedOut | Self::Failing => LogLevel::Warn,
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Unreachable => "Check `base_url`, the network and the provider's status.",
            Self::Tls => {
                "Check the provider's certificate: it has to be valid now, for the host of `base_url`, and issued under `ca` \
                 or, without `ca`, by a public authority. Check `client_certificate` and `min_tls` too."
            }
            Self::Key => "Check the provider's `api_key` and its permissions.",
            Self::Name => {
                "Check the offer's `name` and the provider's `base_url`: the provider does not know one of them."
            }
            Self::Unpaid => "Check the balance of the gateway's own account at the provider.",
            Self::Exhausted => {
                "Raise the quota at the provider, lower `max_in_flight`, or add another offer."
            }
            Self::Silent => "Check the provider's status; raise its `timeouts` if it is only slow.",
            Self::TimedOut => {
                "Check the provider's load and the timeouts of its own proxies: it ended the request."
            }
            Self::Failing => "Check the provider's status and its own log.",
        }
    }
}

/// Returns the remedy for a failed connection; `None` if the connection did not fail.
pub(super) const fn connection_remedy(kind: UpstreamErrorKind) -> Option<&'static str> {
    match FailureCategory::from_error(kind) {
        Some(category @ (FailureCategory::Unreachable | FailureCategory::Tls)) => Some(category.remedy()),
        _ => None,
    }
}

/// Logs a failed attempt at an offer, unless the provider did not cause the failure.
pub fn log_failure(offer: &OfferState, kind: UpstreamErrorKind) {
    let Some(category) = FailureCategory::from_error(kind) else { return };
    let notices =
        if category.is_provider_wide() { &offer.provider.failure_logs } else { &offer.failure_logs };
    let Some(throttled_log) = notices.category_log(category) else { return };
    throttled_log.log(Instant::now(), |times| {
        let status = match kind {
            UpstreamErrorKind::Status(status) | UpstreamErrorKind::Credentials(status) => Some(status),
            _ => None,
        };
        log::event_at!(
            category.level(),
            name: "provider_failed",
            provider = &*offer.offer.provider.id,
            model = &*offer.offer.model.card.id,
            reason = kind.name(),
            status = status.map(tracing::field::display),
            times,
            remedy = category.remedy(),
        );
    });
}

/// Logs a state change of an offer's circuit breaker: an ejection or a recovery.
pub(super) fn log_breaker_change(offer: &OfferState, before: BreakerState, after: BreakerState) {
    let (provider, model) = (&*offer.offer.provider.id, &*offer.offer.model.card.id);
    match (before, after) {
        (BreakerState::Closed, BreakerState::Open { .. }) => {
            let remedy = "See the events `provider_failed`; the offer is retried automatically.";
            tracing::error!(name: "offer_ejected", provider, model, remedy);
        }
        (_, BreakerState::Closed) => tracing::info!(name: "offer_recovered", provider, model),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_failure_has_a_remedy_and_configuration_faults_are_errors() {
        let errors = [UpstreamErrorKind::Connect, UpstreamErrorKind::Tls]
            .into_iter()
            .chain((401..=404).map(UpstreamErrorKind::Credentials));
        for kind in errors {
            let found = FailureCategory::from_error(kind)
                .map(|category| (category.level() == LogLevel::Error, category.remedy().len() > 20));
            assert_eq!(found, Some((true, true)), "{kind:?}");
        }
        let warnings = [429, 500, 503, 504].map(UpstreamErrorKind::Status).into_iter().chain([
            UpstreamErrorKind::FirstByteTimeout,
            UpstreamErrorKind::FirstTokenTimeout,
            UpstreamErrorKind::IdleTimeout,
            UpstreamErrorKind::Reset,
            UpstreamErrorKind::Malformed,
            UpstreamErrorKind::InBandError,
            UpstreamErrorKind::Truncated,
        ]);
        for kind in warnings {
            let found = FailureCategory::from_error(kind)
                .map(|category| (category.level() == LogLevel::Warn, category.remedy().len() > 20));
            assert_eq!(found, Some((true, true)), "{kind:?}");
        }
        for kind in [
            UpstreamErrorKind::Caller,
            UpstreamErrorKind::DeadlineExceeded,
            UpstreamErrorKind::Diverged,
            UpstreamErrorKind::NoDescriptors,
        ] {
            assert_eq!(FailureCategory::from_error(kind), None, "{kind:?}");
        }
    }

    #[test]
    fn a_failed_handshake_names_the_certificate_and_a_failed_connection_does_not() {
        let remedy = connection_remedy(UpstreamErrorKind::Tls).unwrap_or_default();
        assert!(remedy.contains("certificate") && remedy.contains("`ca`"), "{remedy}");
        assert!(
            connection_remedy(UpstreamErrorKind::Connect).is_some_and(|text| !text.contains("certificate"))
        );
        assert_eq!(connection_remedy(UpstreamErrorKind::Status(503)), None);
    }

    #[test]
    fn every_category_has_its_own_log() {
        assert_eq!(FailureCategory::Failing as usize, CATEGORY_COUNT - 1);
        assert!(FailureLogs::default().category_log(FailureCategory::Failing).is_some());
    }
}
