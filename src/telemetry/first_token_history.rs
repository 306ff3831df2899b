//! Times to the first token of the last hour, by the minute, for each model and provider. The memory is bounded: at
//! most 63 pairs of model and provider have an entry of their own, and all other pairs share one entry.

use super::{AccessRecord, ExchangeKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of minutes in the history.
pub const WINDOW_MINUTES: usize = 60;
/// Maximum number of entries: pairs of model and provider, and the entry that all other pairs share.
const MAX_PAIRS: usize = 64;
/// Number of classes (histogram buckets) of times. The upper limit of each class is 2^(1/4) times that of the
/// previous class. So the error of a percentile is below 10 % for times from 10 ms to two minutes.
const CLASSES: usize = 56;
/// Upper limit of the first class, seconds; the last class ends above two minutes.
const FIRST_LIMIT: f64 = 0.01;
/// Number of classes over which the upper limit doubles.
const CLASSES_PER_OCTAVE: f64 = 4.0;

/// Groups into which the times are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyGrouping {
    /// Models of the catalogue.
    Model,
    /// Providers.
    Provider,
}

impl LatencyGrouping {
    /// All groupings, with their names.
    pub const ALL: [(&str, Self); 2] = [("model", Self::Model), ("provider", Self::Provider)];
}

/// Times to the first token in a period.
#[derive(Clone, Debug)]
pub struct FirstTokenTimes {
    answers: u32,
    seconds: f64,
    maximum: f64,
    classes: [u32; CLASSES],
}

impl Default for FirstTokenTimes {
    fn default() -> Self {
        Self { answers: 0, seconds: 0.0, maximum: 0.0, classes: [0; CLASSES] }
    }
}

impl FirstTokenTimes {
    fn observe(&mut self, seconds: f64) {
        self.answers = self.answers.saturating_add(1);
        self.seconds += seconds;
        self.maximum = self.maximum.max(seconds);
        if let Some(class) = self.classes.get_mut(class_of(seconds)) {
            *class = class.saturating_add(1);
        }
    }

    fn add(&mut self, other: &Self) {
        self.answers = self.answers.saturating_add(other.answers);
        self.seconds += other.seconds;
        self.maximum = self.maximum.max(other.maximum);
        for (class, more) in self.classes.iter_mut().zip(&other.classes) {
            *class = class.saturating_add(*more);
        }
    }

    /// Returns the number of streamed answers.
    #[must_use]
    pub const fn answer_count(&self) -> u32 {
        self.answers
    }

    /// Returns the mean in seconds; `None` without answers.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.answers > 0).then(|| self.seconds / f64::from(self.answers))
    }

    /// Returns the longest time in seconds; `None` without answers.
    #[must_use]
    pub fn maximum(&self) -> Option<f64> {
        (self.answers > 0).then_some(self.maximum)
    }

    /// Returns a percentile in seconds: this share of the answers (0 to 1) was not slower. Its error is below 10 %;
    /// `None` without answers.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<f64> {
        let rank = (f64::from(self.answers) * share).ceil().max(1.0);
        let mut sum = 0.0;
        for (class, count) in self.classes.iter().enumerate() {
            sum += f64::from(*count);
            if *count > 0 && sum >= rank {
                return Some(center_of(class).min(self.maximum));
            }
        }
        None
    }
}

/// Returns the class of a time.
fn class_of(seconds: f64) -> usize {
    let class = ((seconds / FIRST_LIMIT).log2() * CLASSES_PER_OCTAVE).ceil().clamp(0.0, CLASSES as f64 - 1.0);
    // The cast converts NaN to 0, the first class.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped above")]
    let class = class as usize;
    class
}

/// Returns the geometric middle of a class, seconds.
fn center_of(class: usize) -> f64 {
    FIRST_LIMIT * ((class as f64 - 0.5) / CLASSES_PER_OCTAVE).exp2()
}

/// Minutes of one pair of model and provider.
struct PairMinutes {
    model: Box<str>,
    provider: Box<str>,
    /// Times of each minute, at the index of its number modulo [`WINDOW_MINUTES`].
    minutes: Box<[(u64, FirstTokenTimes)]>,
    /// Number of the last minute with an answer.
    last: u64,
}

impl PairMinutes {
    fn new(model: &str, provider: &str) -> Self {
        let minutes = vec![(0, FirstTokenTimes::default()); WINDOW_MINUTES].into_boxed_slice();
        Self { model: model.into(), provider: provider.into(), minutes, last: 0 }
    }

    fn observe(&mut self, minute: u64, seconds: f64) {
        let at = usize::try_from(minute % WINDOW_MINUTES as u64).unwrap_or(0);
        let Some(slot) = self.minutes.get_mut(at) else { return };
        if slot.0 != minute {
            *slot = (minute, FirstTokenTimes::default());
        }
        slot.1.observe(seconds);
        self.last = self.last.max(minute);
    }
}

/// Times to the first token of the last hour.
#[derive(Default)]
pub struct FirstTokenHistory(Mutex<Vec<PairMinutes>>);

/// Model or provider: its name, and its times of each minute ([`WINDOW_MINUTES`] values, oldest first). The name is
/// empty for the group of the pairs without an entry of their own.
pub type FirstTokenGroup = (String, Vec<FirstTokenTimes>);

impl FirstTokenHistory {
    /// Records the time of an ended exchange, if it was answered as a stream. Lines of batches do not count, because
    /// they may wait.
    pub fn record(&self, record: &AccessRecord, unix_seconds: u64) {
        let (Some(first), Some(model), Some(provider), ExchangeKind::Request) =
            (record.first_token, &record.model, &record.provider, record.kind)
        else {
            return;
        };
        self.observe((model, provider), unix_seconds / 60, first);
    }

    fn observe(&self, (model, provider): (&str, &str), minute: u64, first: Duration) {
        let mut pairs = self.0.lock();
        let known = |pairs: &[PairMinutes], model: &str, provider: &str| {
            pairs.iter().position(|pair| *pair.model == *model && *pair.provider == *provider)
        };
        let at = known(&pairs, model, provider).unwrap_or_else(|| {
            // Pairs without an answer in the last hour are removed.
            let is_stale = |pair: &PairMinutes| pair.last.saturating_add(WINDOW_MINUTES as u64) <= minute;
            pairs.retain(|pair| !is_stale(pair));
            let is_full = pairs.len() + 1 >= MAX_PAIRS;
            let (model, provider) = if is_full { ("", "") } else { (model, provider) };
            known(&pairs, model, provider).unwrap_or_else(|| {
                pairs.push(PairMinutes::new(model, provider));
                pairs.len() - 1
            })
        });
        if let Some(pair) = pairs.get_mut(at) {
            pair.observe(minute, first.as_secs_f64());
        }
    }

    /// Returns the models or providers that had answers in the last hour, by name, each with its times of every minute,
    /// oldest first. The last minute is that of `unix_seconds`.
    #[must_use]
    pub fn last_hour_by_group(&self, grouping: LatencyGrouping, unix_seconds: u64) -> Vec<FirstTokenGroup> {
        let last = unix_seconds / 60;
        let first = (last + 1).saturating_sub(WINDOW_MINUTES as u64);
        let mut groups: BTreeMap<String, Vec<FirstTokenTimes>> = BTreeMap::new();
        for pair in self.0.lock().iter() {
            let name = match grouping {
                LatencyGrouping::Model => &pair.model,
                LatencyGrouping::Provider => &pair.provider,
            };
            for (minute, times) in pair.minutes.iter().filter(|(_, times)| times.answers > 0) {
                let at = minute.checked_sub(first).and_then(|at| usize::try_from(at).ok());
                if let Some(at) = at.filter(|at| *at < WINDOW_MINUTES) {
                    let group = groups
                        .entry(name.to_string())
                        .or_insert_with(|| vec![FirstTokenTimes::default(); WINDOW_MINUTES]);
                    if let Some(slot) = group.get_mut(at) {
                        slot.add(times);
                    }
                }
            }
        }
        groups.into_iter().collect()
    }
}

/// Returns the times of all minutes together.
#[must_use]
pub fn sum_minutes(minutes: &[FirstTokenTimes]) -> FirstTokenTimes {
    let mut sum = FirstTokenTimes::default();
    minutes.iter().for_each(|minute| sum.add(minute));
    sum
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    const HOUR: u64 = 3_600;

    #[test]
    fn percentiles_are_exact_to_a_tenth() {
        let mut times = FirstTokenTimes::default();
        for millis in 1..=1_000_u32 {
            times.observe(f64::from(millis) / 1_000.0);
        }
        for share in [0.2, 0.5, 0.95] {
            let found = times.percentile(share).unwrap();
            assert!((found / share - 1.0).abs() < 0.1, "{share}: {found}");
        }
        assert!((times.mean().unwrap() - 0.5005).abs() < 1e-9);
        assert_eq!((times.answer_count(), times.maximum()), (1_000, Some(1.0)));
        times.observe(f64::NAN);
        times.observe(1e9);
        assert_eq!(FirstTokenTimes::default().percentile(0.5), None);
    }

    #[test]
    fn groups_add_up_the_pairs_of_the_last_hour() {
        let history = FirstTokenHistory::default();
        let now = 100 * HOUR;
        let record = |model, provider, ago: u64, seconds: u64| {
            history.observe((model, provider), (now - ago) / 60, Duration::from_secs(seconds));
        };
        record("m", "a", 0, 1);
        record("m", "b", 0, 3);
        record("n", "a", 59 * 60, 2);
        record("n", "b", HOUR, 9);
        let models = history.last_hour_by_group(LatencyGrouping::Model, now);
        let names: Vec<&str> = models.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["m", "n"]);
        assert_eq!(models[0].1[WINDOW_MINUTES - 1].mean(), Some(2.0));
        assert_eq!((models[1].1[0].answer_count(), sum_minutes(&models[1].1).answer_count()), (1, 1));
        let providers = history.last_hour_by_group(LatencyGrouping::Provider, now);
        assert_eq!(sum_minutes(&providers[0].1).answer_count(), 2);
    }

    #[test]
    fn the_number_of_pairs_is_bounded_and_stale_ones_are_evicted() {
        let history = FirstTokenHistory::default();
        for number in 0..200 {
            history.observe((&format!("m{number}"), "a"), 1_000, Duration::from_secs(1));
        }
        assert_eq!(history.0.lock().len(), MAX_PAIRS);
        let groups = history.last_hour_by_group(LatencyGrouping::Model, 1_000 * 60);
        assert_eq!(
            sum_minutes(&groups.iter().find(|(name, _)| name.is_empty()).unwrap().1).answer_count(),
            137
        );
        history.observe(("new", "a"), 1_060, Duration::from_secs(1));
        assert_eq!(history.last_hour_by_group(LatencyGrouping::Model, 1_060 * 60)[0].0, "new");
    }
}
