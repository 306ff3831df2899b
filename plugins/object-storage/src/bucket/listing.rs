//! Pages of the objects in a bucket.

use super::Bucket;
use super::error::BucketError;
use crate::name::is_valid_name;
use crate::{MAX_PAGE_OBJECTS, ObjectInfo, ObjectPage};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use std::time::{Duration, Instant, SystemTime};

/// Maximum number of objects that one call reads, including those of other programs. A call that reads more would hold
/// its permit for too long, while other calls wait for a permit.
const MAX_READ_OBJECTS: usize = 10 * MAX_PAGE_OBJECTS;

/// Objects with valid names that one call has read.
struct ListedObjects {
    named: Vec<(String, ObjectMeta)>,
    /// Last object that was read, after which the next call continues; `None` if there are no further objects.
    last_read: Option<Path>,
}

impl Bucket {
    /// Lists a page of the objects below a folder, after the object `after`. Objects of other programs whose names are
    /// invalid are left out: no call accepts such a name, neither for a deletion nor as `after`.
    pub(super) fn list_page(&self, folder: Path, mut after: Option<Path>) -> Result<ObjectPage, BucketError> {
        let mut found = Vec::new();
        loop {
            let listed = self.list_some(folder.clone(), after, MAX_PAGE_OBJECTS + 1 - found.len())?;
            found.extend(listed.named);
            after = listed.last_read;
            // One object beyond the page shows that more objects follow.
            if found.len() > MAX_PAGE_OBJECTS || after.is_none() {
                break;
            }
        }
        let more = found.len() > MAX_PAGE_OBJECTS;
        found.truncate(MAX_PAGE_OBJECTS);
        let objects = found.into_iter().map(|(name, object)| self.info(name, &object)).collect();
        Ok(ObjectPage { objects, more })
    }

    /// Lists at most `max_objects` with valid names after the object `after`, by one call that reads at most
    /// [`MAX_READ_OBJECTS`].
    fn list_some(
        &self,
        folder: Path,
        after: Option<Path>,
        max_objects: usize,
    ) -> Result<ListedObjects, BucketError> {
        let prefix = self.0.prefix.clone();
        self.call(move |store| async move {
            let mut stream = match &after {
                Some(after) => store.list_with_offset(Some(&folder), after),
                None => store.list(Some(&folder)),
            };
            let (mut named, mut last_read) = (Vec::new(), None);
            for _ in 0..MAX_READ_OBJECTS {
                let Some(object) = stream.try_next().await? else {
                    return Ok(ListedObjects { named, last_read: None });
                };
                last_read = Some(object.location.clone());
                if let Some(name) = object_name_from_key(&prefix, object.location.as_ref()) {
                    named.push((name.to_owned(), object));
                }
                if named.len() >= max_objects {
                    break;
                }
            }
            Ok(ListedObjects { named, last_read })
        })
    }

    fn info(&self, name: String, object: &ObjectMeta) -> ObjectInfo {
        let created = u64::try_from(object.last_modified.timestamp()).ok();
        let created = created.and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at)));
        let now = self.0.clock.store_time_at(Instant::now());
        let age = created.zip(now).and_then(|(created, now)| now.duration_since(created).ok());
        let age = age.unwrap_or_default();
        ObjectInfo { name, length: object.size, age }
    }
}

/// Returns the name of the object with a key: the key without the bucket's prefix. Returns `None` if the key has
/// another prefix or the name is invalid.
pub(super) fn object_name_from_key<'k>(prefix: &str, key: &'k str) -> Option<&'k str> {
    let name = match prefix {
        "" => key,
        prefix => key.strip_prefix(prefix)?.strip_prefix('/')?,
    };
    is_valid_name(name).then_some(name)
}
