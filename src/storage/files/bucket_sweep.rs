//! Sweep of a bucket: objects without a record, and segments of files that no longer grow; incomplete uploads are swept
//! by [`super::incomplete_uploads`].

use super::bucket::{COMPLETE_FILES_FOLDER, FileBucket, object_name};
use super::segments::SEGMENT_FOLDER;
use super::{FILE_ID_PREFIX, FileError};
use crate::storage::object_id;
use penstock_object_storage::ObjectInfo;
use penstock_storage::StoreError;
use penstock_storage::files::{FileRecord, FileStatus, FileStore};
use std::time::Duration;

/// Pause of the sweep after an outage of the store: during this time, records of older objects may still be written.
const OUTAGE_PAUSE: Duration = Duration::from_secs(600);

/// Times of the last sweep and of the last outage of the store, by the steady clock; `None` if there was none.
#[derive(Debug, Default)]
pub struct SweepSchedule {
    swept_at: Option<Duration>,
    outage_at: Option<Duration>,
}

impl SweepSchedule {
    /// Returns true if a sweep of the leader is due, and then counts the sweep as made.
    fn is_due(&mut self, now: Duration, interval: Duration, is_store_ready: bool, is_leader: bool) -> bool {
        if !is_store_ready {
            self.outage_at = Some(now);
        }
        let is_past =
            |at: Option<Duration>, pause: Duration| at.is_none_or(|at| now >= at.saturating_add(pause));
        let is_due = is_leader && is_past(self.outage_at, OUTAGE_PAUSE) && is_past(self.swept_at, interval);
        if is_due {
            self.swept_at = Some(now);
        }
        is_due
    }
}

/// Outcome of a sweep of the bucket.
#[derive(Debug, Default)]
pub struct SweepOutcome {
    /// Number of deleted objects and aborted uploads. A request that fails for some objects is not counted at all.
    pub swept: u64,
    /// First error of the bucket or of the store. The next sweep tries again.
    pub first_error: Option<FileError>,
}

impl SweepOutcome {
    fn add(&mut self, part: Result<u64, FileError>) {
        match part {
            Ok(swept) => self.swept += swept,
            Err(error) => {
                self.first_error.get_or_insert(error);
            }
        }
    }
}

impl FileBucket {
    /// Returns true if a sweep of the leader is due, and then counts the sweep as made. `now` is the time of the steady
    /// clock. Called every minute on each gateway, so that a gateway that becomes the leader also knows of earlier
    /// outages of the store.
    pub fn claim_due_sweep(
        &self,
        now: Duration,
        interval: Duration,
        is_store_ready: bool,
        is_leader: bool,
    ) -> bool {
        self.schedule.lock().is_due(now, interval, is_store_ready, is_leader)
    }

    /// Deletes leftovers of uploads and batches that are older than `age`. For younger ones, the record may still be
    /// written. The age of an object is measured by the clock of the object store; the age of an incomplete upload
    /// counts from the time at which this process saw it first. The sweep continues after an object that cannot be
    /// deleted, and after a damaged record.
    pub fn sweep(&self, records: &FileStore, age: Duration) -> SweepOutcome {
        let mut outcome = SweepOutcome::default();
        self.sweep_folder(
            COMPLETE_FILES_FOLDER,
            age,
            |object| is_stale_object(records, object),
            &mut outcome,
        );
        self.sweep_folder(SEGMENT_FOLDER, age, |object| is_stale_segment(records, object), &mut outcome);
        outcome.add(self.abort_incomplete_uploads(age));
        outcome
    }

    fn sweep_folder(
        &self,
        folder: &str,
        age: Duration,
        is_stale: impl Fn(&ObjectInfo) -> Result<bool, StoreError>,
        outcome: &mut SweepOutcome,
    ) {
        let mut after = None::<String>;
        loop {
            let listed = self.usable_content_store().and_then(|contents| {
                let page = contents.list(folder, after.as_deref())?;
                Ok((contents, page))
            });
            let (contents, page) = match listed {
                Ok(listed) => listed,
                Err(error) => return outcome.add(Err(FileError::Io(error))),
            };
            let mut stale = Vec::new();
            for object in page.objects.iter().filter(|object| object.age >= age) {
                match is_stale(object) {
                    Ok(true) => stale.push(object.name.clone()),
                    Ok(false) => {}
                    Err(error @ StoreError::Corrupt { .. }) => outcome.add(Err(error.into())),
                    // After any other error of the store, the remaining records cannot be read either.
                    Err(error) => return outcome.add(Err(error.into())),
                }
            }
            let deleted = contents.delete_objects(&stale).map(|()| stale.len() as u64);
            outcome.add(deleted.map_err(FileError::Io));
            after = page.objects.last().map(|object| object.name.clone());
            if !page.more || after.is_none() {
                return;
            }
        }
    }
}

/// Returns true if an object belongs to no file. The object of a growing file is retained, because the file may be
/// about to be completed as this object.
fn is_stale_object(records: &FileStore, object: &ObjectInfo) -> Result<bool, StoreError> {
    let Some(name) = object.name.strip_prefix(COMPLETE_FILES_FOLDER).and_then(|name| name.strip_prefix('/'))
    else {
        return Ok(false);
    };
    let Some((id, _)) = name.rsplit_once('-') else { return Ok(false) };
    match find_record(records, id)? {
        FoundRecord::Foreign => Ok(false),
        FoundRecord::Missing => Ok(true),
        FoundRecord::Found(record) => Ok(record.status != FileStatus::Uploaded
            && object_name(&record).as_deref() != Some(object.name.as_str())),
    }
}

/// Returns true if a segment belongs to no growing file.
fn is_stale_segment(records: &FileStore, object: &ObjectInfo) -> Result<bool, StoreError> {
    let id = object.name.split('/').nth(1).unwrap_or_default();
    match find_record(records, id)? {
        FoundRecord::Foreign => Ok(false),
        FoundRecord::Missing => Ok(true),
        FoundRecord::Found(record) => Ok(record.status != FileStatus::Uploaded),
    }
}

/// Result of looking up the record that belongs to the name of an object.
enum FoundRecord {
    /// The name is not that of a file.
    Foreign,
    Missing,
    Found(Box<FileRecord>),
}

fn find_record(records: &FileStore, id: &str) -> Result<FoundRecord, StoreError> {
    if !object_id::is_valid(FILE_ID_PREFIX, id) {
        return Ok(FoundRecord::Foreign);
    }
    Ok(records.get(id)?.map_or(FoundRecord::Missing, |record| FoundRecord::Found(Box::new(record))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_made_hourly_and_not_soon_after_an_outage() {
        let mut schedule = SweepSchedule::default();
        let hour = Duration::from_secs(3_600);
        let mut is_due =
            |minutes: u64, is_ready| schedule.is_due(Duration::from_secs(minutes * 60), hour, is_ready, true);
        assert!(is_due(1, true) && !is_due(2, true));
        assert!(!is_due(60, true) && is_due(61, true));
        assert!(!is_due(121, false), "the store is away");
        assert!(!is_due(130, true) && is_due(131, true));
    }

    #[test]
    fn a_gateway_that_becomes_the_leader_sweeps_at_once() {
        let (mut schedule, hour) = (SweepSchedule::default(), Duration::from_secs(3_600));
        let mut is_due = |minutes: u64, is_leader| {
            schedule.is_due(Duration::from_secs(minutes * 60), hour, true, is_leader)
        };
        assert!(!is_due(1, false) && !is_due(2, false));
        assert!(is_due(3, true) && !is_due(4, true));
    }
}
