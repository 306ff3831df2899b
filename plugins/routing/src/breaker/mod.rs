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
//! offer as responding again ([`Breaker::is_well`]), unless earlier checks proved unreliable.
//!
//! Failures of a single client's requests do not open the breaker while other clients are answered; see `clients.rs`.
//!
//! A cooldown differs from an ejection: an offer that returned `Retry-After` or 429 is not used until that time, and
//! this does not count toward an ejection. Errors of the caller do not count either.
//!
//! Each attempt must report a result, also if the client disconnected ([`Outcome::Neutral`]); otherwise a probe's
//! permit stays taken for [`Settings::probe_limit`].

mod clients;
mod outcome;
mod settings;
mod window;

pub use clients::Client;
pub use outcome::Outcome;
pub use settings::Settings;

use clients::{Clients, Culprit};
use std::time::Duration;
use window::{Seen, Window};

/// Time for which checks are ignored after they passed while requests failed; at most the longest ejection.
const DISTRUST: Duration = Duration::from_secs(10);

/// State of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Normal operation.
    Closed,
    /// Ejected: used only if no other offer is available.
    Open {
        /// Time of the first probe.
        until: Duration,
    },
    /// Limited to a few probes at a time.
    HalfOpen,
}

impl State {
    /// Name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Health of an offer, for the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Available.
    Healthy,
    /// Half open with a free probe permit: available if [`Breaker::try_probe`] succeeds.
    HalfOpen,
    /// In cooldown, as the provider requested.
    Resting {
        /// End of the cooldown.
        until: Duration,
    },
    /// Ejected: used only if all other offers are worse.
    Ejected {
        /// Number of consecutive failures.
        failures: u32,
        /// Time of the first probe.
        until: Duration,
    },
}

/// Circuit breaker of one offer. A state machine; the gateway holds it in a lock.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    phase: Phase,
    /// Number of consecutive failures; reset by a success.
    failures: u32,
    /// Origin of the consecutive failures.
    culprit: Culprit,
    clients: Clients,
    /// Number of consecutive failed active checks.
    failed_checks: u32,
    /// Result of the active checks since the last failure.
    checked: Checked,
    /// Time until which checks are ignored, because requests failed although checks passed.
    distrust: Duration,
    /// Number of consecutive 429 responses, for the backoff of those without `Retry-After`.
    limited: u32,
    rest_until: Duration,
    window: Window,
}

/// Result of the active checks since the last failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    /// No check that counts.
    Nothing,
    /// At least one check passed.
    Well,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed,
    /// Open; `round` is the number of openings since the breaker was last closed.
    Open {
        until: Duration,
        round: u32,
    },
    HalfOpen {
        probing: u32,
        last_probe: Duration,
        good: u32,
        round: u32,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Breaker {
    /// Returns a closed breaker without recorded results.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            window: Window::new(settings.window),
            settings,
            phase: Phase::Closed,
            failures: 0,
            culprit: Culprit::Nobody,
            clients: Clients::default(),
            failed_checks: 0,
            checked: Checked::Nothing,
            distrust: Duration::ZERO,
            limited: 0,
            rest_until: Duration::ZERO,
        }
    }

    /// Sets new thresholds. Recorded results stay, except for the window if its length changes.
    pub fn configure(&mut self, settings: Settings) {
        if settings.window != self.settings.window {
            self.window = Window::new(settings.window);
        }
        self.settings = settings;
    }

    /// State at `now`.
    #[must_use]
    pub fn state(&self, now: Duration) -> State {
        match self.phase {
            Phase::Closed => State::Closed,
            Phase::Open { until, .. } if now < until => State::Open { until },
            Phase::Open { .. } | Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// True if the offer is believed to respond: it is not ejected, or an active check has passed since its last
    /// failure and no request has used it yet. Checks that passed while requests failed are ignored for ten seconds.
    #[must_use]
    pub const fn is_well(&self) -> bool {
        matches!((self.phase, self.checked), (Phase::Closed, _) | (_, Checked::Well))
    }

    /// End of the cooldown, if it is not over at `now`.
    #[must_use]
    pub fn resting_until(&self, now: Duration) -> Option<Duration> {
        (now < self.rest_until).then_some(self.rest_until)
    }

    /// Health at `now`, for a plan. Ejection takes precedence over cooldown; a half-open offer whose probe permits are
    /// taken counts as ejected.
    #[must_use]
    pub fn health(&self, now: Duration) -> Health {
        match (self.state(now), self.resting_until(now)) {
            (State::Open { until }, rest) => {
                Health::Ejected { failures: self.failures, until: rest.map_or(until, |rest| rest.max(until)) }
            }
            (_, Some(until)) => Health::Resting { until },
            (State::HalfOpen, None) if self.probes(now) < self.settings.probes => Health::HalfOpen,
            (State::HalfOpen, None) => Health::Ejected { failures: self.failures, until: now },
            (State::Closed, None) => Health::Healthy,
        }
    }

    /// True if the breaker is closed, there is no cooldown and the last attempt succeeded: an immediate retry is
    /// useful.
    #[must_use]
    pub fn in_good_standing(&self, now: Duration) -> bool {
        self.failures == 0 && self.health(now) == Health::Healthy
    }

    /// Share of failed attempts (429 included) in the window, 0 to 1; 0 without attempts. Damped, because a single
    /// attempt proves little: `failing = failed / (attempts + 2)`.
    #[must_use]
    pub fn failing(&self, now: Duration) -> f64 {
        let seen = self.window.totals(now);
        let failed = f64::from(self.counted(now, seen.bad)) + f64::from(seen.limited);
        failed / (f64::from(seen.good) + failed + 2.0)
    }

    /// Requests permission for an attempt. Always granted if closed. If half open, takes a probe permit, which
    /// [`Breaker::on_result`] releases. Returns false if open or if all permits are taken.
    pub fn try_probe(&mut self, now: Duration) -> bool {
        let taken = self.probes(now);
        match self.phase {
            Phase::Closed => true,
            Phase::Open { until, .. } if now < until => false,
            Phase::Open { round, .. } => {
                self.phase = Phase::HalfOpen { probing: 1, last_probe: now, good: 0, round };
                true
            }
            Phase::HalfOpen { good, round, .. } => {
                let free = taken < self.settings.probes;
                if free {
                    self.phase = Phase::HalfOpen { probing: taken + 1, last_probe: now, good, round };
                }
                free
            }
        }
    }

    /// Records the result of an attempt without a client.
    pub fn on_result(&mut self, now: Duration, outcome: Outcome) {
        self.on_result_of(now, outcome, None);
    }

    /// Records the result of an attempt. `client` is set if the client's request may have caused the failure.
    pub fn on_result_of(&mut self, now: Duration, outcome: Outcome, client: Option<Client>) {
        self.give_back();
        match outcome {
            Outcome::Neutral => {}
            Outcome::Good => self.on_good(now, client),
            Outcome::Limited { rest } => self.on_limited(now, rest),
            Outcome::Bad { rest } => {
                if let Some(rest) = rest {
                    self.rest(now, rest);
                }
                self.on_bad(now, client);
            }
        }
    }

    /// Records a failed connection to the provider, for an attempt at another of its offers.
    pub fn on_unreachable(&mut self, now: Duration) {
        self.on_bad(now, None);
    }

    /// Records the result of an active check. A passing check ends the waiting time of an ejection; too many
    /// consecutive failed checks start or prolong an ejection.
    pub fn on_check(&mut self, now: Duration, passed: bool) {
        if passed {
            self.failed_checks = 0;
            if let Phase::Open { round, .. } = self.phase {
                self.phase = Phase::Open { until: now, round };
            }
            if now >= self.distrust {
                self.checked = Checked::Well;
            }
            return;
        }
        self.failed_checks = self.failed_checks.saturating_add(1);
        self.checked = Checked::Nothing;
        if self.failed_checks >= self.settings.failed_checks {
            self.failures = self.failures.max(1);
            self.open(now);
        }
    }

    fn on_good(&mut self, now: Duration, client: Option<Client>) {
        if let Some(client) = client {
            self.clients.good(now, client);
        }
        self.failures = 0;
        self.culprit = Culprit::Nobody;
        self.limited = 0;
        // Real requests outrank checks: an invalid health path must not eject an offer that answers.
        self.failed_checks = 0;
        self.window.add(now, Seen { good: 1, ..Seen::default() });
        let (good, round, probing, last_probe) = match self.phase {
            Phase::Closed => return,
            // Success of an ejected offer, used because no other was better: counts as a probe.
            Phase::Open { round, .. } => (1, round, 0, now),
            Phase::HalfOpen { good, round, probing, last_probe } => (good + 1, round, probing, last_probe),
        };
        self.phase = if good >= self.settings.good_probes {
            self.window.clear();
            self.clients.clear_failures();
            Phase::Closed
        } else {
            Phase::HalfOpen { probing, last_probe, good, round }
        };
    }

    fn on_bad(&mut self, now: Duration, client: Option<Client>) {
        self.failures = self.failures.saturating_add(1);
        self.culprit = self.culprit.and(Culprit::of(client));
        self.window.add(now, Seen { bad: 1, ..Seen::default() });
        if let Some(client) = client {
            self.clients.bad(self.window.number(now), client);
        }
        match self.phase {
            // Failure of an ejected offer, sent before the ejection or because no other was better.
            Phase::Open { .. } => self.distrust_checks(now),
            Phase::HalfOpen { .. } if self.clients.serves_others(now, Culprit::of(client)) => {}
            Phase::HalfOpen { .. } => {
                self.distrust_checks(now);
                self.open(now);
            }
            Phase::Closed => {
                let Seen { good, bad, .. } = self.window.totals(now);
                let bad = self.counted(now, bad);
                let volume = good.saturating_add(bad);
                let share = f64::from(bad) / f64::from(volume.max(1));
                let often = volume >= self.settings.minimum && share >= self.settings.error_share;
                let in_a_row = self.failures >= self.settings.consecutive
                    && !self.clients.serves_others(now, self.culprit);
                if often || in_a_row {
                    self.checked = Checked::Nothing;
                    self.open(now);
                }
            }
        }
    }

    /// Ignores checks for a while: a request failed while the offer was ejected or half open, so earlier passing checks
    /// were unreliable.
    fn distrust_checks(&mut self, now: Duration) {
        self.checked = Checked::Nothing;
        self.distrust = now.saturating_add(DISTRUST.min(self.settings.open_max));
    }

    /// Number of these failures in the window that count.
    fn counted(&self, now: Duration, bad: u32) -> u32 {
        if bad < 2 {
            return bad;
        }
        bad.saturating_sub(self.clients.excused(now, self.window.number(now)))
    }

    /// Records a 429, which counts in the failure ratio but not toward an ejection, and starts a cooldown.
    fn on_limited(&mut self, now: Duration, rest: Option<Duration>) {
        self.window.add(now, Seen { limited: 1, ..Seen::default() });
        let backoff = doubled(self.settings.limited_rest, self.limited, self.settings.limited_rest_max);
        self.limited = self.limited.saturating_add(1);
        self.rest(now, rest.unwrap_or(backoff));
    }

    fn rest(&mut self, now: Duration, rest: Duration) {
        let until = now.saturating_add(rest.min(self.settings.longest_rest));
        self.rest_until = self.rest_until.max(until);
    }

    /// Opens the breaker, twice as long for each opening since it was last closed.
    fn open(&mut self, now: Duration) {
        let round = match self.phase {
            Phase::Closed => 0,
            // Reached by a failed check only: the round stays the same.
            Phase::Open { round, until } if now < until => round,
            Phase::Open { round, .. } | Phase::HalfOpen { round, .. } => round.saturating_add(1),
        };
        let pause = doubled(self.settings.open, round, self.settings.open_max);
        self.phase = Phase::Open { until: now.saturating_add(pause), round };
    }

    fn give_back(&mut self) {
        if let Phase::HalfOpen { probing, .. } = &mut self.phase {
            *probing = probing.saturating_sub(1);
        }
    }

    /// Number of probe permits in use; the permits of lost probes expire.
    fn probes(&self, now: Duration) -> u32 {
        match self.phase {
            Phase::HalfOpen { probing, last_probe, .. }
                if now.saturating_sub(last_probe) < self.settings.probe_limit =>
            {
                probing
            }
            _ => 0,
        }
    }
}

/// `base * 2^times`, at most `max`.
fn doubled(base: Duration, times: u32, max: Duration) -> Duration {
    base.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(max)
}
