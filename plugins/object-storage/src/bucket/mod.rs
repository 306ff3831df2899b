//! Objects in a bucket of an S3-compatible store.

mod availability;
mod connector;
mod deletion;
pub mod error;
pub mod incomplete_uploads;
mod listing;
pub mod options;
pub mod probe;
mod reader;
pub mod request_counts;
mod runtime;
mod store_clock;
mod upload;

use crate::name::{check_name, check_prefix};
use crate::{ContentStore, ObjectPage, RandomAccessObject};
use availability::CallLimiter;
use bytes::Bytes;
use connector::BucketHttpClient;
use error::BucketError;
use incomplete_uploads::IncompleteUploadLister;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStoreExt, RetryConfig};
use options::{AddressingStyle, BucketCredentials, BucketOptions};
use reader::RandomAccessBucketObject;
use request_counts::{RequestCount, RequestCounters};
use runtime::BucketRuntime;
use std::fmt;
use std::future::Future;
use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use store_clock::StoreClock;
use tempfile::TempPath;
use upload::UploadMode;

/// Size in bytes above which an object is uploaded in parts; also the size of each part, unless the object would have
/// more than 9,000 of them.
pub const UPLOAD_PART_BYTES: u64 = 8 << 20;
/// Maximum number of times that a failed request is sent again.
const MAX_RETRIES: usize = 3;
/// Name of the sessions of temporary access keys, which the store may log.
const SESSION_NAME: &str = "penstock";

/// Bucket of an S3-compatible store.
#[derive(Clone)]
pub struct Bucket(Arc<BucketInner>);

struct BucketInner {
    store: Arc<AmazonS3>,
    /// The same store, with a client that deletes many objects with one request.
    bulk_store: Arc<AmazonS3>,
    /// The same store, with a client that completes an upload in parts only if there is no object of its name.
    creating_store: Arc<AmazonS3>,
    /// True until the store refuses a request to delete many objects, although it deletes each of them alone.
    has_bulk_deletion: AtomicBool,
    prefix: String,
    runtime: BucketRuntime,
    gate: CallLimiter,
    counters: Arc<RequestCounters>,
    clock: Arc<StoreClock>,
    uploads: IncompleteUploadLister,
    part_size: u64,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("prefix", &self.0.prefix).finish_non_exhaustive()
    }
}

impl Bucket {
    /// Creates the client of a bucket; sends no request.
    ///
    /// # Errors
    /// Returns a description if the options cannot be used.
    pub fn new(options: &BucketOptions) -> Result<Self> {
        if !options.prefix.is_empty() {
            check_prefix(&options.prefix)?;
        }
        let (counters, clock) = (Arc::new(RequestCounters::default()), Arc::new(StoreClock::default()));
        let connector = BucketHttpClient::new(options, counters.clone(), clock.clone())?;
        let uploads = IncompleteUploadLister::new(options, connector.clone());
        let unusable = |_| Error::other("its address or credentials cannot be used");
        let conditional = connector.clone().with_conditional_completion();
        let builder = store_builder(options, connector);
        let store = builder.clone().with_disable_bulk_delete(true).build().map_err(unusable)?;
        // All clients share the temporary access keys.
        let builder = builder.with_credentials(store.credentials().clone());
        let creating_store = builder.clone().with_http_connector(conditional).build().map_err(unusable)?;
        let bulk_store = builder.build().map_err(unusable)?;
        Ok(Self(Arc::new(BucketInner {
            store: Arc::new(store),
            bulk_store: Arc::new(bulk_store),
            creating_store: Arc::new(creating_store),
            has_bulk_deletion: AtomicBool::new(true),
            prefix: options.prefix.clone(),
            runtime: BucketRuntime::new()?,
            gate: CallLimiter::default(),
            counters,
            clock,
            uploads,
            part_size: UPLOAD_PART_BYTES,
        })))
    }

    /// Returns the number of requests by method and outcome.
    #[must_use]
    pub fn request_counts(&self) -> Vec<RequestCount> {
        self.0.counters.counts()
    }

    /// Returns false if the last call could not reach the store; true before the first call. Sends no request.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.0.gate.is_store_reachable()
    }

    /// Calls a store that did not answer the last call, with a request for an object that need not exist; returns true
    /// if the store answers. Blocks.
    #[must_use]
    pub fn recheck_availability(&self) -> bool {
        // Any answer of the store suffices, even that the object does not exist.
        self.exists(&self.prefixed("reachable")).ok();
        self.is_available()
    }

    /// Returns the path of an object in the bucket.
    fn path(&self, name: &str) -> Result<Path> {
        check_name(name)?;
        Ok(self.prefixed(name))
    }

    fn prefixed(&self, name: &str) -> Path {
        match self.0.prefix.as_str() {
            "" => Path::from(name),
            prefix => Path::from(format!("{prefix}/{name}")),
        }
    }

    /// Runs a call on the bucket's own thread, within the limits of [`CallLimiter`].
    fn call<T, F>(&self, make: impl FnOnce(Arc<AmazonS3>) -> F) -> std::result::Result<T, BucketError>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, object_store::Error>> + Send + 'static,
    {
        self.call_with(|store| {
            let call = make(store);
            async move { call.await.map_err(BucketError::from) }
        })
    }

    fn call_with<T, F>(&self, make: impl FnOnce(Arc<AmazonS3>) -> F) -> std::result::Result<T, BucketError>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, BucketError>> + Send + 'static,
    {
        let permit = self.0.gate.acquire()?;
        let outcome = self.0.runtime.block_on(make(self.0.store.clone()));
        self.0.gate.record_outcome(&outcome);
        drop(permit);
        outcome
    }
}

/// Returns the builder of clients of a store.
fn store_builder(options: &BucketOptions, connector: BucketHttpClient) -> AmazonS3Builder {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(1),
        base: 2.0,
    };
    let retry =
        RetryConfig { backoff, max_retries: MAX_RETRIES, retry_timeout: options.timeouts.retry_period };
    with_credentials(AmazonS3Builder::new(), &options.credentials)
        .with_endpoint(options.base_url())
        .with_virtual_hosted_style_request(options.style == AddressingStyle::VirtualHost)
        .with_bucket_name(&options.bucket)
        .with_region(&options.region)
        .with_allow_http(!options.uses_only_tls())
        .with_retry(retry)
        .with_http_connector(connector)
}

/// Adds the credentials to the builder. Temporary access keys are renewed before they expire.
fn with_credentials(builder: AmazonS3Builder, credentials: &BucketCredentials) -> AmazonS3Builder {
    match credentials {
        BucketCredentials::AccessKey { id, secret } => {
            builder.with_access_key_id(id).with_secret_access_key(secret)
        }
        BucketCredentials::WebIdentity(identity) => builder
            .with_config(AmazonS3ConfigKey::WebIdentityTokenFile, identity.token_file.to_string_lossy())
            .with_config(AmazonS3ConfigKey::RoleArn, &identity.role)
            .with_config(AmazonS3ConfigKey::RoleSessionName, SESSION_NAME)
            .with_config(AmazonS3ConfigKey::StsEndpoint, &identity.endpoint),
    }
}

impl ContentStore for Bucket {
    fn create_from_file(&self, name: &str, source: TempPath) -> Result<()> {
        self.upload_file(&self.path(name)?, &source, UploadMode::Create)
    }

    fn create_from_bytes(&self, name: &str, bytes: Bytes) -> Result<()> {
        Ok(self.put(&self.path(name)?, bytes, UploadMode::Create)?)
    }

    fn replace_from_file(&self, name: &str, source: TempPath) -> Result<()> {
        self.upload_file(&self.path(name)?, &source, UploadMode::Replace)
    }

    fn open(&self, name: &str) -> Result<Box<dyn RandomAccessObject>> {
        let path = self.path(name)?;
        Ok(Box::new(RandomAccessBucketObject::open(self.clone(), path)?))
    }

    fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        let deleted = self.call(move |store| async move { store.delete(&path).await });
        match deleted {
            Ok(()) | Err(BucketError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn delete_objects(&self, names: &[String]) -> Result<()> {
        self.delete_many(names)
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Result<ObjectPage> {
        let folder = self.path(folder)?;
        let after = after.map(|name| self.path(name)).transpose()?;
        Ok(self.list_page(folder, after)?)
    }
}
