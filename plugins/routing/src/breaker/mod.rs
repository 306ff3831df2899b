//! The breaker of one offer: is it fit to be asked?
//!
//! ```text
//! Closed ──5 in a row, or half of ≥ 20 in 30 s, or 3 failed checks──▶ Open
//! Open ──its time is over, or an active check passes──▶ HalfOpen
//! HalfOpen ──2 good probes──▶ Closed        HalfOpen ──1 bad probe──▶ Open, twice as long
//! ```
//!
//! It lives on the results of real attempts; active checks only help. A check
//! that passes never closes it by itself: a provider can list its models and
//! still fail every request. But it is enough to call the offer well again
//! ([`Breaker::is_well`]), unless the checks were found to say nothing.
//!
//! Failures that come from one client's requests while others are answered do
//! not open it: see `clients.rs`.
//!
//! Resting is apart from ejection: an offer that said `Retry-After`, or 429,
//! is left alone until then and loses no standing. The caller's faults count
//! for nothing.
//!
//! Results must be told in every case, also when the client left
//! ([`Outcome::Neutral`]), or a probe's seat stays taken for [`Settings::probe_limit`].

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

/// Checks that pass while requests fail say nothing for so long, or for the longest ejection if that is shorter.
const DISTRUST: Duration = Duration::from_secs(10);

/// The three states of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Fit: results are watched.
    Closed,
    /// Ejected: only asked when there is nobody else.
    Open {
        /// When probes begin.
        until: Duration,
    },
    /// On trial: a few probes at a time.
    HalfOpen,
}

impl State {
    /// Its name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// What a plan needs to know of an offer's breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Ask it.
    Healthy,
    /// On trial, with a free seat for a probe: ask it if [`Breaker::try_probe`] lets you.
    HalfOpen,
    /// It asked not to be asked before then.
    Resting {
        /// When the rest is over.
        until: Duration,
    },
    /// Not to be asked unless all others are worse.
    Ejected {
        /// Failures in a row: how bad it is.
        failures: u32,
        /// When probes begin.
        until: Duration,
    },
}

/// One offer's breaker. A state machine; the house locks it.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    phase: Phase,
    /// Failures in a row; ends with a success.
    failures: u32,
    /// Whose they are.
    culprit: Culprit,
    clients: Clients,
    /// Failed active checks in a row.
    failed_checks: u32,
    /// A check has passed since the last failure, at a time when checks counted.
    checked: Checked,
    /// Checks say nothing until then: requests failed although they passed.
    distrust: Duration,
    /// 429s in a row, for the backoff of those without `Retry-After`.
    limited: u32,
    rest_until: Duration,
    window: Window,
}

/// Word of the active checks since the last failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    /// None that counts.
    Nothing,
    /// One has passed.
    Well,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed,
    /// `round` counts openings without a closing in between.
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
    /// Closed, without a past.
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

    /// Other thresholds from now on. What has happened stays, but for the window if it has another length.
    pub fn configure(&mut self, settings: Settings) {
        if settings.window != self.settings.window {
            self.window = Window::new(settings.window);
        }
        self.settings = settings;
    }

    /// The state at `now`.
    #[must_use]
    pub fn state(&self, now: Duration) -> State {
        match self.phase {
            Phase::Closed => State::Closed,
            Phase::Open { until, .. } if now < until => State::Open { until },
            Phase::Open { .. } | Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// Whether it answers, as far as is known: it is not ejected, or an active check has passed since its last failure
    /// and nobody has asked it yet. Checks that passed while requests failed are not believed for ten seconds.
    #[must_use]
    pub const fn is_well(&self) -> bool {
        matches!((self.phase, self.checked), (Phase::Closed, _) | (_, Checked::Well))
    }

    /// The end of a rest that is not over at `now`.
    #[must_use]
    pub fn resting_until(&self, now: Duration) -> Option<Duration> {
        (now < self.rest_until).then_some(self.rest_until)
    }

    /// What a plan at `now` should think of the offer. Ejection beats rest;
    /// an offer on trial whose probe seats are taken counts as ejected.
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

    /// Closed, not resting, and the last attempt was good: worth a quick retry.
    #[must_use]
    pub fn in_good_standing(&self, now: Duration) -> bool {
        self.failures == 0 && self.health(now) == Health::Healthy
    }

    /// Share of failed (429 included) attempts in the window, 0 to 1; 0 when
    /// there were none. One attempt alone says little, so
    /// `failing = failed / (attempts + 2)`.
    #[must_use]
    pub fn failing(&self, now: Duration) -> f64 {
        let seen = self.window.totals(now);
        let failed = f64::from(self.counted(now, seen.bad)) + f64::from(seen.limited);
        failed / (f64::from(seen.good) + failed + 2.0)
    }

    /// Asks for leave to attempt. Always granted when closed. On trial it takes
    /// a probe's seat, to be given back by [`Breaker::on_result`]. False when
    /// open or when the seats are taken.
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

    /// An attempt is over, of nobody in particular.
    pub fn on_result(&mut self, now: Duration, outcome: Outcome) {
        self.on_result_of(now, outcome, None);
    }

    /// An attempt is over. A failure that the client's request may have caused names the client.
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

    /// A connection to the provider failed, for an attempt at another of its offers.
    pub fn on_unreachable(&mut self, now: Duration) {
        self.on_bad(now, None);
    }

    /// An active check is over. One that passes ends an ejection's waiting
    /// time, one that fails too often in a row begins an ejection or prolongs it.
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
        // Real work outranks checks: a wrong health path must not eject an offer that answers.
        self.failed_checks = 0;
        self.window.add(now, Seen { good: 1, ..Seen::default() });
        let (good, round, probing, last_probe) = match self.phase {
            Phase::Closed => return,
            // Asked because nobody was better, and it worked: as good as a probe.
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
            // It was asked before it was ejected, or because nobody was better.
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

    /// A request failed while it was ejected or on trial: what checks said before was wrong.
    fn distrust_checks(&mut self, now: Duration) {
        self.checked = Checked::Nothing;
        self.distrust = now.saturating_add(DISTRUST.min(self.settings.open_max));
    }

    /// Of this many failures in the window, those that count.
    fn counted(&self, now: Duration, bad: u32) -> u32 {
        if bad < 2 {
            return bad;
        }
        bad.saturating_sub(self.clients.excused(now, self.window.number(now)))
    }

    /// Not a failure of its health, but slower than it looks.
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

    /// Opens, each time without a closing in between for twice as long.
    fn open(&mut self, now: Duration) {
        let round = match self.phase {
            Phase::Closed => 0,
            // Only a failed check comes here while it is open: same round.
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

    /// Seats taken by probes; those of a lost probe come back after a while.
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
