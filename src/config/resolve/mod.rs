//! Conversion of the written configuration to the settings of the gateway: resolves names, reads secrets and files,
//! validates values. It reports every mistake; if there is one, there are no settings.

mod bounds;
mod bucket;
mod catalogue;
mod console;
mod country;
mod cycles;
mod energy;
mod exports;
mod fallbacks;
mod fleet;
mod folder;
mod grid;
mod invoice;
mod key_path;
mod listen;
mod offer;
mod oidc;
mod origins;
mod parameters;
mod pem;
mod plausibility;
mod presets;
mod provider;
mod secrets;
mod self_reference;
mod server;
mod shape;
mod site_urls;
mod storage;
mod tokenizer;
pub mod url;
mod versions;

use super::diagnostic::{Diagnostic, Diagnostics};
use super::load::GatewayAccess;
use super::parallel::ParallelValue;
use super::raw::ConfigFile;
use super::settings::Settings;
use super::spanned_toml::SpannedValue;
use key_path::KeyPath;
use serde::Deserialize;
use serde::de::value::Error;
use std::collections::HashSet;
use std::path::PathBuf;
use versions::HashedDocument;

/// Inputs of the configuration other than its files.
#[derive(Clone, Copy)]
pub struct ResolveEnv<'a> {
    /// Function that returns the value of an environment variable.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// Names that the document defines, including those of blocks with mistakes, so that one mistake does not cause others.
#[derive(Debug, Default)]
pub struct DefinedNames {
    /// Ids of models, in document order.
    pub models: Vec<String>,
    /// Ids in `models`, for fast look-ups.
    known: HashSet<String>,
    /// Paths of values that were replaced by a placeholder because the written values are invalid.
    pub guessed: HashSet<String>,
    /// Paths of invalid values that were removed. The operator has written them, so they must not be reported as
    /// missing.
    pub removed: HashSet<String>,
}

impl DefinedNames {
    /// Collects the names of a document before invalid values are removed.
    pub fn from_document(root: &SpannedValue) -> Self {
        let blocks = root.get("models").map(SpannedValue::elements).unwrap_or_default();
        let ids = blocks.iter().filter_map(|block| block.get("id")?.text());
        let models: Vec<String> = ids.map(str::to_owned).collect();
        Self { known: models.iter().cloned().collect(), models, ..Self::default() }
    }
}

/// Reads a document that matches the schema.
fn read_document(root: &SpannedValue) -> Result<ConfigFile, Diagnostic> {
    ConfigFile::deserialize(root).map_err(|error| deserialize_mistake(root, &error))
}

/// Resolves the settings of a document that matches the schema; `None` after a mistake.
pub fn resolve_settings(
    root: &SpannedValue,
    names: &DefinedNames,
    around: ResolveEnv<'_>,
    report: &mut Diagnostics,
) -> Option<Settings> {
    let raw = &read_document(root).map_err(|mistake| report.mistakes.push(mistake)).ok()?;
    // With thousands of offers the document has megabytes, so it is serialized while the sections are resolved.
    std::thread::scope(|scope| {
        let document = ParallelValue::start(scope, || HashedDocument::new(raw));
        resolve_sections(raw, &KeyPath::from_root(root), names, around, report, document)
    })
}

fn resolve_sections(
    raw: &ConfigFile,
    top: &KeyPath<'_>,
    names: &DefinedNames,
    around: ResolveEnv<'_>,
    report: &mut Diagnostics,
    document: ParallelValue<'_, HashedDocument>,
) -> Option<Settings> {
    let mut proof = SettingsResolver::new(around, names, report);
    let listen = proof.resolve_listen(raw, top);
    let console = proof.resolve_console(raw, top);
    let storage = proof.resolve_storage(raw, top);
    let spool = proof.resolve_spool(raw, top);
    let files = proof.resolve_files(raw, top);
    let exports = proof.resolve_store_exports(raw, top, files.as_ref());
    let simulators = proof.resolve_simulators(raw, top);
    proof.check_port_clashes(listen.as_ref(), console.as_ref(), &simulators, top);
    let models = proof.resolve_models(raw, top);
    let providers = proof.resolve_providers(raw, top);
    proof.check_self_references(listen.as_ref(), &providers, top);
    let offers = proof.resolve_offers(raw, &models, &providers, top);
    proof.warn_free_small_requests(raw, &offers, top);
    proof.check_value_ranges(raw, top);
    let HashedDocument { version, shared, document } = document.join();
    let settings = Settings {
        version,
        shared,
        document,
        listen: listen?,
        console: console?,
        spool: spool?,
        files: files?,
        responses: server::response_settings(raw),
        storage: storage?,
        exports: exports?,
        limits: server::limit_settings(raw),
        overload: proof.resolve_overload(raw, top),
        routing: server::routing_settings(raw),
        impact: server::impact_settings(raw),
        images: server::generated_image_settings(raw),
        billing: server::billing_settings(raw),
        invoice: proof.resolve_invoice(raw, top),
        ledger: server::ledger_settings(raw),
        batches: server::batch_settings(raw),
        compatibility: server::compatibility_settings(raw),
        grid: proof.resolve_grid(raw, top),
        default_models: proof.resolve_default_models(raw, top),
        drain: raw.process.drain.0,
        watch_interval: raw.process.watch.0,
        watched_files: proof.watched_files,
        core_dumps: raw.process.core_dumps,
        threads: server::thread_count(raw.process.threads),
        log: server::log_settings(raw),
        models: models.into_iter().flatten().collect(),
        providers: providers.into_iter().flatten().collect(),
        offers,
        simulators,
    };
    report.mistakes.is_empty().then_some(settings)
}

/// Resolves only the settings of [`GatewayAccess`]. Mistakes in the store or in the settings of files are part of the
/// result.
///
/// # Errors
/// Returns the mistakes if the document cannot be deserialized or the address of the admin listener is invalid.
pub fn resolve_gateway_access(
    root: &SpannedValue,
    around: ResolveEnv<'_>,
) -> Result<GatewayAccess, Vec<Diagnostic>> {
    let raw = read_document(root).map_err(|mistake| vec![mistake])?;
    let top = KeyPath::from_root(root);
    let names = DefinedNames::default();
    let mut report = Diagnostics::default();
    let mut proof = SettingsResolver::new(around, &names, &mut report);
    let storage = proof.resolve_storage(&raw, &top);
    let files = proof.resolve_files(&raw, &top);
    let store_mistakes = std::mem::take(&mut proof.report.mistakes);
    let admin = proof.parse_address(&raw.listen.admin, &top.child("listen").child("admin"));
    let folder = top.child("storage").child("path").resolve_file_path(&raw.storage.path);
    match admin {
        Some(admin) => {
            let dashboard = proof.dashboard_url(&raw, &top);
            let operators = proof.operators_console_url(&raw, admin, &top);
            // If the settings of file contents have mistakes, the store is an error too: otherwise contents in another
            // folder or bucket would look as if they were missing.
            let storage = storage.filter(|_| files.is_some()).ok_or(store_mistakes);
            let file_retention = files.as_ref().and_then(|files| files.retention);
            let (files, bucket) = files
                .map_or_else(|| (folder.join("files"), None), |settings| (settings.path, settings.store));
            Ok(GatewayAccess { admin, operators, dashboard, folder, files, file_retention, bucket, storage })
        }
        None => Err(report.mistakes),
    }
}

/// Returns the mistake for a document that cannot be deserialized. The schema check should prevent this, but if it
/// happens, it must be reported.
fn deserialize_mistake(root: &SpannedValue, error: &Error) -> Diagnostic {
    Diagnostic {
        file: root.location.file.to_string(),
        line: None,
        key: String::new(),
        value: None,
        reason: format!("The configuration cannot be read: {error}."),
        remedy: String::new(),
    }
}

struct SettingsResolver<'a> {
    environment: ResolveEnv<'a>,
    names: &'a DefinedNames,
    report: &'a mut Diagnostics,
    /// Files that were read because they contain a secret or a certificate.
    watched_files: Vec<PathBuf>,
    /// Number of unknown model names so far.
    unknown_models: usize,
}

impl<'a> SettingsResolver<'a> {
    fn new(environment: ResolveEnv<'a>, names: &'a DefinedNames, report: &'a mut Diagnostics) -> Self {
        Self { environment, names, report, watched_files: Vec::new(), unknown_models: 0 }
    }
}

impl SettingsResolver<'_> {
    /// Returns true if one of these values is written, but was removed as invalid. In that case its mistake has been
    /// reported already.
    fn is_reported(&self, paths: &[&str]) -> bool {
        paths.iter().any(|path| self.names.removed.contains(*path))
    }

    fn report_mistake(&mut self, spot: &KeyPath<'_>, why: impl Into<String>, fix: impl Into<String>) {
        self.report.mistakes.push(spot.diagnostic(spot.value_preview(), why.into(), fix.into()));
    }

    /// Adds a mistake without showing the value.
    fn report_secret_mistake(&mut self, spot: &KeyPath<'_>, why: impl Into<String>, fix: impl Into<String>) {
        self.report.mistakes.push(spot.diagnostic(None, why.into(), fix.into()));
    }

    fn report_warning(&mut self, spot: &KeyPath<'_>, why: impl Into<String>, fix: impl Into<String>) {
        self.report.warnings.push(spot.diagnostic(spot.value_preview(), why.into(), fix.into()));
    }
}
