//! Pages of the objects in a bucket.

use super::Bucket;
use super::error::BucketError;
use crate::{ObjectInfo, ObjectPage, PAGE_SIZE};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use std::time::{Duration, Instant, SystemTime};

impl Bucket {
    /// Lists a page of the objects below a folder, after the object `after`.
    pub(super) fn list_page(&self, folder: Path, after: Option<Path>) -> Result<ObjectPage, BucketError> {
        let listed = self.call(move |store| async move {
            let mut stream = match &after {
                Some(after) => store.list_with_offset(Some(&folder), after),
                None => store.list(Some(&folder)),
            };
            let mut found: Vec<ObjectMeta> = Vec::new();
            // One object beyond the page shows that more objects follow.
            while found.len() <= PAGE_SIZE {
                match stream.try_next().await? {
                    Some(object) => found.push(object),
                    None => break,
                }
            }
            Ok(found)
        });
        let mut found = listed?;
        let more = found.len() > PAGE_SIZE;
        found.truncate(PAGE_SIZE);
        Ok(ObjectPage { objects: found.iter().filter_map(|object| self.info(object)).collect(), more })
    }

    fn info(&self, object: &ObjectMeta) -> Option<ObjectInfo> {
        let path = object.location.as_ref();
        let name = match self.0.prefix.as_str() {
            "" => path,
            prefix => path.strip_prefix(prefix)?.strip_prefix('/')?,
        };
        let created = u64::try_from(object.last_modified.timestamp()).ok();
        let created = created.and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at)));
        let now = self.0.clock.store_time_at(Instant::now());
        let age = created.zip(now).and_then(|(created, now)| now.duration_since(created).ok());
        let age = age.unwrap_or_default();
        Some(ObjectInfo { name: name.to_owned(), length: object.size, age })
    }
}
