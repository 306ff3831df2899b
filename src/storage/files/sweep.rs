//! Deletion of leftovers after a crash, and of expired files.

use super::{Files, PREFIX, When};
use crate::storage::object_id;
use crate::telemetry::log;
use penstock_storage::StoreError;
use penstock_storage::files::FileRecord;
use std::fs;

/// Records per page.
const PAGE: usize = 500;

impl Files {
    /// Deletes incomplete uploads and contents without a record, unless another process uses them, and
    /// counts the existing bytes.
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

    /// Deletes expired files that no running batch uses. Returns their number.
    ///
    /// # Errors
    /// Returns the store's error; the next call continues.
    pub fn sweep(&self, at: When) -> Result<u64, StoreError> {
        let mut swept = 0;
        for id in self.store.ended(at.now, PAGE)? {
            if let Some(file) = self.store.get(&id)? {
                swept += self.over(&file, at)?;
            }
        }
        let mut after: Option<String> = None;
        // IDs increase with time: all after the first young file are young too.
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

    /// Deletes a record and then its contents; returns false if it was deleted before.
    pub(super) fn remove(&self, file: &FileRecord) -> Result<bool, StoreError> {
        let gone = self.store.delete(file)?;
        if gone {
            // Before and after: an export at this moment may copy the file in between.
            self.unarchive(&file.id);
            // Contents that cannot be deleted now are deleted at the next start.
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
