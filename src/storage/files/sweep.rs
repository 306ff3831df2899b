//! What has to go: what a crash left, at the start; what is over, again and again.

use super::{Files, PREFIX, When};
use crate::storage::object_id;
use crate::telemetry::log;
use penstock_storage::StoreError;
use penstock_storage::files::FileRecord;
use std::fs;

/// Records that are looked at together.
const PAGE: usize = 500;

impl Files {
    /// Removes uploads that never were whole and contents without a record, unless somebody has them in hand,
    /// and counts what there is.
    pub(super) fn start(&self, in_hand: bool) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| {
            format!("The folder of the files {} cannot be used: {error}.", self.folder.display())
        };
        if in_hand {
            return self.count().map_err(|error| failed(&error));
        }
        for entry in fs::read_dir(&self.aside).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            fs::remove_file(entry.path()).map_err(|error| failed(&error))?;
        }
        let mut swept = 0_u64;
        for entry in fs::read_dir(&self.folder).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            let name = entry.file_name();
            let Some(id) = name.to_str().filter(|name| object_id::is(PREFIX, name)) else { continue };
            if matches!(self.store.get(id), Ok(None)) {
                fs::remove_file(entry.path()).map_err(|error| failed(&error))?;
                swept += 1;
            }
        }
        if swept > 0 {
            log::event(log::info(), "files_swept", &[("leftovers", &swept.to_string())]);
        }
        self.count().map_err(|error| failed(&error))
    }

    fn count(&self) -> Result<(), StoreError> {
        let mut after: Option<String> = None;
        loop {
            let page = self.store.all(after.as_deref(), PAGE)?;
            page.files.iter().for_each(|file| self.room.note(&file.key, file.bytes));
            after = page.files.last().map(|file| file.id.clone());
            if !page.more || after.is_none() {
                return Ok(());
            }
        }
    }

    /// Deletes the files that are over, but for those that something still runs on. Returns how many.
    ///
    /// # Errors
    /// What the store says; the next time goes on.
    pub fn sweep(&self, at: When) -> Result<u64, StoreError> {
        let mut swept = 0;
        for id in self.store.ended(at.now, PAGE)? {
            if let Some(file) = self.store.get(&id)? {
                swept += self.over(&file, at)?;
            }
        }
        let mut after: Option<String> = None;
        // Ids rise with time: those behind the first young one are young too.
        while at.retention.is_some() {
            let page = self.store.all(after.as_deref(), PAGE)?;
            for file in &page.files {
                if at.retention.is_some_and(|kept| file.created_at.saturating_add(kept) > at.now) {
                    return Ok(swept);
                }
                swept += self.over(file, at)?;
            }
            after = page.files.last().map(|file| file.id.clone());
            if !page.more {
                break;
            }
        }
        Ok(swept)
    }

    fn over(&self, file: &FileRecord, at: When) -> Result<u64, StoreError> {
        let needed = || self.runs.get().is_some_and(|runs| runs.needs(&file.id));
        Ok(u64::from(at.is_over(file) && !needed() && self.remove(file)?))
    }

    /// Removes a record and then its contents; false if it was gone.
    pub(super) fn remove(&self, file: &FileRecord) -> Result<bool, StoreError> {
        let gone = self.store.delete(file)?;
        if gone {
            // Before and after: an archive that is made at this moment may take it in between.
            self.unarchive(&file.id);
            // What the disk does not let go of is swept at the next start.
            fs::remove_file(self.path(&file.id)).ok();
            self.unarchive(&file.id);
            self.room.give(&file.key, file.bytes);
        }
        Ok(gone)
    }

    fn unarchive(&self, id: &str) {
        if let Some((folder, purge)) = self.archives.get().filter(|_| object_id::is(PREFIX, id)) {
            purge(folder, id);
        }
    }
}
