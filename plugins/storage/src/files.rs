//! Files in a store: what is known of each, found by id and listed by key, newest or oldest first. Their contents
//! are plain files elsewhere.
//!
//! Three rows each, written together: `f/<id>` is the record, `k/<key>\0<purpose><id>` lists it under its key,
//! `e/<when><id>` under the time at which it goes. Ids rise with the time they were made at, so that a list in
//! the order of ids is one in the order of time, and goes on at an id that is no more.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::{Batch, MAX_PAGE, Space, Store, StoreError, versioned};

const WHAT: &str = "a file";
const RECORDS: &[u8] = b"f/";
const OF_KEY: &[u8] = b"k/";
const ENDS: &[u8] = b"e/";
/// Longest id, in bytes.
pub const MAX_FILE_ID: usize = 64;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Requests of a batch.
    Batch,
    /// Results of a batch.
    BatchOutput,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 2] = [Self::Batch, Self::BatchOutput];

    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::BatchOutput => "batch_output",
        }
    }

    const fn letter(self) -> u8 {
        match self {
            Self::Batch => b'b',
            Self::BatchOutput => b'o',
        }
    }
}

/// How far a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileStatus {
    /// It still grows.
    Uploaded,
    /// It is whole.
    Processed,
    /// It is not what it should be.
    Error,
}

impl FileStatus {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uploaded => "uploaded",
            Self::Processed => "processed",
            Self::Error => "error",
        }
    }
}

/// A file as it is kept. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its id: letters, digits and `-_`, rising with the time it was made at.
    pub id: String,
    /// Public id of the key it belongs to.
    pub key: String,
    /// Account of that key.
    pub account: String,
    /// What its owner calls it.
    pub filename: String,
    /// What it is for.
    pub purpose: Purpose,
    /// Bytes of its contents; of one that grows, those that count.
    pub bytes: u64,
    /// SHA-256 of its contents, 64 hex digits, once it is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// CRC32C of the table of its blocks' checksums; of one that grows, of the bytes that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums: Option<u32>,
    /// When it was made.
    pub created_at: u64,
    /// When the last was added to one that grew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<u64>,
    /// When it goes, if its owner said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// How far it is.
    pub status: FileStatus,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_details: Option<String>,
    /// Requests in it.
    #[serde(default)]
    pub lines: u32,
    /// What its requests ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Which files, in which order.
#[derive(Clone, Copy, Debug)]
pub struct FileQuery<'a> {
    /// Of this key.
    pub key: &'a str,
    /// For this alone, if said.
    pub purpose: Option<Purpose>,
    /// Behind this id, which need not be there (any more).
    pub after: Option<&'a str>,
    /// The oldest first.
    pub rising: bool,
    /// At most so many.
    pub limit: usize,
}

/// Some of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePage {
    /// The files.
    pub files: Vec<FileRecord>,
    /// Whether others follow.
    pub more: bool,
}

/// Row of the id of the folder that has the contents.
const FOLDER: &[u8] = b"files";

/// The files of a store.
#[derive(Clone, Debug)]
pub struct FileStore {
    store: Arc<dyn Store>,
}

impl FileStore {
    /// The files in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> FileStore {
        FileStore { store }
    }

    /// The id of the folder that has the contents, if it was noted.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn folder(&self) -> Result<Option<String>, StoreError> {
        let row = self.store.get(Space::Meta, FOLDER)?;
        row.map(|row| {
            String::from_utf8(row).map_err(|_| StoreError::corrupt("the id of the folder of files"))
        })
        .transpose()
    }

    /// Notes the id of the folder that has the contents.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn note_folder(&self, id: &str) -> Result<(), StoreError> {
        self.store.apply(Batch::new().put(Space::Meta, FOLDER, id.as_bytes()))
    }

    /// The steps that add a file, for a commit of the caller's.
    ///
    /// # Errors
    /// `Format` if the id or the key is none.
    pub fn insert(file: &FileRecord) -> Result<Batch, StoreError> {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if file.id.is_empty() || file.id.len() > MAX_FILE_ID || !file.id.bytes().all(may) {
            return Err(StoreError::Format { what: "a file's id is letters and digits".to_owned() });
        }
        if file.key.is_empty() || file.key.contains('\0') {
            return Err(StoreError::Format { what: "a file needs a key".to_owned() });
        }
        let (space, place, row) = Self::row(file)?;
        let mut batch = Batch::new().absent(space, place.clone()).put(space, place, row);
        batch = batch.put(Space::Files, listing(&file.key, file.purpose, &file.id), []);
        if let Some(when) = file.expires_at {
            batch = batch.put(Space::Files, ending(when, &file.id), []);
        }
        Ok(batch)
    }

    /// The row of the record alone, for a commit that changes it: `space`, key, value. What it is listed under
    /// (`id`, `key`, `purpose`, `expires_at`) may not change.
    ///
    /// # Errors
    /// Never for a real record.
    pub fn row(file: &FileRecord) -> Result<(Space, Vec<u8>, Vec<u8>), StoreError> {
        Ok((Space::Files, Self::place(&file.id), versioned::write(WHAT, file)?))
    }

    /// The key of the record's row in [`Space::Files`], for guards.
    #[must_use]
    pub fn place(id: &str) -> Vec<u8> {
        [RECORDS, id.as_bytes()].concat()
    }

    /// Adds a file.
    ///
    /// # Errors
    /// `Guard` if there is one of this id, and as [`FileStore::insert`] and [`Store::apply`].
    pub fn put(&self, file: &FileRecord) -> Result<(), StoreError> {
        self.store.apply(Self::insert(file)?)
    }

    /// The file of an id.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get(&self, id: &str) -> Result<Option<FileRecord>, StoreError> {
        let row = self.store.get(Space::Files, &Self::place(id))?;
        row.map(|row| versioned::read(WHAT, &row)).transpose()
    }

    /// Changes a record that is still as `was`; its places stay. False if it is another meanwhile, or gone.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn replace(&self, was: &FileRecord, now: &FileRecord) -> Result<bool, StoreError> {
        let (space, place, row) = Self::row(now)?;
        let (_, _, old) = Self::row(was)?;
        match self.store.apply(Batch::new().is(space, place.clone(), old).put(space, place, row)) {
            Err(StoreError::Guard { .. }) => Ok(false),
            applied => applied.map(|()| true),
        }
    }

    /// The steps that remove a file, for a commit of the caller's. They hold only while it is there.
    #[must_use]
    pub fn remove(file: &FileRecord) -> Batch {
        let place = Self::place(&file.id);
        let batch = Batch::new()
            .present(Space::Files, place.clone())
            .delete(Space::Files, place)
            .delete(Space::Files, listing(&file.key, file.purpose, &file.id));
        match file.expires_at {
            Some(when) => batch.delete(Space::Files, ending(when, &file.id)),
            None => batch,
        }
    }

    /// Removes a file; false if it is gone already.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn delete(&self, file: &FileRecord) -> Result<bool, StoreError> {
        match self.store.apply(Self::remove(file)) {
            Err(StoreError::Guard { .. }) => Ok(false),
            applied => applied.map(|()| true),
        }
    }

    /// Some of a key's files. Costs what it gives, however many there are.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn list(&self, query: &FileQuery<'_>) -> Result<FilePage, StoreError> {
        let purposes = Purpose::ALL.into_iter().filter(|one| query.purpose.is_none_or(|asked| asked == *one));
        let mut ids = Vec::new();
        for purpose in purposes {
            self.ids(query, purpose, &mut ids)?;
        }
        ids.sort_unstable();
        if !query.rising {
            ids.reverse();
        }
        let more = ids.len() > query.limit;
        ids.truncate(query.limit);
        let mut files = Vec::with_capacity(ids.len());
        for id in &ids {
            // One that was deleted since its id was read is no longer in the list.
            files.extend(self.get(id)?);
        }
        Ok(FilePage { files, more })
    }

    /// Adds the ids for one purpose, at most one more than asked for.
    fn ids(&self, query: &FileQuery<'_>, purpose: Purpose, ids: &mut Vec<String>) -> Result<(), StoreError> {
        let prefix = listing(query.key, purpose, "");
        let mut at = query.after.map(|id| listing(query.key, purpose, id));
        let mut left = query.limit.saturating_add(1);
        while left > 0 {
            let (space, some) = (Space::Files, left.min(MAX_PAGE));
            let page = if query.rising {
                self.store.scan(space, &prefix, at.as_deref(), some)?
            } else {
                self.store.scan_back(space, &prefix, at.as_deref(), some)?
            };
            left -= page.rows.len().min(left);
            let named = page.rows.iter().filter_map(|row| row.key.get(prefix.len()..));
            ids.extend(named.map(|id| String::from_utf8_lossy(id).into_owned()));
            if !page.more {
                break;
            }
            at = page.rows.into_iter().next_back().map(|row| row.key);
        }
        Ok(())
    }

    /// Every file, the oldest first, behind `after`.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn all(&self, after: Option<&str>, limit: usize) -> Result<FilePage, StoreError> {
        let after = after.map(Self::place);
        let page = self.store.scan(Space::Files, RECORDS, after.as_deref(), limit)?;
        let files =
            page.rows.iter().map(|row| versioned::read(WHAT, &row.value)).collect::<Result<_, _>>()?;
        Ok(FilePage { files, more: page.more })
    }

    /// Ids of files whose owners' time for them is over at `now`, the longest over first.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn ended(&self, now: u64, limit: usize) -> Result<Vec<String>, StoreError> {
        let page = self.store.scan(Space::Files, ENDS, None, limit)?;
        let parted = page.rows.iter().filter_map(|row| {
            let (when, id) = row.key.get(ENDS.len()..)?.split_first_chunk::<8>()?;
            Some((u64::from_be_bytes(*when), String::from_utf8_lossy(id).into_owned()))
        });
        Ok(parted.take_while(|(when, _)| *when <= now).map(|(_, id)| id).collect())
    }
}

/// No key has a NUL, so no key's list runs into another's.
fn listing(key: &str, purpose: Purpose, id: &str) -> Vec<u8> {
    [OF_KEY, key.as_bytes(), b"\0", &[purpose.letter()], id.as_bytes()].concat()
}

fn ending(when: u64, id: &str) -> Vec<u8> {
    [ENDS, &when.to_be_bytes(), id.as_bytes()].concat()
}
