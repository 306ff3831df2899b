//! Bytes of the stored responses of each API key, counted in memory.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};

type BytesByKey = HashMap<Box<str>, u64, ahash::RandomState>;

/// Bytes of the stored responses of each API key.
#[derive(Debug, Default)]
pub(super) struct StoredResponseBytes(Mutex<BytesByKey>);

impl StoredResponseBytes {
    /// Adds the bytes of a file of a key, and subtracts those of the file that it replaces.
    pub(super) fn replace_bytes(&self, key: &str, replaced: u64, bytes: u64) {
        let mut keys = self.0.lock();
        match keys.get_mut(key) {
            Some(used) => *used = used.saturating_sub(replaced).saturating_add(bytes),
            None => {
                keys.insert(key.into(), bytes);
            }
        }
    }

    /// Subtracts the bytes of removed files of a key.
    pub(super) fn release_bytes(&self, key: &str, bytes: u64) {
        let mut keys = self.0.lock();
        if let Some(used) = keys.get_mut(key) {
            *used = used.saturating_sub(bytes);
            if *used == 0 {
                keys.remove(key);
            }
        }
    }

    /// Sets the bytes of a key to the size of its files.
    pub(super) fn set_bytes(&self, key: &str, bytes: u64) {
        let mut keys = self.0.lock();
        if bytes == 0 {
            keys.remove(key);
        } else {
            keys.insert(key.into(), bytes);
        }
    }

    /// Returns the bytes of the stored responses of a key.
    pub(super) fn bytes_of_key(&self, key: &str) -> u64 {
        self.0.lock().get(key).copied().unwrap_or_default()
    }

    /// Returns the keys that have responses.
    pub(super) fn keys(&self) -> HashSet<Box<str>> {
        self.0.lock().keys().cloned().collect()
    }

    /// Returns the bytes of the stored responses of all keys.
    pub(super) fn total_bytes(&self) -> u64 {
        self.0.lock().values().sum()
    }

    /// Returns the key with the most bytes.
    pub(super) fn key_with_most_bytes(&self) -> Option<Box<str>> {
        self.0.lock().iter().max_by_key(|(_, bytes)| **bytes).map(|(key, _)| key.clone())
    }
}
