//! Reader of one object of a bucket. Sequential reads fetch more bytes than the caller requests, so many small reads
//! need few requests.

use super::Bucket;
use super::error::BucketError;
use crate::RandomAccessObject;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore};
use parking_lot::Mutex;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;

/// Number of bytes at the end of an object that are fetched together with its length.
const TAIL: u64 = 64 << 10;
/// Number of bytes fetched by a sequential read.
const WINDOW: u64 = 1 << 20;
/// Maximum bytes of one request; below the maximum response size of the connector.
const MAX_REQUEST: u64 = 4 << 20;

/// Object of a bucket, read at any offset by blocking range requests.
#[derive(Debug)]
pub struct RandomAccessBucketObject {
    bucket: Bucket,
    path: Path,
    length: u64,
    /// Entity tag of the object, so that no other object of the same name is read; `None` if the store sends none.
    tag: Option<String>,
    fetched: Mutex<FetchedBytes>,
}

/// Bytes of the last request for at most [`WINDOW`] bytes, cached for the next reads.
#[derive(Debug, Default)]
struct FetchedBytes {
    offset: u64,
    bytes: Bytes,
    /// End of the last read: a read that starts there is sequential.
    read_end: u64,
}

impl RandomAccessBucketObject {
    /// Opens an object.
    ///
    /// # Errors
    /// Returns `NotFound` and other errors of the bucket.
    pub fn open(bucket: Bucket, path: Path) -> std::result::Result<Self, BucketError> {
        let location = path.clone();
        let opened = bucket.call(move |store| async move {
            let options = GetOptions { range: Some(GetRange::Suffix(TAIL)), ..GetOptions::default() };
            let answer = store.get_opts(&location, options).await?;
            let (length, tag) = (answer.meta.size, answer.meta.e_tag.clone());
            Ok((length, tag, answer.bytes().await?))
        });
        let (length, tag, bytes) = match opened {
            // A store refuses any range of an empty object, so the length is checked by a `HEAD` request.
            Err(error @ BucketError::Refused(_)) => match bucket.head(&path) {
                Ok((meta, _)) if meta.size == 0 => (0, meta.e_tag, Bytes::new()),
                _ => return Err(error),
            },
            opened => opened?,
        };
        let offset = length.saturating_sub(bytes.len() as u64);
        let fetched = Mutex::new(FetchedBytes { offset, bytes, read_end: 0 });
        Ok(Self { bucket, path, length, tag, fetched })
    }

    fn fetch(&self, range: Range<u64>) -> std::result::Result<Bytes, BucketError> {
        let (path, tag, wanted) = (self.path.clone(), self.tag.clone(), range.end - range.start);
        let has_tag = tag.is_some();
        let bytes = self.bucket.call(move |store| async move {
            let options =
                GetOptions { range: Some(GetRange::Bounded(range)), if_match: tag, ..GetOptions::default() };
            store.get_opts(&path, options).await?.bytes().await
        })?;
        match bytes.len() as u64 {
            length if length == wanted => Ok(bytes),
            // Without a tag the request may have read another object that replaced this one.
            _ if !has_tag => Err(BucketError::Replaced),
            // The tag ensures that this object was read, so the response is truncated.
            length => Err(BucketError::Unreachable(format!("a response has {length} of {wanted} bytes"))),
        }
    }

    /// Copies the bytes that are already fetched to the buffer; returns their number.
    fn copy_fetched(&self, buffer: &mut [u8], offset: u64) -> usize {
        let fetched = self.fetched.lock();
        let Some(start) = offset.checked_sub(fetched.offset) else { return 0 };
        let available = usize::try_from(start).ok().and_then(|start| fetched.bytes.get(start..));
        copy_into(buffer, available.unwrap_or_default())
    }
}

impl RandomAccessObject for RandomAccessBucketObject {
    fn length(&self) -> Result<u64> {
        Ok(self.length)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.length);
        let end = end.ok_or(Error::from(ErrorKind::UnexpectedEof))?;
        let is_sequential = std::mem::replace(&mut self.fetched.lock().read_end, end) == offset;
        let mut done = 0;
        while done < buffer.len() {
            let position = offset + done as u64;
            let rest = buffer.get_mut(done..).unwrap_or_default();
            let copied = self.copy_fetched(rest, position);
            if copied > 0 {
                done += copied;
                continue;
            }
            let least = if is_sequential { WINDOW } else { 0 };
            let size = (end - position).max(least).min(MAX_REQUEST).min(self.length - position);
            let bytes = self.fetch(position..position + size)?;
            done += copy_into(rest, &bytes);
            if size <= WINDOW {
                let mut fetched = self.fetched.lock();
                (fetched.offset, fetched.bytes) = (position, bytes);
            }
        }
        Ok(())
    }
}

/// Copies as many bytes as fit into the buffer; returns their number.
fn copy_into(buffer: &mut [u8], bytes: &[u8]) -> usize {
    let count = bytes.len().min(buffer.len());
    if let (Some(to), Some(from)) = (buffer.get_mut(..count), bytes.get(..count)) {
        to.copy_from_slice(from);
    }
    count
}
