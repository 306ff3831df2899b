//! An average whose weights halve with time.

use super::{HALF_LIFE, STALE};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `mean = sum(w * x) / sum(w)`, every `w` times `2^(-age / HALF_LIFE)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Decayed {
    /// Sum of weights at `at`.
    weight: f64,
    mean: f64,
    /// Milliseconds of the last observation.
    at: u64,
}

impl Decayed {
    pub(super) fn add(&mut self, now: Duration, value: f64, weight: f64) {
        if !value.is_finite() || weight <= 0.0 {
            return;
        }
        let millis = millis(now);
        let age = Duration::from_millis(millis.saturating_sub(self.at));
        let old = if age >= STALE {
            0.0
        } else {
            self.weight * (-age.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
        };
        let sum = old + weight;
        let mean = self.mean + (value - self.mean) * (weight / sum);
        // A number from outside (a kept file) may be broken; start over then.
        (self.weight, self.mean) = if mean.is_finite() { (sum, mean) } else { (weight, value) };
        self.at = self.at.max(millis);
    }

    /// The same average on another clock, on which `from` is called `to`. A sum that no observations can have given,
    /// as a damaged record may hold, is dropped; `most` is the largest mean that makes sense.
    pub(super) fn moved(self, from: Duration, to: Duration, most: f64) -> Self {
        let sound = self.weight > 0.0 && self.weight.is_finite() && (0.0..=most).contains(&self.mean);
        if !sound {
            return Self::default();
        }
        Self { at: moved(self.at, from, to), ..self }
    }

    pub(super) fn mean(&self, now: Duration) -> Option<f64> {
        // Most averages are empty, and a plan reads several per offer: the comparison of times comes last.
        let known = self.weight > 0.0 && self.mean.is_finite();
        (known && now.saturating_sub(Duration::from_millis(self.at)) < STALE).then_some(self.mean)
    }
}

/// Milliseconds on a clock as those of another on which `from` is called `to`; none are later than `to`.
pub(super) fn moved(at: u64, from: Duration, to: Duration) -> u64 {
    millis(to).saturating_sub(millis(from).saturating_sub(at))
}

/// Whole milliseconds of a time since the origin.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
