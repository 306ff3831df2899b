//! Removal of stored responses: those that have expired, and the oldest beyond the limits.

use super::response_files::{ResponseFile, ResponseFiles};
use super::{ResponseStore, is_expired};
use crate::config::settings::ResponseSettings;
use penstock_object_storage::BucketError;
use std::collections::HashSet;
use std::io::{Error, Result};

/// Role of a gateway in the sweep of a fleet's stored responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepRole {
    /// The gateway removes responses.
    Remover,
    /// The gateway only counts the bytes of the remaining responses; another gateway removes responses.
    Counter,
}

/// Returns true if the error means that the bucket cannot be reached. Then the responses of the other keys cannot be
/// reached either.
fn is_unreachable(error: &Error) -> bool {
    BucketError::from_io_error(error).is_some_and(BucketError::is_unreachable)
}

impl ResponseStore {
    /// Removes the responses that have expired at `now`, Unix seconds, and those beyond the limits, and counts the
    /// remaining responses again. A [`SweepRole::Counter`] removes only expired responses in this gateway's own
    /// folder, from before it joined the fleet. Returns the number of expired responses that were removed.
    ///
    /// A response that cannot be removed does not end the sweep, unless the bucket cannot be reached.
    ///
    /// # Errors
    /// Returns the first I/O error.
    pub fn sweep(&self, now: u64, settings: ResponseSettings, role: SweepRole) -> Result<u64> {
        let (mut removed, mut first_error) = (0, None);
        let is_expired = |file: &ResponseFile| {
            let window = if file.has_ended { 0 } else { settings.background.window.as_secs() };
            is_expired(file.retained_since.saturating_add(window), now, settings.retention)
        };
        let mut keys = self.usage.keys();
        self.files.for_each_key(&mut |key, files| {
            let (expired, others): (Vec<_>, Vec<_>) = files.into_iter().partition(is_expired);
            keys.remove(key);
            self.usage.set_bytes(key, others.iter().map(|file| file.bytes).sum());
            if role == SweepRole::Counter {
                return Ok(());
            }
            let outcome = if expired.is_empty() {
                Ok(0)
            } else {
                self.files.remove(key, expired).map(|files| files.len())
            };
            removed += *outcome.as_ref().unwrap_or(&0) as u64;
            match outcome.and_then(|_| self.evict_over_limit(key, None, settings, usize::MAX)) {
                Err(error) if !is_unreachable(&error) => {
                    first_error.get_or_insert(error);
                    Ok(())
                }
                outcome => outcome,
            }
        })?;
        // Responses that are stored during the sweep may be missing from the counted bytes until the next sweep.
        keys.iter().for_each(|key| self.usage.set_bytes(key, 0));
        if let Some(earlier) = &self.earlier {
            earlier.for_each_key(&mut |key, files| {
                let expired = files.into_iter().filter(is_expired).collect();
                removed += earlier.remove(key, expired)?.len() as u64;
                Ok(())
            })?;
        }
        first_error.map_or(Ok(removed), Err)
    }

    /// Counts the bytes of the stored responses of every API key.
    pub(super) fn count_stored_bytes(&self) -> Result<()> {
        self.files.for_each_key(&mut |key, files| {
            self.usage.set_bytes(key, files.iter().map(|file| file.bytes).sum());
            Ok(())
        })
    }

    /// Removes the oldest responses of a key beyond the limit of the key, and responses of the keys with the most bytes
    /// beyond the limit of all keys; at most `max_removals` responses. Usage is reduced to nine tenths of the limit, so
    /// that the next writes do not have to list the files again. The response `newest` of the key and responses that
    /// have not ended are not removed. If another call is evicting, this call does nothing.
    pub(super) fn evict_over_limit(
        &self,
        key: &str,
        newest: Option<&str>,
        settings: ResponseSettings,
        max_removals: usize,
    ) -> Result<()> {
        let is_beyond =
            self.usage.bytes_of_key(key) > settings.per_key || self.usage.total_bytes() > settings.disk;
        let Some(_evicting) = is_beyond.then(|| self.eviction.try_lock()).flatten() else { return Ok(()) };
        let mut left = max_removals;
        if self.usage.bytes_of_key(key) > settings.per_key {
            self.evict_oldest(key, newest, &mut left, |used| {
                if used > settings.per_key { used - settings.per_key / 10 * 9 } else { 0 }
            })?;
        }
        let excess_of_all = |used: u64| match self.usage.total_bytes() {
            total if total > settings.disk => (total - settings.disk / 10 * 9).min(used / 10 + 1),
            _ => 0,
        };
        while left > 0 && self.usage.total_bytes() > settings.disk {
            let Some(largest) = self.usage.key_with_most_bytes() else { break };
            let newest = newest.filter(|_| *largest == *key);
            let freed = self.evict_oldest(&largest, newest, &mut left, excess_of_all)?;
            if freed == 0 && self.usage.total_bytes() > settings.disk {
                // The key has no file that can be removed, so its bytes no longer count here. The next sweep counts
                // them again.
                self.usage.set_bytes(&largest, 0);
            }
        }
        Ok(())
    }

    /// Removes the oldest responses of a key, at most `left`, until enough bytes are freed; returns the freed bytes.
    /// `excess` computes the number of bytes to free from the used bytes of the key. The used bytes are counted again
    /// first, because other gateways of a fleet remove files too.
    fn evict_oldest(
        &self,
        key: &str,
        newest: Option<&str>,
        left: &mut usize,
        excess: impl FnOnce(u64) -> u64,
    ) -> Result<u64> {
        let mut files = self.files.files_of_key(key)?;
        // If a response has an unfinished and a finished object, the unfinished one is removed first.
        let order =
            |file: &ResponseFile| (file.retained_since, file.written_at, file.id.clone(), file.has_ended);
        files.sort_by_cached_key(order);
        let used = files.iter().map(|file| file.bytes).sum();
        self.usage.set_bytes(key, used);
        let excess = excess(used);
        let mut freed = 0;
        // In a bucket, an ended response may still have its unfinished object, which is removed too.
        let ended: HashSet<String> =
            files.iter().filter(|file| file.has_ended).map(|file| file.id.clone()).collect();
        let oldest: Vec<_> = files
            .into_iter()
            .filter(|file| ended.contains(&file.id) && Some(&*file.id) != newest)
            .take(*left)
            .take_while(|file| {
                let is_needed = freed < excess;
                freed += file.bytes;
                is_needed
            })
            .collect();
        *left -= oldest.len();
        if oldest.is_empty() { Ok(0) } else { self.remove(key, oldest) }
    }
}
