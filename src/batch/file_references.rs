//! Use of files by batches, for the deletion of files: reports the files that are in use, and ends batches before their
//! input file is deleted.

use super::errors::batches_not_writable;
use super::{BatchCommand, BatchManager, DELETION_GUARD, END_TIMEOUT};
use crate::storage::files::FileConsumers;
use async_trait::async_trait;
use penstock_core::ApiError;
use penstock_storage::StoreError;
use penstock_storage::batches::BatchRecord;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

#[async_trait]
impl FileConsumers for BatchManager {
    fn used_files<'i>(&self, ids: &[&'i str]) -> HashSet<&'i str> {
        if self.fleet.has_fleet() {
            return self.filter_files_used_in_fleet(ids);
        }
        // At the start of the process and during a handover, not all running batches are known, so every file counts as
        // in use.
        if !self.resumed.load(Ordering::Acquire) || *self.stop.borrow() {
            return ids.iter().copied().collect();
        }
        let open: Vec<_> =
            self.running.lock().values().map(|running| running.published.borrow().clone()).collect();
        let open: Vec<&BatchRecord> = open.iter().map(|record| &**record).collect();
        self.filter_files_of_batches(&open, ids).unwrap_or_else(|_| ids.iter().copied().collect())
    }

    async fn end_file_consumers(&self, id: &str) -> Result<(), ApiError> {
        if self.fleet.has_fleet() {
            return self.end_batches_of_input_in_fleet(id).await;
        }
        {
            let mut deleting = self.deleting.lock();
            deleting.retain(|_, since| since.elapsed() < DELETION_GUARD);
            deleting.insert(id.into(), Instant::now());
        }
        let mut ends = Vec::new();
        for running in self.running.lock().values().filter(|running| *running.input == *id) {
            let (asker, ended) = oneshot::channel();
            running.commands.send(BatchCommand::InputDeleted(asker)).ok();
            ends.push(ended);
        }
        for ended in ends {
            if timeout(END_TIMEOUT, ended).await.is_err() {
                self.deleting.lock().remove(id);
                return Err(batches_not_writable());
            }
        }
        Ok(())
    }

    async fn end_late_consumers(&self, id: &str) {
        if self.fleet.has_fleet() {
            self.request_end_by_input(id).await.ok();
        }
    }
}

impl BatchManager {
    /// Returns the files of `ids` that one of the batches reads or writes. Blocks.
    pub(super) fn filter_files_of_batches<'i>(
        &self,
        open: &[&BatchRecord],
        ids: &[&'i str],
    ) -> Result<HashSet<&'i str>, StoreError> {
        let files = open.iter().flat_map(|record| [Some(record.input.as_str()), record.output.as_deref()]);
        let files: HashSet<&str> = files.flatten().collect();
        let mut used = HashSet::new();
        for id in ids {
            if files.contains(id) || self.store.has_segment_file(open.iter().copied(), id)? {
                used.insert(*id);
            }
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::settings;
    use crate::fleet::FleetMember;
    use crate::storage::files::{FileExpiryContext, FileManager, FileOwner};
    use penstock_storage::files::{FileRecord, FileStatus, FileStore};
    use penstock_storage::open_in_memory;
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn nothing_is_swept_before_it_is_known_which_batches_there_are() {
        let (folder, store) = (tempfile::tempdir().unwrap(), open_in_memory());
        let settings = settings::FileSettings {
            path: folder.path().to_owned(),
            upload: 1,
            disk: 1,
            per_key: 1,
            keep_free: 0,
            retention: None,
            leftovers: Duration::from_secs(3_600),
            store: None,
        };
        let files = FileManager::open(&settings, FileStore::new(store.clone()), false).unwrap();
        let batches = Arc::new(BatchManager::new(store.clone(), FleetMember::without_fleet()));
        files.set_consumers(batches.clone());
        let owner = FileOwner { key: "k", account: "a" };
        let old = || {
            let name = "in.jsonl".to_owned();
            let file = files.create_output(owner, name, "/v1/rerank", Duration::from_secs(1)).unwrap();
            files.file_record_store().add(&FileRecord { status: FileStatus::Processed, ..file }).unwrap();
        };
        let swept = || files.delete_expired(FileExpiryContext { now: 1_000, retention: Some(10) }).unwrap();
        old();
        assert_eq!(swept(), 0, "an open batch may need it");
        batches.resumed.store(true, Ordering::Release);
        assert_eq!(swept(), 1);
        old();
        assert!(batches.close().await);
        assert_eq!(swept(), 0, "the next process may go on with its batch");
    }
}
