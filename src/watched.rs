//! Secrets and certificates in files: when one of them changes, the
//! configuration is read again as by a reload, all of it checked. What does not
//! hold together changes nothing, and is not tried again before the next change.

use crate::admin;
use crate::gateway::Source;
use crate::house::House;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes of a file that are looked at.
const MOST: usize = 1 << 20;

/// Starts to look, until told to stop.
pub fn start(house: &Arc<House>, source: &Source, stop: &watch::Receiver<bool>) -> JoinHandle<()> {
    let (house, source, mut stop) = (house.clone(), source.clone(), stop.clone());
    tokio::spawn(async move {
        let mut known = seen(&house).await;
        loop {
            let reloaded = house.reloaded.notified();
            let pause = house.live().settings.watch;
            tokio::select! {
                () = rest(pause) => {}
                // It may say another pause.
                () = reloaded => continue,
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let now = seen(&house).await;
            // Other files are no change: a reload has read them.
            let same = matches!((&now, &known), (Some((now, _)), Some((known, _))) if now == known);
            if same && now != known && !house.has_left() {
                admin::reload(&house, &source).await.ok();
            }
            // As they were before the reload: what changed meanwhile is found the next time.
            known = now;
        }
    })
}

/// Never, if the pause is none.
async fn rest(pause: Duration) {
    match pause {
        Duration::ZERO => std::future::pending().await,
        pause => tokio::time::sleep(pause).await,
    }
}

/// The files that the configuration at work names, and what is in them.
async fn seen(house: &House) -> Option<(Vec<PathBuf>, [u8; 32])> {
    let paths = house.live().settings.watched.clone();
    let look = move || {
        let contents = contents(&paths);
        (paths, contents)
    };
    spawn_blocking(look).await.ok()
}

fn contents(paths: &[PathBuf]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for path in paths {
        // One that is not there differs from one that is empty.
        match std::fs::read(path) {
            Ok(bytes) => {
                digest.update((bytes.len() as u64).to_le_bytes());
                digest.update(bytes.get(..bytes.len().min(MOST)).unwrap_or_default());
            }
            Err(_) => digest.update(u64::MAX.to_le_bytes()),
        }
    }
    digest.finalize().into()
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
        let missing = contents(&paths);
        std::fs::write(&path, "").unwrap();
        let empty = contents(&paths);
        std::fs::write(&path, "one").unwrap();
        let one = contents(&paths);
        assert!(missing != empty && empty != one);
        std::fs::write(&path, "one").unwrap();
        assert_eq!(contents(&paths), one, "written again, and the same");
    }
}
