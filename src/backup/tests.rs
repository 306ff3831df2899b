//! Tests of exports, imports and verifications without the pepper of the keys.

#![allow(clippy::unwrap_used)]
use super::throttle::Throttle;
use super::*;
use crate::config::SecretText;
use crate::config::settings::StorageSettings;
use crate::storage::stores::OpenStorage;
use penstock_storage::audit::ChangeDescription;
use penstock_storage::keys::{KeyDigest, KeyRecord};
use serde_json::Value;
use std::fs;

fn insert_key(stores: &OpenStorage) {
    let key = KeyRecord {
        name: "k".into(),
        ..KeyRecord::new("0123456789abcdef", KeyDigest([7; 32]), "default", 1)
    };
    let done = ChangeDescription {
        at: 1,
        who: "test".into(),
        what: "key.create".into(),
        target: key.id.clone(),
        change: Value::Null,
    };
    stores.keys.insert(&key, &done).unwrap();
}

fn data_paths(folder: &Path) -> DataPaths {
    DataPaths { storage: StorageSettings::embedded(folder), files: folder.join("files"), bucket: None }
}

fn findings(data_paths: &DataPaths) -> Vec<String> {
    verify(data_paths, &ProgressReporter::hidden()).unwrap().problems
}

#[test]
fn an_archive_without_the_pepper_of_the_keys_is_no_archive() {
    let (folder, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = data_paths(folder.path());
    let stores = OpenStorage::open(&data.storage).unwrap();
    let live = |name: &str| {
        export::export_live(&data, &stores.store, &to.path().join(name), None, Throttle::unlimited())
    };
    fs::remove_file(data.pepper_path()).unwrap();
    live("no-key-needs-it").unwrap();
    assert!(!to.path().join("no-key-needs-it").join(PEPPER_FILE).exists());
    insert_key(&stores);
    assert!(live("missing").unwrap_err().contains("is missing"));
    fs::write(data.pepper_path(), "0f".repeat(32)).unwrap();
    assert!(live("foreign").unwrap_err().contains("is not the one"));
    fs::write(data.pepper_path(), "0f").unwrap();
    assert!(live("truncated").unwrap_err().contains("64 hexadecimal digits"));
    for name in ["missing", "foreign", "truncated"] {
        assert!(!to.path().join(name).exists(), "{name} was started");
    }
}

#[test]
fn a_store_without_the_pepper_of_its_keys_is_not_intact() {
    let (folder, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut data = data_paths(folder.path());
    let export = |data: &DataPaths, name: &str| {
        export_archive(data, &to.path().join(name), &ProgressReporter::hidden())
    };
    insert_key(&OpenStorage::open(&data.storage).unwrap());
    assert_eq!(findings(&data), [""; 0]);
    export(&data, "good").unwrap();
    let pepper = fs::read_to_string(data.pepper_path()).unwrap();
    for (content, why) in [(None, "is missing"), (Some("0f".repeat(32)), "is not the one")] {
        match content {
            None => fs::remove_file(data.pepper_path()).unwrap(),
            Some(text) => fs::write(data.pepper_path(), text).unwrap(),
        }
        let found = findings(&data);
        assert!(matches!(&found[..], [one] if one.starts_with("pepper: ") && one.contains(why)), "{found:?}");
        assert!(export(&data, "bad").unwrap_err().contains(why));
        let repaired = repair_store(&data, &to.path().join(why), &ProgressReporter::hidden()).unwrap();
        assert!(repaired.verification.problems.iter().any(|one| one.contains(why)), "{repaired:?}");
    }
    // A configured pepper is in no archive, so the gateway that imports it needs the same configuration.
    data.storage.pepper = Some(SecretText::new(&pepper));
    assert_eq!(findings(&data), [""; 0]);
    export(&data, "configured").unwrap();
    let mut other = data_paths(&to.path().join("other"));
    import_archive(&other, &to.path().join("configured"), &ProgressReporter::hidden()).unwrap();
    assert!(matches!(&findings(&other)[..], [one] if one.contains("is missing")));
    other.storage.pepper = data.storage.pepper.clone();
    assert_eq!(findings(&other), [""; 0]);
}
