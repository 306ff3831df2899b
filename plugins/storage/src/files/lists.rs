//! Lists of files in pages.

use super::{FilePurpose, FileRecord, FileStore, LIST_PREFIX, RECORD_PREFIX, WHAT};
use crate::filtered_page::{MAX_FILTERED_ROWS, ScannedRows, filtered_page};
use crate::{MAX_PAGE_ROWS, StoreError, StoreTable, versioned_json};

/// Filter, order and limit of a file list.
#[derive(Clone, Copy, Debug)]
pub struct FileQuery<'a> {
    /// Public id of the owning key.
    pub key: &'a str,
    /// Purpose to list; `None` for all.
    pub purpose: Option<FilePurpose>,
    /// Id of the file after which the list starts, even if it was deleted; `None` for the first page.
    pub after: Option<&'a str>,
    /// True to list the oldest files first.
    pub ascending: bool,
    /// Maximum number of files.
    pub limit: usize,
}

/// Page of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePage {
    /// Files of the page.
    pub files: Vec<FileRecord>,
    /// Id to pass as `after` for the next page; `None` on the last page.
    pub next: Option<String>,
}

/// Ids of a page, and true if more ids follow.
type IdPage = (Vec<String>, bool);

impl FileStore {
    /// Returns a page of a key's files that pass `is_wanted`. The cost depends on the files of the page and those
    /// that `is_wanted` skips, not on the total number of files.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan).
    pub fn list(
        &self,
        query: &FileQuery<'_>,
        is_wanted: impl Fn(&FileRecord) -> bool,
    ) -> Result<FilePage, StoreError> {
        let after = query.after.map(str::to_owned);
        let found = filtered_page(after, query.limit, usize::MAX, |after, count| {
            let query = FileQuery { after: after.map(String::as_str), limit: count, ..*query };
            let (ids, more) = self.list_ids(&query)?;
            // A file that was deleted after its id was read is skipped.
            let files = self.get_many(&ids)?.into_iter().map(|file| file.filter(|file| is_wanted(file)));
            Ok(ScannedRows { rows: ids.into_iter().zip(files).collect(), more })
        })?;
        Ok(FilePage { files: found.items, next: found.next })
    }

    /// Returns a page of all files, the oldest first, after the id `after`.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan).
    pub fn list_all(&self, after: Option<&str>, limit: usize) -> Result<FilePage, StoreError> {
        let (files, more) = self.scan_records(after, limit, true)?;
        let next = files.last().filter(|_| more).map(|file| file.id.clone());
        Ok(FilePage { files, next })
    }

    /// Returns a page of all files that pass `is_wanted`, after the id `after` in the order of the list: the oldest or the
    /// newest first. At most 100,000 files are read, so a page may have fewer files than `limit`, or none, although more follow.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan).
    pub fn list_filtered(
        &self,
        after: Option<&str>,
        limit: usize,
        ascending: bool,
        is_wanted: impl Fn(&FileRecord) -> bool,
    ) -> Result<FilePage, StoreError> {
        let after = after.map(str::to_owned);
        let found = filtered_page(after, limit, MAX_FILTERED_ROWS, |after, count| {
            let (files, more) = self.scan_records(after.map(String::as_str), count, ascending)?;
            let rows = files.into_iter().map(|file| {
                let id = file.id.clone();
                (id, Some(file).filter(|file| is_wanted(file)))
            });
            Ok(ScannedRows { rows: rows.collect(), more })
        })?;
        Ok(FilePage { files: found.items, next: found.next })
    }

    fn scan_records(
        &self,
        after: Option<&str>,
        limit: usize,
        ascending: bool,
    ) -> Result<(Vec<FileRecord>, bool), StoreError> {
        let after = after.map(Self::record_key);
        let page = if ascending {
            self.store.scan(StoreTable::Files, RECORD_PREFIX, after.as_deref(), limit)?
        } else {
            self.store.scan_back(StoreTable::Files, RECORD_PREFIX, after.as_deref(), limit)?
        };
        let files = page.rows.iter().map(|row| versioned_json::decode(WHAT, &row.value));
        Ok((files.collect::<Result<_, _>>()?, page.more))
    }

    /// Returns a page of the ids of a key's files, and true if more follow.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan).
    pub fn list_ids(&self, query: &FileQuery<'_>) -> Result<IdPage, StoreError> {
        let purposes =
            FilePurpose::ALL.into_iter().filter(|one| query.purpose.is_none_or(|asked| asked == *one));
        let mut ids = Vec::new();
        for purpose in purposes {
            self.collect_ids(query, purpose, &mut ids)?;
        }
        ids.sort_unstable();
        if !query.ascending {
            ids.reverse();
        }
        let more = ids.len() > query.limit;
        ids.truncate(query.limit);
        Ok((ids, more))
    }

    /// Appends the ids of the files of one purpose to `ids`: at most one more than the limit of the query, to detect a
    /// further page.
    fn collect_ids(
        &self,
        query: &FileQuery<'_>,
        purpose: FilePurpose,
        ids: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        let prefix = list_key(query.key, purpose, "");
        let mut at = query.after.map(|id| list_key(query.key, purpose, id));
        let mut left = query.limit.saturating_add(1);
        while left > 0 {
            let (space, some) = (StoreTable::Files, left.min(MAX_PAGE_ROWS));
            let page = if query.ascending {
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
}

/// Returns the key of a list row. A key id has no NUL, so the lists of two keys never overlap.
pub(super) fn list_key(key: &str, purpose: FilePurpose, id: &str) -> Vec<u8> {
    [LIST_PREFIX, key.as_bytes(), b"\0", &[purpose.tag()], id.as_bytes()].concat()
}
