//! Cache of generated images, each at an unguessable URL for a limited time. Images that are not fetched in this time
//! are deleted. When the cache is full, an image of the account with the highest usage is evicted, the oldest first.
//! Usage means bytes if the limit on bytes is reached, and images if the limit on their number is reached. So an
//! account with many images shortens only the lifetime of its own images. A gateway of a fleet also writes its images
//! where the other gateways can read them.

use super::names::ImageNameGenerator;
use super::shared::SharedImages;
use super::sharing::MAX_CONCURRENT_LOADS;
use crate::storage::shared_contents::SharedContents;
use crate::storage::spool::{SpoolFactory, SpooledData};
use crate::storage::stores::Pepper;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::io::Result;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum number of images; each may hold an open file.
const MAX_IMAGES: usize = 512;

/// Cached image.
#[derive(Clone)]
pub struct CachedImage {
    /// Data of the cached image.
    pub image: SpooledData,
    /// Content type of the cached image.
    pub content_type: &'static str,
    /// Expiry, by the steady clock.
    pub expires_at: Duration,
    /// Account that owns the image; empty for an image of another gateway.
    pub account: Box<str>,
}

/// Metadata of a new image.
#[derive(Clone, Copy)]
pub struct NewImageMetadata<'a> {
    /// Account that owns the image.
    pub account: &'a str,
    /// Content type of the new image.
    pub content_type: &'static str,
    /// Current time of the steady clock.
    pub now: Duration,
    /// Time for which clients can fetch the image.
    pub lifetime: Duration,
}

/// Space that a new image needs: its account, its bytes, and the limit of the cache in bytes.
#[derive(Clone, Copy)]
pub(super) struct RequiredSpace<'a> {
    pub(super) account: &'a str,
    pub(super) bytes: u64,
    pub(super) limit: u64,
}

/// Cache of generated images.
pub struct GeneratedImageCache {
    inner: Mutex<CacheState>,
    /// Images of other gateways of a fleet that were loaded.
    pub(super) loaded: Mutex<CacheState>,
    pub(super) names: ImageNameGenerator,
    /// Images of all gateways of a fleet; `None` without a fleet.
    pub(super) shared: Option<SharedImages>,
    /// Permits for loading images of other gateways.
    pub(super) load_permits: Semaphore,
}

/// Result of adding an image to the cache.
pub struct CacheInsertion {
    /// Name of the new image.
    pub name: String,
    /// Names of the images that were evicted before their expiry.
    pub evicted: Vec<String>,
}

/// Images of a cache by name, with their order and total size.
#[derive(Default)]
pub(super) struct CacheState {
    images: HashMap<Box<str>, CachedImage, ahash::RandomState>,
    /// Names of the images, the oldest first.
    order: VecDeque<Box<str>>,
    bytes: u64,
}

impl GeneratedImageCache {
    /// Creates an empty cache. `shared` has the contents that all gateways of a fleet can access; `None` without a
    /// fleet.
    #[must_use]
    pub fn new(pepper: &Pepper, shared: Option<SharedContents>) -> Self {
        Self {
            inner: Mutex::default(),
            loaded: Mutex::default(),
            names: ImageNameGenerator::new(pepper),
            shared: shared.map(SharedImages::new),
            load_permits: Semaphore::new(MAX_CONCURRENT_LOADS),
        }
    }

    /// Returns the images of all gateways of a fleet; `None` without a fleet.
    #[must_use]
    pub const fn shared_images(&self) -> Option<&SharedImages> {
        self.shared.as_ref()
    }

    /// Adds an image, and evicts other images if all together exceed `max_bytes`, or if there are 512 images.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub async fn insert(
        &self,
        spools: &SpoolFactory,
        image: &[u8],
        metadata: NewImageMetadata<'_>,
        max_bytes: u64,
    ) -> Result<CacheInsertion> {
        let NewImageMetadata { account, content_type: kind, now, lifetime: life } = metadata;
        let coming = RequiredSpace {
            account,
            bytes: u64::try_from(image.len()).unwrap_or(u64::MAX),
            limit: max_bytes,
        };
        // Images are evicted before the new image is written, because it may need their space.
        let mut evicted = self.inner.lock().evict(coming, now);
        let mut spool = spools.new_spool();
        spool.push(image).await?;
        let entry = CachedImage {
            image: spool.finish().await?,
            content_type: kind,
            expires_at: now + life,
            account: account.into(),
        };
        let name = self.names.generate();
        let mut inner = self.inner.lock();
        // Other images may have been added meanwhile, so the limit is checked again.
        evicted.extend(inner.evict(coming, now));
        inner.insert(&name, entry);
        drop(inner);
        Ok(CacheInsertion { name, evicted })
    }

    /// Returns the image with this name, unless it has expired.
    #[must_use]
    pub fn get(&self, name: &str, now: Duration) -> Option<CachedImage> {
        self.inner.lock().get(name, now).or_else(|| self.loaded.lock().get(name, now))
    }

    /// Removes expired images from the cache.
    pub fn remove_expired(&self, now: Duration) {
        self.inner.lock().remove_expired(now);
        self.loaded.lock().remove_expired(now);
    }

    /// Returns the number of cached images, without those of other gateways.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.lock().images.len()
    }

    /// Returns true if the cache is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl CacheState {
    /// Adds an image, or replaces the image with this name.
    pub(super) fn insert(&mut self, name: &str, image: CachedImage) {
        self.bytes += image.image.len();
        match self.images.insert(name.into(), image) {
            Some(replaced) => self.bytes = self.bytes.saturating_sub(replaced.image.len()),
            None => self.order.push_back(name.into()),
        }
    }

    /// Returns the image with this name, unless it has expired.
    pub(super) fn get(&mut self, name: &str, now: Duration) -> Option<CachedImage> {
        self.remove_expired(now);
        self.images.get(name).filter(|entry| entry.expires_at > now).cloned()
    }

    /// Drops expired images. All images are checked: after a reload that changed the lifetime, newer images may
    /// expire before older ones.
    fn remove_expired(&mut self, now: Duration) {
        if self.images.values().all(|entry| entry.expires_at > now) {
            return;
        }
        self.images.retain(|_, entry| entry.expires_at > now);
        let images = &self.images;
        self.order.retain(|name| images.contains_key(name));
        self.bytes = images.values().map(|entry| entry.image.len()).sum();
    }

    /// Evicts images until there is space for the new image; returns the names of the evicted images.
    pub(super) fn evict(&mut self, coming: RequiredSpace<'_>, now: Duration) -> Vec<String> {
        self.remove_expired(now);
        let mut gone = Vec::new();
        loop {
            let first = if self.order.len() >= MAX_IMAGES {
                self.eviction_index(coming.account, 1, |_| 1)
            } else if self.bytes.saturating_add(coming.bytes) > coming.limit {
                self.eviction_index(coming.account, coming.bytes, |entry| entry.image.len())
            } else {
                return gone;
            };
            let Some(name) = first.and_then(|first| self.order.remove(first)) else { return gone };
            if let Some(entry) = self.images.remove(&name) {
                self.bytes = self.bytes.saturating_sub(entry.image.len());
                gone.push(name.into());
            }
        }
    }

    /// Returns the index of the oldest image of the account with the highest usage, as `weigh` measures it; `None` if
    /// there are no images. The new image counts as `coming` for its account.
    fn eviction_index(
        &self,
        account: &str,
        coming: u64,
        weigh: impl Fn(&CachedImage) -> u64,
    ) -> Option<usize> {
        let mut held: HashMap<&str, (u64, Reverse<usize>), ahash::RandomState> = HashMap::default();
        for (index, entry) in self.order.iter().map(|name| self.images.get(name)).enumerate() {
            let Some(entry) = entry else { return Some(index) };
            let own = if *entry.account == *account { coming } else { 0 };
            held.entry(&entry.account).or_insert((own, Reverse(index))).0 += weigh(entry);
        }
        held.into_values().max().map(|(_, Reverse(oldest))| oldest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIFE: Duration = Duration::from_secs(60);

    fn cache() -> GeneratedImageCache {
        GeneratedImageCache::new(&Pepper([7; 32]), None)
    }

    async fn insert(
        cache: &GeneratedImageCache,
        spools: &SpoolFactory,
        image: &[u8],
        of: NewImageMetadata<'_>,
        max_bytes: u64,
    ) -> (String, usize) {
        let added = cache.insert(spools, image, of, max_bytes).await.unwrap();
        (added.name, added.evicted.len())
    }

    const fn of(account: &str, now: Duration) -> NewImageMetadata<'_> {
        NewImageMetadata { account, content_type: "image/png", now, lifetime: LIFE }
    }

    #[tokio::test]
    async fn an_image_is_there_for_its_life_and_under_its_own_name_only() {
        let folder = tempfile::tempdir().unwrap();
        let spools = SpoolFactory::new(folder.path().to_owned(), 4, 1000);
        let shelf = cache();
        let now = Duration::from_secs(5);
        let long = NewImageMetadata { lifetime: LIFE * 2, ..of("a", now) };
        let (name, _) = insert(&shelf, &spools, b"an image", of("a", now), 100).await;
        let (other, _) = insert(&shelf, &spools, b"other", long, 100).await;
        assert!(name.len() == 48 && name != other);
        assert_eq!(shelf.get(&name, now).unwrap().image.read(0).await.unwrap(), "an image");
        assert!(shelf.get(&name[1..], now).is_none());
        assert!(shelf.get(&name, now + LIFE).is_none());
        assert_eq!((shelf.len(), spools.used_bytes()), (1, 5), "its room is given back");
    }

    #[tokio::test]
    async fn the_oldest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let spools = SpoolFactory::new(folder.path().to_owned(), 4, 1000);
        let shelf = cache();
        let mut names = Vec::new();
        for _ in 0..4 {
            names.push(insert(&shelf, &spools, &[7; 40], of("a", LIFE), 100).await);
        }
        let there: Vec<bool> = names.iter().map(|(name, _)| shelf.get(name, LIFE).is_some()).collect();
        assert_eq!(there, [false, false, true, true]);
        assert!(names.iter().map(|(_, gone)| *gone).eq([0, 0, 1, 1]), "those that went early are told");
        // The spool has a limit of 100 bytes, so each new image needs the space of an evicted one.
        let narrow = SpoolFactory::new(folder.path().to_owned(), 4, 100);
        let shelf = cache();
        for _ in 0..5 {
            insert(&shelf, &narrow, &[7; 40], of("a", LIFE), 100).await;
        }
        assert_eq!((shelf.len(), narrow.used_bytes()), (2, 80));
        // An image that alone exceeds the limit is cached nevertheless.
        let (large, _) = insert(&shelf, &spools, &[7; 400], of("a", LIFE), 100).await;
        assert!(shelf.get(&large, LIFE).is_some() && shelf.len() == 1);
    }
    #[tokio::test]
    async fn one_accounts_images_do_not_evict_those_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let spools = SpoolFactory::new(folder.path().to_owned(), 4, 100_000);
        let shelf = cache();
        let (theirs, _) = insert(&shelf, &spools, b"x", of("b", LIFE), 1_000).await;
        let mut gone = 0;
        for _ in 0..600 {
            gone += insert(&shelf, &spools, b"y", of("a", LIFE), 1_000).await.1;
        }
        assert!(shelf.get(&theirs, LIFE).is_some());
        assert_eq!((shelf.len(), gone), (MAX_IMAGES, 601 - MAX_IMAGES));
        // At the limit on bytes, too, only images of the account with the highest usage are evicted.
        insert(&shelf, &spools, &[7; 900], of("a", LIFE), 1_000).await;
        assert!(shelf.get(&theirs, LIFE).is_some() && shelf.len() < MAX_IMAGES);
    }
}
