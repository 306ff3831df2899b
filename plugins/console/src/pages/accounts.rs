//! Pages of the accounts: balances, limits and keys.

use super::key_state::{KeyState, with_end_of_earlier_secret};
use super::{exact_text, figure, number, percent_encode, quantity_cell, rows, text, text_cell, time_cell};
use crate::block::{Block, Cell, CellState, Field, Form, Table, Tile};
use crate::text::Text;
use serde_json::Value;

/// Table of accounts with their balances.
#[must_use]
pub fn accounts_blocks(accounts: &Value, balances: &Value) -> Vec<Block> {
    let balance_of = |id: &str| rows(balances).iter().find(|balance| text(balance, "account") == id);
    let row = |account: &Value| {
        let id = text(account, "id");
        let balance = balance_of(&id).cloned().unwrap_or_default();
        let now = account.get("now").cloned().unwrap_or_default();
        vec![
            Cell::link(id.clone(), format!("/console/accounts/{}", percent_encode(&id))),
            text_cell(account, "name"),
            state_cell(account),
            wallet_cell(&balance, "credits", "credits"),
            wallet_cell(&balance, "energy_kwh", "kWh"),
            quantity_cell(&now, "requests_at_work", ""),
            quantity_cell(&now, "spent_this_month", "credits"),
            time_cell(account, "created"),
        ]
    };
    vec![Block::Table(Table {
        title: "Accounts".into(),
        headings: vec![
            "Account",
            "Name",
            "State",
            "Available credits",
            "Available energy",
            "In flight",
            "Spent this month",
            "Created",
        ],
        rows: rows(accounts).iter().map(row).collect(),
        empty_text: "There are no accounts yet.",
        next: super::next_page(accounts, "/console/accounts"),
        is_screen_only: false,
    })]
}

fn state_cell(account: &Value) -> Cell {
    let state = text(account, "state");
    let mark = if state == "active" { CellState::Good } else { CellState::Warning };
    Cell::text(Text::Word(state)).with_state(mark)
}

/// Cell with the available amount of a wallet. An account without a ledger entry has no balance in the response; its
/// amount is shown as 0.
fn wallet_cell(balance: &Value, wallet: &str, unit: &'static str) -> Cell {
    if balance.is_null() {
        return Cell::number(Text::Quantity(0.0, unit));
    }
    let available = balance.get(wallet).cloned().unwrap_or_default();
    let cell = quantity_cell(&available, "available", unit);
    let is_debt = number(&available, "available").is_some_and(|amount| amount < 0.0);
    if is_debt { cell.with_state(CellState::Bad) } else { cell }
}

/// Figures and keys of one account at `now`, in Unix seconds, with buttons if `may_change` is true.
#[must_use]
pub fn account_blocks(
    account: &Value,
    balance: &Value,
    keys: &Value,
    may_change: bool,
    now: u64,
) -> Vec<Block> {
    let balance = rows(balance).first().cloned().unwrap_or_default();
    let id = text(account, "id");
    vec![
        Block::Tiles(account_tiles(account, &balance)),
        Block::Table(Table {
            title: "Keys".into(),
            headings: vec![
                "Name",
                "Id",
                "Scopes",
                "State",
                "Created",
                "Last used",
                "Spent this month",
                "Rotation",
                "Revocation",
            ],
            rows: rows(keys).iter().map(|key| key_row(key, &id, may_change, now)).collect(),
            empty_text: "This account has no keys.",
            next: super::next_page(keys, &format!("/console/accounts/{}", percent_encode(&id))),
            is_screen_only: false,
        }),
    ]
}

/// Tiles with the state, the balances and the limits of an account.
pub(super) fn account_tiles(account: &Value, balance: &Value) -> Vec<Tile> {
    let state = text(account, "state");
    let wallet = |name: &str, unit: &'static str| {
        let wallet = balance.get(name).cloned().unwrap_or_default();
        let figure = |name: &str| figure(&wallet, name, unit);
        let detail = Text::with_values("{0} in total, {1} reserved", [figure("balance"), figure("reserved")]);
        (figure("available"), detail)
    };
    let (credits, energy) = (wallet("credits", "credits"), wallet("energy_kwh", "kWh"));
    let limits = account.get("limits").cloned().unwrap_or_default();
    let limit = |name: &str| number(&limits, name).map(|_| exact_text(&limits, name, ""));
    vec![
        Tile {
            label: "State".into(),
            state: if state == "active" { CellState::Good } else { CellState::Warning },
            value: Text::Word(state),
            detail: text(account, "name").into(),
        },
        Tile { label: "Credits".into(), value: credits.0, detail: credits.1, state: CellState::None },
        Tile { label: "Energy balance".into(), value: energy.0, detail: energy.1, state: CellState::None },
        Tile {
            label: "Requests per minute".into(),
            value: limit("requests_per_minute").unwrap_or_else(|| "no limit".into()),
            detail: limit("tokens_per_minute").map_or_else(
                || "no limit of tokens".into(),
                |tokens| Text::with_values("{0} tokens per minute", [tokens]),
            ),
            state: CellState::None,
        },
    ]
}

fn key_row(key: &Value, account: &str, may_change: bool, now: u64) -> Vec<Cell> {
    let id = text(key, "id");
    let state = KeyState::at(key, now);
    let live = key.get("now").cloned().unwrap_or_default();
    let form = |path: &str, submit: &'static str| {
        Form::new(format!("/console/keys/{}/{path}", percent_encode(&id)), "", submit)
            .with_field(Field::hidden("account", account))
    };
    let rotate = || Cell::button(with_end_of_earlier_secret(form("rotate", "Rotate"), key, now));
    let revoke = || Cell::button(Form { is_irreversible: true, ..form("revoke", "Revoke") });
    let mut row = vec![
        text_cell(key, "name"),
        Cell::text(id.clone()),
        text_cell(key, "scopes"),
        state.cell(),
        time_cell(key, "created"),
        time_cell(key, "last_used"),
        quantity_cell(&live, "spent_this_month", "credits"),
    ];
    row.extend([
        if may_change && state == KeyState::Valid { rotate() } else { Cell::default() },
        if may_change && state != KeyState::Revoked { revoke() } else { Cell::default() },
    ]);
    row
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use serde_json::json;

    #[test]
    fn an_account_without_an_entry_in_the_ledger_has_no_credits() {
        let accounts = json!({ "data": [{ "id": "new", "name": "New", "state": "active" }] });
        let blocks = accounts_blocks(&accounts, &json!({ "data": [{ "account": "other" }] }));
        let Block::Table(table) = &blocks[0] else { unreachable!("a table of accounts") };
        let cell = |column: usize| table.rows[0][column].text.render(crate::Language::English).into_owned();
        assert_eq!((cell(3), cell(4)), ("0\u{202f}credits".to_owned(), "0\u{202f}kWh".to_owned()));
    }

    #[test]
    fn an_expired_key_can_be_revoked_but_not_rotated() {
        let keys = json!({ "data": [
            { "id": "k1", "expires": 11 },
            { "id": "k2", "expires": 10 },
            { "id": "k3", "revoked": 5 },
        ] });
        let blocks = account_blocks(&json!({ "id": "a" }), &Value::Null, &keys, true, 10);
        let Block::Table(table) = &blocks[1] else { unreachable!("a table of keys") };
        let shown: Vec<(String, bool, bool)> = table
            .rows
            .iter()
            .map(|row| {
                let state = row[3].text.render(crate::Language::English).into_owned();
                (state, row[7].action.is_some(), row[8].action.is_some())
            })
            .collect();
        let expected = [("valid", true, true), ("expired", false, true), ("revoked", false, false)];
        assert_eq!(shown, expected.map(|(state, rotate, revoke)| (state.to_owned(), rotate, revoke)));
    }
}
