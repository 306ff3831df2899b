//! Stored responses of a fleet: objects `responses/<key>/<id>` next to the contents of files.

use super::RESPONSES_FOLDER;
use super::response_files::{ResponseFile, ResponseFiles, ResponseName};
use crate::storage::shared_contents::SharedContents;
use penstock_object_storage::ObjectInfo;
use std::io::Result;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of objects that a write evicts: each needs a request to the bucket, while the client waits for its
/// response.
const MAX_EVICTIONS: usize = 256;

/// Stored responses where all gateways of a fleet reach them.
pub(super) struct SharedFiles(pub(super) SharedContents);

fn object_name(name: ResponseName<'_>) -> String {
    format!("{RESPONSES_FOLDER}/{}/{}", name.key, name.id)
}

impl ResponseFiles for SharedFiles {
    fn write(&self, name: ResponseName<'_>, sealed: &[u8], _created: u64) -> Result<()> {
        self.0.write(&object_name(name), &[sealed])
    }

    fn read(&self, name: ResponseName<'_>) -> Result<Option<Vec<u8>>> {
        // The read is repeated once, because it fails if the object in a bucket is replaced meanwhile.
        self.0.read(&object_name(name)).or_else(|_| self.0.read(&object_name(name)))
    }

    fn size(&self, name: ResponseName<'_>) -> Result<Option<u64>> {
        self.0.size(&object_name(name))
    }

    fn remove(&self, key: &str, files: Vec<ResponseFile>) -> Result<Vec<ResponseFile>> {
        let name = |file: &ResponseFile| object_name(ResponseName { key, id: &file.id });
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

    fn max_evictions(&self) -> usize {
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

/// Returns the name of the response in an object; `None` if the object is not a stored response.
fn response_name(object: &str) -> Option<ResponseName<'_>> {
    let (key, id) = object.strip_prefix(RESPONSES_FOLDER)?.strip_prefix('/')?.split_once('/')?;
    ResponseName::new(key, id)
}

/// Returns the key and the file of an object; `None` if the object is not a stored response.
fn response_file(object: &ObjectInfo, now: u64) -> Option<(&str, ResponseFile)> {
    let name = response_name(&object.name)?;
    let retained_since = now.saturating_sub(object.age.as_secs());
    Some((
        name.key,
        ResponseFile { id: name.id.to_owned(), bytes: object.length, retained_since, written_at: 0 },
    ))
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
