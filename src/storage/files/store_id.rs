//! Check that the folder of file contents and the store of their records belong together: both contain the same ID.
//! With another or an unmounted folder, every file would look damaged. With another store, all contents would be
//! deleted because they have no record.

use super::{FILE_ID_PREFIX, FileManager};
use crate::storage::object_id;
use penstock_core::hex;
use penstock_storage::StoreError;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval at which a gateway reads the folder's ID while it waits for another gateway to write it.
const ID_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Name of the file that contains the ID of the store.
pub(super) const STORE_ID_FILE: &str = ".store";

impl FileManager {
    /// Checks that the folder belongs to the store, and writes the ID where it is missing. In a fleet, the gateway
    /// that chose the ID writes it. The other gateways do not write it, because their folder may be a different one:
    /// they wait for the ID for at most `wait`.
    ///
    /// # Errors
    /// Returns a sentence that tells the operator what to do.
    pub(super) fn check_folder(&self, wait: Duration) -> Result<(), String> {
        let to_message = |error: StoreError| format!("The records of files cannot be read: {error}.");
        let stamp = read_folder_id(&self.folder.join(STORE_ID_FILE))?;
        let id = self.store.directory_id().map_err(to_message)?;
        let records = !self.store.list_all(None, 1).map_err(to_message)?.files.is_empty();
        let contents = has_contents(&self.folder)?;
        let folder = self.folder.display();
        match (id, stamp) {
            (Some(id), Some(stamp)) if id == stamp => Ok(()),
            (Some(id), Some(_)) => Err(format!(
                "The folder of the files {folder} belongs to another store. Set files.path to the folder of this store; \
                 if this is the one after all, write {id} to {folder}/{STORE_ID_FILE}."
            )),
            (Some(id), None) if records && !contents => Err(missing_contents(&folder.to_string(), &id)),
            (Some(id), None) if self.shared.is_some() => self.await_folder_id(&id, wait),
            (Some(id), None) => self.write_folder_id(&id),
            (None, _) if contents && !records => Err(format!(
                "The folder of the files {folder} has contents that the store does not know, and a start removes those: \
                 has the store been lost, or is another one meant? Restore the store from an archive \
                 (penstock store import), set storage.path or files.path right, or empty the folder."
            )),
            (None, stamp) => {
                let own = stamp.unwrap_or_else(|| hex::encode(&rand::random::<[u8; 16]>()));
                let id = self.choose_folder_id(own.clone());
                if id != own {
                    // Another gateway of a fleet has chosen the ID first.
                    return self.await_folder_id(&id, wait);
                }
                if records && !contents {
                    return Err(missing_contents(&folder.to_string(), &id));
                }
                self.write_folder_id(&id)
            }
        }
    }

    fn await_folder_id(&self, id: &str, wait: Duration) -> Result<(), String> {
        let started = Instant::now();
        while read_folder_id(&self.folder.join(STORE_ID_FILE))?.as_deref() != Some(id) {
            if started.elapsed() >= wait {
                let folder = self.folder.display();
                return Err(format!(
                    "The folder of the files {folder} is not the one that the other gateways of the fleet use: set files.path to \
                     a folder that all of them share. If it is the one, write {id} to {folder}/{STORE_ID_FILE}."
                ));
            }
            std::thread::sleep(ID_CHECK_INTERVAL);
        }
        Ok(())
    }

    /// Writes the ID to the store; returns the ID of another gateway of a fleet if that gateway wrote first. If the
    /// disk is full, a later start writes the ID.
    fn choose_folder_id(&self, id: String) -> String {
        self.store.get_or_insert_directory_id(&id).unwrap_or_else(|error| {
            tracing::warn!(name: "files_folder_id_not_written", why = %error);
            id
        })
    }

    fn write_folder_id(&self, id: &str) -> Result<(), String> {
        if let Err(error) = write_id(&self.folder.join(STORE_ID_FILE), id) {
            tracing::warn!(name: "files_folder_id_not_written", why = %error.kind());
        }
        Ok(())
    }
}

/// Writes the ID of a store to the folder of its contents, unless the folder has an ID. Called by an import, because
/// a gateway of a fleet does not write a missing ID to its folder: the other gateways may have a different folder.
///
/// # Errors
/// Returns any I/O error.
pub fn write_imported_store_id(folder: &Path, id: &str) -> std::io::Result<()> {
    let path = folder.join(STORE_ID_FILE);
    if path.exists() { Ok(()) } else { write_id(&path, id) }
}

fn write_id(path: &Path, id: &str) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(id.as_bytes()).and_then(|()| file.sync_all()));
    if written.is_err() {
        // A partly written ID is deleted, because it would look like the ID of another store.
        fs::remove_file(path).ok();
    }
    written
}

fn missing_contents(folder: &str, id: &str) -> String {
    format!(
        "The folder of the files {folder} is empty, and the store has records of files: is it mounted? Mount or restore it. If \
         the contents are lost for good, write {id} to {folder}/{STORE_ID_FILE}: the files are then reported as damaged."
    )
}

fn read_folder_id(path: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("The file {} cannot be read: {error}.", path.display())),
    }
}

/// Returns true if the folder has contents of at least one file.
fn has_contents(folder: &Path) -> Result<bool, String> {
    let failed = |error: std::io::Error| {
        format!("The folder of the files {} cannot be read: {error}.", folder.display())
    };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name.to_str().is_some_and(|name| object_id::is_valid(FILE_ID_PREFIX, name)) {
            return Ok(true);
        }
    }
    Ok(false)
}
