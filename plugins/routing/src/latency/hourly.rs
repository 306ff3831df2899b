//! Statistics of a model's last hour, used to sort the catalogue.

use super::LatencySample;
use serde::{Deserialize, Serialize};
use std::time::Duration;

const SLICES: usize = 12;
const SLICE_SECONDS: u64 = 300;

/// Statistics of a model's last hour over all its offers, in slices of five minutes. The serialised form is plain
/// numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastHourStats {
    slices: [HourlySlice; SLICES],
}

/// Figures of a model's last hour by which clients can sort the catalogue. Each is `None` without answers; `throughput`
/// also if no tokens were generated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LastHourSummary {
    /// Mean number of tokens generated per second. For a stream, the first token and the time to the first token do
    /// not count.
    pub throughput: Option<f64>,
    /// Mean seconds to the first token (to the complete answer if it is not streamed).
    pub latency: Option<f64>,
    /// Number of successful answers in the last hour; a float like the other figures, for sorting.
    pub popularity: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct HourlySlice {
    /// Index of the five-minute slice, counted from the origin of time.
    number: u64,
    answers: u64,
    /// Sum of the seconds to the first token over all answers.
    waiting: f64,
    tokens: u64,
    /// Sum of the seconds of generation over all answers.
    generating: f64,
}

impl LastHourStats {
    /// Returns empty statistics.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a successful answer.
    pub fn observe(&mut self, now: Duration, sample: LatencySample) {
        let number = now.as_secs() / SLICE_SECONDS;
        let index = usize::try_from(number % SLICES as u64).unwrap_or(0);
        let Some(slice) = self.slices.get_mut(index) else { return };
        if slice.number < number {
            *slice = HourlySlice { number, ..HourlySlice::default() };
        }
        let first = sample.first_token.unwrap_or(sample.total);
        slice.answers = slice.answers.saturating_add(1);
        slice.waiting += first.as_secs_f64();
        let (tokens, generating) = match sample.first_token {
            Some(first) => (sample.output_tokens.saturating_sub(1), sample.total.saturating_sub(first)),
            None => (sample.output_tokens, sample.total),
        };
        slice.tokens = slice.tokens.saturating_add(tokens);
        slice.generating += generating.as_secs_f64();
    }

    /// Returns true if no answer is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slices.iter().all(|slice| slice.answers == 0)
    }

    /// Returns a number that changes with each answer. By this number the caller detects changed statistics, which it
    /// has to store.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.slices.iter().fold(0, |sum, slice| sum.wrapping_add(slice.answers).wrapping_add(slice.number))
    }

    /// Converts the statistics to another clock; `old_now` and `new_now` are the same moment by the old and by the new
    /// clock. Slices with impossible values are dropped.
    #[must_use]
    pub fn convert_clock(&self, old_now: Duration, new_now: Duration) -> Self {
        let (old_now, new_now) = (old_now.as_secs() / SLICE_SECONDS, new_now.as_secs() / SLICE_SECONDS);
        let mut moved = Self::default();
        let sound = |seconds: f64| (0.0..=1e15).contains(&seconds);
        for slice in self.slices.iter().filter(|slice| sound(slice.waiting) && sound(slice.generating)) {
            let Some(number) = new_now.checked_sub(old_now.saturating_sub(slice.number)) else { continue };
            let index = usize::try_from(number % SLICES as u64).unwrap_or(0);
            if let Some(slot) = moved.slices.get_mut(index).filter(|slot| slot.number <= number) {
                *slot = HourlySlice { number, ..*slice };
            }
        }
        moved
    }

    /// Returns the figures of the last hour, with a resolution of five minutes.
    #[must_use]
    pub fn summary(&self, now: Duration) -> LastHourSummary {
        let number = now.as_secs() / SLICE_SECONDS;
        let young = self.slices.iter().filter(|slice| number.saturating_sub(slice.number) < SLICES as u64);
        let sum = young.fold(HourlySlice::default(), |sum, slice| HourlySlice {
            number,
            answers: sum.answers.saturating_add(slice.answers),
            waiting: sum.waiting + slice.waiting,
            tokens: sum.tokens.saturating_add(slice.tokens),
            generating: sum.generating + slice.generating,
        });
        if sum.answers == 0 {
            return LastHourSummary::default();
        }
        let answers = sum.answers as f64;
        let generated = sum.tokens > 0 && sum.generating > 0.0;
        LastHourSummary {
            throughput: generated.then(|| sum.tokens as f64 / sum.generating),
            latency: Some(sum.waiting / answers),
            popularity: Some(answers),
        }
    }
}
