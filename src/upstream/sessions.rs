//! Recent sessions (conversations): the offer that answered each of them last, and the length of the prefix that this
//! offer has cached.
//!
//! The table has a fixed number of entries, in small buckets with one lock each; if a bucket is full, its oldest entry
//! is replaced. The table is allocated with the first session. If an entry is lost, only the benefit of a cached prefix
//! is lost.

use parking_lot::Mutex;
use penstock_routing::SessionKey;
use std::sync::OnceLock;
use std::time::Duration;

/// Number of buckets. With [`BUCKET_ENTRIES`] entries of 24 bytes each, the table takes 1.6 MB.
const BUCKETS: usize = 8192;
/// Number of entries in each bucket of the table.
const BUCKET_ENTRIES: usize = 8;

/// Offer that answered a session last, with the length of the prefix that it has cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// Hash of the offer's identity (its provider, address and model).
    pub offer_hash: u64,
    /// Tokens of the prompt and the output of the last answer, which are the prefix of the next request.
    pub tokens: u32,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    key: u64,
    offer: u64,
    tokens: u32,
    /// Time at which the entry was written, in seconds of the steady clock, plus one; 0 for an empty entry.
    written: u32,
}

/// Table of recent sessions.
#[derive(Default)]
pub struct SessionTable {
    buckets: OnceLock<Box<[Mutex<[Entry; BUCKET_ENTRIES]>]>>,
}

impl SessionTable {
    /// Returns the record of a session; `None` if there is none, or if it is older than `lifetime`.
    #[must_use]
    pub fn get(&self, session: SessionKey, now: Duration, lifetime: Duration) -> Option<SessionRecord> {
        let entries = self.buckets.get()?.get(bucket(session))?.lock();
        let entry = entries.iter().find(|entry| entry.written > 0 && entry.key == session.0)?;
        let age = stamp(now).saturating_sub(entry.written);
        let record = SessionRecord { offer_hash: entry.offer, tokens: entry.tokens };
        (u64::from(age) <= lifetime.as_secs()).then_some(record)
    }

    /// Records the last answer of a session.
    pub fn record_answer(&self, session: SessionKey, record: SessionRecord, now: Duration) {
        let buckets = self
            .buckets
            .get_or_init(|| (0..BUCKETS).map(|_| Mutex::new([Entry::default(); BUCKET_ENTRIES])).collect());
        let Some(bucket) = buckets.get(bucket(session)) else { return };
        let mut entries = bucket.lock();
        let known = entries.iter().position(|entry| entry.written > 0 && entry.key == session.0);
        let oldest = || entries.iter().enumerate().min_by_key(|(_, entry)| entry.written).map(|(at, _)| at);
        if let Some(entry) = known.or_else(oldest).and_then(|at| entries.get_mut(at)) {
            let SessionRecord { offer_hash: offer, tokens } = record;
            *entry = Entry { key: session.0, offer, tokens, written: stamp(now) };
        }
    }
}

/// Returns the bucket of a session, whose key is a hash.
fn bucket(session: SessionKey) -> usize {
    usize::try_from(session.0 >> 32).unwrap_or(0) % BUCKETS
}

fn stamp(now: Duration) -> u32 {
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX - 1).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(600);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_session_is_known_until_its_time_is_over() {
        let table = SessionTable::default();
        let (key, record) = (SessionKey(7 << 40), SessionRecord { offer_hash: 3, tokens: 9 });
        assert_eq!(table.get(key, at(0), LIFETIME), None);
        table.record_answer(key, record, at(100));
        assert_eq!(table.get(key, at(700), LIFETIME), Some(record));
        assert_eq!(table.get(key, at(701), LIFETIME), None);
        assert_eq!(table.get(SessionKey(8 << 40), at(100), LIFETIME), None);
        let moved = SessionRecord { offer_hash: 4, tokens: 12 };
        table.record_answer(key, moved, at(701));
        assert_eq!(table.get(key, at(702), LIFETIME), Some(moved));
    }

    #[test]
    fn a_full_bucket_loses_its_oldest_session() {
        let table = SessionTable::default();
        // These keys all belong to the same bucket.
        let key = |number: u64| SessionKey(number);
        for number in 0..9 {
            table.record_answer(key(number), SessionRecord { offer_hash: number, tokens: 1 }, at(number));
        }
        assert_eq!(table.get(key(0), at(9), LIFETIME), None);
        for number in 1..9 {
            assert_eq!(table.get(key(number), at(9), LIFETIME).map(|record| record.offer_hash), Some(number));
        }
    }

    #[test]
    fn the_table_does_not_grow_with_the_number_of_sessions() {
        let table = SessionTable::default();
        for number in 0..1_000_000_u64 {
            let key = SessionKey(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            table.record_answer(key, SessionRecord::default(), at(number / 1000));
        }
        let entries = table.buckets.get().map_or(0, |buckets| buckets.len() * BUCKET_ENTRIES);
        assert_eq!(entries, 65_536);
        assert!(size_of::<Mutex<[Entry; BUCKET_ENTRIES]>>() <= 200, "a bucket is 200 bytes at most");
    }
}
