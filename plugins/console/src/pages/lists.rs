//! Pages that list batches, files and users, and the changes of a configuration.

use super::{next_page, percent_encode, quantity_cell, rows, text, text_cell, time_cell, word};
use crate::block::{Block, Cell, CellState, Form, Table};
use crate::text::Text;
use serde_json::Value;

/// Table of batches with links below `root`, and with buttons if `may_change` is true.
#[must_use]
pub fn batches_blocks(batches: &Value, root: &str, may_change: bool) -> Vec<Block> {
    let row = |batch: &Value| {
        let status = text(batch, "status");
        let mark = match &*status {
            "completed" => CellState::Good,
            "failed" => CellState::Bad,
            _ => CellState::None,
        };
        let counts = batch.get("request_counts").cloned().unwrap_or_default();
        let is_open = matches!(&*status, "validating" | "in_progress");
        let path = format!("{root}batches/{}/cancel", percent_encode(&text(batch, "id")));
        vec![
            text_cell(batch, "id"),
            text_cell(batch, "account"),
            text_cell(batch, "model"),
            Cell::text(Text::Word(status)).with_state(mark),
            quantity_cell(&counts, "completed", ""),
            quantity_cell(&counts, "failed", ""),
            quantity_cell(&counts, "total", ""),
            time_cell(batch, "created"),
            time_cell(batch, "ended"),
            if may_change && is_open {
                Cell::button(Form { is_irreversible: true, ..Form::new(path, "", "Cancel") })
            } else {
                Cell::default()
            },
        ]
    };
    vec![Block::Table(Table {
        title: "Batches".into(),
        headings: vec![
            "Batch",
            "Account",
            "Model",
            "Status",
            "Completed",
            "Failed",
            "Lines",
            "Created",
            "Ended",
            "Action",
        ],
        rows: rows(batches).iter().map(row).collect(),
        empty_text: "There are no batches.",
        next: next_page(batches, &format!("{root}batches")),
        is_screen_only: false,
    })]
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
            if may_change {
                let path = format!("{root}files/{}/content", percent_encode(&text(file, "id")));
                Cell::link(text(file, "filename"), path)
            } else {
                text_cell(file, "filename")
            },
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
