//! Commands for a running gateway: models, providers, reload.

use super::client::{AdminClient, gateway_access};
use super::listing::{Listing, OutputArgs, OutputFormat};
use super::output::{print_stderr, print_stdout};
use crate::config::ConfigSource;
use serde_json::Value;

/// Prints the models of the running gateway, for `penstock models`.
pub fn print_models(source: &ConfigSource, output: OutputArgs) -> Result<(), String> {
    let answer = ask(source, "GET", "/admin/models")?;
    let rows = response_rows(&answer).iter().map(|model| {
        ["id", "kind", "context_length", "aliases", "providers"].map(|name| table_cell(model, name)).to_vec()
    });
    let listing = Listing::new(&["MODEL", "KIND", "WINDOW", "ALIASES", "PROVIDERS"]).with_rows(rows);
    output.print(&listing, || answer.clone())
}

/// Prints the providers for `penstock providers`: one line for each offer, which has its own health and speed.
pub fn print_providers(source: &ConfigSource, output: OutputArgs) -> Result<(), String> {
    let answer = ask(source, "GET", "/admin/providers")?;
    // The table shows a provider once, above its offers; a CSV row of an offer repeats the provider.
    let every_row = output.output_format() == OutputFormat::Csv;
    let mut rows = Vec::new();
    for provider in response_rows(&answer) {
        let location = format!("{}, {}", table_cell(provider, "city"), table_cell(provider, "country"));
        let mut first = vec![table_cell(provider, "id"), location, table_cell(provider, "check")];
        for offer in list(provider.get("offers")) {
            let rest = if every_row { first.clone() } else { vec![String::new(); 3] };
            let mut row = std::mem::replace(&mut first, rest);
            row.push(table_cell(offer, "model"));
            row.push(offer_state_label(offer));
            row.push(format_number(offer.get("first_token_seconds"), 1_000.0, "ms"));
            row.push(format_number(offer.get("tokens_per_second"), 1.0, ""));
            row.push(table_cell(offer, "requests_in_flight"));
            rows.push(row);
        }
        if list(provider.get("offers")).is_empty() {
            rows.push(first);
        }
    }
    let heading = ["PROVIDER", "PLACE", "CHECK", "MODEL", "STATE", "FIRST TOKEN", "TOKENS/S", "BUSY"];
    output.print(&Listing::new(&heading).with_rows(rows), || answer.clone())
}

/// Makes the running gateway reload its configuration, for `penstock reload`.
pub fn request_reload(source: &ConfigSource) -> Result<(), String> {
    let client = AdminClient::connect(&gateway_access(source)?);
    let client = client.map_err(|failure| String::from(failure) + UNREACHABLE_ADVICE)?;
    let answer = client.send("POST", "/admin/reload", None)?;
    for warning in list(answer.get("warnings")).iter().filter_map(Value::as_str) {
        print_stderr(&format!("warning: {warning}\n\n"));
    }
    let waiting: Vec<&str> = list(answer.get("next_start")).iter().filter_map(Value::as_str).collect();
    if !waiting.is_empty() {
        let verb = if waiting.len() == 1 { "takes effect" } else { "take effect" };
        print_stderr(&format!("warning: {} {verb} at the next start or upgrade.\n", waiting.join(", ")));
    }
    print_stdout(&format!(
        "The gateway runs configuration {}.\n{}",
        table_cell(&answer, "config"),
        changes_text(&answer)
    ))
}

/// Advice after a reload that did not reach the gateway.
const UNREACHABLE_ADVICE: &str = "\nThe command reads the address and the token of the gateway from the file. If the file has another \
    `listen.admin` or `storage.path` than the running gateway, reload it with `kill -HUP PID`; both change at the next start.";

/// Formats the changes of a reload, one line for each key.
fn changes_text(answer: &Value) -> String {
    let changes = list(answer.get("changes"));
    if changes.is_empty() {
        return "Nothing changed.\n".to_owned();
    }
    let side = |change: &Value, name: &str| match change.get(name).and_then(Value::as_str) {
        Some(value) => value.to_owned(),
        None => "unset".to_owned(),
    };
    let mut text = String::new();
    for change in changes {
        text.push_str(&format!(
            "  {}: {} -> {}\n",
            table_cell(change, "key"),
            side(change, "old"),
            side(change, "new")
        ));
    }
    match answer.get("more_changes").and_then(Value::as_u64) {
        None | Some(0) => text,
        Some(more) => format!("{text}  and {more} more keys\n"),
    }
}

fn ask(source: &ConfigSource, method: &str, path: &str) -> Result<Value, String> {
    let reach = gateway_access(source)?;
    Ok(AdminClient::connect(&reach)?.send(method, path, None)?)
}

/// Prints JSON.
pub fn print_json(value: &Value) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    print_stdout(&format!("{text}\n"))
}

/// Returns the rows of a list response, its member `data`.
pub fn response_rows(answer: &Value) -> &[Value] {
    list(answer.get("data"))
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Formats a member of a JSON object as a table cell: empty if it is absent or `null`; a list with commas.
pub fn table_cell(value: &Value, name: &str) -> String {
    match value.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                .collect();
            items.join(", ")
        }
        // A number of JSON may have an exponent, which spreadsheets read as text.
        Some(Value::Number(number)) if number.is_f64() => {
            number.as_f64().map_or_else(String::new, |number| number.to_string())
        }
        Some(other) => other.to_string(),
    }
}

/// Returns the state of an offer for people. An offer in a cooldown, such as the `Retry-After` of its provider, gets no
/// requests, like one that is ejected.
fn offer_state_label(offer: &Value) -> String {
    match table_cell(offer, "state").as_str() {
        "closed" | "suspect" if offer.get("rests_for_seconds").is_some_and(Value::is_number) => {
            "resting".to_owned()
        }
        state => state_label(state),
    }
}

/// Returns the name of a circuit breaker's state for people.
fn state_label(name: &str) -> String {
    match name {
        "closed" => "good",
        "open" => "resting",
        "half_open" => "on trial",
        other => other,
    }
    .to_owned()
}

fn format_number(value: Option<&Value>, factor: f64, unit: &str) -> String {
    value.and_then(Value::as_f64).map_or_else(String::new, |number| format!("{:.0}{unit}", number * factor))
}
