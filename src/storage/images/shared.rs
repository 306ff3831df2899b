//! Generated images of a fleet: objects `images/<name>` next to the contents of files, so that every gateway can serve
//! the URL of an image. The format of an object is:
//!
//! ```text
//! "PIM1" | expiry, Unix seconds, 8 bytes, big-endian | image
//! ```

use super::names;
use crate::storage::shared_contents::SharedContents;
use penstock_object_storage::ObjectInfo;
use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

/// Folder of the objects that contain images of a fleet.
pub const IMAGES_FOLDER: &str = "images";
const MAGIC: &[u8; 4] = b"PIM1";
/// Length of the fields before the image, in bytes.
const HEAD_BYTES: usize = 12;
/// Time for which an object is retained after its expiry, because the clocks of gateways and store may differ.
const GRACE: Duration = Duration::from_secs(60);

/// Generated images of a fleet. All calls block.
#[derive(Clone)]
pub struct SharedImages(SharedContents);

/// Image of another gateway.
#[derive(Debug, PartialEq, Eq)]
pub struct SharedImage {
    /// Data of the image.
    pub image: Vec<u8>,
    /// Remaining time until the image expires.
    pub remaining: Duration,
}

impl SharedImages {
    /// Creates a handle to the images in the contents of a fleet.
    #[must_use]
    pub const fn new(contents: SharedContents) -> Self {
        Self(contents)
    }

    /// Writes an image that expires at `expiry`, Unix seconds.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn write(&self, name: &str, image: &[u8], expiry: u64) -> Result<()> {
        self.0.write(&object_name(name), &[MAGIC, &expiry.to_be_bytes(), image])
    }

    /// Returns the length of an object in bytes; `None` if there is no object with this name.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn size(&self, name: &str) -> Result<Option<u64>> {
        self.0.size(&object_name(name))
    }

    /// Reads an image; `None` if there is no image with this name, or if it has expired at `now`, Unix seconds.
    ///
    /// # Errors
    /// Returns `InvalidData` for an object that is no image, and any I/O error.
    pub fn read(&self, name: &str, now: u64) -> Result<Option<SharedImage>> {
        let Some(mut bytes) = self.0.read(&object_name(name))? else { return Ok(None) };
        let head = bytes.get(..HEAD_BYTES).and_then(|head| head.strip_prefix(MAGIC));
        let expiry = head.and_then(|expiry| expiry.try_into().ok()).map(u64::from_be_bytes);
        let expiry = expiry.ok_or_else(|| Error::from(ErrorKind::InvalidData))?;
        bytes.drain(..HEAD_BYTES);
        let remaining = Duration::from_secs(expiry.saturating_sub(now));
        Ok((!remaining.is_zero()).then_some(SharedImage { image: bytes, remaining }))
    }

    /// Deletes images. Errors are ignored, because the sweep deletes the images that remain.
    pub fn delete(&self, names: &[String]) {
        let names: Vec<String> = names.iter().map(|name| object_name(name)).collect();
        self.0.content_store().and_then(|store| store.delete_objects(&names)).ok();
    }

    /// Deletes images that were written more than `lifetime` and a minute ago; returns their number. Called by one
    /// gateway of a fleet. An image that cannot be deleted does not end the sweep.
    ///
    /// # Errors
    /// Returns the first I/O error.
    pub fn sweep(&self, lifetime: Duration) -> Result<u64> {
        let store = self.0.content_store()?;
        let (mut swept, mut outcome, mut after) = (0, Ok(()), None::<String>);
        loop {
            let page = store.list(IMAGES_FOLDER, after.as_deref())?;
            after = page.objects.last().map(|object| object.name.clone());
            let is_expired = |object: &ObjectInfo| object.age >= lifetime.saturating_add(GRACE);
            let expired: Vec<_> =
                page.objects.into_iter().filter(is_expired).map(|object| object.name).collect();
            match store.delete_objects(&expired) {
                Ok(()) => swept += expired.len() as u64,
                Err(error) => outcome = outcome.and(Err(error)),
            }
            if !page.more || after.is_none() {
                return outcome.map(|()| swept);
            }
        }
    }
}

/// Returns true if an object is a generated image, by its name.
#[must_use]
pub fn is_image_object(name: &str) -> bool {
    let name = name.strip_prefix(IMAGES_FOLDER).and_then(|name| name.strip_prefix('/'));
    name.is_some_and(names::is_well_formed_name)
}

fn object_name(name: &str) -> String {
    format!("{IMAGES_FOLDER}/{name}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_image_is_read_until_its_expiry_and_swept_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let contents = SharedContents::in_folder(folder.path().to_owned(), folder.path().to_owned());
        let images = SharedImages::new(contents);
        images.write("ab", b"an image", 100).unwrap();
        let read = images.read("ab", 40).unwrap().unwrap();
        assert_eq!(read, SharedImage { image: b"an image".to_vec(), remaining: Duration::from_secs(60) });
        assert_eq!(images.size("ab").unwrap(), Some(20));
        assert_eq!((images.read("ab", 100).unwrap(), images.read("cd", 0).unwrap()), (None, None));
        assert_eq!(images.sweep(Duration::from_secs(3_600)).unwrap(), 0);
        let path = folder.path().join("images/ab");
        let old = std::time::SystemTime::now() - Duration::from_secs(3_661);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        assert_eq!((images.sweep(Duration::from_secs(3_600)).unwrap(), path.exists()), (1, false));
        std::fs::write(&path, b"PIM0 no image").unwrap();
        assert_eq!(images.read("ab", 0).unwrap_err().kind(), ErrorKind::InvalidData);
        images.delete(&["ab".to_owned(), "ab".to_owned()]);
        assert_eq!(images.read("ab", 0).unwrap(), None);
    }
}
