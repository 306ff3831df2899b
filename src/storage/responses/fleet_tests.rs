//! Tests of the stored responses of a fleet: two gateways with folders of their own and shared contents.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::tests::{DAY, KEY, OTHER_KEY, TEXT, limits};
use super::*;

/// Age in seconds that the objects have at a later sweep.
const LATER: u64 = 2 * 86_400;

struct Fleet {
    local: [tempfile::TempDir; 2],
    shared: tempfile::TempDir,
}

impl Fleet {
    fn new() -> Self {
        let folder = || tempfile::tempdir().unwrap();
        Self { local: [folder(), folder()], shared: folder() }
    }

    fn gateway(&self, index: usize) -> ResponseStore {
        let shared = self.shared.path().to_owned();
        let contents = SharedContents::in_folder(shared.clone(), shared);
        ResponseStore::open(self.local[index].path(), &Pepper([7; 32]), false, Some(contents)).unwrap()
    }
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn a_response_of_one_gateway_is_read_replaced_and_deleted_by_another() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.gateway(0), fleet.gateway(1));
    let large = limits(1 << 20, 1 << 20);
    one.insert((KEY, "resp_a"), now(), b"pending", large).unwrap();
    assert_eq!(other.get(KEY, "resp_a", now(), DAY).unwrap().as_deref(), Some(&b"pending"[..]));
    other.insert((KEY, "resp_a"), now(), TEXT, large).unwrap();
    assert_eq!(one.get(KEY, "resp_a", now(), DAY).unwrap().as_deref(), Some(TEXT));
    assert_eq!(one.get(KEY, "resp_a", now() + LATER, DAY).unwrap(), None, "it has expired");
    assert!(!one.has_expired(KEY, "resp_a", now(), DAY).unwrap());
    assert!(one.has_expired(KEY, "resp_a", now() + LATER, DAY).unwrap());
    assert!(one.size(KEY, "resp_a").unwrap().unwrap() >= TEXT.len() as u64);
    assert_eq!(other.get(OTHER_KEY, "resp_a", now(), DAY).unwrap(), None);
    assert!(!other.delete(OTHER_KEY, "resp_a").unwrap());
    assert!(one.delete(KEY, "resp_a").unwrap() && !other.delete(KEY, "resp_a").unwrap());
    assert_eq!(other.get(KEY, "resp_a", now(), DAY).unwrap(), None);
}

#[test]
fn responses_from_before_the_fleet_are_read_by_their_gateway_until_they_expire() {
    let fleet = Fleet::new();
    let alone = ResponseStore::open(fleet.local[0].path(), &Pepper([7; 32]), false, None).unwrap();
    for id in ["resp_a", "resp_b"] {
        alone.insert((KEY, id), now(), TEXT, limits(1 << 20, 1 << 20)).unwrap();
    }
    drop(alone);
    let one = fleet.gateway(0);
    assert_eq!(one.get(KEY, "resp_a", now(), DAY).unwrap().as_deref(), Some(TEXT));
    assert!(one.delete(KEY, "resp_a").unwrap() && !one.delete(KEY, "resp_a").unwrap());
    assert_eq!(one.get(KEY, "resp_a", now(), DAY).unwrap(), None);
    let settings = limits(1 << 20, 1 << 20).settings;
    assert_eq!(one.sweep(now(), settings, SweepRole::Counter).unwrap(), 0);
    assert_eq!(one.sweep(now() + LATER, settings, SweepRole::Counter).unwrap(), 1);
    assert_eq!(one.size(KEY, "resp_b").unwrap(), None);
}

#[test]
fn one_gateway_removes_what_has_expired_and_all_count_the_rest() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.gateway(0), fleet.gateway(1));
    let large = limits(1 << 20, 1 << 20);
    for id in ["resp_a", "resp_b"] {
        one.insert((KEY, id), now(), TEXT, large).unwrap();
        one.insert((OTHER_KEY, id), now(), TEXT, large).unwrap();
    }
    assert_eq!(other.used_bytes(), 0);
    assert_eq!(other.sweep(now(), large.settings, SweepRole::Counter).unwrap(), 0);
    assert!(other.used_bytes() > 0 && other.used_bytes() == one.used_bytes());
    assert_eq!(other.sweep(now() + LATER, large.settings, SweepRole::Counter).unwrap(), 0);
    assert!(one.size(KEY, "resp_a").unwrap().is_some(), "a counter removes nothing");
    assert_eq!(one.sweep(now() + LATER, large.settings, SweepRole::Remover).unwrap(), 4);
    assert_eq!((one.used_bytes(), one.size(OTHER_KEY, "resp_b").unwrap()), (0, None));
}

#[test]
fn the_limit_of_a_key_holds_over_the_gateways_after_each_count() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.gateway(0), fleet.gateway(1));
    let document = vec![b'x'; 1_000];
    let narrow = limits(10_000, 1 << 20);
    for number in 0..8 {
        one.insert((KEY, &format!("resp_a{number}")), now(), &document, narrow).unwrap();
        other.insert((KEY, &format!("resp_b{number}")), now(), &document, narrow).unwrap();
    }
    other.sweep(now(), narrow.settings, SweepRole::Remover).unwrap();
    assert!(other.used_bytes() <= 10_000);
    one.insert((KEY, "resp_last"), now(), &document, narrow).unwrap();
    one.sweep(now(), narrow.settings, SweepRole::Counter).unwrap();
    assert!(one.used_bytes() <= 10_000 && one.used_bytes() >= 8_000, "{}", one.used_bytes());
}

/// Shared files for tests; removing a file always fails.
struct Undeletable(SharedFiles);

impl ResponseFiles for Undeletable {
    fn write(
        &self,
        name: ResponseName<'_>,
        sealed: &[u8],
        retained_since: u64,
        stage: ResponseStage,
    ) -> Result<()> {
        self.0.write(name, sealed, retained_since, stage)
    }

    fn read(&self, name: ResponseName<'_>) -> Result<Option<Vec<u8>>> {
        self.0.read(name)
    }

    fn read_start(&self, name: ResponseName<'_>, buffer: &mut [u8]) -> Result<Option<()>> {
        self.0.read_start(name, buffer)
    }

    fn size(&self, name: ResponseName<'_>) -> Result<Option<u64>> {
        self.0.size(name)
    }

    fn remove(&self, _: &str, _: Vec<ResponseFile>) -> Result<Vec<ResponseFile>> {
        Err(ErrorKind::PermissionDenied.into())
    }

    fn files_of_key(&self, key: &str) -> Result<Vec<ResponseFile>> {
        self.0.files_of_key(key)
    }

    fn for_each_key(&self, each: &mut dyn FnMut(&str, Vec<ResponseFile>) -> Result<()>) -> Result<()> {
        self.0.for_each_key(each)
    }

    fn max_evictions_per_write(&self) -> usize {
        2
    }

    fn has_space(&self, bytes: u64, keep_free: u64) -> bool {
        self.0.has_space(bytes, keep_free)
    }
}

#[test]
fn a_response_is_stored_although_older_ones_cannot_be_removed() {
    let fleet = Fleet::new();
    let folder = fleet.shared.path().to_owned();
    let shared = SharedFiles(SharedContents::in_folder(folder.clone(), folder));
    let store = ResponseStore { files: Box::new(Undeletable(shared)), ..fleet.gateway(0) };
    let (document, narrow) = (vec![b'x'; 1_000], limits(3_000, 1 << 20));
    for number in 0..5 {
        let id = format!("resp_{number}");
        store.insert((KEY, &id), now(), &document, narrow).unwrap();
        assert_eq!(store.get(KEY, &id, now(), DAY).unwrap().as_deref(), Some(&*document));
    }
    assert!(store.used_bytes() > 5_000, "all are there, and counted");
}

#[test]
fn a_write_removes_few_and_leaves_the_others_to_a_sweep() {
    let fleet = Fleet::new();
    let store = fleet.gateway(0);
    let (document, wide, narrow) = (vec![b'x'; 100], limits(1 << 20, 1 << 20), limits(1_000, 1 << 20));
    for number in 0..300 {
        store.insert((KEY, &format!("resp_{number}")), now(), &document, wide).unwrap();
    }
    let each = store.used_bytes() / 300;
    store.insert((KEY, "resp_last"), now(), &document, narrow).unwrap();
    assert_eq!(store.used_bytes(), each * 45, "at most 256 at a time");
    // While another call evicts responses, a write does not evict any.
    let evicting = store.eviction.lock();
    store.insert((KEY, "resp_later"), now(), &document, narrow).unwrap();
    assert!(store.used_bytes() > each * 45);
    drop(evicting);
    store.sweep(now(), narrow.settings, SweepRole::Remover).unwrap();
    assert!(store.used_bytes() <= 900, "{}", store.used_bytes());
}

#[test]
fn an_unfinished_response_is_not_evicted_before_its_end() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.gateway(0), fleet.gateway(1));
    let (document, narrow) = (vec![b'x'; 1_000], limits(5_000, 1 << 20));
    let window = now() + 86_400;
    for id in ["resp_1", "resp_2"] {
        one.insert_unfinished((KEY, id), window, &document, narrow).unwrap();
    }
    for number in 3..20 {
        other.insert((KEY, &format!("resp_{number}")), now(), &document, narrow).unwrap();
    }
    other.sweep(now(), narrow.settings, SweepRole::Remover).unwrap();
    for id in ["resp_1", "resp_2"] {
        assert_eq!(other.get(KEY, id, now(), DAY).unwrap().as_deref(), Some(&*document), "{id}");
        assert!(one.size(KEY, id).unwrap().is_some(), "{id}");
    }
    assert!(other.used_bytes() <= 5_000, "{}", other.used_bytes());
    // Unfinished responses are never evicted, even if they exceed the limit.
    for number in 20..26 {
        let id = format!("resp_{number}");
        one.insert_unfinished((KEY, &id), window, &document, narrow).unwrap();
    }
    one.sweep(now(), narrow.settings, SweepRole::Remover).unwrap();
    assert!((20..26).all(|number| one.size(KEY, &format!("resp_{number}")).unwrap().is_some()));

    // Once it has ended, the response can be removed like any other, with both of its objects.
    one.finish((KEY, "resp_1"), now(), TEXT, narrow).unwrap();
    assert_eq!(other.get(KEY, "resp_1", now(), DAY).unwrap().as_deref(), Some(TEXT));
    assert!(other.delete(KEY, "resp_1").unwrap() && other.size(KEY, "resp_1").unwrap().is_none());
    assert!(other.delete(KEY, "resp_2").unwrap() && one.size(KEY, "resp_2").unwrap().is_none());
    // An unfinished response that no gateway processes any more expires some time after its time window.
    assert!(one.sweep(now() + LATER, narrow.settings, SweepRole::Remover).unwrap() > 0);
    assert_eq!(one.used_bytes(), 0);
}

#[test]
fn an_object_left_from_an_unfinished_response_is_evicted_with_it() {
    let fleet = Fleet::new();
    let store = fleet.gateway(0);
    let (document, narrow) = (vec![b'x'; 1_000], limits(3_500, 1 << 20));
    // A crash may leave both objects of a response: the unfinished and the finished one.
    store.insert_unfinished((KEY, "resp_a"), now() + 86_400, &document, narrow).unwrap();
    store.insert((KEY, "resp_a"), now(), &document, narrow).unwrap();
    for number in 0..4 {
        store.insert((KEY, &format!("resp_b{number}")), now(), &document, narrow).unwrap();
    }
    let mut left = Vec::new();
    store
        .files
        .for_each_key(&mut |_, files| {
            left.extend(files.into_iter().filter(|file| !file.has_ended));
            Ok(())
        })
        .unwrap();
    assert_eq!(left, Vec::new());
    assert!(store.used_bytes() <= 3_500);
}
