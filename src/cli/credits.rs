//! `penstock credits` and `penstock statement`: through the running gateway, or
//! directly in its store when none runs.

mod export;
mod way;

pub use way::Way;

use super::Reached;
use super::client::{Client, reach};
use super::live::{cell, data, print};
use super::speak::{err, out};
use super::table::table;
use clap::{Args, Subcommand};
use export::Export;
use serde_json::{Value, json};

/// The command's arguments.
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
    /// Shows what accounts have, what is reserved of it, and what is available
    Balance {
        /// One account alone
        account: Option<String>,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Takes a charge or a grant back, and puts another amount in its place
    ///
    /// Entries never change: the correction is an entry of its own, at most one for each.
    Correct(Corrected),
    /// Computes every balance again from the first entry on, and names the first that does not fit
    ///
    /// Checks the chain of hashes, the double entry, every balance, and the second copy. Ends with 1 if anything
    /// does not fit.
    Verify,
    /// Computes every charge of a day again from its usage and its terms
    Rerate {
        /// The day, UTC, such as 2026-11-22; today when left out
        #[arg(long)]
        day: Option<String>,
    },
    /// Writes the entries out, the oldest first
    Export(Export),
    /// Writes the store's ledger again from its second copy
    ///
    /// For a store that lost entries or was lost, while no gateway runs. The files are proven first and are not
    /// touched.
    Rebuild,
}

#[derive(Debug, Args)]
struct Granted {
    /// The account
    account: String,
    #[command(flatten)]
    amount: Amount,
    /// A name of your own, such as an invoice's number: asking for the same again with it grants nothing twice
    ///
    /// It ends as it did the first time; another amount or account with it is refused.
    #[arg(long)]
    id: Option<String>,
    /// Why; it stands in the ledger
    #[arg(long, default_value = "", hide_default_value = true)]
    note: String,
}

#[derive(Debug, Args)]
struct Corrected {
    /// The number of the charge or grant, as `credits export` shows it
    entry: u64,
    #[command(flatten)]
    amount: Amount,
    /// A name of your own: asking again with it corrects nothing twice
    #[arg(long)]
    id: Option<String>,
    /// Why; it stands in the ledger
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
        Command::Balance { account, json } => {
            let query: Vec<(&str, &str)> =
                account.iter().map(|account| ("account", account.as_str())).collect();
            let answer = way.get("/admin/credits", &query)?;
            if json { print(&answer) } else { out(&balances(&answer)) }
        }
        Command::Verify => proven(&way.get("/admin/credits/verify", &[])?),
        Command::Rerate { day } => {
            let query: Vec<(&str, &str)> = day.iter().map(|day| ("day", day.as_str())).collect();
            let answer = way.get("/admin/credits/rerate", &query)?;
            print(&answer)?;
            let same = answer.get("same") == Some(&Value::Bool(true));
            if same {
                Ok(())
            } else {
                Err("A charge comes out different when it is computed again.".to_owned())
            }
        }
        Command::Export(export) => export::run(&way, &export),
        Command::Rebuild => Ok(()),
    }
}

fn told(answer: &Value) -> Result<(), String> {
    err(&format!("Entry {} ({}).\n", cell(answer, "entry"), cell(answer, "id")));
    out(&balances(&json!({ "data": [answer] })))
}

fn balances(answer: &Value) -> String {
    let rows: Vec<Vec<String>> = data(answer)
        .iter()
        .map(|account| {
            let of = |wallet: &str, name: &str| {
                account.get(wallet).map(|wallet| cell(wallet, name)).unwrap_or_default()
            };
            let mut row = vec![cell(account, "account")];
            for wallet in ["credits", "energy_kwh"] {
                row.extend(["balance", "reserved", "available"].map(|name| of(wallet, name)));
            }
            row
        })
        .collect();
    let heading = ["ACCOUNT", "CREDITS", "RESERVED", "AVAILABLE", "KWH", "RESERVED", "AVAILABLE"];
    table(&heading, &rows)
}

/// Says what a proof found; an error if anything does not fit.
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
    let reach = reach(&reached.source())?;
    if Client::new(&reach).is_ok() {
        return Err("The gateway is running: stop it first.".to_owned());
    }
    let storage = way::storage(&reach)?;
    super::owner::take(&storage.path)?;
    let entries = crate::vault::rebuild(&storage)?;
    out(&format!("The ledger was written again: {entries} entries.\n"))
}
