//! Reports and exports over real sockets: carbon report, charges by provider and day, ledger entries and usage as CSV.
//! Every figure equals the sum of the ledger's entries.

use crate::billing::entries;
use crate::harness::browser::{Browser, holder, signed_in};
use crate::harness::gateway::Running;
use crate::harness::{Bench, Client, Provider};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CONSOLE: &str = "[console]\nlisten = \"127.0.0.1:0\"\n";

/// Gateway with two accounts that were charged.
async fn charged() -> (Provider, Running, Vec<Client>) {
    let provider = Provider::start().await;
    let contract = "contractual_renewable = { share = 0.5, evidence = \"annual-ppa\" }";
    let running = Bench::new().settings(CONSOLE).provider_with("a", &provider, contract, "").start().await;
    let mut clients = Vec::new();
    for (account, requests) in [("acme", 3), ("other", 2)] {
        running.admin().post("/admin/accounts", &json!({"id": account})).await;
        let client = running.key(&json!({"account": account, "scopes": ["*"]})).await;
        for _ in 0..requests {
            assert_eq!(client.post("/v1/chat/completions", &running.ask()).await.status, 200);
        }
        clients.push(client);
    }
    (provider, running, clients)
}

fn decimal(value: &Value) -> Decimal {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned).parse().unwrap()
}

/// Sum of a member of the charges of an account; of all accounts if the name is empty.
fn sum(entries: &[Value], account: &str, member: &str) -> Decimal {
    let of = entries.iter().filter(|entry| entry["act"] == "settle");
    let of = of.filter(|entry| account.is_empty() || entry["account"] == account);
    of.filter_map(|entry| entry.get(member)).map(decimal).sum()
}

/// Rows of a CSV with tabs between the columns, by the names of the columns.
fn csv_rows(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = text.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<String>>());
    let names = lines.next().unwrap();
    let row = |row: Vec<String>| {
        assert_eq!(row.len(), names.len(), "{row:?}");
        names.iter().cloned().zip(row).collect()
    };
    lines.map(row).collect()
}

async fn csv_of(browser: &Browser, path: &str) -> Vec<BTreeMap<String, String>> {
    let mark = if path.contains('?') { '&' } else { '?' };
    let answer = browser.get(&format!("{path}{mark}separator=tab")).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("text/csv; charset=utf-8"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert!(answer.header("content-disposition").unwrap().starts_with("attachment; filename=\""), "{path}");
    csv_rows(&answer.text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_carbon_report_equals_the_ledger() {
    let (_provider, running, _clients) = charged().await;
    let entries = entries(&running).await;
    for (account, query) in [("acme", "?account=acme"), ("", "?accounts=true")] {
        let report = running.admin().get(&format!("/admin/carbon{query}")).await.json();
        let total = &report["total"];
        for (member, entry) in [
            ("energy_kwh", "kwh"),
            ("carbon_location_g_co2e", "g_co2"),
            ("carbon_location_low_g_co2e", "g_co2_low"),
            ("carbon_location_high_g_co2e", "g_co2_high"),
            ("water_liters", "litres"),
            ("eur", "eur"),
        ] {
            assert_eq!(decimal(&total[member]), sum(&entries, account, entry), "{account} {member}: {total}");
        }
        let location = decimal(&total["carbon_location_g_co2e"]);
        let gap = (decimal(&total["carbon_market_g_co2e"]) * Decimal::TWO - location).abs();
        assert!(gap < Decimal::new(1, 6), "half of the energy is under a contract: {total}");
        assert_eq!(decimal(&total["gross_location_g_co2e"]), location + decimal(&total["embodied_g_co2e"]));
        let gap = decimal(&total["contract_energy_kwh"]) * Decimal::TWO - decimal(&total["energy_kwh"]);
        assert!(gap.abs() < Decimal::new(1, 9), "{total}");
        // 27 % of the French grid is renewable, and a contract covers half of the energy. The grid share applies to
        // the other half.
        let rest = decimal(&total["energy_kwh"]) - decimal(&total["contract_energy_kwh"]);
        let gap = decimal(&total["grid_renewable_energy_kwh"]) - rest * Decimal::new(27, 2);
        assert!(gap.abs() < Decimal::new(1, 9), "{total}");
        for group in ["countries", "providers", "months"] {
            let rows = report[group].as_array().unwrap();
            let energy: Decimal = rows.iter().map(|row| decimal(&row["energy_kwh"])).sum();
            assert_eq!(energy, decimal(&total["energy_kwh"]), "{group}: {report}");
        }
        assert_eq!(report["countries"][0]["country"], "France", "{report}");
        assert_eq!(report["contracts"].as_array().unwrap().len(), 1, "{report}");
        let tokens = sum(&entries, account, "input") + sum(&entries, account, "output");
        let intensity = decimal(&total["location_g_per_million_tokens"]);
        let expected = decimal(&total["gross_location_g_co2e"]) * Decimal::from(1_000_000) / tokens;
        assert!((intensity - expected).abs() < Decimal::new(1, 6), "{total}");
    }
    let all = running.admin().get("/admin/carbon?accounts=true").await.json();
    let names: Vec<_> =
        all["accounts"].as_array().unwrap().iter().map(|row| row["account"].clone()).collect();
    assert_eq!(names, ["acme", "other"]);
    let empty = running.admin().get("/admin/carbon?from=2020-01-01&to=2020-12-31").await.json();
    assert_eq!(empty["total"]["location_g_per_eur"], Value::Null, "{empty}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_and_files_of_the_carbon_report_are_those_of_the_reader() {
    let (_provider, running, _clients) = charged().await;
    let entries = entries(&running).await;
    let (fin, ada) = (signed_in(&running, "fin", "finance").await, holder(&running, "ada", "acme").await);
    let page = fin.get("/console/carbon").await.text();
    assert!(page.contains("E1-6") && page.contains("market-based") && page.contains("France"), "{page}");
    let rows = csv_of(&fin, "/console/carbon.csv").await;
    let kinds: Vec<&str> = rows.iter().map(|row| &*row["row"]).collect();
    assert_eq!(kinds, ["country", "provider", "month", "account", "account", "total"]);
    assert_eq!(rows[5]["energy_kwh"].parse::<Decimal>().unwrap(), sum(&entries, "", "kwh"));
    let own = csv_of(&ada, "/dashboard/carbon.csv?account=other").await;
    let total = own.last().unwrap();
    assert_eq!((&*total["row"], &*total["account"]), ("total", "acme"));
    assert_eq!(total["energy_kwh"].parse::<Decimal>().unwrap(), sum(&entries, "acme", "kwh"));
    assert!(!format!("{own:?}").contains("other"));
    let page = ada.get("/dashboard/carbon").await.text();
    assert!(page.contains("Gross emissions") && !page.contains("name=\"account\""), "{page}");
    let refused = fin.get("/console/carbon?from=2026-12-31&to=2026-01-01").await.text();
    assert!(refused.contains("error-to"), "{refused}");
    let refused = fin.get("/console/carbon?account=nobody").await.text();
    assert!(refused.contains("error-account"), "{refused}");
    let comma = fin.get("/console/carbon.csv?decimal=,").await.text();
    assert!(comma.lines().next().unwrap().contains(";energy_kwh;"), "{comma}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exports_of_the_ledger_have_every_charge_once() {
    let (_provider, running, _clients) = charged().await;
    let granted = json!({"account": "acme", "credits": "5", "note": "=gift"});
    assert_eq!(running.admin().post("/admin/credits/grant", &granted).await.status, 201);
    let entries = entries(&running).await;
    let charge = entries.iter().find(|entry| entry["act"] == "settle").unwrap();
    let refund = json!({"entry": charge["seq"], "credits": "0"});
    assert_eq!(running.admin().post("/admin/credits/correct", &refund).await.status, 201);
    let refunded = charge["eur"].as_str().unwrap().parse::<Decimal>().unwrap();
    let fin = signed_in(&running, "fin", "finance").await;
    let days = csv_of(&fin, "/console/reconciliation.csv").await;
    let total = |rows: &[BTreeMap<String, String>], column: &str| -> Decimal {
        rows.iter().filter_map(|row| row[column].parse::<Decimal>().ok()).sum()
    };
    assert_eq!(total(&days, "eur"), sum(&entries, "", "eur") - refunded);
    assert_eq!(total(&days, "requests"), Decimal::from(5));
    assert!(days.iter().all(|row| row["provider"] == "a" && row["day"].len() == 10), "{days:?}");
    let rows = csv_of(&fin, "/console/ledger.csv").await;
    let of =
        |account: &str| -> Vec<_> { rows.iter().filter(|row| row["account"] == account).cloned().collect() };
    assert_eq!(rows.iter().filter(|row| row["act"] == "settle").count(), 5);
    // Corrections have the sign of charges, so both files add up to the same.
    for (column, of_days) in [("eur", "eur"), ("charged_credits", "credits"), ("charged_kwh", "charged_kwh")]
    {
        assert_eq!(total(&rows, column), total(&days, of_days), "{column}");
    }
    let grant = rows.iter().find(|row| row["act"] == "grant" && row["account"] == "acme").unwrap();
    assert_eq!((&*grant["granted_credits"], &*grant["why"]), ("5", "'=gift"), "{grant:?}");
    assert!(!rows.iter().any(|row| ["reserve", "terms"].contains(&&*row["act"])));
    let own = csv_of(&fin, "/console/ledger.csv?account=acme").await;
    assert!(own.len() == of("acme").len() && own.iter().all(|row| row["account"] == "acme"));
    let numbers: std::collections::BTreeSet<&String> = rows.iter().map(|row| &row["entry"]).collect();
    assert_eq!(numbers.len(), rows.len());
    let page = fin.get("/console/ledger").await.text();
    assert!(page.contains("Charges by provider") && page.contains("/console/ledger.csv?from="), "{page}");
    assert_eq!(fin.get("/console/ledger.csv?from=tomorrow").await.status, 400);
    let all = running.admin().get("/admin/ledger/entries").await.json();
    for member in all["data"].as_array().unwrap().iter().flat_map(|entry| entry.as_object().unwrap().keys()) {
        assert!(rows[0].keys().any(|column| column.contains(member)), "{member} has no column");
    }
    for unknown in ["0", "4711", "x"] {
        let path = format!("/admin/ledger/entries?after={unknown}");
        assert_eq!(running.admin().get(&path).await.status, 400, "{unknown}");
    }
    let after = format!("/admin/ledger/entries?after={}", rows[0]["entry"]);
    let rest = running.admin().get(&after).await.json();
    assert_eq!(rest["data"].as_array().unwrap().len(), rows.len() - 1);
    let operator = signed_in(&running, "ops", "operator").await;
    for path in ["ledger.csv", "reconciliation.csv", "carbon.csv"] {
        assert_eq!(operator.get(&format!("/console/{path}")).await.status, 403, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_downloaded_by_holders_and_without_money_by_viewers() {
    let (_provider, running, _clients) = charged().await;
    let entries = entries(&running).await;
    let (ada, vic) = (holder(&running, "ada", "acme").await, signed_in(&running, "vic", "viewer").await);
    for by in ["model", "key", "day", "location", "outcome"] {
        let rows = csv_of(&ada, &format!("/dashboard/usage.csv?by={by}")).await;
        let eur: Decimal = rows.iter().map(|row| row["eur"].parse::<Decimal>().unwrap()).sum();
        assert_eq!(eur, sum(&entries, "acme", "eur"), "{by}");
        assert!(rows[0].contains_key(by));
    }
    let rows = csv_of(&vic, "/console/usage.csv?by=provider").await;
    assert!(!["eur", "credits", "charged_kwh"].iter().any(|name| rows[0].contains_key(*name)), "{rows:?}");
    assert_eq!(rows[0]["requests"], "5");
    let page = ada.get("/dashboard/usage").await.text();
    assert!(page.contains("/dashboard/usage.csv?from="), "{page}");
}
