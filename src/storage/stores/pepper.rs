//! Pepper of the key digests. The store has a check value of the pepper, so that a changed or newly generated pepper is
//! noticed before every key is refused.

use super::{
    PEPPER_FILE, Pepper, hex_secret, parse_hex_secret, read_or_create, read_secret, to_sentence, write_secret,
};
use crate::config::settings::StorageSettings;
use penstock_auth::pepper_fingerprint;
use penstock_storage::keys::KeyStore;
use penstock_storage::{PEPPER_CHECK_KEY, Store, StoreError, StoreTable, Transaction};
use std::sync::Arc;

/// Maximum number of API keys that are read at once.
const PAGE_SIZE: usize = 1_000;

/// Finds the pepper of a store: it is configured, read from its file, or created if no key depends on an earlier
/// pepper.
///
/// # Errors
/// Returns a sentence that tells the operator what to do: the pepper is missing, malformed, or not that of the keys.
pub(super) fn find_pepper(storage: &StorageSettings, store: &Arc<dyn Store>) -> Result<Pepper, String> {
    let pepper = match read_valid_pepper(storage, store)? {
        Some(pepper) => pepper,
        None => parse_pepper(storage, &read_or_create(&storage.path.join(PEPPER_FILE), hex_secret)?)?,
    };
    let check = pepper_fingerprint(&pepper.0);
    if read_check_value(store)?.as_deref() != Some(&check) {
        // If a full disk rejects the check value, a later start writes it.
        store.apply(Transaction::new().put(StoreTable::Meta, PEPPER_CHECK_KEY, check)).ok();
    }
    Ok(pepper)
}

/// Reads the pepper, and checks that it is the one that the keys of the store were made with. Changes nothing. Returns
/// `None` if there is no pepper and no key needs one.
///
/// # Errors
/// Returns a sentence that tells the operator what to do: the pepper is missing, malformed, or not that of the keys.
pub(super) fn read_valid_pepper(
    storage: &StorageSettings,
    store: &Arc<dyn Store>,
) -> Result<Option<Pepper>, String> {
    let path = storage.path.join(PEPPER_FILE);
    let text = match &storage.pepper {
        Some(secret) => Some(secret.reveal().to_owned()),
        None => read_secret(&path)?,
    };
    let Some(text) = text else {
        return match count_keys(store)? {
            0 => Ok(None),
            count => Err(missing_message(&path.display().to_string(), count, hint(storage))),
        };
    };
    let pepper = parse_pepper(storage, &text)?;
    if read_check_value(store)?.is_some_and(|known| known != pepper_fingerprint(&pepper.0)) {
        let count = count_keys(store)?;
        if count > 0 {
            let location = match &storage.pepper {
                Some(_) => "storage.pepper".to_owned(),
                None => path.display().to_string(),
            };
            return Err(mismatch_message(&location, count, hint(storage)));
        }
    }
    Ok(Some(pepper))
}

/// Parses the text of a pepper, which is configured or from its file.
fn parse_pepper(storage: &StorageSettings, text: &str) -> Result<Pepper, String> {
    let text = match &storage.pepper {
        Some(_) => &validate_pepper(text)?,
        None => text,
    };
    let path = storage.path.join(PEPPER_FILE);
    let invalid = || format!("The pepper in {} is not 64 hexadecimal digits. {RESTORE_HINT}", path.display());
    parse_hex_secret(text).map(Pepper).ok_or_else(invalid)
}

/// Returns the check value of the pepper that the keys of a store were made with; `None` before the first start.
fn read_check_value(store: &Arc<dyn Store>) -> Result<Option<Vec<u8>>, String> {
    store.get(StoreTable::Meta, PEPPER_CHECK_KEY).map_err(|error| store_message(&error))
}

/// Compares the pepper of this gateway with that of the keys in a database, by its check value. `valid_keys` is the
/// number of keys that are not revoked: without one, any pepper is accepted, as by the start of a gateway. Returns a
/// warning if this gateway has no pepper yet.
///
/// # Errors
/// Returns a sentence for the operator if the peppers differ, or if the pepper cannot be read.
pub(super) fn compare_pepper(
    storage: &StorageSettings,
    stored_check: &[u8],
    valid_keys: u64,
) -> Result<Option<String>, String> {
    let path = storage.path.join(PEPPER_FILE);
    let (text, location) = match &storage.pepper {
        Some(secret) => (validate_pepper(secret.reveal())?, "storage.pepper".to_owned()),
        None => match read_secret(&path)? {
            Some(text) => (text, path.display().to_string()),
            None if valid_keys == 0 => return Ok(None),
            None => {
                let path = path.display();
                return Ok(Some(format!(
                    "There is no pepper in {path}, and the {valid_keys} API keys in the database need one: the gateway does not \
                     start. {}",
                    hint(storage)
                )));
            }
        },
    };
    let pepper = parse_hex_secret(&text)
        .ok_or_else(|| format!("The pepper in {location} is not 64 hexadecimal digits. {RESTORE_HINT}"))?;
    if valid_keys == 0 || pepper_fingerprint(&pepper) == stored_check {
        return Ok(None);
    }
    Err(mismatch_message(&location, valid_keys, hint(storage)))
}

/// Accepts the configured pepper, or creates a new pepper file, although existing keys were made with another pepper.
/// Returns the number of keys that have to be replaced.
///
/// # Errors
/// Returns a sentence for the operator if the present pepper is that of the keys, or if another one cannot be written.
pub(super) fn accept_new_pepper(storage: &StorageSettings, store: &Arc<dyn Store>) -> Result<u64, String> {
    let keys = count_keys(store)?;
    if keys > 0 && read_valid_pepper(storage, store).is_ok() {
        return Err(format!(
            "The pepper is not lost: it is the one that the {keys} API keys in the store were made with. Nothing was changed. \
             To make keys invalid, revoke or rotate them."
        ));
    }
    let text = match &storage.pepper {
        Some(secret) => validate_pepper(secret.reveal())?,
        None => {
            let text = hex_secret();
            write_secret(&storage.path.join(PEPPER_FILE), &text)?;
            text
        }
    };
    let pepper = parse_hex_secret(&text).ok_or("The pepper is not 64 hexadecimal digits.")?;
    store
        .apply(Transaction::new().put(StoreTable::Meta, PEPPER_CHECK_KEY, pepper_fingerprint(&pepper)))
        .map_err(|error| store_message(&error))?;
    Ok(keys)
}

/// Checks that a configured pepper is 64 hexadecimal digits, and returns it without surrounding white space.
pub(super) fn validate_pepper(text: &str) -> Result<String, String> {
    let text = text.trim();
    if parse_hex_secret(text).is_none() {
        return Err("storage.pepper has to be 64 hexadecimal digits.".to_owned());
    }
    Ok(text.to_owned())
}

/// Returns the number of keys that are not revoked.
fn count_keys(store: &Arc<dyn Store>) -> Result<u64, String> {
    let keys = KeyStore::new(store.clone());
    let (mut count, mut after) = (0, None::<String>);
    loop {
        let page = keys.list(None, after.as_deref(), PAGE_SIZE).map_err(|error| store_message(&error))?;
        count += page.keys.iter().filter(|key| key.revoked.is_none()).count() as u64;
        after = page.next;
        if after.is_none() {
            return Ok(count);
        }
    }
}

fn store_message(error: &StoreError) -> String {
    to_sentence(&error.to_string())
}

/// Remedies for a missing or changed pepper; the second is for a pepper that is permanently lost.
const RESTORE_HINT: &str = "Restore it from a backup (an archive of `penstock store export` has it). If it is lost, \
                       `penstock store new-pepper` makes another one; every key then has to be rotated.";

/// Remedies in a fleet, where another gateway has the pepper.
const FLEET_HINT: &str = "All gateways of a fleet need the same pepper: copy the file from a gateway that has it, or set \
                          storage.pepper in all of them. If no gateway has it, restore it from a backup.";

fn hint(storage: &StorageSettings) -> &'static str {
    if storage.fleet.is_some() { FLEET_HINT } else { RESTORE_HINT }
}

fn missing_message(path: &str, count: u64, hint: &str) -> String {
    format!(
        "The pepper {path} is missing, and without it none of the {count} API keys in the store would be accepted. {hint}"
    )
}

fn mismatch_message(location: &str, count: u64, hint: &str) -> String {
    format!(
        "The pepper in {location} is not the one that the {count} API keys in the store were made with: none of them would be \
         accepted. {hint}"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{OpenStorage, accept_new_pepper, check_pepper, open_existing};
    use super::*;
    use crate::config::SecretText;
    use penstock_storage::audit::ChangeDescription;
    use penstock_storage::keys::{KeyDigest, KeyRecord};
    use serde_json::Value;
    use std::fs;

    fn done(what: &str) -> ChangeDescription {
        ChangeDescription {
            at: 1,
            who: "test".into(),
            what: what.into(),
            target: ID.into(),
            change: Value::Null,
        }
    }

    const ID: &str = "0123456789abcdef";

    fn storage(folder: &std::path::Path) -> StorageSettings {
        StorageSettings::embedded(folder)
    }

    fn open(storage: &StorageSettings) -> Result<Pepper, String> {
        OpenStorage::open(storage).map(|stores| stores.pepper)
    }

    fn check(storage: &StorageSettings) -> Result<(), String> {
        check_pepper(storage, &open_existing(storage)?.unwrap())
    }

    fn insert(storage: &StorageSettings) {
        let key = KeyRecord { name: "k".into(), ..KeyRecord::new(ID, KeyDigest([7; 32]), "default", 1) };
        OpenStorage::open(storage).unwrap().keys.insert(&key, &done("key.create")).unwrap();
    }

    #[test]
    fn a_pepper_is_made_anew_only_while_no_key_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let storage = storage(folder.path());
        let path = folder.path().join(PEPPER_FILE);
        let first = open(&storage).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(check(&storage), Ok(()), "a start would make another one");
        assert!(!path.exists(), "a check makes nothing");
        let second = open(&storage).unwrap();
        assert_ne!(first.0, second.0, "nobody needs the first");
        insert(&storage);
        let original = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let why = open(&storage).unwrap_err();
        assert!(why.contains(&path.display().to_string()) && why.contains("the 1 API keys"), "{why}");
        assert!(why.contains("store export") && why.contains("new-pepper"), "{why}");
        assert!(!path.exists(), "nothing was made");
        assert_eq!(check(&storage), Err(why), "a check finds the same");
        fs::write(&path, hex_secret()).unwrap();
        assert!(open(&storage).unwrap_err().contains("is not the one"));
        assert_eq!(check(&storage), open(&storage).map(|_| ()));
        for malformed in ["", "abc", "\n"] {
            fs::write(&path, malformed).unwrap();
            assert!(open(&storage).unwrap_err().contains("64 hexadecimal digits"), "{malformed:?}");
            assert_eq!(check(&storage), open(&storage).map(|_| ()), "{malformed:?}");
        }
        fs::write(&path, &original).unwrap();
        assert_eq!(open(&storage).unwrap().0, second.0);
    }

    #[test]
    fn a_check_names_the_pepper_that_is_not_that_of_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let mut storage = storage(folder.path());
        let known = pepper_fingerprint(&open(&storage).unwrap().0);
        assert_eq!(compare_pepper(&storage, &known, 1), Ok(None));
        let path = folder.path().join(PEPPER_FILE);
        fs::write(&path, hex_secret()).unwrap();
        let why = compare_pepper(&storage, &known, 1).unwrap_err();
        assert!(why.contains(&path.display().to_string()) && why.contains("none of them would be"), "{why}");
        storage.pepper = Some(SecretText::new(&"0f".repeat(32)));
        let why = compare_pepper(&storage, &known, 1).unwrap_err();
        assert!(why.contains("storage.pepper") && !why.contains("0f0f"), "{why}");
        assert_eq!(compare_pepper(&storage, &known, 0), Ok(None), "no key was made with the other one");
        storage.pepper = None;
        fs::write(&path, "abc").unwrap();
        assert!(compare_pepper(&storage, &known, 0).is_err(), "it is no pepper");
        fs::remove_file(&path).unwrap();
        assert_eq!(compare_pepper(&storage, &known, 0), Ok(None));
        let warning = compare_pepper(&storage, &known, 1).unwrap().unwrap();
        assert!(warning.contains("no pepper in") && !path.exists(), "nothing is made: {warning}");
    }

    #[test]
    fn a_lost_pepper_is_renewed_on_request_and_a_revoked_key_needs_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut storage = storage(folder.path());
        insert(&storage);
        fs::remove_file(folder.path().join(PEPPER_FILE)).unwrap();
        assert!(open(&storage).is_err());
        assert_eq!(accept_new_pepper(&storage).unwrap(), 1);
        let renewed = open(&storage).unwrap();
        let why = accept_new_pepper(&storage).unwrap_err();
        assert!(why.contains("not lost") && open(&storage).unwrap().0 == renewed.0, "{why}");
        // A different configured pepper is noticed too.
        storage.pepper = Some(SecretText::new(&"0f".repeat(32)));
        assert!(open(&storage).unwrap_err().contains("storage.pepper"));
        storage.pepper = None;
        OpenStorage::open(&storage).unwrap().keys.revoke(ID, &done("key.revoke")).unwrap();
        fs::remove_file(folder.path().join(PEPPER_FILE)).unwrap();
        assert_ne!(open(&storage).unwrap().0, renewed.0);
    }
}
