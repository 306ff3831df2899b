//! Recent latency and speed of an offer, from which durations are predicted.
//!
//! Time to first token (by prompt size) and tokens per second are measured separately, because they depend on
//! different factors. Both are averages whose weights halve every [`HALF_LIFE`]; an average without an observation
//! for [`STALE_AFTER`] is dropped, and the offer counts as unmeasured again.

mod ewma;
mod hourly;

pub use hourly::{LastHourStats, LastHourSummary};

use ewma::{Ewma, millis, rebase_millis};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time after which the weight of an observation halves.
pub const HALF_LIFE: Duration = Duration::from_secs(300);

/// Time without an observation after which an average is dropped.
pub const STALE_AFTER: Duration = Duration::from_secs(1800);

/// Maximum plausible number of seconds in a stored record, to the first token or for each further token.
const MAX_SECONDS: f64 = 86_400.0;

/// Maximum plausible answer length in a stored record, in tokens.
const MAX_TOKENS: f64 = 1e9;

/// Upper limits of the prompt-size classes, in tokens; the last class has no limit.
const PROMPT_CLASSES: [u64; 4] = [1_000, 4_000, 16_000, 64_000];

/// Measurements of one successful answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySample {
    /// Number of prompt tokens of the request.
    pub prompt_tokens: u64,
    /// Generated tokens; 0 for kinds of models that generate none.
    pub output_tokens: u64,
    /// Time from the request to the first content token; `None` for an answer that is not streamed.
    pub first_token: Option<Duration>,
    /// Time from the request to the end.
    pub total: Duration,
}

/// Latency statistics of one offer. Serialised as plain numbers, a few hundred bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyStats {
    /// Seconds to the first token, by prompt-size class.
    first_token: [Ewma; PROMPT_CLASSES.len() + 1],
    /// Seconds per generated token, weighted by tokens.
    per_token: Ewma,
    /// Generated tokens per answer.
    output: Ewma,
    /// Time at which the offer could first be chosen, in milliseconds; 0 if it never could.
    known: u64,
    /// Time of the last observation in milliseconds; 0 without one.
    observed: u64,
}

impl LatencyStats {
    /// Returns statistics without observations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the time since the first call of this function, that is, since the offer could first be chosen.
    pub fn time_since_first_seen(&mut self, now: Duration) -> Duration {
        if self.known == 0 {
            self.known = millis(now).max(1);
        }
        now.saturating_sub(Duration::from_millis(self.known))
    }

    /// Returns the time since the last observation; `None` without one.
    #[must_use]
    pub fn last_observation_age(&self, now: Duration) -> Option<Duration> {
        (self.observed > 0).then(|| now.saturating_sub(Duration::from_millis(self.observed)))
    }

    /// Returns the number of recent answers, each halved per [`HALF_LIFE`]: how far the figures can be trusted. Returns
    /// 0 without an answer in the last half hour.
    #[must_use]
    pub fn recent_answers(&self, now: Duration) -> f64 {
        // An answer has tokens, a time to the first token, or both. So both are lower bounds of the number.
        let first = self.first_token.iter().map(|class| class.weight(now)).sum::<f64>();
        first.max(self.output.weight(now))
    }

    /// Returns a number that changes with each observation, if the observation is in a later millisecond. By this
    /// number the caller detects changed statistics, which it has to store.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.observed
    }

    /// Converts the statistics to another clock, for a process that loads statistics stored by an earlier process;
    /// `old_now` and `new_now` are the same moment by the old and by the new clock. Impossible values are dropped, and
    /// no time is later than `new_now`.
    #[must_use]
    pub fn convert_clock(&self, old_now: Duration, new_now: Duration) -> Self {
        let time = |at: u64| if at == 0 { 0 } else { rebase_millis(at, old_now, new_now).max(1) };
        Self {
            first_token: self.first_token.map(|class| class.convert_clock(old_now, new_now, MAX_SECONDS)),
            per_token: self.per_token.convert_clock(old_now, new_now, MAX_SECONDS),
            output: self.output.convert_clock(old_now, new_now, MAX_TOKENS),
            known: time(self.known),
            observed: time(self.observed),
        }
    }

    /// Records a successful answer. Failures are recorded by the breaker.
    ///
    /// An answer that is not streamed has only a total time: the known time to the first token is subtracted, but at
    /// least a tenth of the total counts as generation.
    pub fn observe(&mut self, now: Duration, sample: LatencySample) {
        self.observed = self.observed.max(millis(now));
        let total = sample.total.as_secs_f64();
        let known = self.seconds_to_first_token(now, sample.prompt_tokens);
        let first = match sample.first_token {
            Some(first) => Some(first.as_secs_f64().min(total)),
            None => (sample.output_tokens == 0).then_some(total),
        };
        if let (Some(first), Some(class)) =
            (first, self.first_token.get_mut(prompt_class(sample.prompt_tokens)))
        {
            class.observe(now, first, 1.0);
        }
        // The generation time starts after the first token, so that token does not count.
        let after = sample.output_tokens.saturating_sub(u64::from(sample.first_token.is_some()));
        if after > 0 {
            let spent = match first {
                Some(first) => total - first,
                None => (total - known.unwrap_or(0.0)).max(total / 10.0),
            };
            let tokens = after as f64;
            self.per_token.observe(now, spent / tokens, tokens);
        }
        if sample.output_tokens > 0 {
            self.output.observe(now, sample.output_tokens as f64, 1.0);
        }
    }

    /// Returns the predicted seconds to the complete answer on an idle provider: `first token (class of the prompt) +
    /// output_tokens / (tokens per second)`. A term that was not measured counts as 0; `None` if neither was measured.
    #[must_use]
    pub fn predict_seconds(&self, now: Duration, prompt_tokens: u64, output_tokens: u64) -> Option<f64> {
        let first = self.seconds_to_first_token(now, prompt_tokens);
        let per_token = self.per_token.mean(now);
        if first.is_none() && per_token.is_none() {
            return None;
        }
        Some(first.unwrap_or(0.0) + per_token.unwrap_or(0.0) * output_tokens as f64)
    }

    /// Returns the seconds to the first token for a prompt of this size. If its size class has no observations, the
    /// nearest class with observations is used; at equal distance, the smaller class. Returns `None` if no class has an
    /// observation of the last half hour.
    #[must_use]
    pub fn seconds_to_first_token(&self, now: Duration, prompt_tokens: u64) -> Option<f64> {
        let own = prompt_class(prompt_tokens);
        if let Some(seconds) = self.first_token.get(own).and_then(|class| class.mean(now)) {
            return Some(seconds);
        }
        let known = self
            .first_token
            .iter()
            .enumerate()
            .filter_map(|(class, seconds)| Some((class.abs_diff(own), seconds.mean(now)?)));
        known.min_by_key(|(distance, _)| *distance).map(|(_, seconds)| seconds)
    }

    /// Returns the tokens per second during generation; `None` without an observation in the last half hour, and if the
    /// generation took no time.
    #[must_use]
    pub fn tokens_per_second(&self, now: Duration) -> Option<f64> {
        self.per_token.mean(now).filter(|seconds| *seconds > 0.0).map(f64::recip)
    }

    /// Returns the mean number of generated tokens of recent answers: the expected output of a request without a limit;
    /// `None` without an observation in the last half hour.
    #[must_use]
    pub fn typical_output_tokens(&self, now: Duration) -> Option<u64> {
        // The conversion only drops the fraction, because a mean of `u64` values is in their range.
        self.output.mean(now).map(|tokens| tokens as u64)
    }
}

fn prompt_class(prompt_tokens: u64) -> usize {
    PROMPT_CLASSES.iter().take_while(|end| prompt_tokens > **end).count()
}
