//! Damage to the log of the store: every command refuses to open it and leaves its files as they are, and a repair says
//! what it could not save.

use crate::harness::Provider;
use crate::harness::process::{Home, catalogue, complaint};
use crate::harness::within;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files below a folder with their contents.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(files(&entry.path())),
            false => drop(all.insert(entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    all
}

/// Creates a store with keys, of which the last is revoked.
async fn home_with_keys() -> (Home, String) {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    for _ in 0..4 {
        home.key();
    }
    let (_, id) = home.key();
    let revoked = home.command(&["keys", "revoke", &id]);
    assert!(revoked.status.success(), "{}", complaint(&revoked));
    (home, id)
}

fn log_of(home: &Home) -> PathBuf {
    home.storage().join("store/sled/db")
}

/// Returns the offset of the end of the log's contents.
fn end_of(log: &[u8]) -> usize {
    log.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_refuses_a_damaged_log_and_changes_nothing() {
    let (home, _) = home_with_keys().await;
    let whole = fs::read(log_of(&home)).unwrap();
    let end = end_of(&whole);
    let commands: [&[&str]; 5] = [
        &["store", "verify"],
        &["credits", "verify"],
        &["keys", "list"],
        &["credits", "grant", "default", "--credits", "1"],
        &["store", "export", "archive"],
    ];
    for at in [3, 25, end / 3, end / 2, end * 9 / 10, end - 40] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(log_of(&home), &damaged).unwrap();
        let before = files(&home.storage());
        let refusal = |words: &str, said: &str| {
            let (name, next) =
                (said.contains("store/sled/db at byte "), said.contains("`penstock store repair`"));
            assert!(name && next && said.contains("`penstock store import`"), "{words} at {at}: {said}");
            assert!(files(&home.storage()) == before, "{words} at {at} changed files");
        };
        for words in commands {
            let output = home.command(words);
            assert_eq!(output.status.code(), Some(1), "{words:?} at {at}");
            refusal(words[1], &complaint(&output));
        }
        let mut process = home.spawn();
        assert!(!within("the process to end", process.until_ended()).await.success());
        refusal("run", &process.output());
    }
    fs::write(log_of(&home), &whole).unwrap();
    let verified = home.command(&["store", "verify"]);
    assert!(verified.status.success(), "{}", complaint(&verified));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_is_a_success_only_if_every_committed_row_was_saved() {
    let (home, revoked) = home_with_keys().await;
    let whole = fs::read(log_of(&home)).unwrap();
    let end = end_of(&whole);
    let config = fs::read_to_string(home.config()).unwrap();
    let list = |folder: &str| {
        fs::write(home.config(), config.replace("path = \"data\"", &format!("path = \"{folder}\""))).unwrap();
        let (listed, shown) = (home.command(&["keys", "list"]), home.command(&["keys", "show", &revoked]));
        fs::write(home.config(), &config).unwrap();
        String::from_utf8([listed.stdout, shown.stdout].concat()).unwrap()
    };
    let keys = list("data");
    assert!(keys.contains(&revoked), "{keys}");
    let damages = [
        whole[..end - 30].to_vec(),
        whole[..end / 2].to_vec(),
        flipped(&whole, end / 3),
        flipped(&whole, end * 9 / 10),
        flipped(&whole, end - 100),
        whole.clone(),
    ];
    let mut lost = 0;
    for (number, damaged) in damages.iter().enumerate() {
        fs::write(log_of(&home), damaged).unwrap();
        let folder = format!("saved{number}");
        let to = home.path().join(&folder);
        let repaired = home.command(&["store", "repair", "--quiet", "--to", to.to_str().unwrap()]);
        let said = complaint(&repaired) + &String::from_utf8(repaired.stdout).unwrap();
        assert!(fs::read(log_of(&home)).unwrap() == *damaged, "the repair changed the damaged store");
        if repaired.status.success() {
            assert!(said.contains("Everything is as it was written"), "{said}");
            assert_eq!(list(&folder), keys, "{number}: {said}");
        } else {
            assert_eq!(repaired.status.code(), Some(1));
            assert!(said.contains("Revoked keys may be valid again"), "{said}");
            assert!(!said.contains("Everything is as it was written"), "{said}");
            lost += 1;
        }
        assert!(!said.contains("panicked at"), "{said}");
    }
    assert!((2..damages.len()).contains(&lost), "{lost} repairs reported a loss");
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    bytes
}
