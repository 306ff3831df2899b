//! Names of what is kept for clients: files, batches. They rise with the time they were made at, so that lists in
//! their order are lists in time and a page goes on behind an id that is no more; 120 random bits keep anybody
//! from guessing one.

use std::time::Duration;

/// 32 letters and digits in the order of their bytes, none like another.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Letters of the time: 45 bits of milliseconds, which last a thousand years.
const TIME: usize = 9;
/// Letters of chance: 120 bits.
const CHANCE: usize = 24;

/// A new id, such as `file-0k2v…`, of something made at `now`.
#[must_use]
pub fn new(prefix: &str, now: Duration) -> String {
    let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let bits: u128 = rand::random();
    let mut id = String::with_capacity(prefix.len() + TIME + CHANCE);
    id.push_str(prefix);
    let letter = |five: u128| char::from(ALPHABET.get((five & 31) as usize).copied().unwrap_or(b'0'));
    id.extend((0..TIME).rev().map(|place| letter(u128::from(millis >> (5 * place)))));
    id.extend((0..CHANCE).map(|place| letter(bits >> (5 * place))));
    id
}

/// Whether this is an id of this kind, perhaps of something that is no more.
#[must_use]
pub fn is(prefix: &str, id: &str) -> bool {
    id.strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == TIME + CHANCE && rest.bytes().all(|byte| ALPHABET.contains(&byte)))
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
        assert!(ids.iter().all(|id| is("file-", id) && id.len() == 38), "{ids:?}");
    }

    #[test]
    fn what_is_no_id_is_told_apart() {
        let id = new("file-", Duration::from_secs(1));
        for other in
            [&id[1..], &id[..37], "", "file-", &id.to_uppercase(), &format!("{id}0"), &id.replace('0', "/")]
        {
            assert!(!is("file-", other), "{other}");
        }
        assert!(!is("batch_", &id));
    }
}
