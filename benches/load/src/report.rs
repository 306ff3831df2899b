//! Tables of the measured samples.

use crate::load::Times;
use std::fmt::Write;

/// Measurement of one target in one round.
pub struct Sample {
    pub times: Times,
    /// Processor time in nanoseconds; `None` for the provider.
    pub spent: Option<u64>,
    pub resident_kib: Option<u64>,
}

/// Samples of one target in one scenario.
pub struct Row {
    pub name: &'static str,
    pub samples: Vec<Sample>,
}

impl Row {
    pub fn new(name: &'static str) -> Self {
        Self { name, samples: Vec::new() }
    }

    /// Returns the processor time per successful answer, in microseconds, over all rounds.
    pub fn cpu(&self) -> Option<f64> {
        let spent: u64 = self.samples.iter().map(|sample| sample.spent).sum::<Option<u64>>()?;
        let served: usize = self.samples.iter().map(|sample| sample.times.whole.len()).sum();
        (served > 0).then(|| spent as f64 / served as f64 / 1e3)
    }

    /// Returns the quantile of the times for each round, in milliseconds.
    fn quantile(&self, share: f64, of: impl Fn(&Times) -> &Vec<u64>) -> Vec<Option<f64>> {
        self.samples.iter().map(|sample| quantile(of(&sample.times), share)).collect()
    }

    /// Returns the median of the rounds' p99, in milliseconds.
    pub fn p99(&self) -> Option<f64> {
        median(self.quantile(0.99, |times| &times.whole))
    }

    pub fn failed(&self) -> usize {
        self.samples.iter().map(|sample| sample.times.failed).sum()
    }

    fn resident_mib(&self) -> Option<f64> {
        self.samples.iter().filter_map(|sample| sample.resident_kib).max().map(|kib| kib as f64 / 1024.0)
    }
}

/// Returns the value that this share of the values does not exceed, in milliseconds.
fn quantile(values: &[u64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).map(|nanoseconds| *nanoseconds as f64 / 1e6)
}

fn median(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().flatten().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// Returns the median over the rounds of the difference between `row` and `direct`.
fn added(row: &[Option<f64>], direct: &[Option<f64>]) -> Option<f64> {
    median(row.iter().zip(direct).map(|(row, direct)| Some((*row)? - (*direct)?)))
}

/// Formats the table of one scenario; the first row is the provider without a proxy.
pub fn table(title: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "{title}\n{:14} {:>11} {:>9} {:>9} {:>11} {:>18} {:>9} {:>7}\n",
        "", "CPU us/req", "p50 ms", "p99 ms", "added p50", "first token added", "RSS MiB", "failed"
    );
    let direct = rows.first();
    for row in rows {
        let fast = row.quantile(0.5, |times| &times.whole);
        let first = row.quantile(0.5, |times| &times.first);
        let base = direct.map(|direct| direct.quantile(0.5, |times| &times.whole)).unwrap_or_default();
        let base_first = direct.map(|direct| direct.quantile(0.5, |times| &times.first)).unwrap_or_default();
        let line = writeln!(
            text,
            "{:14} {:>11} {:>9} {:>9} {:>11} {:>18} {:>9} {:>7}",
            row.name,
            shown(row.cpu(), 1),
            shown(median(fast.iter().copied()), 3),
            shown(row.p99(), 3),
            shown(added(&fast, &base), 3),
            shown(added(&first, &base_first), 3),
            shown(row.resident_mib(), 1),
            row.failed(),
        );
        debug_assert!(line.is_ok(), "a string takes every line");
    }
    text
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}
