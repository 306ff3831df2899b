//! Loading of a configuration file or of the built-in demo: read, check, resolve.

use super::check::check_schema;
use super::diagnostic::{Diagnostic, Diagnostics};
use super::read;
use super::resolve::{self, DefinedNames, ResolveEnv};
use super::schema::SCHEMA;
use super::settings::{BucketSettings, Settings, StorageSettings};
use super::spanned_toml::SpannedValue;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Text of the built-in configuration `conf/demo.toml`.
pub const DEMO_CONFIG: &str = include_str!("../../conf/demo.toml");

/// Source of a configuration. A reload reads the same source again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// Built-in configuration of the demo.
    Demo,
    /// A file, and those it includes.
    File(PathBuf),
}

/// Settings with their warnings.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// Settings of the gateway.
    pub settings: Settings,
    /// Warnings for the operator.
    pub warnings: Vec<Diagnostic>,
}

impl ConfigSource {
    /// Reads, checks and resolves the configuration.
    ///
    /// # Errors
    /// Returns every mistake at once, and the warnings.
    pub fn load(&self) -> Result<LoadedConfig, Diagnostics> {
        self.load_with_env(ResolveEnv { env: &|name| std::env::var(name).ok() })
    }

    /// Loads the configuration with the given environment variables instead of those of the process.
    ///
    /// # Errors
    /// Same as [`ConfigSource::load`].
    pub fn load_with_env(&self, around: ResolveEnv<'_>) -> Result<LoadedConfig, Diagnostics> {
        let mut report = Diagnostics::default();
        let root = self.read_document(&mut report);
        resolve_document(root, around, report)
    }
}

/// Loads settings from a text; mistakes show `name` as the file name.
///
/// # Errors
/// Same as [`ConfigSource::load`].
pub fn load_text(name: &str, text: &str, around: ResolveEnv<'_>) -> Result<LoadedConfig, Diagnostics> {
    let mut report = Diagnostics::default();
    let root = read::parse_text(name, text, &mut report.mistakes);
    resolve_document(root, around, report)
}

fn resolve_document(
    root: Option<SpannedValue>,
    around: ResolveEnv<'_>,
    mut report: Diagnostics,
) -> Result<LoadedConfig, Diagnostics> {
    let Some(root) = root else { return Err(report) };
    let mut names = DefinedNames::from_document(&root);
    let checked = check_schema(root, &SCHEMA, &mut report.mistakes);
    names.guessed = checked.guessed.into_iter().collect();
    names.removed = checked.removed.into_iter().collect();
    match resolve::resolve_settings(&checked.root, &names, around, &mut report) {
        Some(settings) if report.mistakes.is_empty() => {
            Ok(LoadedConfig { settings, warnings: report.warnings })
        }
        _ => {
            report.mistakes.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
            report.mistakes.dedup();
            Err(report)
        }
    }
}

/// Settings with which a command reaches a running gateway, or opens its store. The settings of providers are not
/// resolved, since the current shell may not have their secrets.
#[derive(Clone, Debug)]
pub struct GatewayAccess {
    /// Address of the admin listener.
    pub admin: SocketAddr,
    /// Base URL of the operators' console.
    pub operators: String,
    /// Base URL of the account holders' dashboard; `None` if the dashboard is off.
    pub dashboard: Option<String>,
    /// Folder of the store.
    pub folder: PathBuf,
    /// Folder for the contents of uploaded files.
    pub files: PathBuf,
    /// Time for which files are stored, in seconds; `None` if they are stored until they are deleted.
    pub file_retention: Option<u64>,
    /// Bucket for the contents of files, if one is configured.
    pub bucket: Option<BucketSettings>,
    /// Settings of the store, or the mistakes in `[storage]`, `[fleet]` and `[files]`.
    pub storage: Result<StorageSettings, Vec<Diagnostic>>,
}

impl ConfigSource {
    /// Reads only the settings that are needed to reach the gateway or its store.
    ///
    /// # Errors
    /// Returns the mistakes if the configuration cannot be read or the address of the admin listener is invalid.
    pub fn gateway_access(&self) -> Result<GatewayAccess, Diagnostics> {
        let mut report = Diagnostics::default();
        let Some(root) = self.read_document(&mut report) else { return Err(report) };
        let root = check_schema(root, &SCHEMA, &mut report.mistakes).root;
        let around = ResolveEnv { env: &|name| std::env::var(name).ok() };
        resolve::resolve_gateway_access(&root, around).map_err(|mistakes| {
            report.mistakes.extend(mistakes);
            report
        })
    }

    fn read_document(&self, report: &mut Diagnostics) -> Option<SpannedValue> {
        match self {
            Self::Demo => read::parse_text("demo.toml", DEMO_CONFIG, &mut report.mistakes),
            Self::File(path) => read::read_config(path, &mut report.mistakes),
        }
    }
}
