//! Deletion of many objects: with one request for each page of objects, or one by one if the store refuses bulk
//! requests.

use super::Bucket;
use super::error::BucketError;
use crate::{MAX_PAGE_OBJECTS, delete_each};
use futures_util::StreamExt;
use futures_util::stream;
use object_store::ObjectStore;
use object_store::path::Path;
use std::io::Result;
use std::sync::atomic::Ordering;

impl Bucket {
    /// Deletes objects, page by page; a missing object is no error. An error does not stop the deletion of the other
    /// objects, except those of a page whose request the store did not answer.
    pub(super) fn delete_many(&self, names: &[String]) -> Result<()> {
        names.chunks(MAX_PAGE_OBJECTS).map(|page| self.delete_page(page)).fold(Ok(()), Result::and)
    }

    fn delete_page(&self, names: &[String]) -> Result<()> {
        if names.len() < 2 || !self.0.has_bulk_deletion.load(Ordering::Relaxed) {
            return delete_each(self, names);
        }
        let (mut valid, mut paths, mut outcome) = (Vec::new(), Vec::new(), Ok(()));
        for name in names {
            match self.path(name) {
                Ok(path) => {
                    valid.push(name.clone());
                    paths.push(path);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        self.delete_paths(&valid, paths).and(outcome)
    }

    fn delete_paths(&self, names: &[String], paths: Vec<Path>) -> Result<()> {
        match self.delete_in_bulk(paths) {
            Ok(()) => Ok(()),
            Err(error @ BucketError::Unreachable(_)) => Err(error.into()),
            // The bulk request may be refused because of one object; then a request for that object alone fails too.
            // If no single request is refused, the store does not support bulk deletion.
            Err(error) => {
                delete_each(self, names)?;
                if matches!(error, BucketError::Refused(_)) {
                    self.0.has_bulk_deletion.store(false, Ordering::Relaxed);
                }
                Ok(())
            }
        }
    }

    /// Deletes at most a page of objects with one request.
    fn delete_in_bulk(&self, paths: Vec<Path>) -> std::result::Result<(), BucketError> {
        let store = self.0.bulk_store.clone();
        self.call(move |_| async move {
            let locations = stream::iter(paths.into_iter().map(Ok)).boxed();
            let deleted: Vec<object_store::Result<Path>> = store.delete_stream(locations).collect().await;
            deleted.into_iter().try_for_each(|outcome| outcome.map(drop))
        })
    }
}
