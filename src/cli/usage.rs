//! `penstock usage`: sums of requests, tokens, energy and money from the hourly rollups, and their rebuild.

use super::ConfigArgs;
use super::client::{AdminClient, gateway_access};
use super::credits::{LedgerBackend, check_replica_before_opening, ledger_storage_settings};
use super::listing::{Listing, OutputArgs};
use super::output::print_stdout;
use super::status::{response_rows, table_cell};
use clap::{Args, Subcommand};
use serde_json::Value;

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct UsageArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    #[command(subcommand)]
    command: UsageCommand,
}

#[derive(Debug, Subcommand)]
enum UsageCommand {
    /// Adds up usage by day, model, key and other dimensions
    Show(ShowArgs),
    /// Compares the rollups (sums of hours and days) with the ledger; nothing is changed
    ///
    /// Ends with 1 if they differ.
    Verify,
    /// Writes the rollups again from the ledger and compares them with it
    ///
    /// Requires that no gateway runs. The ledger is not changed.
    Rebuild,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Only this account; by default the sums of all accounts
    #[arg(long)]
    account: Option<String>,
    /// Only this key of the account, by its id
    #[arg(long, requires = "account")]
    key: Option<String>,
    /// First day in UTC, such as 2026-11-22; by default 29 days before the last day
    #[arg(long)]
    from: Option<String>,
    /// Last day in UTC; by default today
    #[arg(long)]
    to: Option<String>,
    /// Up to three of day, week, month, hour, model, key, provider, location and outcome, with commas
    #[arg(long, default_value = "day")]
    group_by: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs `penstock usage`.
pub fn run(usage: &UsageArgs) -> Result<(), String> {
    match &usage.command {
        UsageCommand::Rebuild => rebuild(&usage.reached),
        UsageCommand::Verify => {
            check_replica_before_opening(&usage.reached)?;
            let answer =
                LedgerBackend::connect_for_reading(&usage.reached)?.get("/admin/usage/verify", &[])?;
            print_check(&answer, "Stop the gateway and run `penstock usage rebuild`.")
        }
        UsageCommand::Show(show) => {
            let optional =
                [("account", &show.account), ("key", &show.key), ("from", &show.from), ("to", &show.to)];
            let mut query: Vec<(&str, &str)> =
                optional.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
            query.push(("group_by", &show.group_by));
            let backend = LedgerBackend::connect_for_reading(&usage.reached)?;
            backend.check_complete_rollups()?;
            let answer = backend.get("/admin/usage", &query)?;
            show.output.print(&usage_table(&answer, &show.group_by), || answer.clone())
        }
    }
}

fn usage_table(answer: &Value, group_by: &str) -> Listing {
    const DIMENSIONS: [(&str, &str); 9] = [
        ("day", "DAY"),
        ("week", "WEEK"),
        ("month", "MONTH"),
        ("hour", "HOUR"),
        ("model", "MODEL"),
        ("key", "KEY"),
        ("provider", "PROVIDER"),
        ("location", "LOCATION"),
        ("outcome", "OUTCOME"),
    ];
    const FIGURES: [(&str, &str); 8] = [
        ("requests", "REQUESTS"),
        ("requests_not_charged", "FREE"),
        ("input_tokens", "INPUT"),
        ("output_tokens", "OUTPUT"),
        ("energy_kwh", "KWH"),
        ("carbon_g_co2", "G CO2E"),
        ("credits", "CREDITS"),
        ("eur", "EUR"),
    ];
    let dimensions: Vec<&str> = group_by.split(',').map(str::trim).collect();
    let columns: Vec<&str> = dimensions.iter().copied().chain(FIGURES.map(|(name, _)| name)).collect();
    let heading: Vec<&'static str> = dimensions
        .iter()
        .map(|name| DIMENSIONS.iter().find(|(known, _)| known == name).map_or("GROUP", |(_, title)| title))
        .chain(FIGURES.map(|(_, title)| title))
        .collect();
    let rows = response_rows(answer)
        .iter()
        .map(|row| columns.iter().map(|column| table_cell(row, column)).collect::<Vec<_>>());
    Listing::new(&heading).with_rows(rows)
}

fn rebuild(reached: &ConfigArgs) -> Result<(), String> {
    let reach = gateway_access(&reached.source()?)?;
    if AdminClient::connect(&reach).is_ok() {
        return Err("The gateway is running: stop it first.".to_owned());
    }
    let storage = ledger_storage_settings(&reach)?;
    super::drop_privileges::become_folder_owner(&storage.path)?;
    let check = crate::billing::offline::rebuild_rollups(&storage)?.to_json();
    print_check(
        &check,
        "The new rollups differ too: run `penstock store verify`, and restore a backup if it fails.",
    )
}

/// Prints the result of a comparison.
///
/// # Errors
/// Returns the differences and `remedy`.
fn print_check(check: &Value, remedy: &str) -> Result<(), String> {
    print_stdout(&check_summary(check))?;
    if check.get("good") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    let differences = check.get("differences").and_then(Value::as_array).into_iter().flatten();
    let mut why: String =
        differences.filter_map(Value::as_str).map(|difference| format!("{difference}\n")).collect();
    why.push_str(remedy);
    Err(why)
}

/// Returns the number of entries and compared rollups, and which of them are equal, as text.
fn check_summary(check: &Value) -> String {
    let rollups = table_cell(check, "rollups");
    let mut text =
        format!("{} entries read, {rollups} hourly rollups compared.\n", table_cell(check, "entries"));
    let left_out = check.get("left_out_from").and_then(Value::as_str);
    let is_good = check.get("good") == Some(&Value::Bool(true));
    match left_out {
        None if is_good => text.push_str("The rollups are equal to the ledger.\n"),
        Some(hour) if is_good && rollups != "0" => {
            text.push_str(&format!("The rollups of the hours before {hour} are equal to the ledger.\n"));
        }
        _ => {}
    }
    if let Some(hour) = left_out {
        text.push_str(&format!(
            "Hours from {hour} on were left out, because entries were written meanwhile.\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn small_amounts_are_plain_decimals() {
        let row = json!({"energy_kwh": 2.12775e-7, "credits": 6.596e-6, "eur": 12.5, "requests": 3});
        let cells = ["energy_kwh", "credits", "eur", "requests"].map(|name| table_cell(&row, name));
        assert_eq!(cells, ["0.000000212775", "0.000006596", "12.5", "3"]);
    }

    #[test]
    fn a_check_says_what_was_compared_and_what_was_left_out() {
        let summary = |good: bool, rollups: u64, left_out_from: Option<&str>| {
            check_summary(&json!({
                "good": good,
                "entries": 990,
                "rollups": rollups,
                "left_out_from": left_out_from,
            }))
        };
        let hour = Some("2026-12-01T10:00:00Z");
        let left_out =
            "Hours from 2026-12-01T10:00:00Z on were left out, because entries were written meanwhile.\n";
        assert_eq!(
            summary(true, 12, None),
            "990 entries read, 12 hourly rollups compared.\nThe rollups are equal to the ledger.\n"
        );
        let before = "The rollups of the hours before 2026-12-01T10:00:00Z are equal to the ledger.\n";
        assert_eq!(
            summary(true, 12, hour),
            format!("990 entries read, 12 hourly rollups compared.\n{before}{left_out}")
        );
        assert_eq!(
            summary(true, 0, hour),
            format!("990 entries read, 0 hourly rollups compared.\n{left_out}")
        );
        assert_eq!(summary(false, 12, None), "990 entries read, 12 hourly rollups compared.\n");
        assert_eq!(
            summary(false, 12, hour),
            format!("990 entries read, 12 hourly rollups compared.\n{left_out}")
        );
    }
}
