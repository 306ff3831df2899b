//! Conversion of the written configuration to the settings of the gateway: resolves names, reads secrets and files,
//! validates values. It reports every mistake; if there is one, there are no settings.

mod bounds;
mod catalogue;
mod circles;
mod country;
mod exports;
mod folder;
mod grid;
mod key_path;
mod offer;
mod origins;
mod parameters;
mod presets;
mod provider;
mod secrets;
mod server;
mod shape;
mod tokenizer;
mod url;

use super::changes::Document;
use super::diagnostic::{Mistake, Report};
use super::load::Reach;
use super::raw::Raw;
use super::settings::{ConfigVersion, Settings};
use super::spanned_toml::Node;
use key_path::Spot;
use penstock_contract::hex;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::path::PathBuf;

/// Inputs of the configuration besides its files.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Environment variables.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// Names that the document defines, including those of blocks with mistakes, so that one mistake does not cause others.
#[derive(Debug, Default)]
pub struct Names {
    /// Ids of models, in document order.
    pub models: Vec<String>,
    /// The same ids, for look-ups.
    known: HashSet<String>,
    /// Paths of values that were guessed because the written ones are invalid.
    pub guessed: HashSet<String>,
}

impl Names {
    /// Collects the names of a document before invalid values are removed.
    pub fn of(root: &Node) -> Self {
        let blocks = root.get("models").map(Node::elements).unwrap_or_default();
        let ids = blocks.iter().filter_map(|block| block.get("id")?.text());
        let models: Vec<String> = ids.map(str::to_owned).collect();
        Self { known: models.iter().cloned().collect(), models, guessed: HashSet::new() }
    }
}

/// Resolves the settings of a document that matches the schema.
pub fn resolve(
    root: &Node,
    names: &Names,
    around: Surroundings<'_>,
    report: &mut Report,
) -> Option<Settings> {
    let raw: Raw = match serde_json::from_value(root.json()) {
        Ok(raw) => raw,
        Err(error) => {
            report.mistakes.push(unread(root, &error));
            return None;
        }
    };
    let top = Spot::top(root);
    let mut proof = Proof { around, names, report, watched: Vec::new(), unknown: 0 };
    let listen = proof.listen(&raw, &top);
    let storage = proof.storage(&raw, &top);
    let spool = proof.spool(&raw, &top);
    let files = proof.files(&raw, &top);
    let exports = proof.exports(&raw, &top, files.as_ref());
    let simulators = proof.simulators(&raw, &top);
    proof.clashes(listen.as_ref(), &simulators, &top);
    let models = proof.models(&raw, &top);
    let providers = proof.providers(&raw, &top);
    let offers = proof.offers(&raw, &models, &providers, &top);
    let default_models = proof.default_models(&raw, &top);
    let grid = proof.grid(&raw, &top);
    let overload = proof.overload(&raw, &top);
    proof.bounds(&raw, &top);
    let document = serde_json::to_vec(&raw).unwrap_or_default();
    let settings = Settings {
        version: version(&document),
        document: Document::new(document),
        listen: listen?,
        spool: spool?,
        files: files?,
        storage: storage?,
        exports: exports?,
        limits: server::limits(&raw),
        overload,
        routing: server::routing(&raw),
        impact: super::settings::Impact { provenance: raw.impact.provenance },
        images: super::settings::Images { lifetime: raw.images.lifetime.0, keep: raw.images.keep.0 },
        billing: super::settings::Billing {
            eur_per_credit: raw.billing.eur_per_credit.0,
            eur_per_kwh: raw.billing.eur_per_kwh.0,
            prepaid: raw.billing.credit == super::raw::Credit::Prepaid,
            reserve_output_tokens: raw.billing.reserve_output_tokens.into(),
        },
        ledger: server::ledger(&raw),
        batches: server::batches(&raw),
        compatibility: server::compatibility(&raw),
        grid,
        drain: raw.process.drain.0,
        watch: raw.process.watch.0,
        watched: proof.watched,
        core_dumps: raw.process.core_dumps,
        threads: server::threads(raw.process.threads),
        log: server::log(&raw),
        default_models,
        models: models.into_iter().flatten().collect(),
        providers: providers.into_iter().flatten().collect(),
        offers,
        simulators,
    };
    report.mistakes.is_empty().then_some(settings)
}

/// Resolves only the admin listener and the store.
///
/// # Errors
/// Returns the mistakes in the admin listener.
pub fn reach(root: &Node, around: Surroundings<'_>) -> Result<Reach, Vec<Mistake>> {
    let raw: Raw = serde_json::from_value(root.json()).map_err(|error| vec![unread(root, &error)])?;
    let top = Spot::top(root);
    let names = Names::default();
    let mut report = Report::default();
    let mut proof = Proof { around, names: &names, report: &mut report, watched: Vec::new(), unknown: 0 };
    let storage = proof.storage(&raw, &top);
    let files = proof.files(&raw, &top).map(|files| files.path);
    let store_mistakes = std::mem::take(&mut proof.report.mistakes);
    let admin = proof.address(&raw.listen.admin, &top.key("listen").key("admin"));
    let folder = top.key("storage").key("path").file(&raw.storage.path);
    match admin {
        Some(admin) => {
            let files = files.unwrap_or_else(|| folder.join("files"));
            Ok(Reach { admin, folder, files, storage: storage.ok_or(store_mistakes) })
        }
        None => Err(report.mistakes),
    }
}

/// Mistake for a document that cannot be deserialized. This cannot happen after the schema check, but would not be
/// hidden.
fn unread(root: &Node, error: &serde_json::Error) -> Mistake {
    Mistake {
        file: root.place.file.to_string(),
        line: None,
        key: String::new(),
        value: None,
        why: format!("The configuration cannot be read: {error}."),
        fix: String::new(),
    }
}

/// Short hash of the configuration with all its defaults; secrets are included as references only.
fn version(document: &[u8]) -> ConfigVersion {
    let digest = Sha256::digest(document);
    ConfigVersion(hex::text(digest.iter().take(6)).into())
}

struct Proof<'a> {
    around: Surroundings<'a>,
    names: &'a Names,
    report: &'a mut Report,
    /// Files that were read because they contain a secret or a certificate.
    watched: Vec<PathBuf>,
    /// Number of unknown model names so far.
    unknown: usize,
}

impl Proof<'_> {
    fn wrong(&mut self, spot: &Spot<'_>, why: impl Into<String>, fix: impl Into<String>) {
        self.report.mistakes.push(spot.mistake(spot.written(), why.into(), fix.into()));
    }

    /// Adds a mistake whose value must not be shown.
    fn wrong_secret(&mut self, spot: &Spot<'_>, why: impl Into<String>, fix: impl Into<String>) {
        self.report.mistakes.push(spot.mistake(None, why.into(), fix.into()));
    }

    fn warn(&mut self, spot: &Spot<'_>, why: impl Into<String>, fix: impl Into<String>) {
        self.report.warnings.push(spot.mistake(spot.written(), why.into(), fix.into()));
    }
}
