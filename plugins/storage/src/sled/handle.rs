//! Open sled database; all calls into sled go through this module. It converts sled's errors and panics to
//! [`StoreError`], and adds a real disk sync after each `flush`.

use std::fs::File;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::StoreOptions;
use super::directory::{remove_partial_snapshots, sync_tree};
use crate::{StoreError, row};

/// Timeout for sled's own file lock, which sled may hold for a moment after a store is closed.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Segment size of sled's log, in bytes.
///
/// sled writes pages, not rows: a leaf of up to 17 rows is one message, and a message over a quarter of a segment goes
/// to a file of its own, which sled never syncs. With sled's default of 512 KiB this affects rows of 7 KiB and more.
/// Here the largest page, 17 rows of 64 KiB and their keys (1.1 MiB), stays below the quarter (2 MiB).
pub(crate) const SEGMENT_BYTES: usize = 8 << 20;

/// Number of extra reads of each row in a long scan, so that sled limits its cache. sled divides its cache into 256
/// shards and checks the size of a shard after 64 reads. A scan that reads each page once would leave up to 63 pages in
/// each shard, 500 MiB of ledger pages, while the store is open. With the extra reads, a full page of 17 rows is read
/// more than 64 times.
const EXTRA_READS: usize = 4;
/// Minimum size in bytes of a long row. Pages of long rows are rarely read after the write, but sled would cache
/// them, so each write of one checks the cache size.
const LONG_ROW_BYTES: usize = 1024;
/// Number of rows at the start of a scan for which no extra reads are made.
const MAX_UNTOUCHED_ROWS: usize = 64;

/// Interval in ms at which sled compacts rows to free old log segments. Each time it also syncs and wakes all its
/// threads. Durability comes from [`SledHandle::sync_to_disk`], so sled's default of 500 ms is of no use.
const COMPACT_INTERVAL_MS: u64 = 2_000;

/// Open sled database, with a second descriptor of its log.
pub(crate) struct SledHandle {
    db: ::sled::Db,
    log: File,
    /// Disk key of a row that cannot be read.
    #[cfg(test)]
    pub(crate) unreadable_key: parking_lot::Mutex<Option<Vec<u8>>>,
}

impl SledHandle {
    /// Opens or creates the database in `folder`, and syncs the changes that sled makes on opening.
    pub(crate) fn open(folder: &Path, options: &StoreOptions) -> Result<SledHandle, StoreError> {
        remove_partial_snapshots(folder)?;
        let patience = Instant::now();
        let db = loop {
            let config = ::sled::Config::new()
                .path(folder)
                .cache_capacity(options.cache_bytes)
                .segment_size(SEGMENT_BYTES)
                .flush_every_ms(Some(COMPACT_INTERVAL_MS));
            match catch_panic("open", || config.open()) {
                Err(SledError::LockHeld) if patience.elapsed() < LOCK_TIMEOUT => {
                    sleep(Duration::from_millis(5))
                }
                opened => break opened?,
            }
        };
        let log = File::open(folder.join("db")).map_err(|error| StoreError::io("open its log", &error))?;
        sync_tree(folder)?;
        Ok(SledHandle {
            db,
            log,
            #[cfg(test)]
            unreadable_key: parking_lot::Mutex::default(),
        })
    }

    /// Returns the value of a row after checking its checksum.
    pub(crate) fn get(&self, disk_key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(sealed) = self.get_encoded(disk_key)? else { return Ok(None) };
        row::decode_checksummed(disk_key, &sealed).map(|value| Some(value.to_vec()))
    }

    /// Passes encoded rows to `each`, from the key `from` upwards, until `each` returns false. Checksums are not
    /// checked.
    pub(crate) fn scan(
        &self,
        from: Bound<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut rows = self.db.range::<&[u8], _>((from, Bound::Unbounded));
        let mut seen = 0;
        while let Some((key, sealed)) = catch_panic("read", || rows.next().transpose())? {
            seen += 1;
            if seen > MAX_UNTOUCHED_ROWS {
                self.touch_cache(&key)?;
            }
            if !each(&key, &sealed)? {
                break;
            }
        }
        Ok(())
    }

    /// Makes sled check the size of the cache shard of this row.
    fn touch_cache(&self, disk_key: &[u8]) -> Result<(), StoreError> {
        for _ in 0..EXTRA_READS {
            self.get_encoded(disk_key)?;
        }
        Ok(())
    }

    /// Passes encoded rows to `each`, from the key `upto` downwards, until `each` returns false. Checksums are not
    /// checked.
    pub(crate) fn scan_back(
        &self,
        upto: Bound<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut rows = self.db.range::<&[u8], _>((Bound::Unbounded, upto));
        while let Some((key, sealed)) = catch_panic("read", || rows.next_back().transpose())? {
            if !each(&key, &sealed)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns an encoded row as stored on disk, without a check of its checksum.
    pub(crate) fn get_encoded(&self, disk_key: &[u8]) -> Result<Option<::sled::IVec>, StoreError> {
        #[cfg(test)]
        if self.unreadable_key.lock().as_deref() == Some(disk_key) {
            return Err(StoreError::Io { what: "read", kind: std::io::ErrorKind::Other });
        }
        Ok(catch_panic("read", || self.db.get(disk_key))?)
    }

    /// Writes encoded rows by disk key atomically; `None` removes a row. The writes are not durable until the next
    /// sync.
    pub(crate) fn write(
        &self,
        writes: impl IntoIterator<Item = (Vec<u8>, Option<Vec<u8>>)>,
    ) -> Result<(), StoreError> {
        let mut batch = ::sled::Batch::default();
        let mut long = Vec::new();
        for (key, sealed) in writes {
            match sealed {
                Some(sealed) => {
                    if sealed.len() >= LONG_ROW_BYTES {
                        long.push(key.clone());
                    }
                    batch.insert(key, sealed);
                }
                None => batch.remove(key),
            }
        }
        catch_panic("write", || self.db.apply_batch(batch))?;
        // Errors of these reads are ignored: the reads only limit the cache, and the write is complete.
        long.iter().for_each(|key| drop(self.touch_cache(key)));
        Ok(())
    }

    /// Passes all writes to the operating system. sled's `flush` ends in `sync_file_range` on Linux, which neither
    /// writes the file length nor flushes the disk cache.
    pub(crate) fn flush_to_os(&self) -> Result<(), StoreError> {
        catch_panic("write", || self.db.flush())?;
        Ok(())
    }

    /// Syncs the flushed writes to disk.
    ///
    /// Only the log needs a sync: rows of this size are stored in no other file. The other files change only while
    /// sled opens, and the whole directory is synced after that.
    pub(crate) fn sync_to_disk(&self) -> Result<(), StoreError> {
        self.log.sync_data().map_err(|error| StoreError::io("sync", &error))
    }

    /// Returns the size of the log on disk, in bytes.
    pub(crate) fn log_bytes(&self) -> Result<u64, StoreError> {
        self.log
            .metadata()
            .map(|log| log.len())
            .map_err(|error| StoreError::io("read the size of its log", &error))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
impl SledHandle {
    /// Flips one bit of a stored row, so that a test can check that the damage is detected.
    pub(crate) fn flip_bit(&self, disk_key: &[u8]) {
        let mut sealed = self.db.get(disk_key).unwrap().unwrap().to_vec();
        *sealed.last_mut().unwrap() ^= 1;
        self.db.insert(disk_key, sealed).unwrap();
        self.db.flush().unwrap();
    }
}

enum SledError {
    LockHeld,
    Other(StoreError),
}

impl From<SledError> for StoreError {
    fn from(failure: SledError) -> StoreError {
        match failure {
            SledError::LockHeld => StoreError::Io {
                what: "open a file that sled still has locked",
                kind: std::io::ErrorKind::WouldBlock,
            },
            SledError::Other(error) => error,
        }
    }
}

/// Runs a call into sled and converts a panic, by which sled reports some damage, to an error.
fn catch_panic<T>(operation: &'static str, call: impl FnOnce() -> ::sled::Result<T>) -> Result<T, SledError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(convert_error(operation, &error)),
        Err(_) => {
            Err(SledError::Other(StoreError::corrupt(format!("sled panicked in the operation: {operation}"))))
        }
    }
}

fn convert_error(operation: &'static str, error: &::sled::Error) -> SledError {
    SledError::Other(match error {
        ::sled::Error::Io(io) if io.to_string().starts_with("could not acquire lock") => {
            return SledError::LockHeld;
        }
        ::sled::Error::Io(io) => StoreError::io(operation, io),
        ::sled::Error::Corruption { at, .. } => StoreError::corrupt(match at {
            Some(at) => format!("sled's log at {at}"),
            None => "sled's snapshot or log".to_owned(),
        }),
        ::sled::Error::Unsupported(feature) => StoreError::Format { what: feature.clone() },
        other => StoreError::corrupt(format!("sled could not {operation}: {other}")),
    })
}
