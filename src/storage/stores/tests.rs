//! Tests of secret files, the pepper and the admin token.

#![allow(clippy::unwrap_used)]
use super::pepper::validate_pepper;
use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_secret_file_is_made_once_and_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PEPPER_FILE);
    let first = read_or_create(&path, hex_secret).unwrap();
    assert_eq!(read_or_create(&path, hex_secret).unwrap(), first);
    assert!(parse_hex_secret(&first).is_some());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_pepper_is_64_digits_and_nothing_else() {
    for good in ["0f", "AB", "aB"] {
        assert!(validate_pepper(&format!(" {}\n", good.repeat(32))).is_ok(), "{good}");
    }
    for (half, times) in [("+f", 32), ("zz", 32), ("0f", 31), ("0f", 33), ("", 0)] {
        let message = validate_pepper(&half.repeat(times)).unwrap_err();
        assert_eq!(message, "storage.pepper has to be 64 hexadecimal digits.", "{half}");
    }
}

#[test]
fn a_store_that_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let storage = StorageSettings::embedded(folder.path());
    let store = folder.path().join(STORE_FOLDER);
    // A folder in place of the file cannot be read; a file without permissions could still be read by root.
    fs::create_dir_all(store.join("lock")).unwrap();
    let message = open_existing(&storage).map(|_| ()).unwrap_err();
    assert!(message.ends_with(&format!(", at {}.", store.display())), "{message}");
}

#[test]
fn a_store_that_cannot_be_looked_for_is_not_called_missing() {
    let folder = tempfile::tempdir().unwrap();
    let missing = StorageSettings::embedded(&folder.path().join("none"));
    let why = require_store(&missing).unwrap_err();
    assert_eq!(why, format!("There is no store in {}.", missing.path.display()));
    assert!(open_existing(&missing).unwrap().is_none() && !missing.path.exists());
    // A file in place of the folder, because root can look into a folder without permissions.
    fs::write(&missing.path, "").unwrap();
    for why in [require_store(&missing), open_existing(&missing).map(|_| ())] {
        let why = why.unwrap_err();
        assert!(
            why.contains("cannot be opened") && why.contains(&missing.path.display().to_string()),
            "{why}"
        );
    }
    let storage = StorageSettings::embedded(folder.path());
    OpenStorage::open(&storage).unwrap();
    require_store(&storage).unwrap();
}

#[test]
fn an_admin_token_that_can_be_guessed_is_refused_and_its_file_named() {
    let folder = tempfile::tempdir().unwrap();
    let storage = StorageSettings::embedded(folder.path());
    let path = folder.path().join(ADMIN_TOKEN_FILE);
    check_admin_token(&storage).unwrap();
    for token in ["", " \n", "0123456789abcdef0123456789abcde\n"] {
        fs::write(&path, token).unwrap();
        for message in
            [check_admin_token(&storage).unwrap_err(), OpenStorage::open(&storage).map(|_| ()).unwrap_err()]
        {
            assert!(
                message.contains(&path.display().to_string()) && message.contains("at least 32"),
                "{message}"
            );
        }
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(OpenStorage::open(&storage).unwrap().admin_token.len(), 64);
    check_admin_token(&storage).unwrap();
}

#[test]
fn a_given_pepper_has_to_be_whole() {
    assert!(validate_pepper("abc").is_err());
    assert!(validate_pepper(&"0f".repeat(32)).is_ok());
}
