//! `penstock credits`: grants credits, lists balances, and verifies the ledger, through the running gateway, or directly in
//! its store if no gateway runs.

mod backend;
mod export;

pub use backend::{LedgerBackend, ledger_storage_settings};

use super::ConfigArgs;
use super::backend::ExpectedStore;
use super::client::{AdminClient, AdminClientError, gateway_access};
use super::listing::{Listing, OutputArgs};
use super::output::{print_stderr, print_stdout};
use super::status::{print_json, response_rows, table_cell};
use crate::billing::checkpoint::{CHECKPOINT_FORMAT_HINT, LedgerCheckpoint};
use crate::billing::offline::verify_ledger;
use clap::{Args, Subcommand};
use export::ExportArgs;
use serde_json::{Value, json};

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct CreditsArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    #[command(subcommand)]
    command: CreditsCommand,
}

#[derive(Debug, Subcommand)]
enum CreditsCommand {
    /// Gives an account credits, or energy for models billed by energy
    Grant(GrantArgs),
    /// Shows the balances of accounts: total, reserved and available
    ///
    /// If no gateway runs, the reserves that a crash left open are voided first.
    Balance {
        /// Only this account
        account: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Replaces the amount of a charge or a grant
    ///
    /// Entries never change: the correction is a new entry. Each entry can be corrected once.
    Correct(CorrectArgs),
    /// Recomputes every balance from the first entry on, and names the first incorrect entry
    ///
    /// Checks the hash chain, the double entry, every balance, and the second copy. Ends with 1 if a check fails.
    /// Without `--repair` the command changes nothing.
    Verify {
        /// If a check fails, write to the second copy what it lacks and verify again; requires that no gateway runs
        #[arg(long)]
        repair: bool,
        /// Checkpoint that an earlier verification printed: the entries up to it have to be unchanged
        #[arg(long)]
        checkpoint: Option<String>,
    },
    /// Recomputes every charge of a day from its usage and its terms
    Rerate {
        /// Day in UTC, such as 2026-11-22; by default today
        #[arg(long)]
        day: Option<String>,
    },
    /// Writes the entries of the ledger to a file or standard output, the oldest first
    Export(ExportArgs),
    /// Rebuilds the store's ledger from its second copy
    ///
    /// For a store that lost entries or was lost. Requires that no gateway runs. The files of the second copy are
    /// verified first; only an incomplete last line is removed from them.
    Rebuild,
}

#[derive(Debug, Args)]
struct GrantArgs {
    /// Id of the account
    account: String,
    #[command(flatten)]
    amount: AmountArgs,
    /// Id of your choice, such as an invoice number: repeating the command with it does not grant twice
    ///
    /// A repetition returns the result of the first time. The same id with another amount or account is refused.
    #[arg(long)]
    id: Option<String>,
    /// Reason, recorded in the ledger
    #[arg(long, default_value = "", hide_default_value = true)]
    note: String,
}

#[derive(Debug, Args)]
struct CorrectArgs {
    /// Number of the charge or grant, as `credits export` shows it
    entry: u64,
    #[command(flatten)]
    amount: AmountArgs,
    /// Allows an amount above that of the entry
    #[arg(long)]
    increase: bool,
    /// Id of your choice: repeating the command with it does not correct twice
    #[arg(long)]
    id: Option<String>,
    /// Reason, recorded in the ledger
    #[arg(long, default_value = "", hide_default_value = true)]
    note: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct AmountArgs {
    /// Credits, with at most six decimals
    #[arg(long)]
    credits: Option<String>,
    /// Kilowatt-hours, with at most nine decimals
    #[arg(long)]
    kwh: Option<String>,
}

/// Runs `penstock credits`.
pub fn run(credits: CreditsArgs) -> Result<(), String> {
    if matches!(credits.command, CreditsCommand::Rebuild) {
        return rebuild(&credits.reached);
    }
    if let CreditsCommand::Verify { repair, checkpoint } = &credits.command {
        let invalid = || format!("--checkpoint: {CHECKPOINT_FORMAT_HINT}");
        let parse = |text: &String| LedgerCheckpoint::parse(text).ok_or_else(invalid);
        let checkpoint = checkpoint.as_ref().map_or(Ok(LedgerCheckpoint::default()), parse)?;
        return verify(&credits.reached, *repair, &checkpoint);
    }
    if matches!(credits.command, CreditsCommand::Rerate { .. }) {
        check_replica_before_opening(&credits.reached)?;
    }
    let backend = match credits.command {
        CreditsCommand::Rerate { .. } | CreditsCommand::Export(_) => {
            LedgerBackend::connect_for_reading(&credits.reached)?
        }
        CreditsCommand::Grant(_) => LedgerBackend::connect(&credits.reached, ExpectedStore::ExistingOrNew)?,
        _ => LedgerBackend::connect(&credits.reached, ExpectedStore::Existing)?,
    };
    match credits.command {
        CreditsCommand::Grant(granted) => {
            let GrantArgs { account, amount, id, note } = granted;
            let body = json!({ "account": account, "credits": amount.credits, "kwh": amount.kwh, "id": id, "note": note });
            print_adjustment(&backend.post("/admin/credits/grant", &body)?)
        }
        CreditsCommand::Correct(corrected) => {
            let CorrectArgs { entry, amount, increase, id, note } = corrected;
            let body = json!({ "entry": entry, "credits": amount.credits, "kwh": amount.kwh, "id": id, "note": note,
                "increase": increase });
            print_adjustment(&backend.post("/admin/credits/correct", &body)?)
        }
        CreditsCommand::Balance { account, output } => {
            let query: Vec<(&str, &str)> =
                account.iter().map(|account| ("account", account.as_str())).collect();
            let answer = backend.get("/admin/credits", &query)?;
            output.print(&balances(&answer), || answer.clone())
        }
        CreditsCommand::Rerate { day } => {
            let query: Vec<(&str, &str)> = day.iter().map(|day| ("day", day.as_str())).collect();
            let answer = backend.get("/admin/credits/rerate", &query)?;
            print_json(&answer)?;
            let same = answer.get("same") == Some(&Value::Bool(true));
            if same { Ok(()) } else { Err("At least one charge differs when it is recomputed.".to_owned()) }
        }
        CreditsCommand::Export(export) => export::run(&backend, &export),
        // Handled at the start of this function, before the backend was chosen.
        CreditsCommand::Verify { .. } | CreditsCommand::Rebuild => Ok(()),
    }
}

/// Verifies the ledger through the running gateway, or by reading its store. Writes only if `repair` is true.
fn verify(reached: &ConfigArgs, repair: bool, checkpoint: &LedgerCheckpoint) -> Result<(), String> {
    let reach = gateway_access(&reached.source()?)?;
    match AdminClient::connect(&reach) {
        Ok(_) if repair => Err("The gateway is running: stop it first, or leave --repair out.".to_owned()),
        Ok(client) => {
            let query =
                if checkpoint.is_empty() { String::new() } else { format!("?checkpoint={checkpoint}") };
            print_verification(&client.send("GET", &format!("/admin/credits/verify{query}"), None)?)
        }
        Err(AdminClientError::Other(why)) => Err(why),
        Err(AdminClientError::NotRunning(_)) => {
            let storage = backend::ledger_storage_settings(&reach)?;
            super::drop_privileges::become_folder_owner(&storage.path)?;
            let verify = || Ok::<_, String>(verify_ledger(&storage, checkpoint)?.to_json());
            match print_verification(&verify()?) {
                Err(why) if repair => {
                    print_stderr(&why);
                    for healed in crate::storage::stores::repair_ledger_replica(&storage)? {
                        print_stderr(&format!("Written again: {healed}.\n"));
                    }
                    print_verification(&verify()?)
                }
                found => found,
            }
        }
    }
}

/// Compares the ledger with its second copy, before another check of the stopped gateway's ledger, which does not read
/// the copy. Does nothing while the gateway runs.
///
/// # Errors
/// Returns the failed checks.
pub(super) fn check_replica_before_opening(reached: &ConfigArgs) -> Result<(), String> {
    let reach = gateway_access(&reached.source()?)?;
    if !matches!(AdminClient::connect(&reach), Err(AdminClientError::NotRunning(_))) {
        return Ok(());
    }
    let storage = backend::ledger_storage_settings(&reach)?;
    super::drop_privileges::become_folder_owner(&storage.path)?;
    let proof = verify_ledger(&storage, &LedgerCheckpoint::default())?.to_json();
    verification_errors(&proof).map_or(Ok(()), Err)
}

fn print_adjustment(answer: &Value) -> Result<(), String> {
    print_stderr(&format!("Entry {} ({}).\n", table_cell(answer, "entry"), table_cell(answer, "id")));
    print_stdout(&balances(&json!({ "data": [answer] })).to_table())
}

fn balances(answer: &Value) -> Listing {
    let rows = response_rows(answer).iter().map(|account| {
        let of = |wallet: &str, name: &str| {
            account.get(wallet).map(|wallet| table_cell(wallet, name)).unwrap_or_default()
        };
        let mut row = vec![table_cell(account, "account")];
        for wallet in ["credits", "energy_kwh"] {
            row.extend(["balance", "reserved", "available"].map(|name| of(wallet, name)));
        }
        row
    });
    let heading = [
        "ACCOUNT",
        "CREDITS",
        "CREDITS RESERVED",
        "CREDITS AVAILABLE",
        "KWH",
        "KWH RESERVED",
        "KWH AVAILABLE",
    ];
    Listing::new(&heading).with_rows(rows)
}

/// Prints the result of a verification.
///
/// # Errors
/// Returns the failed checks.
fn print_verification(proof: &Value) -> Result<(), String> {
    print_stdout(&format!(
        "{} entries of {} accounts, {} open reserves.\n",
        table_cell(proof, "entries"),
        table_cell(proof, "accounts"),
        table_cell(proof, "open_reserves")
    ))?;
    if proof.get("good") == Some(&Value::Bool(true)) {
        return print_stdout(&format!(
            "Every entry follows from the one before it, every balance from its entries, and the second copy agrees.\n\
             Checkpoint, to keep elsewhere and pass to --checkpoint later: {}\n",
            table_cell(proof, "checkpoint")
        ));
    }
    Err(verification_errors(proof).unwrap_or_default())
}

/// Returns the failed checks of a verification, a line each; `None` if all passed.
fn verification_errors(proof: &Value) -> Option<String> {
    if proof.get("good") == Some(&Value::Bool(true)) {
        return None;
    }
    let mut why = String::new();
    if let Some(misfit) = proof.get("first_misfit").filter(|misfit| !misfit.is_null()) {
        why.push_str(&format!(
            "Entry {} does not fit: {}.\n",
            table_cell(misfit, "entry"),
            table_cell(misfit, "why")
        ));
    }
    for list in ["balances", "second_copy"] {
        for finding in
            proof.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            why.push_str(&format!("{finding}\n"));
        }
    }
    Some(why)
}

fn rebuild(reached: &ConfigArgs) -> Result<(), String> {
    let reach = gateway_access(&reached.source()?)?;
    if AdminClient::connect(&reach).is_ok() {
        return Err("The gateway is running: stop it first.".to_owned());
    }
    let storage = backend::ledger_storage_settings(&reach)?;
    super::drop_privileges::become_folder_owner(&storage.path)?;
    let rebuilt = crate::billing::offline::rebuild_from_replica(&storage)?;
    let mut text = format!("The ledger was rebuilt: {} entries.\n", rebuilt.entries);
    for file in rebuilt.shortened_files {
        text.push_str(&format!("An incomplete last line was removed from {}.\n", file.display()));
    }
    print_stdout(&text)
}
