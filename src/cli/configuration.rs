//! `run`, `check` and the demo: load a configuration, then validate it or start the gateway.

use super::output::{err, out};
use super::{Failure, MISCONFIGURED, drop_privileges, memory_estimate};
use crate::admin::dangling_references::at_rest;
use crate::app::startup;
use crate::config::{ConfigSource, Loaded, Mistake, Report, Settings, Source};
use crate::http::tls;
use crate::storage::stores;
use crate::telemetry::fd_limit;

use penstock_catalog::Catalog;
use std::collections::HashMap;
use std::fmt::{Display, Write as _};
use std::sync::Arc;

/// Last part of an error message: the consequence of the mistakes.
const NOT_STARTED: &str = "nothing was started";
const WOULD_NOT_START: &str = "it would not start";

/// `penstock run`.
pub(super) fn run(source: Source) -> Result<(), Failure> {
    let loaded = load(&source, NOT_STARTED)?;
    // `check` reports expired certificates; a starting gateway reports them itself.
    proven(&loaded.settings, NOT_STARTED)?;
    Ok(startup::run(loaded.settings, again(source))?)
}

/// `penstock` without a command: the demo.
pub(super) fn demo() -> Result<(), Failure> {
    let loaded = load(&Source::Demo, NOT_STARTED)?;
    Ok(startup::demo(loaded.settings, again(Source::Demo))?)
}

/// `penstock check`.
pub(super) fn check(source: &Source, strict: bool) -> Result<(), Failure> {
    let loaded = load(source, WOULD_NOT_START)?;
    let mut others = proven(&loaded.settings, WOULD_NOT_START)?;
    let name = match source {
        Source::Demo => "The demo".to_owned(),
        Source::File(path) => path.display().to_string(),
    };
    let (matchless, note) = matchless(&loaded.settings, &name);
    others.extend(matchless);
    others.extend(fd_limit::few(&loaded.settings, fd_limit::most()));
    others.extend(memory_estimate::beyond(&loaded.settings, memory_estimate::of_machine()));
    err(&others.iter().map(|warning| format!("warning: {warning}\n\n")).collect::<String>());
    err(&note);
    let count = loaded.warnings.len() + others.len();
    if strict && count > 0 {
        let many = if count == 1 { "One warning".to_owned() } else { format!("{count} warnings") };
        let why = format!("{many} in {name}, and --strict allows none.");
        return Err(Failure { why, code: MISCONFIGURED });
    }
    Ok(out(&format!("{name} is valid.\n{}", summary(&loaded.settings)))?)
}

/// Checks the files of certificates and keys, and an admin token that an operator may have written. Returns warnings
/// about expired certificates.
///
/// # Errors
/// Returns all mistakes as one text.
fn proven(settings: &Settings, consequence: &str) -> Result<Vec<String>, Failure> {
    let token = stores::prove_token(&settings.storage).err();
    let (over, mut mistakes) = match tls::prove(settings, super::backend::now()) {
        Ok(over) => (over, Vec::new()),
        Err(mistakes) => (Vec::new(), mistakes),
    };
    mistakes.extend(token);
    if mistakes.is_empty() {
        return Ok(over);
    }
    Err(Failure { why: all(&mistakes, consequence), code: MISCONFIGURED })
}

/// Returns warnings about limits and models of keys and accounts that match nothing under this configuration. If the
/// store cannot be read, returns a note instead.
fn matchless(settings: &Settings, name: &str) -> (Vec<String>, String) {
    let now = super::backend::now();
    let looked = drop_privileges::take(&settings.storage.path).and_then(|()| stores::look(&settings.storage));
    let found = looked.and_then(|store| {
        let Some(store) = store else { return Ok(Vec::new()) };
        let cards = settings.models.iter().map(|model| model.card()).collect();
        let catalog = Catalog::new(cards).map_err(|mistakes| mistakes.join(" "))?;
        at_rest(&store, &catalog, now).map_err(|error| error.to_string())
    });
    match found {
        Ok(found) => (found.iter().map(ToString::to_string).collect(), String::new()),
        Err(why) => {
            let note = format!(
                "note: limits that match nothing were not searched for: {why} If a gateway has the store open, run: \
                 penstock accounts check --config {name}\n\n"
            );
            (Vec::new(), note)
        }
    }
}

/// Returns a function that reads the same source again, for a reload.
fn again(source: Source) -> ConfigSource {
    Arc::new(move || source.load().map_err(|report| refusal(&report, "the old configuration stays active")))
}

/// Loads the settings and prints the warnings.
///
/// # Errors
/// Returns all mistakes as one text.
fn load(source: &Source, consequence: &str) -> Result<Loaded, Failure> {
    match source.load() {
        Ok(loaded) => {
            err(&warnings(&loaded.warnings));
            Ok(loaded)
        }
        Err(report) => Err(Failure { why: refusal(&report, consequence), code: MISCONFIGURED }),
    }
}

/// Formats all mistakes and their consequence.
pub fn refusal(report: &Report, consequence: &str) -> String {
    // Warnings are left out: some exist only because a block with a mistake was skipped.
    all(&report.mistakes, consequence)
}

fn all(mistakes: &[impl Display], consequence: &str) -> String {
    let mut text = String::new();
    for mistake in mistakes {
        let _ = writeln!(text, "{mistake}\n");
    }
    let count = match mistakes.len() {
        1 => "One mistake".to_owned(),
        count => format!("{count} mistakes"),
    };
    let _ = write!(text, "{count} in the configuration: {consequence}.");
    text
}

fn warnings(warnings: &[Mistake]) -> String {
    warnings.iter().map(|warning| format!("warning: {warning}\n\n")).collect()
}

/// Summary of a configuration for people.
pub fn summary(settings: &Settings) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<10} {value}");
    };
    line("version", settings.version.0.to_string());
    let listen = &settings.listen;
    let mut places: Vec<String> = listen.http.iter().map(|address| format!("http {address}")).collect();
    places.extend(listen.https.as_ref().map(|https| format!("https {}", https.address)));
    places.push(format!("admin {}", listen.admin));
    line("listens", places.join(", "));
    line("stores in", settings.storage.path.display().to_string());
    let names: usize = settings.models.iter().map(|model| 1 + model.card.aliases.len()).sum();
    line("models", format!("{} under {names} names", settings.models.len()));
    line("providers", format!("{} with {} offers", settings.providers.len(), settings.offers.len()));
    let mut offered: HashMap<usize, usize> = HashMap::new();
    for offer in &settings.offers {
        *offered.entry(offer.provider.index).or_default() += 1;
    }
    for provider in &settings.providers {
        let offers = offered.get(&provider.index).copied().unwrap_or_default();
        let scheme = if provider.base.tls { "https" } else { "http" };
        let dialects: Vec<&str> = provider.dialects.iter().map(|dialect| dialect.name()).collect();
        line(
            "",
            format!(
                "{} in {}, {}: {scheme}://{}{}, {}, offers {offers}",
                provider.id,
                provider.place.city,
                provider.place.country,
                provider.base.authority,
                provider.base.path_prefix,
                dialects.join("+"),
            ),
        );
    }
    for simulated in &settings.simulators {
        line("simulates", format!("{} on {}", simulated.name, simulated.address));
    }
    line("opens", format!("at most {}", fd_limit::summary(settings)));
    let bounds = memory_estimate::bounds(settings);
    line("memory", format!("at most {}:", memory_estimate::short(memory_estimate::most(&bounds))));
    for (name, bytes, why) in bounds {
        line("", format!("{name:<10} {:>9}  {why}", memory_estimate::short(bytes)));
    }
    text
}
