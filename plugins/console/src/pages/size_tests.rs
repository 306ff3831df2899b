//! Tests only: every page stays below its limit with absurd numbers of rows and with the longest names.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use crate::pager::MAX_PAGE_BYTES;
use crate::{Block, Language, NavLink, NavLinkState, Page, SignedInUser};
use penstock_core::calendar::UtcDay;
use serde_json::json;

/// Name of 254 bytes, almost all of which are characters that take five bytes in HTML.
fn long_name(number: usize) -> String {
    format!("{number:04}{}", "\"'<>&".repeat(50))
}

/// Id of a model or an account, with the characters that ids have.
fn long_id(number: usize) -> String {
    format!("family-{number:04}/{}", "model-instruct-".repeat(7))
}

/// Amount with as many digits as the pages show.
fn amount(number: usize) -> f64 {
    let number = u32::try_from(number).unwrap();
    f64::from(number + 1) * 123_456.789_012_3
}

fn page(language: Language, blocks: Vec<Block>) -> Page {
    let link = |index: usize| NavLink {
        href: "/console/configuration",
        text: "Configuration",
        state: if index == 3 { NavLinkState::Current } else { NavLinkState::Other },
    };
    let user = SignedInUser {
        name: long_name(0),
        role: "viewer",
        form_token: "f".repeat(64),
        form_id: "0123456789abcdef0123456789abcdef".to_owned(),
    };
    Page {
        nav: (0..14).map(link).collect(),
        user: Some(user),
        ..Page::without_session("/console/", language, "/console/accounts/a", "Accounts", blocks)
    }
}

/// Checks the size of a page with the first rows and with later rows of its tables, in the language with the longest
/// texts.
fn assert_small(name: &str, blocks: &[Block]) {
    for position in ["0.0", "0.7", "1.1"] {
        let mut page = page(Language::French, blocks.to_vec());
        page.query = vec![("rows".to_owned(), position.to_owned()), ("by".to_owned(), "model".to_owned())];
        let size = page.to_html().len();
        assert!(size <= MAX_PAGE_BYTES, "{name}, {position}: {size} bytes");
    }
}

fn usage(from: &str, to: &str, step: UsageStep, by: &str, groups: usize) -> Value {
    let rows: Vec<Value> = step
        .steps_in_range(from, to)
        .iter()
        .flat_map(|start| (0..groups).map(move |group| (start, group)))
        .map(|(start, group)| {
            let mut row = json!({ step.dimension(): start, by: if by == "key" { long_name(group) } else { long_id(group) } });
            for member in [
                "requests", "requests_not_charged", "input_tokens", "output_tokens", "energy_kwh", "failed_energy_kwh",
                "carbon_g_co2", "carbon_g_co2_low", "carbon_g_co2_high", "water_liters", "eur", "credits", "charged_kwh",
            ] {
                row[member] = json!(amount(group));
            }
            row
        })
        .collect();
    json!({ "from": from, "to": to, "data": rows, "total": rows[0] })
}

#[test]
fn usage_is_small_for_any_range_and_number_of_groups() {
    for (from, to) in
        [("2026-10-31", "2026-11-30"), ("2026-09-08", "2026-11-30"), ("2025-12-01", "2026-11-30")]
    {
        let day = |text: &str| UtcDay::parse(text).unwrap().start();
        let step = UsageStep::for_days((day(to) - day(from)) / 86_400 + 1);
        for (by, groups) in [("model", 1), ("model", 9), ("model", 200), ("key", 300), ("location", 60)] {
            let csv_path = Some("/console/usage.csv");
            let view =
                UsageView { by: by.to_owned(), step, with_money: true, csv_path, ..UsageView::default() };
            let usage = usage(from, to, step, by, groups);
            let form = Block::Form(usage_form(&view));
            let blocks: Vec<Block> = [form].into_iter().chain(usage_blocks(&usage, &view)).collect();
            assert_small(&format!("usage by {groups} {by}, {from} to {to}"), &blocks);
        }
    }
}

#[test]
fn the_values_of_a_month_are_small_without_a_pager() {
    let usage = usage("2026-10-31", "2026-11-30", UsageStep::Day, "model", 200);
    let account = json!({ "id": "a", "name": long_name(1), "state": "active", "limits": {} });
    let blocks = dashboard_overview_blocks(&account, &json!({ "data": [{}] }), &usage);
    assert_small("dashboard", &blocks);
    let view = UsageView { by: "model".to_owned(), with_money: true, ..UsageView::default() };
    assert_small("summary", &usage_summary_blocks(&usage, &view));
}

fn key(number: usize) -> Value {
    json!({ "id": "0123456789abcdef", "name": long_name(number), "scopes": vec!["inference.chat"; 40],
        "models": (0..100).map(long_id).collect::<Vec<_>>(), "created": 1_790_000_000_u64, "last_used": 1_790_000_000_u64,
        "revoked": null, "now": { "spent_this_month": amount(number) } })
}

#[test]
fn lists_are_small() {
    let list = |row: &dyn Fn(usize) -> Value| json!({ "data": (0..300).map(row).collect::<Vec<_>>(), "next": long_name(9) });
    let accounts = list(
        &|number| json!({ "id": long_id(number), "name": long_name(number), "state": "active", "created": 1 }),
    );
    assert_small("accounts", &accounts_blocks(&accounts, &json!({ "data": [] })));
    let account = json!({ "id": long_id(1), "name": long_name(1), "state": "active", "limits": {} });
    let mut blocks = account_blocks(&account, &json!({}), &list(&key), true, 0);
    blocks.extend(
        [
            new_key_form("/"),
            grant_form("a", "b"),
            correction_form("a", "b"),
            edit_account_form(&account, Language::German),
        ]
        .map(Block::Form),
    );
    let usage = usage("2026-10-31", "2026-11-30", UsageStep::Day, "model", 200);
    let view = UsageView { by: "model".to_owned(), with_money: true, ..UsageView::default() };
    blocks.extend(usage_summary_blocks(&usage, &view));
    assert_small("account", &blocks);
    assert_small("keys", &dashboard_keys_blocks(&list(&key), "/dashboard/", 0));
    assert_small("key", &dashboard_key_blocks(&key(1), "/dashboard/", 0, Language::German));
    let batches = list(&|number| {
        json!({ "id": "batch_0123456789abcdef0123456789abcdef", "account": long_id(number),
        "model": long_id(number), "status": "in_progress", "request_counts": { "completed": 123_456, "failed": 7, "total": 1 },
        "created": 1_790_000_000_u64 })
    });
    assert_small("batches", &batches_blocks(&batches, "/console/", true, 0));
    let files = list(&|number| {
        json!({ "id": "file-0123456789abcdef0123456789abcdef", "account": long_id(number),
        "filename": long_name(number), "purpose": "batch", "status": "processed", "bytes": 123_456_789, "created": 1 })
    });
    assert_small("files", &files_blocks(&files, "/dashboard/", true));
    let users = list(
        &|number| json!({ "name": long_name(number), "role": "viewer", "state": "active", "created": 1 }),
    );
    assert_small("users", &users_blocks(&users));
    let entries = list(&|number| {
        json!({ "number": number, "at": 1, "who": long_name(number), "what": "key.change",
        "target": long_id(number), "change": key(number) })
    });
    assert_small("audit", &audit_blocks(&entries, &json!({ "good": true }), true));
    let changes: Vec<Value> =
        (0..900).map(|number| json!({ "key": long_id(number), "old": long_name(1), "new": "x" })).collect();
    let text = (0..2_000).map(|number| format!("{} = \"<value>\"\n", long_id(number))).collect();
    assert_small(
        "configuration",
        &[Block::Table(configuration_changes_table(&json!({ "changes": changes }))), Block::Code(text)],
    );
    let ledger = super::size_tests::usage("2025-12-01", "2026-11-30", UsageStep::Day, "provider", 2);
    assert_small("ledger", &ledger_export_blocks(&ledger, &ledger, &long_id(1)));
}

#[test]
fn pages_of_providers_and_routing_are_small() {
    let offer =
        |number: usize| json!({ "model": long_id(number), "state": "closed", "attempts": amount(number) });
    let provider = |number: usize| {
        json!({ "id": long_id(number), "operator": long_name(number), "city": "Paris",
        "country": "France", "offers": (0..20).map(offer).collect::<Vec<_>>(), "grid": { "g_per_kwh": 31.25, "source": "yearly" } })
    };
    let providers = json!({ "data": (0..100).map(provider).collect::<Vec<_>>() });
    assert_small("providers", &providers_blocks(&providers));
    let candidate = |number: usize| {
        json!({ "provider": long_id(number), "country": "FR", "score": 0.123_456_789,
        "terms": { "price": 0.1, "speed": 0.2, "environment": 0.3 }, "rank": "normal" })
    };
    let candidates: Vec<Value> = (0..100).map(candidate).collect();
    let flavor = |name: &str| json!({ "flavor": name, "candidates": candidates, "excluded": candidates });
    let flavors: Vec<Value> =
        ["balanced", "speed", "price", "eco", "batch"].iter().map(|name| flavor(name)).collect();
    let mut blocks = routing_blocks(&json!({ "flavors": flavors }), true);
    let models =
        json!({ "data": (0..2_000).map(|number| json!({ "id": long_id(number) })).collect::<Vec<_>>() });
    blocks.push(Block::Form(hypothetical_request_form(&models, |_| String::new())));
    assert_small("routing", &blocks);
}

#[test]
fn plots_of_lines_are_small() {
    let minutes: Vec<String> = (0..60).map(|minute| format!("2026-11-28T10:{minute:02}:00Z")).collect();
    let group = |number: usize| {
        json!({ "name": long_name(number), "answers": amount(number),
        "answers_per_minute": (0..60).map(amount).collect::<Vec<_>>(),
        "median_seconds_per_minute": (0..60).map(|minute| amount(minute) / 1e6).collect::<Vec<_>>(),
        "mean_seconds": 0.123_456, "median_seconds": 0.1, "p95_seconds": 0.2, "maximum_seconds": 0.3 })
    };
    let latency = json!({ "minutes": minutes, "data": (0..500).map(group).collect::<Vec<_>>() });
    assert_small("latency", &latency_blocks(&latency));
    let hours: Vec<String> = (0..24).map(|hour| format!("2026-11-28T{hour:02}:00:00Z")).collect();
    let zone = |number: usize| {
        json!({ "zone": long_name(number), "g_per_kwh": (0..24).map(amount).collect::<Vec<_>>(),
        "batch_requests": (0..24).map(amount).collect::<Vec<_>>() })
    };
    let grid = json!({ "hours": hours, "data": (0..40).map(zone).collect::<Vec<_>>() });
    assert_small("grid", &grid_intensity_blocks(&grid));
    let hours: Vec<Value> = (0..24)
        .flat_map(|hour| {
            ["charged", "failed", "left", "cancelled", "interrupted"].map(|outcome| (hour, outcome))
        })
        .map(|(hour, outcome)| {
            json!({ "hour": format!("2026-11-28T{hour:02}:00:00Z"), "outcome": outcome,
            "requests": amount(hour), "requests_not_charged": amount(hour) })
        })
        .collect();
    let now = UtcDay::parse("2026-11-28").unwrap().start() + 86_399;
    assert_small("overview", &overview_blocks(&json!({}), &json!({ "data": hours }), now, true));
}
