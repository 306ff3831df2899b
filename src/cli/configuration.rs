//! `run`, `check` and the demo: load a configuration, then validate it or start the gateway.

use super::output::{print_stderr, print_stdout};
use super::{CommandError, MISCONFIGURED, drop_privileges, memory_estimate};
use crate::admin::dangling_references::offline_store_warnings;
use crate::app::startup;
use crate::config::{ConfigLoader, ConfigSource, Diagnostic, Diagnostics, Settings, format_mistakes};
use crate::http::tls;
use crate::storage::{files, stores};
use crate::telemetry::fd_limit;

use penstock_catalog::Catalog;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Consequences of mistakes, which end an error message.
const NOT_STARTED: &str = "nothing was started";
const WOULD_NOT_START: &str = "it would not start";

/// Runs the gateway for `penstock run`.
pub(super) fn run_gateway(source: ConfigSource) -> Result<(), CommandError> {
    let loaded = source.load().map_err(|report| refusal(&report, NOT_STARTED))?;
    // The warnings about expired certificates are dropped here, because a starting gateway logs them itself.
    check_certificates(&loaded.settings, NOT_STARTED)?;
    Ok(startup::run(loaded, reload_source(source))?)
}

/// Runs the demo for `penstock` without a command.
pub(super) fn run_demo() -> Result<(), CommandError> {
    let loaded = ConfigSource::Demo.load().map_err(|report| refusal(&report, NOT_STARTED))?;
    Ok(startup::run_demo(loaded, reload_source(ConfigSource::Demo))?)
}

/// Checks a configuration for `penstock check`. With `strict`, warnings are errors; with `reach`, the check also
/// connects to the database and the bucket.
pub(super) fn check(source: &ConfigSource, strict: bool, reach: bool) -> Result<(), CommandError> {
    let loaded = source.load().map_err(|report| refusal(&report, WOULD_NOT_START))?;
    print_stderr(&format_warnings(&loaded.warnings));
    let mut others = check_certificates(&loaded.settings, WOULD_NOT_START)?;
    let name = match source {
        ConfigSource::Demo => "The demo".to_owned(),
        ConfigSource::File(path) => path.display().to_string(),
    };
    let database = stores::check_database(&loaded.settings.storage, reach);
    let database = database.map_err(|why| CommandError { why, code: MISCONFIGURED })?;
    others.extend(database.warnings);
    if let Some(bucket) = &loaded.settings.files.store {
        files::check_bucket(bucket, reach).map_err(|why| CommandError { why, code: MISCONFIGURED })?;
    }
    let (matchless, note) = unmatched_warnings(&loaded.settings, &name);
    others.extend(matchless);
    others.extend(fd_limit::insufficient_reason(&loaded.settings, fd_limit::max_descriptors()));
    others.extend(memory_estimate::excess_warning(&loaded.settings, memory_estimate::memory_limit()));
    print_stderr(&others.iter().map(|warning| format!("warning: {warning}\n\n")).collect::<String>());
    print_stderr(&note);
    let count = loaded.warnings.len() + others.len();
    if strict && count > 0 {
        let many = if count == 1 { "One warning".to_owned() } else { format!("{count} warnings") };
        let why = format!("{many} in {name}, and --strict allows none.");
        return Err(CommandError { why, code: MISCONFIGURED });
    }
    let mut summary = settings_summary(&loaded.settings);
    if reach {
        let mut reached: Vec<String> =
            database.server.map(|version| format!("PostgreSQL {version}")).into_iter().collect();
        reached.extend(
            loaded.settings.files.store.as_ref().map(|bucket| format!("the bucket {}", bucket.bucket)),
        );
        if !reached.is_empty() {
            let _ = writeln!(summary, "  {:<10} {}", "reached", reached.join(", "));
        }
    }
    Ok(print_stdout(&format!("{name} is valid.\n{summary}"))?)
}

/// Checks the files of certificates and keys, and the admin token, which an operator may have written. Returns
/// warnings about expired certificates.
///
/// # Errors
/// Returns all mistakes as one text.
fn check_certificates(settings: &Settings, consequence: &str) -> Result<Vec<String>, CommandError> {
    let token = stores::check_admin_token(&settings.storage).err();
    let (over, mut mistakes) = match tls::check_certificate_files(settings, super::backend::unix_now()) {
        Ok(over) => (over, Vec::new()),
        Err(mistakes) => (Vec::new(), mistakes),
    };
    mistakes.extend(token);
    if mistakes.is_empty() {
        return Ok(over);
    }
    Err(CommandError { why: format_mistakes(&mistakes, consequence), code: MISCONFIGURED })
}

/// Returns warnings about limits and models of keys and accounts that match nothing under this configuration. The
/// second text is a note if the search was not possible, otherwise empty.
fn unmatched_warnings(settings: &Settings, name: &str) -> (Vec<String>, String) {
    if stores::database_options(&settings.storage).is_some() {
        let note = format!(
            "note: limits that match nothing were not searched for in the database. With the gateway running, run: \
             penstock accounts check --config {name}\n\n"
        );
        return (Vec::new(), note);
    }
    let now = super::backend::unix_now();
    let looked = drop_privileges::become_folder_owner(&settings.storage.path)
        .and_then(|()| stores::open_existing(&settings.storage));
    let found = looked.and_then(|store| {
        let Some(store) = store else { return Ok(Vec::new()) };
        let catalog = Catalog::new(settings.catalog_models()).map_err(|mistakes| mistakes.join(" "))?;
        offline_store_warnings(&store, &catalog, now).map_err(|error| error.to_string())
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

/// Returns the function that loads the same source again, for a reload.
fn reload_source(source: ConfigSource) -> ConfigLoader {
    Arc::new(move || source.load())
}

/// Returns the error of a command that cannot use a configuration.
fn refusal(report: &Diagnostics, consequence: &str) -> CommandError {
    CommandError { why: report.format_mistakes(consequence), code: MISCONFIGURED }
}

fn format_warnings(warnings: &[Diagnostic]) -> String {
    warnings.iter().map(|warning| format!("warning: {warning}\n\n")).collect()
}

/// Returns a summary of a configuration as readable text.
pub fn settings_summary(settings: &Settings) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<10} {value}");
    };
    line("version", settings.version.0.to_string());
    let listen = &settings.listen;
    let mut addresses: Vec<String> = listen.http.iter().map(|address| format!("http {address}")).collect();
    addresses.extend(listen.https.as_ref().map(|https| format!("https {}", https.address)));
    addresses.push(format!("admin {}", listen.admin));
    addresses.extend(settings.console.listen.iter().map(|address| format!("dashboard {address}")));
    line("listens", addresses.join(", "));
    line("stores in", settings.storage.path.display().to_string());
    if let Some(database) = stores::describe_database(&settings.storage) {
        line("database", database);
    }
    if let Some(bucket) = &settings.files.store {
        let folder =
            if bucket.prefix.is_empty() { String::new() } else { format!(", folder {}", bucket.prefix) };
        line("files in", format!("bucket {} of {}{folder}", bucket.bucket, bucket.endpoint));
    }
    let names: usize = settings.models.iter().map(|model| 1 + model.card.aliases.len()).sum();
    line("models", format!("{} under {names} names", settings.models.len()));
    line("providers", format!("{} with {} offers", settings.providers.len(), settings.offers.len()));
    let mut offered: HashMap<usize, usize> = HashMap::new();
    for offer in &settings.offers {
        *offered.entry(offer.provider.index).or_default() += 1;
    }
    for provider in &settings.providers {
        let offers = offered.get(&provider.index).copied().unwrap_or_default();
        let scheme = if provider.base_url.tls { "https" } else { "http" };
        let dialects: Vec<&str> = provider.dialects.iter().map(|dialect| dialect.name()).collect();
        line(
            "",
            format!(
                "{} in {}, {}: {scheme}://{}{}, {}, offers {offers}",
                provider.id,
                provider.location.city,
                provider.location.country,
                provider.base_url.authority,
                provider.base_url.path_prefix,
                dialects.join("+"),
            ),
        );
    }
    for simulated in &settings.simulators {
        line("simulates", format!("{} on {}", simulated.name, simulated.address));
    }
    line("opens", format!("at most {}", fd_limit::required_descriptors_summary(settings)));
    let bounds = memory_estimate::memory_bounds(settings);
    line(
        "memory",
        format!("at most {}:", memory_estimate::format_size(memory_estimate::total_bytes(&bounds))),
    );
    for (name, bytes, why) in bounds {
        line("", format!("{name:<10} {:>9}  {why}", memory_estimate::format_size(bytes)));
    }
    text
}
