//! Stored responses of a fleet: objects `responses/<key>/<id>` next to the contents of files. A background response
//! that has not ended is the object `responses/<key>/<id>.open`: the name has to show it, because a list of objects
//! has only names, sizes and ages.

use super::RESPONSES_FOLDER;
use super::response_files::{ResponseFile, ResponseFiles, ResponseName, ResponseStage};
use crate::storage::shared_contents::SharedContents;
use penstock_object_storage::ObjectInfo;
use std::cell::RefCell;
use std::io::Result;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of objects that a write evicts: each needs a request to the bucket, while the client waits for its
/// response.
const MAX_EVICTIONS: usize = 256;

/// Suffix of the object of a response that has not ended.
const OPEN_SUFFIX: &str = ".open";

/// Stored responses in the contents that all gateways of a fleet share.
pub(super) struct SharedFiles(pub(super) SharedContents);

fn object_name(name: ResponseName<'_>) -> String {
    format!("{RESPONSES_FOLDER}/{}/{}", name.key, name.id)
}

fn open_object_name(name: ResponseName<'_>) -> String {
    object_name(name) + OPEN_SUFFIX
}

impl SharedFiles {
    /// Looks up the object of a response. The object of the ended response is looked up first, then the object of the
    /// unfinished one. The response may end between these two look-ups, so the object of the ended response is looked
    /// up again.
    fn find<T>(
        &self,
        name: ResponseName<'_>,
        look_up: impl Fn(&SharedContents, &str) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let (ended, open) = (object_name(name), open_object_name(name));
        for object in [&ended, &open, &ended] {
            if let Some(found) = look_up(&self.0, object)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl ResponseFiles for SharedFiles {
    fn write(
        &self,
        name: ResponseName<'_>,
        sealed: &[u8],
        _retained_since: u64,
        stage: ResponseStage,
    ) -> Result<()> {
        if stage == ResponseStage::Unfinished {
            return self.0.write(&open_object_name(name), &[sealed]);
        }
        self.0.write(&object_name(name), &[sealed])?;
        if stage == ResponseStage::Finished {
            // If this removal fails, the unfinished object is removed later, when its response is deleted, evicted or
            // expires.
            self.0.content_store()?.delete_objects(&[open_object_name(name)]).ok();
        }
        Ok(())
    }

    fn read(&self, name: ResponseName<'_>) -> Result<Option<Vec<u8>>> {
        // The read is repeated once, because it fails if the object in a bucket is replaced meanwhile.
        self.find(name, |contents, object| contents.read(object).or_else(|_| contents.read(object)))
    }

    fn read_start(&self, name: ResponseName<'_>, buffer: &mut [u8]) -> Result<Option<()>> {
        let buffer = RefCell::new(buffer);
        self.find(name, |contents, object| contents.read_start(object, &mut buffer.borrow_mut()))
    }

    fn size(&self, name: ResponseName<'_>) -> Result<Option<u64>> {
        self.find(name, |contents, object| contents.size(object))
    }

    fn remove(&self, key: &str, files: Vec<ResponseFile>) -> Result<Vec<ResponseFile>> {
        let name = |file: &ResponseFile| {
            let name = ResponseName { key, id: &file.id };
            if file.has_ended { object_name(name) } else { open_object_name(name) }
        };
        self.0.content_store()?.delete_objects(&files.iter().map(name).collect::<Vec<_>>())?;
        Ok(files)
    }

    fn files_of_key(&self, key: &str) -> Result<Vec<ResponseFile>> {
        let (now, mut files) = (unix_seconds(), Vec::new());
        self.0.content_store()?.for_each(&format!("{RESPONSES_FOLDER}/{key}"), &mut |object| {
            files.extend(response_file(&object, now).map(|(_, file)| file));
            Ok(())
        })?;
        Ok(files)
    }

    fn for_each_key(&self, each: &mut dyn FnMut(&str, Vec<ResponseFile>) -> Result<()>) -> Result<()> {
        // The list is sorted, so the files of a key follow each other.
        let (now, mut current, mut files) = (unix_seconds(), String::new(), Vec::new());
        self.0.content_store()?.for_each(RESPONSES_FOLDER, &mut |object| {
            let Some((key, file)) = response_file(&object, now) else { return Ok(()) };
            if key != current {
                if !files.is_empty() {
                    each(&current, std::mem::take(&mut files))?;
                }
                key.clone_into(&mut current);
            }
            files.push(file);
            Ok(())
        })?;
        if files.is_empty() { Ok(()) } else { each(&current, files) }
    }

    fn max_evictions_per_write(&self) -> usize {
        MAX_EVICTIONS
    }

    fn has_space(&self, bytes: u64, keep_free: u64) -> bool {
        self.0.has_space(bytes, keep_free)
    }
}

/// Returns true if an object is a stored response, by its name.
#[must_use]
pub fn is_response_object(name: &str) -> bool {
    response_name(name).is_some()
}

/// Returns the name of the response in an object, and true if the response has ended; `None` if the object is not a
/// stored response.
fn response_name(object: &str) -> Option<(ResponseName<'_>, bool)> {
    let (key, id) = object.strip_prefix(RESPONSES_FOLDER)?.strip_prefix('/')?.split_once('/')?;
    let open = id.strip_suffix(OPEN_SUFFIX);
    Some((ResponseName::new(key, open.unwrap_or(id))?, open.is_none()))
}

/// Returns the key and the file of an object; `None` if the object is not a stored response.
fn response_file(object: &ObjectInfo, now: u64) -> Option<(&str, ResponseFile)> {
    let (name, has_ended) = response_name(&object.name)?;
    let retained_since = now.saturating_sub(object.age.as_secs());
    let (id, bytes) = (name.id.to_owned(), object.length);
    Some((name.key, ResponseFile { id, bytes, retained_since, written_at: 0, has_ended }))
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
