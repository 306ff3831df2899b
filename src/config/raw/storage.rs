//! `[storage]` as written in a configuration.

use super::{ByteSize, DurationOrZero, SecretRef};
use penstock_storage::{EMBEDDED_ENGINE, FOLDER_ENGINES, FolderEngine};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::time::Duration;

/// Storage of persistent data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct StorageConfig {
    /// Folder of the store, created at the first start; relative to this file.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Disk space held in reserve. It is freed when the disk is full, so that running work can end in an orderly way.
    pub ballast: ByteSize,
    /// Engine of the store: `embedded` in the folder, or `postgres` in a PostgreSQL database (version 15 or newer). The
    /// folder remains in use for files, the ledger's second copy and the secrets.
    pub engine: StorageEngineName,
    /// URL of the PostgreSQL database, such as
    /// `postgresql://penstock@db.example.eu/penstock?sslmode=verify-full&sslrootcert=/etc/ca.pem`.
    pub url: Option<SecretRef>,
    /// Password of the database's user, if the URL has none. A file is read for every connection.
    pub password: Option<SecretRef>,
    /// Pepper of the key digests, 64 hexadecimal digits. Without it the gateway creates one in the folder.
    pub pepper: Option<SecretRef>,
    /// Periodic archives of the store, created while the gateway runs.
    pub export: StoreExportConfig,
}

/// Engine of the store, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageEngineName {
    /// Store in the folder.
    Folder(&'static FolderEngine),
    /// PostgreSQL database.
    Postgres,
}

impl StorageEngineName {
    const POSTGRES: (&'static str, &'static str) = ("postgres", "PostgreSQL database.");
}

impl Serialize for StorageEngineName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Folder(engine) => engine.name,
            Self::Postgres => Self::POSTGRES.0,
        })
    }
}

impl<'de> Deserialize<'de> for StorageEngineName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name == Self::POSTGRES.0 {
            return Ok(Self::Postgres);
        }
        let unknown = || {
            let folders = FOLDER_ENGINES.iter().map(|engine| engine.name);
            let names: Vec<String> =
                folders.chain([Self::POSTGRES.0]).map(|name| format!("`{name}`")).collect();
            D::Error::custom(format_args!("unknown variant `{name}`, expected {}", names.join(" or ")))
        };
        FolderEngine::from_name(&name).map(Self::Folder).ok_or_else(unknown)
    }
}

impl JsonSchema for StorageEngineName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "StorageEngine".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let folders = FOLDER_ENGINES.iter().map(|engine| (engine.name, engine.summary));
        let one = |(name, summary)| json!({ "type": "string", "const": name, "description": summary });
        let choices: Vec<Value> = folders.chain([Self::POSTGRES]).map(one).collect();
        json_schema!({ "oneOf": choices })
    }
}

/// Periodic archives of all persistent data, created while the gateway runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct StoreExportConfig {
    /// Interval between archives; 0s for never.
    pub every: DurationOrZero,
    /// Number of archives to retain; the oldest are deleted first.
    #[schemars(range(min = 1, max = 1_000))]
    pub keep: u32,
    /// Folder of the archives, relative to this file; by default `exports` in the folder of the store.
    #[schemars(length(min = 1), example = &"/mnt/backup/penstock")]
    pub path: Option<String>,
}

impl Default for StorageConfig {
    fn default() -> Self {
        let ballast = ByteSize(64 << 20);
        Self {
            path: "data".into(),
            ballast,
            engine: StorageEngineName::Folder(&EMBEDDED_ENGINE),
            url: None,
            password: None,
            pepper: None,
            export: StoreExportConfig::default(),
        }
    }
}

impl Default for StoreExportConfig {
    fn default() -> Self {
        Self { every: DurationOrZero(Duration::from_secs(86_400)), keep: 7, path: None }
    }
}
