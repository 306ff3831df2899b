//! Permissions of written files: only the owner has access, with any umask and after earlier versions.

use crate::files::uploaded;
use crate::harness::Provider;
use crate::harness::process::{Home, catalogue};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns a folder and all its contents, with their modes.
fn modes(root: &Path) -> Vec<(PathBuf, u32, bool)> {
    let metadata = fs::symlink_metadata(root).unwrap();
    let mut found = vec![(root.to_owned(), metadata.permissions().mode() & 0o7777, metadata.is_dir())];
    if metadata.is_dir() {
        for entry in fs::read_dir(root).unwrap() {
            found.extend(modes(&entry.unwrap().path()));
        }
    }
    found
}

fn all_are_private(root: &Path) {
    let modes = modes(root);
    assert!(modes.len() > 10, "{modes:?}");
    for (path, mode, folder) in modes {
        assert_eq!(mode, if folder { 0o700 } else { 0o600 }, "{} {mode:o}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_below_the_storage_folder_is_its_owners_alone() {
    // No other test in this process depends on the umask.
    rustix::process::umask(rustix::fs::Mode::empty());
    let (provider, home) = (Provider::start().await, Home::new());
    home.write(&format!("[spool]\nmemory = \"64KiB\"\n{}", catalogue(&provider, "")));
    let (client, _) = home.key();
    let process = home.run().await;
    let ask = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(client.post("/v1/chat/completions", &ask).await.status, 200);
    let line = json!({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": ask});
    uploaded(&client, format!("{line}\n").as_bytes()).await;
    all_are_private(&home.storage());
    drop(process);
    // Simulates files of an earlier version, which set no mode, under another umask.
    for (path, _, folder) in modes(&home.storage()) {
        let relative = path.strip_prefix(home.storage()).unwrap();
        let below = |name: &str| relative.starts_with(name);
        if below("store") || below("ledger") || (!folder && relative.components().count() == 1) {
            fs::set_permissions(&path, fs::Permissions::from_mode(if folder { 0o755 } else { 0o644 }))
                .unwrap();
        }
    }
    let _process = home.run().await;
    all_are_private(&home.storage());
}
