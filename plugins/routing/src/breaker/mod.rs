//! Circuit breaker of one offer.
//!
//! ```text
//! Closed ──5 in a row, or half of ≥ 20 in 30 s, or 3 failed checks──▶ Open
//! Open ──its time is over, or an active check passes──▶ HalfOpen
//! HalfOpen ──2 good probes──▶ Closed        HalfOpen ──1 bad probe──▶ Open, twice as long
//! ```
//!
//! The state depends on the results of real attempts; active health checks are only additional input. A passing check
//! never closes the breaker by itself: a provider can list its models and still fail every request. But it marks the
//! offer as responding again ([`CircuitBreaker::is_considered_healthy`]), unless earlier checks proved unreliable.
//!
//! Only attempts that the breaker admitted after the ejection close or re-open it ([`AttemptAdmission`]): the result of
//! an older attempt, such as a long stream, says nothing about the offer's recovery.
//!
//! Failures of a single client's requests do not open the breaker while other clients are answered; see `clients.rs`.
//!
//! A cooldown differs from an ejection: an offer that returned 429 or `Retry-After` is not used for some time, but a
//! 429 does not count toward an ejection. Errors of the caller do not count either.
//!
//! Each attempt must report a result, also if the client disconnected ([`AttemptOutcome::Neutral`]); otherwise the
//! permit of a probe stays in use for [`BreakerSettings::probe_timeout`].

mod admission;
mod clients;
mod outcome;
mod phase;
mod settings;
mod state;
mod window;

pub use admission::AttemptAdmission;
pub use clients::BreakerClient;
pub use outcome::AttemptOutcome;
pub use settings::BreakerSettings;
pub use state::{BreakerState, OfferHealth};

use admission::AttemptOrigin;
use clients::{ClientHistory, FailedClients};
use phase::{BreakerPhase, CheckStatus};
use std::time::Duration;
use window::{OutcomeCounts, OutcomeWindow};

/// Time for which active checks are ignored after they passed although requests failed; limited to the maximum
/// ejection time.
const IGNORE_CHECKS: Duration = Duration::from_secs(10);

/// Circuit breaker of one offer: a state machine that the gateway protects with a lock.
#[derive(Clone, Debug)]
pub struct CircuitBreaker {
    settings: BreakerSettings,
    phase: BreakerPhase,
    /// Number of ejections so far; an ejection that is prolonged by failed checks counts once.
    ejections: u64,
    /// Number of consecutive failures; reset by a success.
    failures: u32,
    /// Clients whose requests failed in the consecutive failures.
    failure_origin: FailedClients,
    clients: ClientHistory,
    /// Number of consecutive failed active checks.
    failed_checks: u32,
    /// Result of the active checks since the last evidence against the offer.
    check_status: CheckStatus,
    /// Time until which checks are ignored, because requests failed although checks passed.
    checks_ignored_until: Duration,
    /// Number of consecutive 429 responses, for the backoff of those without `Retry-After`.
    consecutive_429: u32,
    cooldown_end: Duration,
    window: OutcomeWindow,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self::new(BreakerSettings::default())
    }
}

impl CircuitBreaker {
    /// Returns a closed breaker without recorded results.
    #[must_use]
    pub fn new(settings: BreakerSettings) -> Self {
        Self {
            window: OutcomeWindow::new(settings.window),
            settings,
            phase: BreakerPhase::Closed,
            ejections: 0,
            failures: 0,
            failure_origin: FailedClients::Unknown,
            clients: ClientHistory::default(),
            failed_checks: 0,
            check_status: CheckStatus::Unknown,
            checks_ignored_until: Duration::ZERO,
            consecutive_429: 0,
            cooldown_end: Duration::ZERO,
        }
    }

    /// Sets new thresholds. Recorded results are retained, except that the window is emptied if its length changes.
    pub fn configure(&mut self, settings: BreakerSettings) {
        if settings.window != self.settings.window {
            self.window = OutcomeWindow::new(settings.window);
        }
        self.settings = settings;
    }

    /// Returns the state at `now`.
    #[must_use]
    pub fn state(&self, now: Duration) -> BreakerState {
        match self.phase {
            BreakerPhase::Closed => BreakerState::Closed,
            BreakerPhase::Open { until, .. } if now < until => BreakerState::Open { until },
            BreakerPhase::Open { .. } | BreakerPhase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Returns true if the offer is believed to respond: the breaker is closed, the offer has answered a probe since
    /// its last ejection, or an active check has passed since its last failure. Checks are ignored for ten seconds
    /// after a request failed at an offer that was ejected or half open.
    #[must_use]
    pub const fn is_considered_healthy(&self) -> bool {
        match self.phase {
            BreakerPhase::Closed => true,
            BreakerPhase::HalfOpen { good: 1.., .. } => true,
            BreakerPhase::HalfOpen { .. } | BreakerPhase::Open { .. } => {
                matches!(self.check_status, CheckStatus::Passed)
            }
        }
    }

    /// Returns the end of the cooldown; `None` if it is over at `now`.
    #[must_use]
    pub fn cooldown_until(&self, now: Duration) -> Option<Duration> {
        (now < self.cooldown_end).then_some(self.cooldown_end)
    }

    /// Returns the health at `now`, for the ranking of offers. Ejection takes precedence over cooldown; a half-open
    /// offer whose probe permits are all taken counts as ejected.
    #[must_use]
    pub fn health(&self, now: Duration) -> OfferHealth {
        match (self.state(now), self.cooldown_until(now)) {
            (BreakerState::Open { until }, rest) => OfferHealth::Ejected {
                failures: self.failures,
                until: rest.map_or(until, |rest| rest.max(until)),
            },
            (_, Some(until)) => OfferHealth::CoolingDown { until },
            (BreakerState::HalfOpen, None) if self.probes_in_flight(now) < self.settings.max_probes => {
                OfferHealth::HalfOpen
            }
            (BreakerState::HalfOpen, None) => OfferHealth::Ejected { failures: self.failures, until: now },
            (BreakerState::Closed, None) => OfferHealth::Healthy,
        }
    }

    /// Returns true if the breaker is closed, there is no cooldown and no attempt has failed since the last success.
    /// Then an immediate retry is useful.
    #[must_use]
    pub fn is_stable(&self, now: Duration) -> bool {
        self.failures == 0 && self.health(now) == OfferHealth::Healthy
    }

    /// Returns the share of failed attempts (429 included) in the window, 0 to 1; 0 without attempts. It is damped,
    /// because a single attempt proves little: `failing = failed / (attempts + 2)`. Repeated failures of one client do
    /// not count while other clients are answered.
    #[must_use]
    pub fn failure_ratio(&self, now: Duration) -> f64 {
        let seen = self.window.totals(now);
        let failed = f64::from(self.counted_failures(now, seen.failures)) + f64::from(seen.limited);
        failed / (f64::from(seen.successes) + failed + 2.0)
    }

    /// Requests permission for an attempt. Always granted if closed, even during a cooldown. If half open, takes a
    /// probe permit, which the result of the attempt releases. Returns `None` if open or if all permits are taken.
    pub fn try_acquire(&mut self, now: Duration) -> Option<AttemptAdmission> {
        let taken = self.probes_in_flight(now);
        let (probing, good, round) = match self.phase {
            BreakerPhase::Closed => return Some(self.last_resort_admission()),
            BreakerPhase::Open { until, .. } if now < until => return None,
            BreakerPhase::Open { round, .. } => (1, 0, round),
            BreakerPhase::HalfOpen { .. } if taken >= self.settings.max_probes => return None,
            BreakerPhase::HalfOpen { good, round, .. } => (taken + 1, good, round),
        };
        self.phase = BreakerPhase::HalfOpen { probing, last_probe: now, good, round };
        Some(AttemptAdmission::probe(self.ejections))
    }

    /// Returns the admission of an attempt that is made without a permit, because every offer is ejected. Its result
    /// counts like that of a probe.
    #[must_use]
    pub const fn last_resort_admission(&self) -> AttemptAdmission {
        AttemptAdmission::without_probe(self.ejections)
    }

    /// Records the result of an attempt that was admitted in the current state and cannot be attributed to a client.
    pub fn on_unattributed_result(&mut self, now: Duration, outcome: AttemptOutcome) {
        self.on_client_result(now, outcome, None);
    }

    /// Records the result of an attempt that was admitted in the current state, see
    /// [`CircuitBreaker::on_attempt_result`].
    pub fn on_client_result(
        &mut self,
        now: Duration,
        outcome: AttemptOutcome,
        client: Option<BreakerClient>,
    ) {
        self.on_attempt_result(now, AttemptAdmission::probe(self.ejections), outcome, client);
    }

    /// Records the result of an attempt. `admission` is that of the attempt. `client` is the client of the request;
    /// `None` if it is unknown, or if no request could cause the failure.
    pub fn on_attempt_result(
        &mut self,
        now: Duration,
        admission: AttemptAdmission,
        outcome: AttemptOutcome,
        client: Option<BreakerClient>,
    ) {
        let origin = admission.origin(self.ejections);
        if admission.holds_probe(self.ejections) {
            self.release_probe();
        }
        match outcome {
            AttemptOutcome::Neutral => {}
            AttemptOutcome::Success => self.on_success(now, origin, client),
            AttemptOutcome::RateLimited { retry_after: rest } => self.on_limited(now, rest),
            AttemptOutcome::Failure { retry_after: rest } => {
                if let Some(rest) = rest {
                    self.extend_cooldown(now, rest);
                }
                self.on_failure(now, origin, client);
            }
        }
    }

    /// Records a failed connection to the provider that occurred during an attempt at another offer of this provider.
    /// The failure counts toward an ejection, but does not re-open a half-open breaker.
    pub fn on_provider_unreachable(&mut self, now: Duration) {
        self.on_failure(now, AttemptOrigin::BeforeEjection, None);
    }

    /// Records the result of an active check. A passed check ends the ejection time early. After
    /// [`BreakerSettings::failed_checks`] consecutive failed checks, the last of them and each further one start or
    /// prolong an ejection.
    pub fn on_health_check(&mut self, now: Duration, passed: bool) {
        if passed {
            self.failed_checks = 0;
            if let BreakerPhase::Open { round, .. } = self.phase {
                self.phase = BreakerPhase::Open { until: now, round };
            }
            if now >= self.checks_ignored_until {
                self.check_status = CheckStatus::Passed;
            }
            return;
        }
        self.failed_checks = self.failed_checks.saturating_add(1);
        self.check_status = CheckStatus::Unknown;
        if self.failed_checks >= self.settings.failed_checks {
            self.failures = self.failures.max(1);
            self.open(now);
        }
    }

    fn on_success(&mut self, now: Duration, origin: AttemptOrigin, client: Option<BreakerClient>) {
        if let Some(client) = client {
            self.clients.record_success(now, client);
        }
        self.failures = 0;
        self.failure_origin = FailedClients::Unknown;
        self.consecutive_429 = 0;
        // A successful request resets the failed checks: an invalid health path must not eject an offer that answers.
        self.failed_checks = 0;
        self.window.add(now, OutcomeCounts { successes: 1, ..OutcomeCounts::default() });
        if origin == AttemptOrigin::BeforeEjection {
            return;
        }
        let (good, round, probing, last_probe) = match self.phase {
            BreakerPhase::Closed => return,
            // An ejected offer may be used because no other offer was better; then a success counts as a probe.
            BreakerPhase::Open { round, .. } => (1, round, 0, now),
            BreakerPhase::HalfOpen { good, round, probing, last_probe } => {
                (good + 1, round, probing, last_probe)
            }
        };
        self.phase = if good >= self.settings.successes_to_close {
            self.window.clear();
            self.clients.clear_failures();
            BreakerPhase::Closed
        } else {
            BreakerPhase::HalfOpen { probing, last_probe, good, round }
        };
    }

    fn on_failure(&mut self, now: Duration, origin: AttemptOrigin, client: Option<BreakerClient>) {
        self.failures = self.failures.saturating_add(1);
        self.failure_origin = self.failure_origin.merge(FailedClients::from_client(client));
        self.window.add(now, OutcomeCounts { failures: 1, ..OutcomeCounts::default() });
        if let Some(client) = client {
            self.clients.record_failure(self.window.slice_number(now), client);
        }
        match self.phase {
            BreakerPhase::Open { .. } | BreakerPhase::HalfOpen { .. }
                if origin == AttemptOrigin::BeforeEjection => {}
            // A failure of an ejected offer does not extend the ejection: the request was sent because no other offer
            // was better.
            BreakerPhase::Open { .. } => self.ignore_checks(now),
            BreakerPhase::HalfOpen { .. }
                if self.clients.has_served_others(now, FailedClients::from_client(client)) => {}
            BreakerPhase::HalfOpen { .. } => {
                self.ignore_checks(now);
                self.open(now);
            }
            BreakerPhase::Closed => {
                let OutcomeCounts { successes: good, failures: bad, .. } = self.window.totals(now);
                let bad = self.counted_failures(now, bad);
                let volume = good.saturating_add(bad);
                let share = f64::from(bad) / f64::from(volume.max(1));
                let often = volume >= self.settings.min_attempts && share >= self.settings.failure_ratio;
                let in_a_row = self.failures >= self.settings.consecutive_failures
                    && !self.clients.has_served_others(now, self.failure_origin);
                if often || in_a_row {
                    self.check_status = CheckStatus::Unknown;
                    self.open(now);
                }
            }
        }
    }

    /// Ignores checks for a while: a request failed while the offer was ejected or half open, so earlier passing checks
    /// were unreliable.
    fn ignore_checks(&mut self, now: Duration) {
        self.check_status = CheckStatus::Unknown;
        self.checks_ignored_until = now.saturating_add(IGNORE_CHECKS.min(self.settings.max_ejection));
    }

    /// Returns the number of failures that count, of the `bad` failures in the window.
    fn counted_failures(&self, now: Duration, bad: u32) -> u32 {
        if bad < 2 {
            return bad;
        }
        bad.saturating_sub(self.clients.excluded_failure_count(now, self.window.slice_number(now)))
    }

    /// Records a 429, which counts in the failure ratio but not toward an ejection, and starts a cooldown.
    fn on_limited(&mut self, now: Duration, rest: Option<Duration>) {
        self.window.add(now, OutcomeCounts { limited: 1, ..OutcomeCounts::default() });
        let backoff = exponential_backoff(
            self.settings.rate_limit_cooldown,
            self.consecutive_429,
            self.settings.max_rate_limit_cooldown,
        );
        self.consecutive_429 = self.consecutive_429.saturating_add(1);
        self.extend_cooldown(now, rest.unwrap_or(backoff));
    }

    fn extend_cooldown(&mut self, now: Duration, rest: Duration) {
        let until = now.saturating_add(rest.min(self.settings.max_cooldown));
        self.cooldown_end = self.cooldown_end.max(until);
    }

    /// Opens the breaker. The ejection time is doubled for each opening since the breaker was last closed.
    fn open(&mut self, now: Duration) {
        let round = match self.phase {
            BreakerPhase::Closed => 0,
            // A failed check during an ejection does not change the round.
            BreakerPhase::Open { round, until } if now < until => round,
            BreakerPhase::Open { round, .. } | BreakerPhase::HalfOpen { round, .. } => {
                round.saturating_add(1)
            }
        };
        if !matches!(self.phase, BreakerPhase::Open { .. }) {
            self.ejections = self.ejections.saturating_add(1);
        }
        let pause = exponential_backoff(self.settings.first_ejection, round, self.settings.max_ejection);
        self.phase = BreakerPhase::Open { until: now.saturating_add(pause), round };
    }

    fn release_probe(&mut self) {
        if let BreakerPhase::HalfOpen { probing, .. } = &mut self.phase {
            *probing = probing.saturating_sub(1);
        }
    }

    /// Returns the number of probe permits in use; the permits of lost probes expire.
    fn probes_in_flight(&self, now: Duration) -> u32 {
        match self.phase {
            BreakerPhase::HalfOpen { probing, last_probe, .. }
                if now.saturating_sub(last_probe) < self.settings.probe_timeout =>
            {
                probing
            }
            _ => 0,
        }
    }
}

/// Returns `base * 2^times`, at most `max`.
fn exponential_backoff(base: Duration, times: u32, max: Duration) -> Duration {
    base.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(max)
}
