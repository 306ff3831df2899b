//! Creation of objects: small ones by one request, larger ones in parts. Unless an existing object is replaced, the
//! request that creates the object has the condition that no object of the name exists.

use super::Bucket;
use super::error::BucketError;
use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attribute, AttributeValue, Attributes, GetOptions, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions,
    PutOptions, PutPayload,
};
use std::fs::File;
use std::io::{Read, Result};
use std::sync::Arc;

/// Maximum number of parts of an upload; S3 allows 10,000.
const MAX_PARTS: u64 = 9_000;

/// Treatment of an existing object of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadMode {
    /// An existing object is an error.
    Create,
    /// An existing object is replaced.
    Replace,
}

impl Bucket {
    /// Creates or replaces an object. If the object exists because the store applied an earlier attempt of the same
    /// call, the call succeeds.
    pub(super) fn put(
        &self,
        path: &Path,
        bytes: Bytes,
        mode: UploadMode,
    ) -> std::result::Result<(), BucketError> {
        let put_mode = match mode {
            UploadMode::Create => PutMode::Create,
            UploadMode::Replace => PutMode::Overwrite,
        };
        let (location, mark) = (path.clone(), UploadMark::new());
        let options = PutOptions { mode: put_mode, attributes: mark.attributes(), ..PutOptions::default() };
        let created = self.call(move |store| async move {
            store.put_opts(&location, PutPayload::from_bytes(bytes), options).await
        });
        match created {
            Err(BucketError::AlreadyExists) if self.has_mark(path, &mark) => Ok(()),
            Err(BucketError::AlreadyExists) => Err(self.conflict_error(path, mode)),
            created => created.map(|_| ()),
        }
    }

    /// Creates or replaces an object from a file.
    pub(super) fn upload_file(&self, path: &Path, source: &std::path::Path, mode: UploadMode) -> Result<()> {
        let mut file = File::open(source)?;
        let length = file.metadata()?.len();
        if length <= self.0.part_size {
            let mut bytes = Vec::new();
            file.take(self.0.part_size).read_to_end(&mut bytes)?;
            return Ok(self.put(path, bytes.into(), mode)?);
        }
        if mode == UploadMode::Create && self.exists(path)? {
            return Err(BucketError::AlreadyExists.into());
        }
        let mark = UploadMark::new();
        let part_size = self.0.part_size.max(length.div_ceil(MAX_PARTS));
        match self.upload_parts(path, &mut file, part_size, mode, &mark) {
            // The store may have applied the last request although its response was lost.
            Err(error) if self.has_mark(path, &mark) => {
                drop(error);
                Ok(())
            }
            uploaded => uploaded,
        }
    }

    fn upload_parts(
        &self,
        path: &Path,
        file: &mut File,
        part_size: u64,
        mode: UploadMode,
        mark: &UploadMark,
    ) -> Result<()> {
        let location = path.clone();
        let options = PutMultipartOptions { attributes: mark.attributes(), ..PutMultipartOptions::default() };
        let id =
            self.call(move |store| async move { store.create_multipart_opts(&location, options).await })?;
        let uploaded = match self.send_parts(path, &id, file, part_size) {
            Ok(parts) => match self.complete(path, &id, parts, mode) {
                Err(BucketError::AlreadyExists) => Err(self.conflict_error(path, mode).into()),
                // The object may exist because of this upload, so its parts are not aborted.
                Err(error) => return Err(error.into()),
                Ok(()) => Ok(()),
            },
            Err(error) => Err(error),
        };
        if uploaded.is_err() {
            // If the abort fails, the parts remain until a rule of the bucket removes them.
            let (location, id) = (path.clone(), id);
            self.call(move |store| async move { store.abort_multipart(&location, &id).await }).ok();
        }
        uploaded
    }

    fn send_parts(&self, path: &Path, id: &str, file: &mut File, part_size: u64) -> Result<Vec<PartId>> {
        let mut parts = Vec::new();
        loop {
            let mut bytes = Vec::new();
            file.by_ref().take(part_size).read_to_end(&mut bytes)?;
            if bytes.is_empty() {
                return Ok(parts);
            }
            let (location, id, number) = (path.clone(), id.to_owned(), parts.len());
            let part = self.call(move |store| async move {
                store.put_part(&location, &id, number, PutPayload::from(bytes)).await
            });
            parts.push(part?);
        }
    }

    /// Creates the object from the parts. In the mode `Create` the request has the condition that no object exists.
    /// Some stores ignore this condition; if a store refuses such a request with another error, the request is sent
    /// again without the condition.
    fn complete(
        &self,
        path: &Path,
        id: &str,
        parts: Vec<PartId>,
        mode: UploadMode,
    ) -> std::result::Result<(), BucketError> {
        let request = |store: Arc<AmazonS3>| {
            let (location, id, parts) = (path.clone(), id.to_owned(), parts.clone());
            self.call(move |_| async move { store.complete_multipart(&location, &id, parts).await.map(drop) })
        };
        if mode == UploadMode::Create {
            match request(self.0.creating_store.clone()) {
                Err(BucketError::Replaced) => return Err(BucketError::AlreadyExists),
                Err(BucketError::Refused(_)) => {}
                completed => return completed,
            }
        }
        request(self.0.store.clone())
    }

    /// Returns the error of a request to create an object that the store refused because of another object or
    /// request. Status 409 means that another request for the object is in progress, which may fail or delete the
    /// object. So the error is `AlreadyExists` only if a `HEAD` request finds the object.
    fn conflict_error(&self, path: &Path, mode: UploadMode) -> BucketError {
        match self.head(path) {
            Ok(_) if mode == UploadMode::Create => BucketError::AlreadyExists,
            Ok(_) | Err(BucketError::NotFound) => {
                BucketError::Unreachable("another request for the object is in progress".to_owned())
            }
            Err(error) => error,
        }
    }

    /// Returns true if there is an object at this path.
    pub(super) fn exists(&self, path: &Path) -> Result<bool> {
        match self.head(path) {
            Ok(_) => Ok(true),
            Err(BucketError::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if the object was created by the upload with this mark.
    fn has_mark(&self, path: &Path, mark: &UploadMark) -> bool {
        self.head(path).is_ok_and(|(_, attributes)| attributes.get(&UploadMark::key()) == Some(&mark.value()))
    }

    /// Returns the metadata and the attributes of an object, by a `HEAD` request.
    pub(super) fn head(&self, path: &Path) -> std::result::Result<(ObjectMeta, Attributes), BucketError> {
        let location = path.clone();
        self.call(move |store| async move {
            let options = GetOptions { head: true, ..GetOptions::default() };
            let answer = store.get_opts(&location, options).await?;
            Ok((answer.meta, answer.attributes))
        })
    }
}

/// Random value in the metadata of an object: it shows whether the object comes from an earlier attempt of the same
/// upload.
struct UploadMark(String);

impl UploadMark {
    fn new() -> Self {
        Self(penstock_core::hex::encode(&rand::random::<[u8; 8]>()))
    }

    fn key() -> Attribute {
        Attribute::Metadata("upload".into())
    }

    fn value(&self) -> AttributeValue {
        self.0.clone().into()
    }

    fn attributes(&self) -> Attributes {
        Attributes::from_iter([(Self::key(), self.value())])
    }
}
