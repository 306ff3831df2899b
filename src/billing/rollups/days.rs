//! Day rollups of ended days, built from the hour rollups of these days. All calls block.
//!
//! A query of a long period reads one row for a day in place of one for each hour. Day rollups are never a source of
//! truth: a reader uses those before [`first_incomplete_day`] only, and adds up hours for all other days. Therefore
//! nothing is lost if a gateway of an earlier version writes to the same store, or if a build ends early.

use super::query::{account_names, for_each_summed_day};
use crate::billing::report::{ReportError, find_entry};
use penstock_core::entry_number::number_before_chain;
use penstock_storage::StoreError;
use penstock_storage::ledger::{LedgerStore, LedgerTip};
use penstock_usage::{
    ChainPosition, DayNumber, DayRollupBuild, DayRollupWatermark, RowError, day_watermark_key,
    encode_row_value,
};

/// Number of rows that a build writes at a time.
const BUILD_ROWS: usize = 1_000;
/// Age in seconds from which another gateway's unfinished build counts as abandoned.
const ABANDONED_BUILD_SECONDS: u64 = 600;

/// Result of a build of day rollups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayBuildResult {
    /// Number of days that were built, counted from the first day with usage.
    pub days: u32,
    /// Number of rows that were written.
    pub rows: u64,
}

/// Returns the first day whose rollups are not complete, or may have changed after they were built.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn first_incomplete_day(store: &LedgerStore) -> Result<DayNumber, ReportError> {
    let Some(value) = store.rollup(&day_watermark_key())? else { return Ok(DayNumber::default()) };
    // Without a readable watermark, no day is complete.
    let Ok(mark) = DayRollupWatermark::decode(&value) else { return Ok(DayNumber::default()) };
    // The watermark is read before the tips. If a build ends in between, the result may be too early, but never too
    // late.
    bound_by_tips(store, &mark, &store.chains()?)
}

fn bound_by_tips(
    store: &LedgerStore,
    mark: &DayRollupWatermark,
    tips: &[(u32, LedgerTip)],
) -> Result<DayNumber, ReportError> {
    mark.first_incomplete_day(tips.iter().map(|(chain, tip)| (*chain, tip.seq)), |chain| {
        let first = find_entry(store, number_before_chain(chain).saturating_add(1))?;
        Ok(first.map_or(0, |entry| entry.at))
    })
}

/// Builds the day rollups that are missing or may have changed, of all days before that of `now` (Unix seconds).
/// Returns `None` if there is nothing to do, if another gateway builds or has built in the format of a later version,
/// or if the hour rollups are incomplete. `id` identifies the build.
///
/// # Errors
/// Returns an error if the store cannot be read or written. Then the days that are complete remain so.
pub fn build_days(store: &LedgerStore, now: u64, id: String) -> Result<Option<DayBuildResult>, ReportError> {
    let value = store.rollup(&day_watermark_key())?;
    let mark = match value.as_deref().map(DayRollupWatermark::decode) {
        Some(Ok(mark)) => mark,
        // A later version has built the rollups in another format.
        Some(Err(RowError::NewerVersion)) => return Ok(None),
        Some(Err(RowError::InvalidFormat)) | None => DayRollupWatermark::default(),
    };
    let tips = store.chains()?;
    let end = DayNumber::from_unix(now);
    let from = bound_by_tips(store, &mark, &tips)?;
    let is_building =
        mark.build.as_ref().is_some_and(|build| build.started.saturating_add(ABANDONED_BUILD_SECONDS) > now);
    if tips.is_empty() || from >= end || is_building || tips.iter().any(|(_, tip)| !tip.are_rollups_complete)
    {
        return Ok(None);
    }
    let position = |(chain, tip): &(u32, LedgerTip)| (*chain, ChainPosition { seq: tip.seq, at: tip.at });
    let chains = tips.iter().map(position).collect();
    let running =
        DayRollupWatermark { until: from, chains, build: Some(DayRollupBuild { id, started: now }) };
    match write_days(store, value.as_deref(), &running, end) {
        Ok(built) => Ok(Some(built)),
        // Another gateway has begun a build meanwhile.
        Err(BuildError::Store(StoreError::Guard { .. })) => Ok(None),
        Err(BuildError::Store(error)) => Err(error.into()),
        Err(BuildError::Report(error)) => Err(error),
    }
}

/// Error of a build.
enum BuildError {
    Store(StoreError),
    Report(ReportError),
}

impl From<StoreError> for BuildError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ReportError> for BuildError {
    fn from(error: ReportError) -> Self {
        Self::Report(error)
    }
}

/// Writes the rows of all days from the first day of a running build up to `end`, which is excluded. `before` is the
/// value of the watermark before the build.
///
/// The store accepts a row only while the watermark still names this build, and a build writes the watermark before
/// it reads. So of two builds, the later one writes the last value of each row, and reads all entries up to the chain
/// positions in its watermark.
fn write_days(
    store: &LedgerStore,
    before: Option<&[u8]>,
    running: &DayRollupWatermark,
    end: DayNumber,
) -> Result<DayBuildResult, BuildError> {
    let (key, guard) = (day_watermark_key(), running.encode());
    store.write_guarded_rollups((&key, before), &[(key.clone(), guard.clone())])?;
    let write = |rows: &mut Vec<_>| store.write_guarded_rollups((&key, Some(&guard)), &std::mem::take(rows));
    let (mut rows, mut count) = (Vec::new(), 0);
    let mut names = account_names(store)?;
    names.push("".into());
    let mut from = end;
    for name in names {
        for_each_summed_day(store, &name, (running.until, end), |day| {
            for (key, cell, sums) in day.keyed_rollups() {
                from = from.min(DayNumber::from_hour(cell.hour));
                rows.push((key, encode_row_value(cell, sums)));
                count += 1;
            }
            if rows.len() >= BUILD_ROWS {
                write(&mut rows)?;
            }
            Ok::<_, BuildError>(())
        })?;
    }
    write(&mut rows)?;
    let done = DayRollupWatermark { until: end, build: None, ..running.clone() };
    store.write_guarded_rollups((&key, Some(&guard)), &[(key.clone(), done.encode())])?;
    Ok(DayBuildResult { days: end.0.saturating_sub(from.0), rows: count })
}
