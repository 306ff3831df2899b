//! Access of the gateways of a fleet to the generated images of the others.

use super::cache::{CacheInsertion, CachedImage, GeneratedImageCache, RequiredSpace};
use super::shared::SharedImage;
use std::io::{ErrorKind, Result};
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Maximum number of images of other gateways that are loaded at the same time.
pub(super) const MAX_CONCURRENT_LOADS: usize = 8;
/// Longest time for which an answer waits until its image is written.
const SHARE_TIMEOUT: Duration = Duration::from_secs(5);
/// Divisor of the limit on the bytes of this gateway's own images: loaded images may use a quarter of that limit.
const LOADED_SHARE_DIVISOR: u64 = 4;

impl GeneratedImageCache {
    /// Writes a new image where the other gateways of the fleet can read it, until `expiry` in Unix seconds. Also
    /// deletes the evicted images there.
    ///
    /// # Errors
    /// Returns any I/O error of the write, and `TimedOut` if the write takes longer than five seconds; the write then
    /// continues in the background. In both cases, the image remains available at this gateway.
    pub async fn share_image(&self, added: &CacheInsertion, image: &[u8], expiry: u64) -> Result<()> {
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

    /// Waits until an image of another gateway may be loaded; `None` without a fleet, or if no gateway of the fleet has
    /// made the name.
    pub async fn acquire_load_permit(&self, name: &str) -> Option<SemaphorePermit<'_>> {
        if self.shared.is_none() || !self.names.is_valid(name) {
            return None;
        }
        self.load_permits.acquire().await.ok()
    }

    /// Returns the length in bytes of the object of an image that another gateway of the fleet has written, including
    /// its head; `None` if there is no such image.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub async fn shared_image_size(&self, name: &str) -> Result<Option<u64>> {
        let Some(shared) = self.shared.clone() else { return Ok(None) };
        let name = name.to_owned();
        spawn_blocking(move || shared.size(&name)).await.unwrap_or_else(|_| Err(ErrorKind::Other.into()))
    }

    /// Reads an image that another gateway of a fleet has written; `None` if there is no such image, or if it has
    /// expired at `now`, Unix seconds.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub async fn read_shared_image(&self, name: &str, now: u64) -> Result<Option<SharedImage>> {
        let Some(shared) = self.shared.clone() else { return Ok(None) };
        let name = name.to_owned();
        spawn_blocking(move || shared.read(&name, now)).await.unwrap_or_else(|_| Err(ErrorKind::Other.into()))
    }

    /// Caches a loaded image, so that further requests for it do not read it again. `max_bytes` is the limit in bytes
    /// on this gateway's own images.
    pub fn insert_loaded_image(&self, name: &str, image: CachedImage, now: Duration, max_bytes: u64) {
        let mut loaded = self.loaded.lock();
        let coming =
            RequiredSpace { account: "", bytes: image.image.len(), limit: max_bytes / LOADED_SHARE_DIVISOR };
        loaded.evict(coming, now);
        loaded.insert(name, image);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::storage::images::cache::NewImageMetadata;
    use crate::storage::shared_contents::SharedContents;
    use crate::storage::spool::SpoolFactory;
    use crate::storage::stores::Pepper;

    const NOW: Duration = Duration::from_secs(1);
    const LIFE: Duration = Duration::from_secs(60);

    struct Fleet {
        folder: tempfile::TempDir,
        spools: SpoolFactory,
    }

    impl Fleet {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let spools = SpoolFactory::new(folder.path().to_owned(), 4, 100_000);
            Self { folder, spools }
        }

        fn cache(&self) -> GeneratedImageCache {
            let folder = self.folder.path().to_owned();
            GeneratedImageCache::new(
                &Pepper([7; 32]),
                Some(SharedContents::in_folder(folder.clone(), folder)),
            )
        }

        async fn image(&self, length: usize) -> CachedImage {
            let mut spool = self.spools.new_spool();
            spool.push(&vec![7; length]).await.unwrap();
            let image = spool.finish().await.unwrap();
            CachedImage { image, content_type: "image/png", expires_at: NOW + LIFE, account: "".into() }
        }
    }

    #[tokio::test]
    async fn an_image_is_written_for_the_others_and_deleted_with_its_eviction() {
        let fleet = Fleet::new();
        let (one, other) = (fleet.cache(), fleet.cache());
        let label = NewImageMetadata { account: "a", content_type: "image/png", now: NOW, lifetime: LIFE };
        let first = one.insert(&fleet.spools, &[1; 60], label, 100).await.unwrap();
        one.share_image(&first, &[1; 60], 500).await.unwrap();
        assert!(other.get(&first.name, NOW).is_none());
        assert!(other.acquire_load_permit(&first.name).await.is_some());
        let read = other.read_shared_image(&first.name, 400).await.unwrap().unwrap();
        assert_eq!((read.image.len(), read.remaining), (60, Duration::from_secs(100)));
        let second = one.insert(&fleet.spools, &[2; 60], label, 100).await.unwrap();
        assert_eq!(second.evicted, [first.name.as_str()]);
        one.share_image(&second, &[2; 60], 500).await.unwrap();
        // The deletion runs on another thread.
        while other.shared_image_size(&first.name).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
        assert!(other.shared_image_size(&second.name).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn names_that_no_gateway_has_made_are_not_looked_up() {
        let fleet = Fleet::new();
        let cache = fleet.cache();
        for name in ["", "0", &"0".repeat(48), "../responses/a"] {
            assert!(cache.acquire_load_permit(name).await.is_none(), "{name}");
        }
        let alone = GeneratedImageCache::new(&Pepper([7; 32]), None);
        let label = NewImageMetadata { account: "a", content_type: "image/png", now: NOW, lifetime: LIFE };
        let name = alone.insert(&fleet.spools, &[1; 6], label, 100).await.unwrap().name;
        assert!(alone.acquire_load_permit(&name).await.is_none(), "a single gateway has no other");
        assert!(cache.acquire_load_permit(&name).await.is_some());
    }

    #[tokio::test]
    async fn loaded_images_have_a_limit_of_their_own_and_count_once() {
        let fleet = Fleet::new();
        let cache = fleet.cache();
        let label = NewImageMetadata { account: "a", content_type: "image/png", now: NOW, lifetime: LIFE };
        let own = cache.insert(&fleet.spools, &[1; 100], label, 100).await.unwrap().name;
        // A quarter of 400 bytes has space for two images of 40 bytes.
        for (name, times) in [("a", 3), ("b", 1)] {
            for _ in 0..times {
                cache.insert_loaded_image(name, fleet.image(40).await, NOW, 400);
            }
        }
        assert!(cache.get("a", NOW).is_some() && cache.get("b", NOW).is_some());
        cache.insert_loaded_image("c", fleet.image(40).await, NOW, 400);
        let there = ["a", "b", "c"].map(|name| cache.get(name, NOW).is_some());
        assert_eq!(there, [false, true, true]);
        assert!(cache.get(&own, NOW).is_some());
        cache.remove_expired(NOW + LIFE);
        assert!(cache.get("c", NOW).is_none());
        assert_eq!(fleet.spools.used_bytes(), 0);
    }
}
