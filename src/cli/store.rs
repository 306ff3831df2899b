//! `penstock store`: verification, export, import and repair of all stored data, while no gateway runs.

use super::client::gateway_access;
use super::output::{print_stderr, print_stdout};
use super::status::print_json;
use super::{ConfigArgs, drop_privileges};
use crate::backup::{self, BackupReport, DataPaths, ProgressReporter};
use crate::config::Diagnostics;
use crate::storage::stores::PEPPER_FILE;
use crate::telemetry::panics;
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct StoreArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    /// Do not show progress on standard error
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Checks everything: rows, the pepper, the ledger, balances, every byte of every file, every batch and its results
    ///
    /// Ends with 1 if a check fails.
    Verify {
        /// Print JSON instead of sentences
        #[arg(long)]
        json: bool,
    },
    /// Exports everything to a folder: rows as JSON lines, the ledger, contents of files, each with its checksum
    ///
    /// The archive contains the pepper and the digests of keys, which allow offline guessing of keys: protect it like
    /// the store.
    Export {
        /// Empty or new folder
        folder: PathBuf,
    },
    /// Restores an archive into a storage folder without a store, and checks it
    Import {
        /// Folder of the archive
        folder: PathBuf,
    },
    /// Creates a new pepper if the one that the keys were created with is lost; every key has to be rotated afterwards
    ///
    /// With `storage.pepper`, that pepper is accepted instead.
    NewPepper,
    /// Copies the readable part of a damaged store to another folder; the damaged store is not changed
    ///
    /// Ledger entries that the store lost are taken from its second copy. Point `storage.path` at the new folder
    /// afterwards.
    Repair {
        /// Empty or new folder
        #[arg(long, value_name = "FOLDER")]
        to: PathBuf,
    },
}

/// Runs `penstock store`.
pub fn run(store: &StoreArgs) -> Result<(), String> {
    let data_paths = store_location(&store.reached)?;
    drop_privileges::become_folder_owner(&data_paths.storage.path)?;
    let json = matches!(store.command, StoreCommand::Verify { json: true });
    let progress =
        if store.quiet || json { ProgressReporter::hidden() } else { ProgressReporter::on_stderr() };
    match &store.command {
        StoreCommand::Verify { json } => {
            let verdict = backup::verify(&data_paths, &progress)?;
            if *json {
                print_json(&verdict.to_json())?;
            }
            print_verdict(&verdict, !json)
        }
        StoreCommand::Export { folder } => {
            let saved = backup::export_archive(&data_paths, folder, &progress)?;
            print_saved("Exported", saved)?;
            print_archive(&data_paths, folder)
        }
        StoreCommand::Import { folder } => {
            print_saved("Imported", backup::import_archive(&data_paths, folder, &progress)?)?;
            print_verdict(&backup::verify(&data_paths, &progress)?, true)
        }
        StoreCommand::NewPepper => {
            let keys = crate::storage::stores::accept_new_pepper(&data_paths.storage)?;
            print_stdout(&format!(
                "The store has another pepper. {keys} keys are no longer accepted: give each a new secret with \
                 `penstock keys rotate`, or revoke it.\n"
            ))
        }
        StoreCommand::Repair { to } => {
            // sled reports some damage with a panic, which is caught; its message may contain keys of rows.
            panics::install_hook();
            let saved = backup::repair_store(&data_paths, to, &progress)?;
            let mut text =
                format!("{} rows were saved, {} were damaged", saved.rows.saved, saved.rows.damaged);
            text.push_str(if saved.rows.complete {
                ".\n"
            } else {
                "; there may be others that were not found.\n"
            });
            if let Some(entries) = saved.rebuilt_entries {
                let _ =
                    writeln!(text, "The ledger was written again from its second copy: {entries} entries.");
            }
            if let Some(why) = &saved.ledger_error {
                let _ =
                    writeln!(text, "The ledger is incomplete, and its second copy cannot complete it: {why}");
            }
            print_stdout(&text)?;
            print_verdict(&saved.verification, true)
        }
    }
}

/// Prints which secrets the new archive in `folder` has, and how to restore it.
fn print_archive(data_paths: &DataPaths, folder: &Path) -> Result<(), String> {
    let contents = match data_paths.storage.pepper {
        None if folder.join(PEPPER_FILE).exists() => "has the pepper and the digests of all keys",
        None => "has no pepper, because no key needs one",
        Some(_) => "has the digests of all keys, but not the pepper from the configuration",
    };
    print_stdout(&format!(
        "The archive in {0} {contents}, so protect it like the store; `penstock store import {0}` restores it into a gateway \
         without a store.\n",
        folder.display()
    ))
}

fn print_saved(done: &str, saved: BackupReport) -> Result<(), String> {
    let BackupReport { rows, files, bytes, dropped_files: gone, repaired_replica_parts: repaired } = saved;
    if repaired > 0 {
        print_stderr(&format!(
            "warning: {repaired} parts of the second copy of the ledger differed from the store and were repaired.\n"
        ));
    }
    let mut text = format!("{done} {rows} rows and {files} files of {bytes} bytes.\n");
    if gone > 0 {
        let _ = writeln!(text, "Left out, because deleted after the archive was made: {gone} files.");
    }
    print_stdout(&text)
}

/// Prints the result of a verification: the problems, and with `aloud` also the numbers of what was checked.
///
/// # Errors
/// Returns an error if a check failed.
fn print_verdict(verdict: &backup::VerifyReport, aloud: bool) -> Result<(), String> {
    let backup::VerifyReport { rows, entries, files, bytes, batches, .. } = verdict;
    if aloud {
        print_stdout(&format!(
            "{rows} rows, {entries} entries of the ledger, {files} files of {bytes} bytes, {batches} batches.\n"
        ))?;
    }
    if verdict.is_intact() {
        return if aloud { print_stdout("Everything is as it was written.\n") } else { Ok(()) };
    }
    for problem in &verdict.problems {
        print_stderr(&format!("{problem}\n"));
    }
    let count = verdict.problems.len() as u64 + verdict.unlisted;
    Err(format!("{count} findings: what is listed is damaged or missing (penstock store repair)."))
}

fn store_location(reached: &ConfigArgs) -> Result<DataPaths, String> {
    let reach = gateway_access(&reached.source()?)?;
    let storage = reach.storage.map_err(|mistakes| {
        let report = Diagnostics { mistakes, warnings: Vec::new() };
        report.format_mistakes("the store cannot be opened")
    })?;
    Ok(DataPaths { storage, files: reach.files, bucket: reach.bucket })
}
