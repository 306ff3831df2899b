//! API keys in every engine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use penstock_storage::audit::ChangeDescription;
use penstock_storage::keys::{KeyDigest, KeyLimits, KeyRecord, KeyStore, PreviousSecret, RevokeOutcome};
use penstock_storage::{Store, StoreError, StoreOptions, StoreTable, Transaction, open, open_in_memory};

fn each_engine(case: impl Fn(KeyStore, Arc<dyn Store>)) {
    let store = open_in_memory();
    case(KeyStore::new(Arc::clone(&store)), store);
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), StoreOptions { ballast_bytes: 0, ..StoreOptions::default() }).unwrap();
    case(KeyStore::new(Arc::clone(&store)), store);
}

fn key(number: u32, account: &str) -> KeyRecord {
    KeyRecord {
        name: format!("key {number}"),
        scopes: vec!["inference.*".to_owned()],
        models: Some(vec!["some-model".to_owned()]),
        limits: KeyLimits { requests_per_minute: Some(60), ..KeyLimits::default() },
        expires: Some(2_000_000_000),
        ..KeyRecord::new(format!("{number:016}"), KeyDigest([0xab; 32]), account, 1_700_000_000)
    }
}

fn audited(at: u64) -> ChangeDescription {
    let text = |text: &str| text.to_owned();
    ChangeDescription {
        at,
        who: text("test"),
        what: text("key.test"),
        target: text("it"),
        change: serde_json::json!({}),
    }
}

#[test]
fn a_key_comes_back_as_it_was_inserted() {
    each_engine(|keys, _| {
        let full = key(1, "acme");
        let bare = KeyRecord { models: None, expires: None, limits: KeyLimits::default(), ..key(2, "acme") };
        for key in [&full, &bare] {
            keys.insert(key, &audited(1)).unwrap();
            assert_eq!(keys.get(&key.id).unwrap().as_ref(), Some(key));
        }
        assert_eq!(keys.get("nobody").unwrap(), None);
    });
}

#[test]
fn a_public_id_is_given_once() {
    each_engine(|keys, _| {
        keys.insert(&key(1, "acme"), &audited(1)).unwrap();
        assert_eq!(keys.insert(&key(1, "other"), &audited(1)), Err(StoreError::Guard { step: 0 }));
        assert_eq!(keys.get(&key(1, "").id).unwrap().unwrap().account, "acme");
        assert_eq!(keys.list(Some("other"), None, 10).unwrap().keys, []);
    });
}

#[test]
fn keys_with_a_malformed_id_or_account_are_refused() {
    each_engine(|keys, _| {
        for id in ["", "short", "0123456789abcde/", "0123456789abcdef0"] {
            let malformed = KeyRecord { id: id.to_owned(), ..key(1, "acme") };
            assert!(matches!(keys.insert(&malformed, &audited(1)), Err(StoreError::InvalidArgument { .. })));
        }
        for account in ["", "a\0b"] {
            assert!(matches!(
                keys.insert(&key(1, account), &audited(1)),
                Err(StoreError::InvalidArgument { .. })
            ));
        }
    });
}

#[test]
fn keys_are_listed_by_account_and_in_pages() {
    each_engine(|keys, _| {
        for number in 0..7 {
            keys.insert(&key(number, if number % 2 == 0 { "a" } else { "ab" }), &audited(1)).unwrap();
        }
        let pages = |account: Option<&str>, limit| {
            let (mut names, mut after) = (Vec::new(), None::<String>);
            loop {
                let page = keys.list(account, after.as_deref(), limit).unwrap();
                assert!(page.keys.len() <= limit);
                names.extend(page.keys.into_iter().map(|key| key.name));
                match page.next {
                    Some(next) => after = Some(next),
                    None => return names.join(","),
                }
            }
        };
        assert_eq!(pages(Some("a"), 3), "key 0,key 2,key 4,key 6");
        assert_eq!(pages(Some("ab"), 10), "key 1,key 3,key 5");
        assert_eq!(pages(Some("abc"), 10), "");
        assert_eq!(pages(None, 2), "key 0,key 1,key 2,key 3,key 4,key 5,key 6");
    });
}

#[test]
fn revoking_says_whether_it_changed_anything_and_keeps_the_first_time() {
    each_engine(|keys, _| {
        let id = key(1, "acme").id;
        keys.insert(&key(1, "acme"), &audited(1)).unwrap();
        assert_eq!(keys.revoke(&id, &audited(50)).unwrap(), RevokeOutcome::Revoked);
        assert_eq!(keys.revoke(&id, &audited(60)).unwrap(), RevokeOutcome::AlreadyRevoked);
        assert_eq!(keys.revoke("0000000000000009", &audited(60)).unwrap(), RevokeOutcome::UnknownKey);
        assert_eq!(keys.get(&id).unwrap().unwrap().revoked, Some(50));
    });
}

#[test]
fn of_many_revocations_at_once_exactly_one_changes_the_key() {
    each_engine(|keys, _| {
        let id = key(1, "acme").id;
        keys.insert(&key(1, "acme"), &audited(1)).unwrap();
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let spawned: Vec<_> = (0..8_u64)
                .map(|now| {
                    let (keys, id) = (&keys, &id);
                    scope.spawn(move || {
                        keys.update_last_use(id, now).unwrap();
                        keys.revoke(id, &audited(now)).unwrap()
                    })
                })
                .collect();
            spawned.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == RevokeOutcome::Revoked).count(), 1);
        assert_eq!(keys.get(&id).unwrap().unwrap().last_used, Some(7), "a touch was lost");
    });
}

#[test]
fn the_time_of_last_use_never_goes_back() {
    each_engine(|keys, _| {
        let id = key(1, "acme").id;
        keys.insert(&key(1, "acme"), &audited(1)).unwrap();
        assert!(keys.update_last_use(&id, 100).unwrap());
        assert!(keys.update_last_use(&id, 90).unwrap());
        assert_eq!(keys.get(&id).unwrap().unwrap().last_used, Some(100));
        assert!(!keys.update_last_use("nobody", 100).unwrap());
    });
}

#[test]
fn a_digest_is_never_printed() {
    let text = format!("{:?} {:#?}", key(1, "acme"), key(1, "acme"));
    assert!(text.contains("***"));
    for shown in ["171", "0xab", "abab", "ab,"] {
        assert!(!text.to_lowercase().contains(shown), "{text}");
    }
}

#[test]
fn a_row_of_a_later_version_or_of_nonsense_is_refused_without_quoting_it() {
    each_engine(|keys, store| {
        for row in ["{\"v\":2}", "secret", "{\"v\":1,\"id\":\"secret\"}", "{\"v\":1,\"digest\":\"secret\"}"] {
            store.apply(Transaction::new().put(StoreTable::Keys, b"0000000000000001", row)).unwrap();
            let error = keys.get("0000000000000001").unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    });
}

#[test]
fn rows_written_by_version_one_stay_readable() {
    let row = r#"{"v":1,"id":"0000000000000001","digest":"abababababababababababababababababababababababababababababababab","name":"n","account":"acme","scopes":["*"],"created":5}"#;
    let store = open_in_memory();
    store.apply(Transaction::new().put(StoreTable::Keys, b"0000000000000001", row)).unwrap();
    let key = KeyStore::new(store).get("0000000000000001").unwrap().unwrap();
    assert_eq!((key.digest, key.created, key.models), (KeyDigest([0xab; 32]), 5, None));
}

#[test]
fn a_key_change_is_reported_and_a_rotation_returns_the_new_key() {
    each_engine(|keys, store| {
        keys.insert(&key(1, "acme"), &audited(1)).unwrap();
        let changed = keys.change(&key(1, "").id, |key| {
            key.previous = Some(PreviousSecret { digest: key.digest, until: 99 });
            key.digest = KeyDigest([1; 32]);
            key.limits.concurrent = Some(4);
            Some(audited(2))
        });
        let changed = changed.unwrap().unwrap();
        assert_eq!(keys.get(&changed.id).unwrap().as_ref(), Some(&changed));
        assert_eq!(changed.previous, Some(PreviousSecret { digest: KeyDigest([0xab; 32]), until: 99 }));
        keys.update_last_use(&changed.id, 7).unwrap();
        // The update of the last use has no audit entry.
        let entries = penstock_storage::audit::AuditLog::new(store).list(0, 9).unwrap().entries;
        assert_eq!(entries.iter().map(|entry| entry.description.at).collect::<Vec<_>>(), [1, 2]);
        assert!(!serde_json::to_string(&entries).unwrap().contains("abab"), "no digest is told");
    });
}
