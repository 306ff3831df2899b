//! Pages that list batches, files and users, and the changes of a configuration.

use super::{exact_text, next_page, percent_encode, quantity_cell, rows, text, text_cell, time_cell, word};
use crate::block::{Block, Cell, CellState, Form, Table};
use crate::format::unix_time_text;
use crate::text::Text;
use serde_json::Value;

/// Path below which the pages of the account holders are.
const HOLDER_ROOT: &str = "/dashboard/";

/// Table of batches at `now`, in Unix seconds, with links below `root`, and with buttons if `may_change` is true. The
/// pages of files below `root` have the contents on the site of the account holders, whose table has no account.
#[must_use]
pub fn batches_blocks(batches: &Value, root: &str, may_change: bool, now: u64) -> Vec<Block> {
    let with_account = root != HOLDER_ROOT;
    let row = |batch: &Value| {
        let counts = batch.get("request_counts").cloned().unwrap_or_default();
        let is_open = matches!(&*text(batch, "status"), "validating" | "in_progress");
        let path = format!("{root}batches/{}/cancel", percent_encode(&text(batch, "id")));
        let mut cells = vec![text_cell(batch, "id")];
        cells.extend(with_account.then(|| text_cell(batch, "account")));
        cells.extend([
            text_cell(batch, "model"),
            batch_state_cell(batch, now),
            quantity_cell(&counts, "completed", ""),
            quantity_cell(&counts, "failed", ""),
            quantity_cell(&counts, "total", ""),
            time_cell(batch, "created"),
            time_cell(batch, "ended"),
            batch_files_cell(batch, root),
            if may_change && is_open {
                Cell::button(Form { is_irreversible: true, ..Form::new(path, "", "Cancel") })
            } else {
                Cell::default()
            },
        ]);
        cells
    };
    let mut headings = vec!["Batch"];
    headings.extend(with_account.then_some("Account"));
    headings.extend([
        "Model",
        "Status",
        "Completed",
        "Failed",
        "Lines",
        "Created",
        "Ended",
        "Files",
        "Action",
    ]);
    vec![Block::Table(Table {
        title: "Batches".into(),
        headings,
        rows: rows(batches).iter().map(row).collect(),
        empty_text: "There are no batches.",
        next: next_page(batches, &format!("{root}batches")),
        is_screen_only: false,
    })]
}

/// Returns the state of a batch: with the time for which it waits, or with the first error of a failed batch.
fn batch_state_cell(batch: &Value, now: u64) -> Cell {
    let status = word(batch, "status");
    let starts = batch.get("scheduled").and_then(Value::as_u64).filter(|start| *start > now);
    let error = batch.pointer("/errors/data/0/message").and_then(Value::as_str);
    match (&*text(batch, "status"), starts, error) {
        ("completed", ..) => Cell::text(status).with_state(CellState::Good),
        ("failed", _, None) => Cell::text(status).with_state(CellState::Bad),
        ("failed", _, Some(error)) => {
            let text = Text::with_values("{0}: {1}", [status, Text::Word(error.to_owned())]);
            Cell::text(text).with_state(CellState::Bad)
        }
        ("validating" | "in_progress", Some(_), _) => {
            let start = unix_time_text(batch.get("scheduled"));
            Cell::text(Text::with_values("waits for a greener hour, until {0}", [start]))
        }
        _ => Cell::text(status),
    }
}

/// Returns the links to the input and the output of a batch. The output has the results and the errors of its lines.
fn batch_files_cell(batch: &Value, root: &str) -> Cell {
    let link = |(name, shown): (&str, &'static str)| {
        let id = batch.get(name)?.as_str().filter(|id| !id.is_empty())?;
        Some((file_path(root, id), Text::from(shown)))
    };
    Cell::links(
        [("input_file_id", "Input"), ("output_file_id", "Output")].into_iter().filter_map(link).collect(),
    )
}

/// Returns the path of a file: of its contents on the site of the account holders, otherwise of its properties.
fn file_path(root: &str, id: &str) -> String {
    let contents = if root == HOLDER_ROOT { "/content" } else { "" };
    format!("{root}files/{}{contents}", percent_encode(id))
}

/// Table of files with links below `root`, and with buttons if `may_change` is true.
#[must_use]
pub fn files_blocks(files: &Value, root: &str, may_change: bool) -> Vec<Block> {
    let row = |file: &Value| {
        let status = text(file, "status");
        let mark = if status == "error" { CellState::Bad } else { CellState::None };
        let mut cells = vec![
            text_cell(file, "id"),
            text_cell(file, "account"),
            Cell::link(text(file, "filename"), file_path(root, &text(file, "id"))),
            Cell::text(word(file, "purpose")),
            Cell::text(Text::Word(status)).with_state(mark),
            quantity_cell(file, "bytes", ""),
            quantity_cell(file, "lines", ""),
            time_cell(file, "created"),
            time_cell(file, "expires"),
        ];
        if may_change {
            let path = format!("{root}files/{}/delete", percent_encode(&text(file, "id")));
            cells.push(Cell::button(Form { is_irreversible: true, ..Form::new(path, "", "Delete") }));
        }
        cells
    };
    let mut headings =
        vec!["File", "Account", "Name", "Purpose", "Status", "Bytes", "Lines", "Created", "Expires"];
    headings.extend(may_change.then_some("Action"));
    vec![Block::Table(Table {
        title: "Files".into(),
        headings,
        rows: rows(files).iter().map(row).collect(),
        empty_text: "There are no files.",
        next: next_page(files, &format!("{root}files")),
        is_screen_only: false,
    })]
}

/// Table of one file, without its contents.
#[must_use]
pub fn file_table(file: &Value) -> Table {
    let facts = [
        ("File", text_cell(file, "id")),
        ("Name", text_cell(file, "filename")),
        ("Account", text_cell(file, "account")),
        ("Key", text_cell(file, "key")),
        ("Purpose", Cell::text(word(file, "purpose"))),
        ("Status", Cell::text(word(file, "status"))),
        ("Bytes", Cell::text(exact_text(file, "bytes", ""))),
        ("Lines", Cell::text(exact_text(file, "lines", ""))),
        ("Created", time_cell(file, "created")),
        ("Expires", time_cell(file, "expires")),
        ("SHA-256", text_cell(file, "sha256")),
    ];
    Table {
        title: "File".into(),
        headings: vec!["Property", "Value"],
        rows: facts.into_iter().map(|(name, cell)| vec![Cell::text(name), cell]).collect(),
        ..Table::default()
    }
}

/// Table of the users.
#[must_use]
pub fn users_blocks(users: &Value) -> Vec<Block> {
    let row = |user: &Value| {
        let (name, state) = (text(user, "name"), text(user, "state"));
        let mark = if state == "active" { CellState::Good } else { CellState::Warning };
        let button = |path: &str, submit: &'static str, is_final: bool| {
            let form = Form::new(format!("/console/users/{}/{path}", percent_encode(&name)), "", submit);
            Cell::button(Form { is_irreversible: is_final, ..form })
        };
        let switch = if state == "disabled" {
            button("enable", "Enable", false)
        } else {
            button("disable", "Disable", true)
        };
        vec![
            Cell::link(name.clone(), format!("/console/users/{}", percent_encode(&name))),
            Cell::text(Text::Word(text(user, "role"))),
            text_cell(user, "account"),
            Cell::text(Text::Word(state)).with_state(mark),
            time_cell(user, "created"),
            time_cell(user, "invitation_expires"),
            button("invite", "Invite again", false),
            switch,
        ]
    };
    vec![Block::Table(Table {
        title: "Users".into(),
        headings: vec![
            "Name",
            "Role",
            "Account",
            "State",
            "Created",
            "Invitation until",
            "Invitation",
            "Access",
        ],
        rows: rows(users).iter().map(row).collect(),
        empty_text: "There are no users.",
        next: None,
        is_screen_only: false,
    })]
}

/// Table of one user.
#[must_use]
pub fn user_table(user: &Value) -> Table {
    let facts = [
        ("Name", text_cell(user, "name")),
        ("Role", Cell::text(Text::Word(text(user, "role")))),
        ("Account", text_cell(user, "account")),
        ("State", Cell::text(Text::Word(text(user, "state")))),
        ("Created", time_cell(user, "created")),
        ("Invitation until", time_cell(user, "invitation_expires")),
    ];
    Table {
        title: "User".into(),
        headings: vec!["Property", "Value"],
        rows: facts.into_iter().map(|(name, cell)| vec![Cell::text(name), cell]).collect(),
        empty_text: "",
        next: None,
        is_screen_only: false,
    }
}

/// Table of the configuration keys that a reload changes.
#[must_use]
pub fn configuration_changes_table(changes: &Value) -> Table {
    let list = changes.get("changes").and_then(Value::as_array).into_iter().flatten();
    let row =
        |change: &Value| vec![text_cell(change, "key"), text_cell(change, "old"), text_cell(change, "new")];
    Table {
        title: "Changes".into(),
        headings: vec!["Key", "Before", "After"],
        rows: list.map(row).collect(),
        empty_text: "No value differs.",
        next: None,
        is_screen_only: false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use crate::Language;
    use serde_json::json;

    fn rows_at(batches: &[Value], root: &str, now: u64) -> Vec<Vec<Cell>> {
        let blocks = batches_blocks(&json!({ "data": batches }), root, true, now);
        let [Block::Table(table)] = blocks.as_slice() else { panic!("{blocks:?}") };
        table.rows.clone()
    }

    #[test]
    fn a_batch_says_why_it_does_not_run() {
        let error =
            json!({ "data": [{ "code": "invalid_model", "message": "There is no such model.", "line": 1 }] });
        let batches = [
            json!({ "status": "in_progress", "scheduled": 1_796_094_000 }),
            json!({ "status": "failed", "errors": error }),
            json!({ "status": "failed", "errors": null }),
            json!({ "status": "cancelled", "scheduled": 1_796_094_000 }),
        ];
        let states = |now, language| -> Vec<String> {
            let rows = rows_at(&batches, "/console/", now);
            rows.iter().map(|row| row[3].text.render(language).into_owned()).collect()
        };
        assert_eq!(
            states(1_796_093_999, Language::English),
            [
                "waits for a greener hour, until 2026-12-01 03:00:00 UTC",
                "failed: There is no such model.",
                "failed",
                "cancelled"
            ]
        );
        assert_eq!(
            states(1_796_094_000, Language::German)[..2],
            ["in Arbeit", "fehlgeschlagen: Dieses Modell gibt es nicht."]
        );
    }

    #[test]
    fn a_batch_has_links_to_its_files() {
        let batch = json!({ "status": "completed", "input_file_id": "file-1", "output_file_id": null });
        let links = |root| {
            rows_at(std::slice::from_ref(&batch), root, 0)[0]
                .iter()
                .flat_map(|cell| cell.links.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(links("/dashboard/"), [("/dashboard/files/file-1/content".to_owned(), "Input".into())]);
        assert_eq!(links("/console/"), [("/console/files/file-1".to_owned(), "Input".into())]);
    }
}
