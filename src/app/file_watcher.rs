//! Watcher of secrets and certificates in files. When one of the files changes, the configuration is reloaded and
//! checked as a whole. An invalid configuration changes nothing, and is not tried again before the next change. A file
//! that cannot be read at the moment counts as unchanged: an event is logged, and the file is read again later.

use crate::admin;
use crate::config::ConfigLoader;
use crate::state::AppState;
use penstock_regular_file::open_regular_file;
use sha2::{Digest, Sha256};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

/// Maximum number of leading bytes of a file that are read and compared. The length is always compared, and of a longer
/// file the time of the last change too.
const MAX_COMPARED_BYTES: u64 = 1 << 20;

/// Starts the task that watches the files of secrets and certificates until the stop signal.
pub fn start(app: &Arc<AppState>, source: &ConfigLoader, stop: &watch::Receiver<bool>) -> JoinHandle<()> {
    let (app, source, mut stop) = (app.clone(), source.clone(), stop.clone());
    tokio::spawn(async move {
        let (mut known, mut has_warned) = (read_state(&app).await.ok(), false);
        loop {
            let reloaded = app.reloaded.notified();
            let pause = app.config_snapshot().settings.watch_interval;
            tokio::select! {
                () = sleep_or_never(pause) => {}
                // The reload may have changed the interval.
                () = reloaded => continue,
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let now = match read_state(&app).await {
                Ok(now) => now,
                Err(why) => {
                    if !has_warned {
                        tracing::warn!(name: "watch_failed", why);
                    }
                    has_warned = true;
                    continue;
                }
            };
            has_warned = false;
            // If the list of watched files has changed, a reload has changed it, and that reload has already read the
            // files.
            let changed = known.as_ref().is_some_and(|known| known.0 == now.0 && known.1 != now.1);
            if changed && !app.is_store_handed_over() {
                admin::reload::reload(&app, &source).await.ok();
            }
            // The state is from before the reload, so the next check finds a file that changed during the reload.
            known = Some(now);
        }
    })
}

/// Waits for the interval; forever if it is zero.
async fn sleep_or_never(pause: Duration) {
    match pause {
        Duration::ZERO => std::future::pending().await,
        pause => tokio::time::sleep(pause).await,
    }
}

/// Reads the files that the configuration in use names; returns their paths and a digest of their contents.
async fn read_state(app: &AppState) -> Result<(Vec<PathBuf>, [u8; 32]), String> {
    let paths = app.config_snapshot().settings.watched_files.clone();
    let look = move || digest_files(&paths).map(|contents| (paths, contents));
    spawn_blocking(look).await.map_err(|error| error.to_string())?
}

fn digest_files(paths: &[PathBuf]) -> Result<[u8; 32], String> {
    let mut digest = Sha256::new();
    for path in paths {
        // A missing file and an empty file have different digests.
        match digest_file(path, &mut digest) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => digest.update(u64::MAX.to_le_bytes()),
            // Other errors, such as too many open files, do not mean that the contents have changed.
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
    }
    Ok(digest.finalize().into())
}

/// Adds the length and the first bytes of a file to a digest. A pipe or a device counts as unchanged, because reading
/// it may never end.
fn digest_file(path: &Path, digest: &mut Sha256) -> std::io::Result<()> {
    let file = match open_regular_file(path) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(()),
        file => file?,
    };
    let (found, mut bytes) = (file.metadata()?, Vec::new());
    file.take(MAX_COMPARED_BYTES).read_to_end(&mut bytes)?;
    digest.update(found.len().max(bytes.len() as u64).to_le_bytes());
    if found.len() > MAX_COMPARED_BYTES {
        digest.update([found.mtime().to_le_bytes(), found.mtime_nsec().to_le_bytes()].concat());
    }
    digest.update(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_change_of_a_file_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let paths = [path.clone()];
        let missing = digest_files(&paths).unwrap();
        std::fs::write(&path, "").unwrap();
        let empty = digest_files(&paths).unwrap();
        std::fs::write(&path, "one").unwrap();
        let one = digest_files(&paths).unwrap();
        assert!(missing != empty && empty != one);
        std::fs::write(&path, "one").unwrap();
        assert_eq!(digest_files(&paths).unwrap(), one, "written again, and the same");
    }

    #[test]
    fn a_file_of_absurd_length_is_compared_without_reading_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge");
        let paths = [path.clone()];
        // Sparse: the file takes no space on the disk.
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(1 << 36).unwrap();
        let first = digest_files(&paths).unwrap();
        assert_eq!(digest_files(&paths).unwrap(), first);
        // Simulates a change after the compared bytes: only the modification time differs, not the length.
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_ne!(digest_files(&paths).unwrap(), first);
    }

    #[test]
    fn endless_devices_and_pipes_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let paths = [PathBuf::from("/dev/zero"), pipe];
        assert_eq!(digest_files(&paths).unwrap(), digest_files(&paths).unwrap());
    }

    #[test]
    fn an_unreadable_file_does_not_count_as_changed() {
        let folder = tempfile::tempdir().unwrap();
        let unreadable = folder.path().to_owned();
        let why = digest_files(std::slice::from_ref(&unreadable)).unwrap_err();
        assert!(why.starts_with(&*unreadable.to_string_lossy()), "{why}");
    }
}
