//! Watcher of secret and certificate files: when one of them changes, the configuration is read again as by a reload,
//! with all its checks. An invalid configuration changes nothing, and is not tried again before the next change. An
//! unreadable file is no change: a warning is logged, and the file is read again later.

use crate::admin;
use crate::gateway::Source;
use crate::house::House;
use crate::observe::log;
use sha2::{Digest, Sha256};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes of a file that are compared.
const MOST: usize = 1 << 20;

/// Starts the watcher, which runs until stopped.
pub fn start(house: &Arc<House>, source: &Source, stop: &watch::Receiver<bool>) -> JoinHandle<()> {
    let (house, source, mut stop) = (house.clone(), source.clone(), stop.clone());
    tokio::spawn(async move {
        let (mut known, mut told) = (seen(&house).await.ok(), false);
        loop {
            let reloaded = house.reloaded.notified();
            let pause = house.live().settings.watch;
            tokio::select! {
                () = rest(pause) => {}
                // A reload may change the interval.
                () = reloaded => continue,
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let now = match seen(&house).await {
                Ok(now) => now,
                Err(why) => {
                    if !told {
                        log::event(log::warn(), "watch_failed", &[("why", &why)]);
                    }
                    told = true;
                    continue;
                }
            };
            told = false;
            // A different list of files is no change: a reload has read them.
            let changed = known.as_ref().is_some_and(|known| known.0 == now.0 && known.1 != now.1);
            if changed && !house.has_left() {
                admin::reload::reload(&house, &source).await.ok();
            }
            // The state before the reload: a change during the reload is found next time.
            known = Some(now);
        }
    })
}

/// Sleeps for the interval; never completes if it is zero.
async fn rest(pause: Duration) {
    match pause {
        Duration::ZERO => std::future::pending().await,
        pause => tokio::time::sleep(pause).await,
    }
}

/// Returns the files that the current configuration names and a digest of their contents, or why they cannot be read.
async fn seen(house: &House) -> Result<(Vec<PathBuf>, [u8; 32]), String> {
    let paths = house.live().settings.watched.clone();
    let look = move || contents(&paths).map(|contents| (paths, contents));
    spawn_blocking(look).await.map_err(|error| error.to_string())?
}

fn contents(paths: &[PathBuf]) -> Result<[u8; 32], String> {
    let mut digest = Sha256::new();
    for path in paths {
        // A missing file differs from an empty one.
        match std::fs::read(path) {
            Ok(bytes) => {
                digest.update((bytes.len() as u64).to_le_bytes());
                digest.update(bytes.get(..bytes.len().min(MOST)).unwrap_or_default());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => digest.update(u64::MAX.to_le_bytes()),
            // The process may be out of descriptors: the file may be unchanged.
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
    }
    Ok(digest.finalize().into())
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
        let missing = contents(&paths).unwrap();
        std::fs::write(&path, "").unwrap();
        let empty = contents(&paths).unwrap();
        std::fs::write(&path, "one").unwrap();
        let one = contents(&paths).unwrap();
        assert!(missing != empty && empty != one);
        std::fs::write(&path, "one").unwrap();
        assert_eq!(contents(&paths).unwrap(), one, "written again, and the same");
    }

    #[test]
    fn what_cannot_be_read_is_not_known_to_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let unreadable = folder.path().to_owned();
        let why = contents(std::slice::from_ref(&unreadable)).unwrap_err();
        assert!(why.starts_with(&*unreadable.to_string_lossy()), "{why}");
    }
}
