//! Page of the audit log.

use super::{exact_text, rows, text, text_cell, time_cell};
use crate::block::{Block, Cell, NoticeKind, Table};
use crate::text::Text;
use penstock_core::calendar::format_rfc3339;
use serde_json::Value;

/// Members of a change in the audit log that are amounts of money or of wallets.
const MONEY_MEMBERS: [&str; 7] =
    ["budget_per_day", "budget_per_month", "credits", "kwh", "net_eur", "vat_eur", "total_eur"];

/// Returns a change without amounts of money, also in the objects within it.
fn without_money(change: &Value) -> Value {
    match change {
        Value::Object(members) => {
            let shown = members.iter().filter(|(name, _)| !MONEY_MEMBERS.contains(&name.as_str()));
            Value::Object(shown.map(|(name, value)| (name.clone(), without_money(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_money).collect(),
        other => other.clone(),
    }
}

/// State of the audit log's hash chain, and a table of its entries, the latest first. Amounts of money are left out
/// without `with_money`.
#[must_use]
pub fn audit_blocks(entries: &Value, check: &Value, with_money: bool) -> Vec<Block> {
    let good = check.get("good") == Some(&Value::Bool(true));
    let notice = if good {
        Block::Notice(
            NoticeKind::Success,
            Text::with_values(
                "The hash chain of all {0} entries is intact.",
                [exact_text(check, "entries", "")],
            ),
        )
    } else {
        let first = exact_text(check, "first_bad", "");
        Block::Notice(
            NoticeKind::Error,
            Text::with_values("Entry {0} does not fit the hash chain: the log was changed.", [first]),
        )
    };
    let row = |entry: &Value| {
        let change = entry.get("change").cloned().unwrap_or_default();
        let change = if with_money { change } else { without_money(&change) };
        vec![
            Cell::number(exact_text(entry, "number", "")),
            time_cell(entry, "at"),
            Cell::text(Text::from_sentence(&text(entry, "who"), &["{0} from {1}"])),
            text_cell(entry, "what"),
            text_cell(entry, "target"),
            Cell::text(describe_change(&text(entry, "what"), &change)),
        ]
    };
    vec![
        notice,
        Block::Table(Table {
            title: "Changes".into(),
            headings: vec!["Number", "Time", "Author", "Action", "Target", "Change"],
            rows: rows(entries).iter().rev().map(row).collect(),
            empty_text: "Nothing has been changed yet.",
            next: None,
            is_screen_only: false,
        }),
    ]
}

/// Members of a change that are times in Unix seconds.
const TIME_MEMBERS: [&str; 6] =
    ["created", "expires", "revoked", "rotated", "invitation_expires", "previous_good_until"];

/// Describes a change: the value of each member, or its values before and after for an action that has both.
fn describe_change(action: &str, change: &Value) -> String {
    let has_both = action.ends_with(".change") || action == "credits.correct";
    let mut parts = Vec::new();
    add_members(change, "", has_both, &mut parts);
    parts.join("; ")
}

fn add_members(change: &Value, prefix: &str, has_both: bool, parts: &mut Vec<String>) {
    for (name, value) in change.as_object().into_iter().flatten() {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(_) => add_members(value, &format!("{name}."), has_both, parts),
            Value::Array(values) if has_both && values.len() == 2 => {
                let values: Vec<String> = values.iter().map(|value| describe_value(&name, value)).collect();
                parts.push(format!("{name}: {}", values.join(" → ")));
            }
            value => parts.push(format!("{name}: {}", describe_value(&name, value))),
        }
    }
}

fn describe_value(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) if text.is_empty() => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(|value| describe_value(name, value)).collect();
            values.join(", ")
        }
        Value::Number(seconds) if TIME_MEMBERS.contains(&name) => {
            seconds.as_u64().map_or_else(|| seconds.to_string(), format_rfc3339)
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use crate::Language;
    use serde_json::json;

    #[test]
    fn a_change_is_text_with_the_values_before_and_after() {
        for (action, change, expected) in [
            (
                "key.change",
                json!({ "name": ["a", "b"], "expires": [null, 0] }),
                "expires: – → 1970-01-01T00:00:00Z; name: a → b",
            ),
            ("key.change", json!({ "scopes": [["x"], ["x", "y"]] }), "scopes: x → x, y"),
            ("key.create", json!({ "scopes": ["x", "y"], "name": "" }), "name: –; scopes: x, y"),
            ("credit_note.issue", json!({ "entries": [5, 7] }), "entries: 5, 7"),
            ("user.invite", json!({}), ""),
            ("user.change", json!({ "disabled": true }), "disabled: true"),
            ("key.change", Value::Null, ""),
        ] {
            let parts = |text: &str| {
                let mut parts: Vec<String> = text.split("; ").map(str::to_owned).collect();
                parts.sort();
                parts
            };
            assert_eq!(parts(&describe_change(action, &change)), parts(expected), "{action}");
        }
    }

    #[test]
    fn a_reader_without_money_sees_no_amounts_in_the_audit_log() {
        let limits = json!({ "concurrent": [1, 2], "budget_per_month": [null, "12.5"] });
        let entries = json!({ "data": [
            { "number": 1, "who": "emp from 127.0.0.1", "what": "key.change", "change": { "limits": limits, "name": ["a", "b"] } },
            { "number": 2, "who": "cli:root", "what": "credits.correct", "change": { "corrects": 7, "credits": ["10", "4"] } },
        ] });
        let shown =
            |with_money: bool| format!("{:?}", audit_blocks(&entries, &json!({ "good": true }), with_money));
        for (text, is_money) in [
            ("limits.budget_per_month: – → 12.5", true),
            ("credits: 10 → 4", true),
            ("limits.concurrent: 1 → 2", false),
            ("corrects: 7", false),
        ] {
            assert!(shown(true).contains(text), "{text}: {}", shown(true));
            assert_eq!(shown(false).contains(text), !is_money, "{text}: {}", shown(false));
        }
    }

    #[test]
    fn the_author_is_in_the_language_of_the_page() {
        let entries = json!({ "data": [{ "number": 1, "who": "emp from 127.0.0.1" }] });
        let blocks = audit_blocks(&entries, &json!({ "good": true }), true);
        let Block::Table(table) = &blocks[1] else { unreachable!("a table of changes") };
        let author = |language| table.rows[0][2].text.render(language).into_owned();
        assert_eq!(author(Language::German), "emp von 127.0.0.1");
        assert_eq!(author(Language::English), "emp from 127.0.0.1");
    }
}
