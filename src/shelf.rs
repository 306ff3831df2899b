//! Images that wait for their client under an address that nobody can guess, for
//! a while. What a client does not fetch in time is gone, and the oldest go
//! first when there are too many.

use crate::spool::{Spooled, Spools};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::io::Result;
use std::time::Duration;

/// Most images at one time: each may hold a file open.
const MOST: usize = 512;
/// Letters of an address: 192 random bits.
const LETTERS: usize = 48;

/// One image.
#[derive(Clone)]
pub struct Kept {
    /// Its bytes.
    pub image: Spooled,
    /// Its content type.
    pub kind: &'static str,
    /// When it is gone, on the house's clock.
    pub until: Duration,
}

/// The images.
#[derive(Default)]
pub struct Shelf {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    images: HashMap<Box<str>, Kept, ahash::RandomState>,
    /// The oldest first.
    order: VecDeque<Box<str>>,
    bytes: u64,
}

impl Shelf {
    /// Puts an image down, for `life` from `now` on, among others of at most
    /// `most` bytes together; returns the last part of its address.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn put(
        &self,
        spools: &Spools,
        image: &[u8],
        kind: &'static str,
        (now, life): (Duration, Duration),
        most: u64,
    ) -> Result<String> {
        // First, since what goes may be the room that this one needs.
        let bytes = u64::try_from(image.len()).unwrap_or(u64::MAX);
        drop(self.inner.lock().make_room(bytes, most, now));
        let mut spool = spools.open();
        spool.push(image).await?;
        let kept = Kept { image: spool.seal().await?, kind, until: now + life };
        let name: String =
            rand::random::<[u8; LETTERS / 2]>().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut inner = self.inner.lock();
        // Others may have come meanwhile.
        let _gone = inner.make_room(bytes, most, now);
        inner.bytes += kept.image.len();
        inner.order.push_back(name.as_str().into());
        inner.images.insert(name.as_str().into(), kept);
        Ok(name)
    }

    /// The image at this address, if it is still there.
    #[must_use]
    pub fn get(&self, name: &str, now: Duration) -> Option<Kept> {
        let mut inner = self.inner.lock();
        inner.clear(now);
        inner.images.get(name).filter(|kept| kept.until > now).cloned()
    }

    /// Lets go of what nobody may fetch any more.
    pub fn clear(&self, now: Duration) {
        self.inner.lock().clear(now);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.lock().images.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    /// Lives may have changed with a reload, so all are looked at.
    fn clear(&mut self, now: Duration) {
        if self.images.values().all(|kept| kept.until > now) {
            return;
        }
        self.images.retain(|_, kept| kept.until > now);
        let images = &self.images;
        self.order.retain(|name| images.contains_key(name));
        self.bytes = images.values().map(|kept| kept.image.len()).sum();
    }

    /// Takes the oldest down until there is room for so many bytes more.
    fn make_room(&mut self, bytes: u64, most: u64, now: Duration) -> Vec<Kept> {
        self.clear(now);
        let mut gone = Vec::new();
        while !self.order.is_empty() && (self.order.len() >= MOST || self.bytes.saturating_add(bytes) > most)
        {
            if let Some(kept) = self.order.pop_front().and_then(|name| self.images.remove(&name)) {
                self.bytes = self.bytes.saturating_sub(kept.image.len());
                gone.push(kept);
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIFE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn an_image_is_there_for_its_life_and_under_its_own_name_only() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().to_owned(), 4, 1000);
        let shelf = Shelf::default();
        let now = Duration::from_secs(5);
        let name = shelf.put(&spools, b"an image", "image/png", (now, LIFE), 100).await.unwrap();
        let other = shelf.put(&spools, b"other", "image/png", (now, LIFE * 2), 100).await.unwrap();
        assert!(name.len() == LETTERS && name != other);
        assert_eq!(shelf.get(&name, now).unwrap().image.read(0).await.unwrap(), "an image");
        assert!(shelf.get(&name[1..], now).is_none());
        assert!(shelf.get(&name, now + LIFE).is_none());
        assert_eq!((shelf.len(), spools.used()), (1, 5), "its room is given back");
    }

    #[tokio::test]
    async fn the_oldest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().to_owned(), 4, 1000);
        let shelf = Shelf::default();
        let mut names = Vec::new();
        for _ in 0..4 {
            names.push(shelf.put(&spools, &[7; 40], "image/png", (LIFE, LIFE), 100).await.unwrap());
        }
        let there: Vec<bool> = names.iter().map(|name| shelf.get(name, LIFE).is_some()).collect();
        assert_eq!(there, [false, false, true, true]);
        // What goes is the room that the next one needs.
        let narrow = Spools::new(folder.path().to_owned(), 4, 100);
        let shelf = Shelf::default();
        for _ in 0..5 {
            shelf.put(&narrow, &[7; 40], "image/png", (LIFE, LIFE), 100).await.unwrap();
        }
        assert_eq!((shelf.len(), narrow.used()), (2, 80));
        // One that is larger than all the room is there for its client all the same.
        let large = shelf.put(&spools, &[7; 400], "image/png", (LIFE, LIFE), 100).await.unwrap();
        assert!(shelf.get(&large, LIFE).is_some() && shelf.len() == 1);
    }
}
