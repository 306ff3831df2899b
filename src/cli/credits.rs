//! `penstock credits` and `penstock statement`: through the running gateway, or
//! directly in its store when none runs.

use super::client::{Client, Failure, reach};
use super::configuration;
use super::live::{cell, data, print};
use super::speak::{err, out};
use super::table::table;
use super::way::{actor, encoded, now};
use super::{Reached, statement};
use crate::admin::credits::{self, Told};
use crate::admin::desk::Asked;
use crate::admin::routes;
use crate::clock::Clock;
use crate::config::{Report, settings};
use crate::ledger::Ledger;
use crate::vault::Vault;
use clap::{Args, Subcommand, ValueEnum};
use penstock_contract::Refusal;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    /// A name of your own, such as an invoice's number: asking again with it grants nothing twice
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

#[derive(Debug, Args)]
struct Export {
    /// How
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Only entries behind this number
    #[arg(long, default_value_t = 0)]
    after: u64,
    /// A file to write to instead of standard output
    #[arg(long, short)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The ledger's own lines, hashes and all
    Jsonl,
    /// A row for each entry
    Csv,
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
        Command::Export(export) => way.export(&export),
        Command::Rebuild => Ok(()),
    }
}

/// How the ledger is got at.
pub enum Way {
    /// Through the admin listener.
    Gateway(Client),
    /// Directly, with a ledger of this process's own.
    Store(tokio::runtime::Runtime, Box<Vault>, Arc<Ledger>),
}

impl Way {
    /// The running gateway, or the store.
    pub fn find(reached: &Reached) -> Result<Self, String> {
        let reach = reach(&reached.source())?;
        match Client::new(&reach) {
            Ok(client) => Ok(Self::Gateway(client)),
            Err(Failure::Other(why)) => Err(why),
            Err(Failure::NotRunning(_)) => {
                let vault = Vault::open(&storage(&reach)?)?;
                let settings = settings::Ledger {
                    window: Duration::ZERO,
                    answers_wait: true,
                    debt: i64::MAX,
                    backlog: usize::MAX,
                    slow: Duration::from_secs(1),
                    // Nothing here is about now but grants and corrections: a clock that is wrong is told by
                    // the gateway.
                    ahead: Duration::MAX,
                };
                let ledger = Ledger::open(vault.ledger.clone(), &settings, Clock::start())?;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(|error| format!("A runtime cannot be started: {error}."))?;
                Ok(Self::Store(runtime, Box::new(vault), ledger))
            }
        }
    }

    /// A question.
    pub fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        self.json("GET", path, query, None)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.json("POST", path, &[], Some(body))
    }

    fn json(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Value, String> {
        match self {
            Self::Gateway(client) => Ok(client.ask(method, &format!("{path}{}", written(query)), body)?),
            Self::Store(..) => match self.direct(method, path, query, body)? {
                Told::Json(_, value) => Ok(value),
                Told::Lines(_) => Err("This is not a question with one answer.".to_owned()),
            },
        }
    }

    fn lines(&self, after: u64) -> Result<Vec<u8>, String> {
        let (path, after) = ("/admin/ledger", after.to_string());
        let query = [("after", after.as_str())];
        match self {
            Self::Gateway(client) => Ok(client.text(&format!("{path}{}", written(&query)))?),
            Self::Store(..) => match self.direct("GET", path, &query, None)? {
                Told::Lines(lines) => Ok(lines),
                Told::Json(..) => Err("The ledger is not lines.".to_owned()),
            },
        }
    }

    fn direct(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Told, String> {
        let Self::Store(runtime, vault, ledger) = self else { return Err("There is no store.".to_owned()) };
        let method = http::Method::from_bytes(method.as_bytes()).map_err(|error| error.to_string())?;
        let (operation, id) = routes::find(&method, path).map_err(sentence)?;
        let asked = Asked {
            id,
            query: query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            body: body.cloned().unwrap_or_else(|| json!({})),
            who: format!("{} on the store", actor()),
            now: now(),
        };
        runtime.block_on(credits::answer(vault, ledger, operation, &asked)).map_err(sentence)
    }

    fn export(&self, export: &Export) -> Result<(), String> {
        let mut file = match &export.output {
            Some(path) => Some(std::fs::File::create(path).map_err(|error| unwritten(&error))?),
            None => None,
        };
        let mut write = |bytes: &[u8]| match &mut file {
            Some(file) => file.write_all(bytes).map_err(|error| unwritten(&error)),
            None => out(&String::from_utf8_lossy(bytes)),
        };
        if matches!(export.format, Format::Csv) {
            write(statement::heading(&COLUMNS).as_bytes())?;
        }
        let (mut after, mut entries) = (export.after, 0_u64);
        loop {
            let lines = self.lines(after)?;
            let mut last = None;
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                let entry: Value = serde_json::from_slice(line)
                    .map_err(|_| "What came is not a line of the ledger.".to_owned())?;
                last = entry.get("seq").and_then(Value::as_u64);
                entries += 1;
                match export.format {
                    Format::Jsonl => write(line)?,
                    Format::Csv => write(statement::row(&COLUMNS, &entry).as_bytes())?,
                }
            }
            match last {
                Some(last) => after = last,
                None => break,
            }
        }
        err(&format!("{entries} entries.\n"));
        Ok(())
    }
}

/// The columns of an export as CSV: every member that an entry may have.
const COLUMNS: [&str; 30] = [
    "seq",
    "at",
    "act",
    "account",
    "key",
    "request",
    "id",
    "wallet",
    "amount",
    "held",
    "of",
    "what",
    "was",
    "eur",
    "model",
    "provider",
    "terms",
    "batch",
    "input",
    "cached",
    "output",
    "reasoning",
    "counted",
    "images",
    "seconds",
    "billable_kwh",
    "kwh",
    "g_co2",
    "litres",
    "why",
];

fn unwritten(error: &std::io::Error) -> String {
    format!("The export cannot be written: {error}.")
}

fn sentence(refusal: Refusal) -> String {
    refusal.message.into_owned()
}

fn storage(reach: &crate::config::Reach) -> Result<settings::Storage, String> {
    reach.storage.clone().map_err(|mistakes| {
        let report = Report { mistakes, warnings: Vec::new() };
        configuration::refusal(&report, "the store cannot be opened")
    })
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
    let entries = crate::vault::rebuild(&storage(&reach)?)?;
    out(&format!("The ledger was written again: {entries} entries.\n"))
}

/// A query as it is sent.
fn written(query: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}
