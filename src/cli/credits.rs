//! `penstock credits` and `penstock statement`: through the running gateway, or directly in its store when none runs.

mod backend;
mod export;

pub use backend::Way;

use super::Reached;
use super::client::{Client, Failure, reach};
use super::listing::{Listing, OutputArgs};
use super::output::{err, out};
use super::status::{cell, data, print};
use clap::{Args, Subcommand};
use export::Export;
use serde_json::{Value, json};

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct Credits {
    #[command(flatten)]
    reached: Reached,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Gives an account credits, or energy for models billed by energy
    Grant(Granted),
    /// Shows the balances of accounts: total, reserved and available
    Balance {
        /// Only this account
        account: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Replaces the amount of a charge or a grant
    ///
    /// Entries never change: the correction is a new entry. Each entry can be corrected once.
    Correct(Corrected),
    /// Recomputes every balance from the first entry on, and names the first incorrect entry
    ///
    /// Checks the hash chain, the double entry, every balance, and the second copy. Ends with 1 if a check fails.
    /// Nothing is changed.
    Verify {
        /// Afterwards write to the second copy what it lacks; requires that no gateway runs
        #[arg(long)]
        repair: bool,
    },
    /// Recomputes every charge of a day from its usage and its terms
    Rerate {
        /// Day in UTC, such as 2026-11-22; by default today
        #[arg(long)]
        day: Option<String>,
    },
    /// Writes the entries of the ledger to a file or standard output, the oldest first
    Export(Export),
    /// Rebuilds the store's ledger from its second copy
    ///
    /// For a store that lost entries or was lost. Requires that no gateway runs. The files of the copy are verified
    /// first, and are not changed.
    Rebuild,
}

#[derive(Debug, Args)]
struct Granted {
    /// Id of the account
    account: String,
    #[command(flatten)]
    amount: Amount,
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
struct Corrected {
    /// Number of the charge or grant, as `credits export` shows it
    entry: u64,
    #[command(flatten)]
    amount: Amount,
    /// Id of your choice: repeating the command with it does not correct twice
    #[arg(long)]
    id: Option<String>,
    /// Reason, recorded in the ledger
    #[arg(long, default_value = "", hide_default_value = true)]
    note: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Amount {
    /// Credits, with at most six decimals
    #[arg(long)]
    credits: Option<String>,
    /// Kilowatt-hours, with at most nine decimals
    #[arg(long)]
    kwh: Option<String>,
}

/// Runs the command.
pub fn run(credits: Credits) -> Result<(), String> {
    if matches!(credits.command, Command::Rebuild) {
        return rebuild(&credits.reached);
    }
    if let Command::Verify { repair } = credits.command {
        return verify(&credits.reached, repair);
    }
    let way = Way::find(&credits.reached)?;
    match credits.command {
        Command::Grant(granted) => {
            let Granted { account, amount, id, note } = granted;
            let body = json!({ "account": account, "credits": amount.credits, "kwh": amount.kwh, "id": id, "note": note });
            told(&way.post("/admin/credits/grant", &body)?)
        }
        Command::Correct(corrected) => {
            let Corrected { entry, amount, id, note } = corrected;
            let body = json!({ "entry": entry, "credits": amount.credits, "kwh": amount.kwh, "id": id, "note": note });
            told(&way.post("/admin/credits/correct", &body)?)
        }
        Command::Balance { account, output } => {
            let query: Vec<(&str, &str)> =
                account.iter().map(|account| ("account", account.as_str())).collect();
            let answer = way.get("/admin/credits", &query)?;
            output.print(&balances(&answer), || answer.clone())
        }
        Command::Rerate { day } => {
            let query: Vec<(&str, &str)> = day.iter().map(|day| ("day", day.as_str())).collect();
            let answer = way.get("/admin/credits/rerate", &query)?;
            print(&answer)?;
            let same = answer.get("same") == Some(&Value::Bool(true));
            if same { Ok(()) } else { Err("At least one charge differs when it is recomputed.".to_owned()) }
        }
        Command::Export(export) => export::run(&way, &export),
        // Handled above, before the backend was chosen.
        Command::Verify { .. } | Command::Rebuild => Ok(()),
    }
}

/// Verifies through the running gateway, or by reading its store. Only `repair` writes.
fn verify(reached: &Reached, repair: bool) -> Result<(), String> {
    let reach = reach(&reached.source()?)?;
    match Client::new(&reach) {
        Ok(_) if repair => Err("The gateway is running: stop it first, or leave --repair out.".to_owned()),
        Ok(client) => proven(&client.ask("GET", "/admin/credits/verify", None)?),
        Err(Failure::Other(why)) => Err(why),
        Err(Failure::NotRunning(_)) => {
            let storage = backend::storage(&reach)?;
            super::drop_privileges::take(&storage.path)?;
            let found = proven(&crate::billing::offline::verify_ledger(&storage)?.told());
            match found {
                Err(why) if repair => {
                    err(&why);
                    for healed in crate::storage::stores::heal_ledger(&storage)? {
                        err(&format!("Written again: {healed}.\n"));
                    }
                    proven(&crate::billing::offline::verify_ledger(&storage)?.told())
                }
                found => found,
            }
        }
    }
}

fn told(answer: &Value) -> Result<(), String> {
    err(&format!("Entry {} ({}).\n", cell(answer, "entry"), cell(answer, "id")));
    out(&balances(&json!({ "data": [answer] })).table())
}

fn balances(answer: &Value) -> Listing {
    let rows = data(answer).iter().map(|account| {
        let of = |wallet: &str, name: &str| {
            account.get(wallet).map(|wallet| cell(wallet, name)).unwrap_or_default()
        };
        let mut row = vec![cell(account, "account")];
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
fn proven(proof: &Value) -> Result<(), String> {
    out(&format!(
        "{} entries of {} accounts, {} open reserves.\n",
        cell(proof, "entries"),
        cell(proof, "accounts"),
        cell(proof, "open_reserves")
    ))?;
    if proof.get("good") == Some(&Value::Bool(true)) {
        return out(
            "Every entry follows from the one before it, every balance from its entries, and the second copy agrees.\n",
        );
    }
    let mut why = String::new();
    if let Some(misfit) = proof.get("first_misfit").filter(|misfit| !misfit.is_null()) {
        why.push_str(&format!("Entry {} does not fit: {}.\n", cell(misfit, "entry"), cell(misfit, "why")));
    }
    for list in ["balances", "second_copy"] {
        for finding in
            proof.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            why.push_str(&format!("{finding}\n"));
        }
    }
    Err(why)
}

fn rebuild(reached: &Reached) -> Result<(), String> {
    let reach = reach(&reached.source()?)?;
    if Client::new(&reach).is_ok() {
        return Err("The gateway is running: stop it first.".to_owned());
    }
    let storage = backend::storage(&reach)?;
    super::drop_privileges::take(&storage.path)?;
    let entries = crate::billing::offline::rebuild(&storage)?;
    out(&format!("The ledger was rebuilt: {entries} entries.\n"))
}
