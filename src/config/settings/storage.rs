//! Settings of the store and its archives.

use super::super::secret::SecretText;
use super::FleetSettings;
use penstock_storage::FolderEngine;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the store.
#[derive(Clone, Debug)]
pub struct StorageSettings {
    /// Folder of the store; created at the first start.
    pub path: PathBuf,
    /// Size of a reserve file, in bytes. The file is deleted when the disk is full, so that work can still end in an
    /// orderly way.
    pub ballast_bytes: u64,
    /// Engine of the store.
    pub engine: StorageEngine,
    /// Settings of the fleet; `None` for a gateway without a fleet.
    pub fleet: Option<FleetSettings>,
    /// Pepper of the key digests, 64 hexadecimal digits (32 bytes); if `None`, the gateway creates a pepper in the
    /// folder.
    pub pepper: Option<SecretText>,
}

#[cfg(test)]
impl StorageSettings {
    /// Returns the settings of an embedded store in a folder, without a reserve file.
    pub fn embedded(folder: &std::path::Path) -> Self {
        Self {
            path: folder.to_owned(),
            ballast_bytes: 0,
            engine: StorageEngine::EMBEDDED_FOLDER,
            fleet: None,
            pepper: None,
        }
    }
}

/// Engine of the store: a database in a local folder, or PostgreSQL.
#[derive(Clone, Debug)]
pub enum StorageEngine {
    /// Engine that stores its data in the configured folder.
    Folder(&'static FolderEngine),
    /// PostgreSQL database.
    Postgres(DatabaseSettings),
}

impl StorageEngine {
    /// Engine of the crate `penstock_storage` that stores its data in the configured folder.
    pub const EMBEDDED_FOLDER: Self = Self::Folder(&penstock_storage::EMBEDDED_ENGINE);
}

/// Address and credentials of a database.
#[derive(Clone, Debug)]
pub struct DatabaseSettings {
    /// URL of the database.
    pub url: SecretText,
    /// Password that is configured outside of the URL; `None` if there is none.
    pub password: Option<DatabasePassword>,
}

/// Password of a database.
#[derive(Clone, Debug)]
pub enum DatabasePassword {
    /// Password from the environment.
    Text(SecretText),
    /// File that is read for every connection.
    File(PathBuf),
}

/// Credentials of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketCredentialSettings {
    /// Access key that does not expire.
    AccessKey {
        /// ID of the key.
        id: SecretText,
        /// Secret of the key.
        secret: SecretText,
    },
    /// Temporary access keys, which the gateway gets in exchange for a token in a file.
    WebIdentity {
        /// File that contains the token.
        token_file: PathBuf,
        /// Role that the gateway assumes with the token.
        role: Box<str>,
        /// URL of the security token service.
        endpoint: Box<str>,
    },
}

/// Bucket of an S3-compatible store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSettings {
    /// URL of the store, without the bucket.
    pub endpoint: Box<str>,
    /// Name of the bucket.
    pub bucket: Box<str>,
    /// Region of the bucket.
    pub region: Box<str>,
    /// Folder in the bucket; empty for none.
    pub prefix: Box<str>,
    /// True if requests have the bucket in the host name, and not in the path.
    pub is_virtual_host: bool,
    /// Credentials that sign requests.
    pub credentials: BucketCredentialSettings,
    /// File of the root certificates, PEM; if `None`, those of the system are used.
    pub ca_file: Option<PathBuf>,
}

/// Periodic archives of the persistent data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreExportSettings {
    /// Folder of the archives; created with the first archive.
    pub path: PathBuf,
    /// Interval between archives; `None` for never.
    pub every: Option<Duration>,
    /// Maximum number of archives to retain.
    pub keep: usize,
}
