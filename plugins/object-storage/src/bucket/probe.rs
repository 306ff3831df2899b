//! Test of a bucket with a small object: all operations that the gateway needs must work.

use super::Bucket;
use super::error::BucketError;
use crate::ContentStore;
use bytes::Bytes;
use penstock_core::hex;
use std::io;
use std::time::Instant;
use thiserror::Error;

/// Folder in the bucket for the objects that the probe creates and deletes.
const PROBE_FOLDER: &str = "probe";

/// Reason why a bucket cannot be used, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProbeError {
    /// Store that cannot be reached at the moment.
    #[error("{0}")]
    Unreachable(String),
    /// Store that lacks an operation which the gateway needs, or refuses the credentials.
    #[error("{0}")]
    Unsuitable(String),
}

impl Bucket {
    /// Creates, reads, lists and deletes a small object. Checks that creating an object does not replace an existing
    /// one, that a deleted object is not returned, and that the store sends its time.
    ///
    /// # Errors
    /// Returns a sentence for the operator.
    pub fn probe(&self) -> Result<(), ProbeError> {
        let name = format!("{PROBE_FOLDER}/{}", hex::encode(&rand::random::<[u8; 8]>()));
        let probed = self.probe_object(&name);
        // The test object is deleted unless the store did not answer: then it does not exist, or the deletion would
        // fail too.
        if !matches!(probed, Err(ProbeError::Unreachable(_))) {
            self.delete(&name).ok();
        }
        probed
    }

    fn probe_object(&self, name: &str) -> Result<(), ProbeError> {
        self.create_from_bytes(name, Bytes::from_static(b"0123456789")).map_err(|error| sentence(&error))?;
        match self.create_from_bytes(name, Bytes::from_static(b"9876543210")) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(sentence(&error)),
            Ok(()) => {
                return Err(unfit("replaces an object that a request with If-None-Match must not replace"));
            }
        }
        let mut bytes = [0; 4];
        let read = self.open(name).and_then(|object| {
            object.read_exact_at(&mut bytes, 3)?;
            object.length()
        });
        match read {
            Ok(10) if bytes == *b"3456" => {}
            Ok(_) => return Err(unfit("does not return the bytes that were asked for")),
            Err(error) => return Err(sentence(&error)),
        }
        let listed = self.list(PROBE_FOLDER, None).map_err(|error| sentence(&error))?;
        if !listed.more && !listed.objects.iter().any(|object| object.name == name) {
            return Err(unfit("does not list an object that was created"));
        }
        if self.0.clock.store_time_at(Instant::now()).is_none() {
            return Err(unfit("does not send its time (`Date`), from which the age of objects is computed"));
        }
        self.delete(name).map_err(|error| sentence(&error))?;
        match self.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(sentence(&error)),
            Ok(_) => Err(unfit("returns an object that was deleted")),
        }
    }
}

fn unfit(fault: &str) -> ProbeError {
    ProbeError::Unsuitable(format!(
        "The store of files {fault}; use another store, or a newer version of it."
    ))
}

fn sentence(error: &io::Error) -> ProbeError {
    match BucketError::from_io_error(error) {
        Some(BucketError::Unreachable(what)) => {
            ProbeError::Unreachable(format!("The store of files cannot be reached: {what}."))
        }
        Some(BucketError::Refused(what)) => ProbeError::Unsuitable(format!(
            "The store of files refuses a request: {what}. Check the bucket's name, its region and the access key, which \
             has to be allowed to get, put, list and delete objects."
        )),
        Some(BucketError::NotFound) => unfit("does not return an object that was created"),
        _ => ProbeError::Unsuitable(format!("The store of files cannot be used: {error}.")),
    }
}
