//! Exponentially weighted moving average with a half-life.

use super::{HALF_LIFE, STALE_AFTER};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Average `mean = sum(w * x) / sum(w)` of the observations `x`. Each weight `w` is multiplied by
/// `2^(-age / HALF_LIFE)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ewma {
    /// Sum of the weights at time `at`.
    weight: f64,
    mean: f64,
    /// Time of the last observation in milliseconds.
    at: u64,
}

impl Ewma {
    /// Adds the observation `value`; ignores values that are not finite and weights that are not positive.
    pub(super) fn observe(&mut self, now: Duration, value: f64, weight: f64) {
        if !value.is_finite() || weight <= 0.0 {
            return;
        }
        let millis = millis(now);
        let age = Duration::from_millis(millis.saturating_sub(self.at));
        let old = if age >= STALE_AFTER {
            0.0
        } else {
            self.weight * (-age.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
        };
        let sum = old + weight;
        let mean = self.mean + (value - self.mean) * (weight / sum);
        // An average that is not finite, from a damaged record, is replaced by the new value.
        (self.weight, self.mean) = if mean.is_finite() { (sum, mean) } else { (weight, value) };
        self.at = self.at.max(millis);
    }

    /// Returns the sum of the weights at `now`: the number of observations with weight 1, each halved per
    /// [`HALF_LIFE`]. Returns 0 if the average is dropped.
    pub(super) fn weight(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(Duration::from_millis(self.at));
        let is_empty = self.weight.is_nan() || self.weight <= 0.0 || age >= STALE_AFTER;
        if is_empty { 0.0 } else { self.weight * (-age.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2() }
    }

    /// Converts the average to another clock; `old_now` and `new_now` are the same moment by the old and by the new
    /// clock. If the record is damaged and contains an impossible value, the average is dropped; `max_mean` is the
    /// maximum plausible mean.
    pub(super) fn convert_clock(self, old_now: Duration, new_now: Duration, max_mean: f64) -> Self {
        let sound = self.weight > 0.0 && self.weight.is_finite() && (0.0..=max_mean).contains(&self.mean);
        if !sound {
            return Self::default();
        }
        Self { at: rebase_millis(self.at, old_now, new_now), ..self }
    }

    /// Returns the average; `None` without an observation in the last half hour.
    pub(super) fn mean(&self, now: Duration) -> Option<f64> {
        // The age is checked last, because most averages are empty and the ranking reads several of them for each
        // offer.
        let known = self.weight > 0.0 && self.mean.is_finite();
        (known && now.saturating_sub(Duration::from_millis(self.at)) < STALE_AFTER).then_some(self.mean)
    }
}

/// Converts milliseconds to another clock; `old_now` and `new_now` are the same moment by the old and by the new clock.
/// The result is at most `new_now`.
pub(super) fn rebase_millis(at: u64, old_now: Duration, new_now: Duration) -> u64 {
    millis(new_now).saturating_sub(millis(old_now).saturating_sub(at))
}

/// Returns the whole milliseconds since the origin of time.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
