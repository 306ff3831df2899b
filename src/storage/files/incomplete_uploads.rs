//! Sweep of the multipart uploads to the bucket that were never completed, such as those of a gateway that was
//! killed.

use super::FileError;
use super::bucket::{COMPLETE_FILES_FOLDER, FileBucket, is_file_object};
use super::segments::{SEGMENT_FOLDER, is_segment_object};
use crate::storage::images::shared::{IMAGES_FOLDER, is_image_object};
use crate::storage::responses::{RESPONSES_FOLDER, is_response_object};
use penstock_object_storage::IncompleteUpload;
use std::collections::HashMap;
use std::io::{ErrorKind, Result};
use std::time::{Duration, Instant};

/// Folders of the bucket whose objects may be stored by a multipart upload.
const UPLOAD_FOLDERS: [&str; 4] = [COMPLETE_FILES_FOLDER, SEGMENT_FOLDER, RESPONSES_FOLDER, IMAGES_FOLDER];

/// Incomplete uploads of the last sweep, with the time at which this process saw each first. The age of an upload is
/// measured from then on, because the clock of the object store may differ from that of the gateways.
#[derive(Debug, Default)]
pub struct SeenUploads(HashMap<IncompleteUpload, Instant>);

impl SeenUploads {
    /// Records the uploads of a new list, and forgets those that are not in it. Returns the uploads that were seen
    /// first at least `age` ago.
    fn update(
        &mut self,
        listed: Vec<IncompleteUpload>,
        now: Instant,
        age: Duration,
    ) -> Vec<IncompleteUpload> {
        let first_seen = |upload: &IncompleteUpload| self.0.get(upload).copied().unwrap_or(now);
        self.0 = listed
            .into_iter()
            .map(|upload| {
                let seen_at = first_seen(&upload);
                (upload, seen_at)
            })
            .collect();
        let is_old = |seen_at: Instant| now.saturating_duration_since(seen_at) >= age;
        self.0.iter().filter(|(_, seen_at)| is_old(**seen_at)).map(|(upload, _)| upload.clone()).collect()
    }
}

impl FileBucket {
    /// Aborts the incomplete uploads that this process saw first at least `age` ago; so no upload of a running process
    /// is aborted. If the object store does not allow the client to list uploads, a lifecycle rule of the store has to
    /// do this instead. Returns the number of aborted uploads.
    ///
    /// # Errors
    /// Returns the first error of the bucket; the next call continues.
    pub(super) fn abort_incomplete_uploads(&self, age: Duration) -> std::result::Result<u64, FileError> {
        let Some(bucket) = &self.bucket else { return Ok(0) };
        let (now, mut listed) = (Instant::now(), Vec::new());
        for folder in UPLOAD_FOLDERS {
            match bucket.list_incomplete_uploads(folder) {
                Ok(uploads) => {
                    listed.extend(uploads.into_iter().filter(|upload| is_own_upload(&upload.name)));
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(0),
                Err(error) => return Err(FileError::Io(error)),
            }
        }
        let old = self.uploads.lock().update(listed, now, age);
        abort_each(&old, |upload| bucket.abort_upload(upload)).map_err(FileError::Io)
    }
}

/// Aborts all uploads, even if one of them fails. Returns their number, or the first error.
fn abort_each(uploads: &[IncompleteUpload], end: impl Fn(&IncompleteUpload) -> Result<()>) -> Result<u64> {
    uploads.iter().map(end).fold(Ok(()), Result::and).map(|()| uploads.len() as u64)
}

/// Returns true if an upload has a name that gateways give to objects. Other uploads in the bucket are not aborted.
fn is_own_upload(name: &str) -> bool {
    is_file_object(name) || is_segment_object(name) || is_response_object(name) || is_image_object(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::RefCell;
    use std::io::Error;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn upload(number: u32) -> IncompleteUpload {
        IncompleteUpload { name: "files/x".to_owned(), id: number.to_string() }
    }

    #[test]
    fn an_upload_is_old_by_the_time_since_it_was_seen_first() {
        let (mut seen, start) = (SeenUploads::default(), Instant::now());
        let mut old = |numbers: &[u32], minutes: u64| {
            let now = start + Duration::from_secs(minutes * 60);
            let listed = numbers.iter().map(|number| upload(*number)).collect();
            let mut ids: Vec<String> =
                seen.update(listed, now, HOUR).into_iter().map(|upload| upload.id).collect();
            ids.sort();
            ids.concat()
        };
        assert_eq!(old(&[1, 2], 0), "");
        assert_eq!(old(&[1, 2, 3], 59), "", "a second sweep is not enough");
        assert_eq!(old(&[1, 3], 60), "1");
        assert_eq!(old(&[1, 2, 3], 119), "13", "one that was absent is new");
        assert_eq!(old(&[2], 178), "");
    }

    #[test]
    fn uploads_are_ended_after_one_that_fails() {
        let (uploads, ended) = ([upload(1), upload(2), upload(3)], RefCell::new(Vec::new()));
        let end = |failing: &'static str| {
            abort_each(&uploads, |upload| {
                ended.borrow_mut().push(upload.id.clone());
                if upload.id == failing { Err(Error::other(failing)) } else { Ok(()) }
            })
        };
        assert_eq!(end("1").unwrap_err().to_string(), "1");
        assert_eq!(end("none").unwrap(), 3);
        assert_eq!(ended.borrow().concat(), "123123");
    }

    #[test]
    fn only_uploads_with_names_of_the_gateway_are_ended() {
        let id = crate::storage::object_id::new(super::super::FILE_ID_PREFIX, HOUR);
        let segment = "0000000000000000-0000000000000002-00000000-000000ab";
        let own = [
            format!("files/{id}-0123456789abcdef"),
            format!("parts/{id}/{segment}"),
            "responses/k1/resp_a1".to_owned(),
            format!("images/{}", "0a".repeat(24)),
        ];
        for name in &own {
            assert!(is_own_upload(name), "{name}");
            for other in [&name[1..], &format!("{name}-"), &format!("{name}/x"), &format!("x/{name}")] {
                assert!(!is_own_upload(other), "{other}");
            }
        }
        for name in ["files/README", "files/", "images/cat.png", "responses/k1/note", "parts/x/y", "", "/"] {
            assert!(!is_own_upload(name), "{name}");
        }
        assert!(!is_own_upload(&format!("files/{id}-0123456789abcdeF")));
        assert!(!is_own_upload(&format!("files/{id}")));
    }
}
