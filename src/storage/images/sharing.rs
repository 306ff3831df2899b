//! Exchange of generated images between the gateways of a fleet.

use super::cache::{CacheInsertion, CachedImage, ImageCache, SpaceRequest};
use super::shared::SharedImage;
use std::io::{ErrorKind, Result};
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Maximum number of images of other gateways that are loaded at the same time.
pub(super) const MAX_LOADS: usize = 8;
/// Longest wait of an answer for the write of its image.
const SHARE_TIMEOUT: Duration = Duration::from_secs(5);
/// Part of the limit of images that loaded ones may have: 1 / 4.
const LOADED_SHARE: u64 = 4;

impl ImageCache {
    /// Writes a new image of a fleet where the other gateways reach it, until `expiry` in Unix seconds, and deletes the
    /// evicted ones there.
    ///
    /// # Errors
    /// Returns any I/O error of the write, and `TimedOut` if it takes longer than five seconds; it continues then. The
    /// image remains available at this gateway.
    pub async fn share(&self, added: &CacheInsertion, image: &[u8], expiry: u64) -> Result<()> {
        let Some(shared) = self.shared.clone() else { return Ok(()) };
        let (name, evicted, image) = (added.name.clone(), added.evicted.clone(), image.to_vec());
        let writing = spawn_blocking({
            let shared = shared.clone();
            move || shared.write(&name, &image, expiry)
        });
        if !evicted.is_empty() {
            spawn_blocking(move || shared.delete(&evicted));
        }
        match timeout(SHARE_TIMEOUT, writing).await {
            Ok(written) => written.unwrap_or_else(|_| Err(ErrorKind::Other.into())),
            Err(_) => Err(ErrorKind::TimedOut.into()),
        }
    }

    /// Waits until an image of another gateway may be loaded; `None` if no gateway of this fleet has made the name.
    pub async fn acquire_load(&self, name: &str) -> Option<SemaphorePermit<'_>> {
        if self.shared.is_none() || !self.names.is_valid(name) {
            return None;
        }
        self.load_permits.acquire().await.ok()
    }

    /// Returns the length of an image that another gateway of a fleet has written; `None` if there is none.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub async fn shared_size(&self, name: &str) -> Result<Option<u64>> {
        let Some(shared) = self.shared.clone() else { return Ok(None) };
        let name = name.to_owned();
        spawn_blocking(move || shared.size(&name)).await.unwrap_or_else(|_| Err(ErrorKind::Other.into()))
    }

    /// Reads an image that another gateway of a fleet has written, unless it has expired at `now`, Unix seconds.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub async fn read_shared(&self, name: &str, now: u64) -> Result<Option<SharedImage>> {
        let Some(shared) = self.shared.clone() else { return Ok(None) };
        let name = name.to_owned();
        spawn_blocking(move || shared.read(&name, now)).await.unwrap_or_else(|_| Err(ErrorKind::Other.into()))
    }

    /// Keeps a loaded image, so that further requests for it read no shared contents; `most` bytes is the limit of this
    /// gateway's own images.
    pub fn keep_loaded(&self, name: &str, image: CachedImage, now: Duration, most: u64) {
        let mut loaded = self.loaded.lock();
        let coming = SpaceRequest { account: "", bytes: image.image.len(), limit: most / LOADED_SHARE };
        loaded.evict(coming, now);
        loaded.insert(name, image);
    }
}
