//! IDs of objects that clients see: files and batches. They increase with creation time, so that objects sorted by ID
//! are sorted by time, and a page can continue after a deleted object. 120 random bits make the IDs unguessable.

use std::time::Duration;

/// Base-32 alphabet in byte order, without letters that look alike.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters of the time: 45 bits of milliseconds, enough for a thousand years.
const TIME_CHARS: usize = 9;
/// Number of random characters in an ID, which contain 120 bits.
const RANDOM_CHARS: usize = 24;

/// Returns a new ID such as `file-0k2v…`, for an object created at `now`, the time since 1970.
#[must_use]
pub fn new(prefix: &str, now: Duration) -> String {
    let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let bits: u128 = rand::random();
    let mut id = String::with_capacity(prefix.len() + TIME_CHARS + RANDOM_CHARS);
    id.push_str(prefix);
    let letter = |five: u128| char::from(ALPHABET.get((five & 31) as usize).copied().unwrap_or(b'0'));
    id.extend((0..TIME_CHARS).rev().map(|position| letter(u128::from(millis >> (5 * position)))));
    id.extend((0..RANDOM_CHARS).map(|position| letter(bits >> (5 * position))));
    id
}

/// Returns true if this is a valid ID with the prefix, even if its object was deleted.
#[must_use]
pub fn is_valid(prefix: &str, id: &str) -> bool {
    id.strip_prefix(prefix).is_some_and(|rest| {
        rest.len() == TIME_CHARS + RANDOM_CHARS && rest.bytes().all(|byte| ALPHABET.contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_with_time_and_differ() {
        let at = |millis| new("file-", Duration::from_millis(millis));
        let times = [0, 31, 32, 1_700_000_000_000, 1_700_000_000_001, 1 << 44];
        let ids: Vec<String> = times.into_iter().map(at).collect();
        assert!(ids.is_sorted());
        assert_ne!(at(5), at(5));
        assert!(ids.iter().all(|id| is_valid("file-", id) && id.len() == 38), "{ids:?}");
    }

    #[test]
    fn an_invalid_id_is_rejected() {
        let id = new("file-", Duration::from_secs(1));
        for other in
            [&id[1..], &id[..37], "", "file-", &id.to_uppercase(), &format!("{id}0"), &id.replace('0', "/")]
        {
            assert!(!is_valid("file-", other), "{other}");
        }
        assert!(!is_valid("batch_", &id));
    }
}
