//! Credit note of an issued invoice: page and downloads, on the operators' console and on the account dashboard.

use super::answer::ConsoleAnswer;
use super::invoice::csv_style;
use super::pages::PageContext;
use penstock_console::Block;
use penstock_console::pages as blocks;
use penstock_core::ApiError;
use serde_json::Value;
use std::collections::BTreeMap;

/// Content type of the CSV.
const CSV: &str = "text/csv; charset=utf-8";

/// Returns true if the query names the number of a credit note.
fn names_number(page: &PageContext<'_>) -> bool {
    page.request.query_parameter("number").is_some_and(|number| !number.is_empty())
}

/// Reads the issued credit note that the query names.
async fn read(page: &PageContext<'_>, account: &str) -> Result<Value, ApiError> {
    let number = page.request.query_parameter("number").unwrap_or_default();
    page.get_from_admin_api("/admin/credit-note", &[("account", account), ("number", number)]).await
}

/// Returns the blocks of the page of a credit note at `path`; without a number, the list of all credit notes.
///
/// # Errors
/// Returns the refusal of the admin API.
pub async fn credit_note_page(
    page: &PageContext<'_>,
    account: &str,
    path: &str,
) -> Result<Vec<Block>, ApiError> {
    if !names_number(page) {
        return Ok(vec![credit_notes_list(page, account, path).await?]);
    }
    Ok(blocks::credit_note_blocks(&read(page, account).await?, path))
}

/// Returns a credit note as CSV, with the columns of an invoice; without a number, the list of all credit notes.
///
/// # Errors
/// Returns 400 if the style is invalid, or the refusal of the admin API.
pub async fn credit_note_csv(page: &PageContext<'_>, account: &str) -> Result<ConsoleAnswer, ApiError> {
    let style = csv_style(page)?;
    if !names_number(page) {
        let issued = page.get_from_admin_api("/admin/credit-notes", &[("account", account)]).await?;
        let text = blocks::credit_notes_csv(&issued, style);
        return Ok(ConsoleAnswer::attachment_answer(CSV, "credit-notes.csv".to_owned(), text.into_bytes()));
    }
    let note = read(page, account).await?;
    let text = blocks::invoice_csv(&note, &BTreeMap::new(), style);
    Ok(ConsoleAnswer::attachment_answer(CSV, file_name(&note, "csv"), text.into_bytes()))
}

/// Returns a credit note as JSON; without a number, the list of all credit notes.
///
/// # Errors
/// Returns the refusal of the admin API.
pub async fn credit_note_json(page: &PageContext<'_>, account: &str) -> Result<ConsoleAnswer, ApiError> {
    if !names_number(page) {
        let issued = page.get_from_admin_api("/admin/credit-notes", &[("account", account)]).await?;
        let text = serde_json::to_vec_pretty(&issued).unwrap_or_default();
        return Ok(ConsoleAnswer::attachment_answer(
            "application/json",
            "credit-notes.json".to_owned(),
            text,
        ));
    }
    let note = read(page, account).await?;
    let text = serde_json::to_vec_pretty(&note).unwrap_or_default();
    Ok(ConsoleAnswer::attachment_answer("application/json", file_name(&note, "json"), text))
}

/// Returns the blocks below an issued invoice on the page of invoices at `path`. The first is a form that issues the
/// credit note of the invoice; without corrections, or without the right to issue, it is left out. The second is the
/// list of credit notes.
///
/// # Errors
/// Returns the refusal of the admin API.
pub async fn invoice_credit_note_blocks(
    page: &PageContext<'_>,
    account: &str,
    (invoice, path): (&Value, &str),
) -> Result<Vec<Block>, ApiError> {
    let mut shown = Vec::new();
    let number = invoice.get("number").and_then(Value::as_str);
    if let Some(number) = number.filter(|_| page.has_role(super::invoice::ISSUER_ROLES)) {
        let from = invoice.get("from").and_then(Value::as_str).unwrap_or_default();
        let query = [("account", account), ("invoice", number), ("invoice_from", from)];
        let draft = page.get_from_admin_api("/admin/credit-note", &query).await?;
        if draft.get("can_issue") == Some(&Value::Bool(true)) {
            shown.push(Block::Form(blocks::issue_credit_note_form(path, number, from)));
        }
    }
    let note_path =
        path.strip_suffix("invoice").map_or_else(String::new, |site| format!("{site}credit-note"));
    shown.push(credit_notes_list(page, account, &note_path).await?);
    Ok(shown)
}

/// Returns the table of the credit notes of an account, with links to the page at `path`.
async fn credit_notes_list(page: &PageContext<'_>, account: &str, path: &str) -> Result<Block, ApiError> {
    let issued = page.get_from_admin_api("/admin/credit-notes", &[("account", account)]).await?;
    Ok(Block::Table(blocks::credit_notes_table(&issued, path)))
}

/// Returns the file name of a download. Characters that a file name may not have are replaced.
fn file_name(note: &Value, ending: &str) -> String {
    let number = note.get("number").and_then(Value::as_str).unwrap_or_default();
    let safe = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    format!("credit-note-{}.{ending}", number.chars().map(safe).collect::<String>())
}
