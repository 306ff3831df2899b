//! Pages, built from responses of the admin API. A member that a response lacks is shown as a dash.

mod accounts;
mod audit;
mod carbon;
mod credit_note;
mod dashboard;
mod data_sources;
mod exports;
mod forms;
mod grid;
mod invoice;
mod invoice_correction;
mod invoice_csv;
mod invoice_issue;
mod key_state;
mod latency;
mod lists;
mod overview;
mod playground;
mod providers;
mod reference;
mod routing;
mod schema;
#[cfg(test)]
mod size_tests;
mod statement;
mod usage;
mod usage_chart;
mod usage_step;

pub use accounts::{account_blocks, accounts_blocks};
pub use audit::audit_blocks;
pub use carbon::{carbon_report_blocks, carbon_report_csv, carbon_report_form};
pub use credit_note::{
    credit_note_blocks, credit_note_preview_blocks, credit_notes_csv, credit_notes_table,
    issue_credit_note_form,
};
pub use dashboard::{dashboard_key_blocks, dashboard_keys_blocks, dashboard_overview_blocks, edit_key_form};
pub use exports::{add_ledger_entry, ledger_export_blocks, ledger_period_form, new_ledger_csv, usage_csv};
pub use forms::{
    accept_invitation_form, account_state_form, check_configuration_form, correction_blocks, correction_form,
    edit_account_form, grant_form, invite_user_form, key_filter_form, new_account_form, new_key_form,
    reload_form, sign_in_form, user_role_form,
};
pub use grid::grid_intensity_blocks;
pub use invoice::{invoice_blocks, invoice_period_form};
pub use invoice_csv::invoice_csv;
pub use invoice_issue::{
    issue_invoice_form, issue_preview_blocks, issued_invoices_table, missing_address_notice,
};
pub use latency::{latency_blocks, latency_grouping_form};
pub use lists::{
    batches_blocks, configuration_changes_table, file_table, files_blocks, user_table, users_blocks,
};
pub use overview::{overview_blocks, overview_figures_json};
pub use playground::{
    PlaygroundChoices, QUOTE_ACTION, QUOTED_REQUEST_FIELD, playground_answer_blocks, playground_form,
    quote_blocks,
};
pub use providers::providers_blocks;
pub use reference::{api_reference_blocks, operation_blocks, schema_blocks};
pub use routing::{
    ROUTING_PATH, ROUTING_QUERY_PARAMETERS, hypothetical_request_form, past_request_blocks,
    past_request_form, routing_blocks,
};
pub use statement::{key_names, statement_blocks, statement_csv, statement_period_form};
pub use usage::{
    ACCOUNT_DIMENSIONS, GATEWAY_DIMENSIONS, UsageView, usage_blocks, usage_form, usage_summary_blocks,
};
pub use usage_step::UsageStep;

use self::invoice::array_member;
use crate::block::Cell;
use crate::format;
use crate::text::Text;
use serde_json::Value;

/// Returns a JSON member as text, the strings of an array with commas between them; a dash if the member is absent or
/// null.
fn text(value: &Value, name: &str) -> String {
    match value.get(name) {
        None | Some(Value::Null) => "–".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            items.join(", ")
        }
        Some(other) => other.to_string(),
    }
}

/// Returns a member that is a JSON number, or a string with a number; `None` for any other value.
fn number(value: &Value, name: &str) -> Option<f64> {
    let member = value.get(name)?;
    member.as_f64().or_else(|| member.as_str()?.parse().ok())
}

/// Returns the rows of a list response.
fn rows(value: &Value) -> &[Value] {
    value.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns a JSON member as a quantity; a dash if it is no number.
fn figure(value: &Value, name: &str, unit: &'static str) -> Text {
    number(value, name).map_or_else(|| "–".into(), |amount| Text::Quantity(amount, unit))
}

/// Returns a number with all its digits, and its unit.
fn exact(amount: f64, unit: &'static str) -> Text {
    Text::exact_number(amount, unit)
}

/// Returns a JSON member as an exact number with its unit.
fn exact_text(value: &Value, name: &str, unit: &'static str) -> Text {
    Text::Exact(text(value, name), unit)
}

/// Returns the text of a location: a city, and its country in the language of the page.
fn place(location: &str) -> Text {
    match location.rsplit_once(", ") {
        Some((city, country)) => {
            Text::with_values("{0}, {1}", [Text::Data(city.to_owned()), Text::Word(country.to_owned())])
        }
        None => Text::Word(location.to_owned()),
    }
}

/// Returns the name of the country with this code, or the code itself.
fn country(code: &str) -> Text {
    crate::texts::country_name(code).map_or_else(|| Text::Data(code.to_owned()), Text::from)
}

/// Returns a member that is a word of the API, such as a state.
fn word(value: &Value, name: &str) -> Text {
    Text::Word(text(value, name))
}

/// Returns the member `name` of a JSON object as a calendar day.
fn day(value: &Value, name: &str) -> Text {
    Text::Day(text(value, name))
}

fn text_cell(value: &Value, name: &str) -> Cell {
    Cell::text(text(value, name))
}

/// Cell with a quantity, exact on hover; a dash if there is none.
fn quantity_cell(value: &Value, name: &str, unit: &'static str) -> Cell {
    match number(value, name) {
        Some(amount) => Cell::number(Text::Quantity(amount, unit)).with_exact_value(exact(amount, unit)),
        None => Cell::number("–"),
    }
}

fn time_cell(value: &Value, name: &str) -> Cell {
    Cell::text(format::unix_time_text(value.get(name)))
}

/// Returns the path of the next page of a list, with the text of the member `filter` if the list is filtered; `None` on
/// the last page.
fn next_page(value: &Value, path: &str) -> Option<String> {
    let next = match value.get("next")? {
        Value::String(next) => next.clone(),
        Value::Number(next) => next.to_string(),
        _ => return None,
    };
    let filter = value.get("filter").and_then(Value::as_str).filter(|filter| !filter.is_empty());
    let filter = filter.map_or_else(String::new, |filter| format!("&filter={}", percent_encode(filter)));
    Some(format!("{path}?after={}{filter}", percent_encode(&next)))
}

/// Percent-encodes a segment of a path or a value of a query.
pub fn percent_encode(text: &str) -> String {
    penstock_core::percent::encode(text, penstock_core::percent::PATH_SEGMENT)
}

#[cfg(test)]
mod tests {
    use super::next_page;
    use serde_json::json;

    #[test]
    fn next_page_keeps_the_filter() {
        let path = |value| next_page(&value, "/keys");
        assert_eq!(
            path(json!({ "next": "k/1", "filter": "a b" })).as_deref(),
            Some("/keys?after=k%2F1&filter=a%20b")
        );
        assert_eq!(path(json!({ "next": 7, "filter": "" })).as_deref(), Some("/keys?after=7"));
        assert_eq!(path(json!({ "next": 7 })).as_deref(), Some("/keys?after=7"));
        assert_eq!(path(json!({ "next": null, "filter": "a" })), None);
    }
}
