//! `[spool]`, `[files]`, `[responses]` and `[images]` as written in a configuration: size and lifetime of stored data.

use super::{ByteSize, DurationOrZero, NonZeroDuration, SecretRef, mib};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Temporary storage of uploads and images. The files on disk are unlinked, so that nothing is left of them after the
/// process ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct SpoolConfig {
    /// Folder of the temporary files, relative to this file; by default `spool` in the folder of the store.
    #[schemars(length(min = 1), example = &"/var/tmp/penstock")]
    pub path: Option<String>,
    /// Maximum size of an upload in memory; larger uploads are written to a file.
    pub memory: ByteSize,
    /// Maximum size of all temporary files together; an upload that does not fit is refused with 507.
    pub disk: ByteSize,
}

/// Files that clients upload, and results of batches: stored until they are deleted or expire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct FilesConfig {
    /// Folder for the contents of files, relative to this file; by default `files` in the folder of the store.
    #[schemars(length(min = 1), example = &"/var/lib/penstock/files")]
    pub path: Option<String>,
    /// Maximum size of a file; a larger one is refused with 413.
    pub upload: ByteSize,
    /// Maximum size of all files together; a file that does not fit is refused with 507.
    pub disk: ByteSize,
    /// Maximum size of all files of one API key; a file that does not fit is refused with 507.
    pub per_key: ByteSize,
    /// Free disk space that uploads must leave, for the store and the running gateway.
    pub keep_free: ByteSize,
    /// Time after which files are deleted; 0s for never.
    pub retention: DurationOrZero,
    /// Time after which contents without a record are deleted, such as those of a process that was killed. It must be
    /// longer than an upload takes to be stored, and than an outage of the database.
    pub leftovers: NonZeroDuration,
    /// Bucket of an S3-compatible store for the contents of files, instead of the folder. The folder remains in use for
    /// uploads and results that are not complete.
    pub store: Option<BucketConfig>,
}

/// Bucket of an S3-compatible store. It must exist, and the store must support conditional writes (`If-None-Match`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct BucketConfig {
    /// URL of the store, without the bucket.
    #[schemars(length(min = 1), example = &"https://s3.example.eu")]
    pub endpoint: String,
    /// Name of the bucket.
    #[schemars(length(min = 1), example = &"penstock")]
    pub bucket: String,
    /// Region, as the store calls it; it is part of each signature.
    #[serde(default = "BucketConfig::default_region")]
    #[schemars(length(min = 1), example = &"fr-par")]
    pub region: String,
    /// Folder in the bucket; by default none. Each store needs a folder or a bucket of its own.
    #[schemars(length(min = 1), example = &"penstock/files")]
    pub prefix: Option<String>,
    /// Form of the objects' URLs: the bucket in the path, or in the host name.
    #[serde(default)]
    pub style: BucketStyleName,
    /// ID of the access key, which may get, put, list and delete objects.
    pub access_key_id: Option<SecretRef>,
    /// Secret of the access key.
    pub secret_access_key: Option<SecretRef>,
    /// Identity that is exchanged for temporary access keys, instead of `access_key_id` and `secret_access_key`.
    pub web_identity: Option<WebIdentityConfig>,
    /// Root certificates for the store's certificate, PEM; by default those of the system.
    #[schemars(length(min = 1), example = &"tls/s3-ca.pem")]
    pub ca_file: Option<String>,
}

/// Identity of the gateway that a security token service exchanges for temporary access keys
/// (`AssumeRoleWithWebIdentity`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct WebIdentityConfig {
    /// File that contains the token, which another process renews. It is read for each exchange.
    #[schemars(length(min = 1), example = &"/var/run/secrets/s3/token")]
    pub token_file: String,
    /// Role of the temporary keys; it may get, put, list and delete objects.
    #[schemars(length(min = 1), example = &"arn:aws:iam::123456789012:role/penstock")]
    pub role: String,
    /// URL of the security token service; by default that of the store, for stores that have their own service.
    #[schemars(length(min = 1), example = &"https://sts.eu-central-1.amazonaws.com")]
    pub endpoint: Option<String>,
}

/// Form of the URLs of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum BucketStyleName {
    /// `https://s3.example.eu/bucket/object`.
    #[default]
    Path,
    /// `https://bucket.s3.example.eu/object`.
    Virtual,
}

impl BucketConfig {
    fn default_region() -> String {
        "us-east-1".to_owned()
    }
}

/// Stored responses of API keys that may store them: encrypted, until they are deleted or expire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct ResponsesConfig {
    /// Maximum size of all stored responses together; beyond that the oldest of the API key with the most are removed.
    pub disk: ByteSize,
    /// Maximum size of the stored responses of one API key; beyond that its oldest are removed.
    pub per_key: ByteSize,
    /// Time after which stored responses are deleted. A change applies to those that are stored already.
    pub retention: NonZeroDuration,
    /// Background responses.
    pub background: BackgroundConfig,
}

/// Responses with `background: true`, which continue to run after their request was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct BackgroundConfig {
    /// Maximum number of unfinished background responses of an account; more are refused with 429.
    #[schemars(range(min = 1, max = 100_000))]
    pub open: u32,
    /// Maximum number of background responses in progress, all accounts together; shared fairly between accounts.
    #[schemars(range(min = 1, max = 100_000))]
    pub concurrency: u32,
    /// Time after its creation at which an unfinished background response fails.
    pub window: NonZeroDuration,
}

/// Generated images that clients fetch by URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct GeneratedImagesConfig {
    /// Time during which an image can be fetched.
    pub lifetime: NonZeroDuration,
    /// Maximum size of all images together, at most 512 images; beyond that the oldest image of the account with the
    /// most is removed.
    pub keep: ByteSize,
}

impl Default for SpoolConfig {
    fn default() -> Self {
        Self { path: None, memory: ByteSize(256 << 10), disk: mib(4096) }
    }
}

impl Default for FilesConfig {
    fn default() -> Self {
        Self {
            path: None,
            upload: mib(512),
            disk: mib(64 << 10),
            per_key: mib(16 << 10),
            keep_free: mib(256),
            retention: DurationOrZero(Duration::from_secs(30 * 86_400)),
            leftovers: NonZeroDuration::from_secs(3600),
            store: None,
        }
    }
}

impl Default for ResponsesConfig {
    fn default() -> Self {
        Self {
            disk: mib(16 << 10),
            per_key: mib(1 << 10),
            retention: NonZeroDuration::from_secs(30 * 86_400),
            background: BackgroundConfig::default(),
        }
    }
}

impl Default for BackgroundConfig {
    fn default() -> Self {
        Self { open: 100, concurrency: 64, window: NonZeroDuration::from_secs(86_400) }
    }
}

impl Default for GeneratedImagesConfig {
    fn default() -> Self {
        Self { lifetime: NonZeroDuration::from_secs(3600), keep: mib(256) }
    }
}
