//! Invoices over real sockets: figures of the ledger, parties and VAT of the configuration, and access rights.

use crate::billing::entries;
use crate::harness::browser::{holder, signed_in};
use crate::harness::gateway::Running;
use crate::harness::{Bench, Client, Provider};
use penstock::app::demo_history::record_demo_history;
use penstock_core::calendar::UtcDay;
use rust_decimal::Decimal;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
/// Settings of the seller and of the customer `acme`.
pub const INVOICE: &str = r#"
[console]
listen = "127.0.0.1:0"

[invoice]
seller = "Example Hosting GmbH"
address = ["Beispielstraße 1", "10115 Berlin"]
vat_id = "DE123456789"
vat_percent = 19
number_prefix = "PS-"
note = "Payable within 14 days."

[[invoice.customers]]
id = "acme"
name = "<script>alert(1)</script> SA"
address = ["75001 Paris"]
vat_id = "FR12345678901"
vat_percent = 5.5
"#;

async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    let contract = "contractual_renewable = { share = 0.75, evidence = \"hourly-ppa\" }";
    let running = Bench::new().settings(INVOICE).provider_with("a", &provider, contract, "").start().await;
    for account in ["acme", "other"] {
        running.admin().post("/admin/accounts", &json!({"id": account})).await;
    }
    (provider, running)
}

/// Sends requests with a key of an account; returns the key and the answers.
async fn ask(running: &Running, account: &str, requests: usize) -> (Client, Vec<Value>) {
    let client = running.key(&json!({"account": account, "name": "ci", "scopes": ["*"]})).await;
    let mut answers = Vec::new();
    for _ in 0..requests {
        let answer = client.post(CHAT, &running.ask()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answers.push(answer.json());
    }
    (client, answers)
}

pub fn decimal(value: &Value) -> Decimal {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Decimal::from_str_exact(&text).or_else(|_| Decimal::from_scientific(&text)).unwrap()
}

/// Sum of one member over all rows.
fn sum(rows: &Value, name: &str) -> Decimal {
    rows.as_array().unwrap().iter().map(|row| decimal(&row[name])).sum()
}

fn today(invoice: &Value) -> String {
    invoice["to"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_grouping_of_an_invoice_adds_up_to_the_ledger() {
    let (_provider, running) = bench().await;
    let (_, answers) = ask(&running, "acme", 3).await;
    ask(&running, "acme", 2).await;
    ask(&running, "other", 4).await;
    let charged: Decimal = entries(&running)
        .await
        .iter()
        .filter(|entry| entry["act"] == "settle" && entry["account"] == "acme")
        .map(|entry| decimal(&entry["eur"]))
        .sum();
    let invoice = running.admin().get("/admin/invoice?account=acme").await;
    assert_eq!(invoice.status, 200, "{}", invoice.text());
    let invoice = invoice.json();
    for rows in ["lines", "keys", "days", "locations"] {
        assert_eq!(sum(&invoice[rows], "eur"), charged, "{rows}: {invoice}");
        assert_eq!(sum(&invoice[rows], "requests"), Decimal::from(5), "{rows}");
        for figure in ["energy_kwh", "carbon_location_g_co2e", "carbon_market_g_co2e", "embodied_g_co2e"] {
            assert_eq!(sum(&invoice[rows], figure), decimal(&invoice["total"][figure]), "{rows} {figure}");
        }
    }
    assert_eq!(invoice["keys"].as_array().unwrap().len(), 2);
    let line = &invoice["lines"][0];
    assert_eq!(
        (&line["model"], &line["location"], &line["output_eur_per_million_tokens"]),
        (&json!("m"), &json!("Paris, France"), &json!("2")),
        "{line}"
    );
    let net = decimal(&invoice["net_eur"]);
    assert_eq!(net, charged.round_dp(2));
    let vat = (net * Decimal::new(55, 3)).round_dp(2);
    assert_eq!((decimal(&invoice["vat_eur"]), decimal(&invoice["total_eur"])), (vat, net + vat));
    // The embodied carbon of the invoice is the sum of the answers' values, except for their rounding.
    let reported: Decimal = answers
        .iter()
        .map(|answer| decimal(&answer["environment_impact"]["provenance"]["embodied_g_co2"]))
        .sum();
    let of_key = decimal(&invoice["total"]["embodied_g_co2e"]) / Decimal::from(5) * Decimal::from(3);
    assert!((reported - of_key).abs() < Decimal::new(1, 8), "{reported} {of_key}");
    let (location, market) = (
        decimal(&invoice["total"]["carbon_location_g_co2e"]),
        decimal(&invoice["total"]["carbon_market_g_co2e"]),
    );
    assert!((market - location / Decimal::from(4)).abs() < Decimal::new(1, 8), "{market} {location}");
    assert!(invoice["notes"].to_string().contains("Paris, France, 75 %, hourly-ppa"), "{invoice}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invoice_names_both_parties_and_is_a_draft_until_its_period_ends() {
    let (_provider, running) = bench().await;
    let admin = running.admin();
    let open = admin.get("/admin/invoice?account=acme").await.json();
    assert_eq!((&open["is_draft"], &open["seller"]["vat_id"]), (&json!(true), &json!("DE123456789")));
    let ended = admin.get("/admin/invoice?account=acme&from=2026-01-01&to=2026-01-31").await.json();
    assert_eq!((&ended["is_draft"], &ended["number"]), (&json!(true), &json!(null)));
    assert_eq!((&open["can_issue"], &ended["can_issue"]), (&json!(false), &json!(false)));
    assert_eq!((&open["issue_state"], &ended["issue_state"]), (&json!("period_open"), &json!("empty")));
    assert_eq!(ended["customer"]["address"], json!(["75001 Paris"]));
    assert_eq!((&ended["vat_percent"], &ended["total_eur"]), (&json!("5.5"), &json!("0.00")));
    let other = admin.get("/admin/invoice?account=other").await.json();
    assert_eq!((&other["customer"]["name"], &other["vat_percent"]), (&json!("other"), &json!("19")));
    assert_eq!(other["notes"][0], "Payable within 14 days.");
    for (query, status, field) in [
        ("", 400, "account"),
        ("account=nobody", 404, "account"),
        ("account=acme&from=soon", 400, "from"),
        ("account=acme&from=2026-02-02&to=2026-02-01", 400, "to"),
        ("account=acme&from=2020-01-01&to=2026-01-01", 400, "from"),
        ("account=acme&month=2026-01", 400, "month"),
    ] {
        let refused = admin.get(&format!("/admin/invoice?{query}")).await;
        assert_eq!(
            (refused.status, refused.json()["error"]["param"].as_str()),
            (status, Some(field)),
            "{query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finance_and_the_account_holder_read_the_invoice_and_others_do_not() {
    let (_provider, running) = bench().await;
    ask(&running, "acme", 1).await;
    entries(&running).await;
    let day = today(&running.admin().get("/admin/invoice?account=acme").await.json());
    let range = format!("from={day}&to={day}");
    let console = "/console/accounts/acme/invoice";
    let (finance, own) = (signed_in(&running, "fin", "finance").await, holder(&running, "ada", "acme").await);
    for (browser, path) in [(&finance, console), (&own, "/dashboard/invoice")] {
        let page = browser.get(&format!("{path}?{range}")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        for expected in
            ["Example Hosting GmbH", "75001 Paris", "VAT, 5.5 %", "Draft", "Footprint by location"]
        {
            assert!(page.text().contains(expected), "{path} lacks {expected}: {}", page.text());
        }
        assert!(!page.text().contains("<script>alert"));
        let csv = browser.get(&format!("{path}.csv?{range}&decimal=%2C")).await;
        assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
        assert!(csv.text().contains(&format!(";{day}T00:00:00Z;")), "{}", csv.text());
        assert_eq!(browser.get(&format!("{path}.json?{range}")).await.json()["account"], "acme");
        assert_eq!(
            browser.get(&format!("{path}?from=soon")).await.status,
            200,
            "the form says what is wrong"
        );
        assert_eq!(browser.get(&format!("{path}.csv?decimal=x")).await.status, 400);
    }
    for role in ["operator", "viewer"] {
        let browser = signed_in(&running, role, role).await;
        for path in [console.to_owned(), format!("{console}.csv"), format!("{console}.json")] {
            assert_eq!(browser.get(&path).await.status, 403, "{role} {path}");
        }
    }
    assert_eq!(finance.get("/console/accounts/nobody/invoice").await.status, 404);
}

/// Source of past days. It counts back from the day on which the test began, so that a test may run over midnight.
#[derive(Clone, Copy)]
pub struct PastDays {
    began: u64,
}

impl PastDays {
    /// Returns a day of the past, such as `2026-11-26`.
    pub fn ago(self, days: u64) -> String {
        UtcDay::from_unix(self.began - days * 86_400).to_string()
    }

    /// Returns a request for the invoice of a period, which starts `from` days ago and ends `to` days ago.
    pub fn issue_request(self, account: &str, from: u64, to: u64) -> Value {
        json!({"account": account, "from": self.ago(from), "to": self.ago(to)})
    }
}

/// Gateway whose account `acme` has charges on each of the last six days.
pub async fn bench_with_history() -> (Provider, Running, PastDays) {
    let (provider, running) = bench().await;
    let days = PastDays { began: running.gateway.app.clock.unix_seconds() };
    record_demo_history(&running.gateway.app, "acme", &"history".into()).await;
    (provider, running, days)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issued_invoice_has_the_next_number_and_never_changes() {
    let (_provider, running, days) = bench_with_history().await;
    ask(&running, "acme", 2).await;
    let admin = running.admin();
    let year = &today(&admin.get("/admin/invoice?account=acme").await.json())[..4].to_owned();
    let first = admin.post("/admin/invoices", &days.issue_request("acme", 6, 5)).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let first = first.json();
    assert_eq!(first["number"], json!(format!("PS-{year}-000001")), "{first}");
    assert_eq!(
        (&first["is_draft"], &first["can_issue"], &first["issue_state"]),
        (&json!(false), &json!(false), &json!("issued"))
    );
    assert_eq!(
        (&first["issued"], &first["seller"]["name"]),
        (&first["created"], &json!("Example Hosting GmbH"))
    );
    let second = admin.post("/admin/invoices", &days.issue_request("acme", 4, 4)).await.json();
    assert_eq!(second["number"], json!(format!("PS-{year}-000002")));
    // The same period returns the same invoice; an overlapping period is refused.
    assert_eq!(admin.post("/admin/invoices", &days.issue_request("acme", 6, 5)).await.json(), first);
    let overlapping = days.issue_request("acme", 5, 3);
    let refused = admin.post("/admin/invoices", &overlapping).await;
    assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (409, Some("from")));
    assert!(refused.text().contains(&format!("PS-{year}-000001")), "{}", refused.text());
    let query = format!("from={}&to={}", days.ago(5), days.ago(3));
    let draft = admin.get(&format!("/admin/invoice?account=acme&{query}")).await.json();
    assert_eq!(
        (&draft["issue_state"], &draft["overlaps"], &draft["can_issue"]),
        (&json!("overlapping"), &first["number"], &json!(false))
    );
    for (body, status, field) in [
        (json!({}), 400, "account"),
        (json!({"account": "acme", "from": "2026-02-01"}), 400, "to"),
        (json!({"account": "nobody", "from": "2026-02-01", "to": "2026-02-28"}), 404, "account"),
        (json!({"account": "acme", "from": "soon", "to": "2026-02-28"}), 400, "from"),
        (json!({"account": "acme", "from": "2026-02-02", "to": "2026-02-01"}), 400, "to"),
        (json!({"account": "acme", "from": "2999-01-01", "to": "2999-01-31"}), 400, "to"),
        (json!({"account": "acme", "from": "2026-02-01", "to": "2026-02-28", "number": "X"}), 400, "number"),
        // Without a charge there is nothing to invoice.
        (json!({"account": "acme", "from": "2026-02-01", "to": "2026-02-28"}), 409, "from"),
        (days.issue_request("other", 6, 5), 409, "from"),
    ] {
        let refused = admin.post("/admin/invoices", &body).await;
        assert_eq!(
            (refused.status, refused.json()["error"]["param"].as_str()),
            (status, Some(field)),
            "{body}"
        );
    }
    // A reload changes VAT rate and number prefix. The issued invoice does not change; the next invoice has the new
    // values and the next number.
    let other = INVOICE.replace("vat_percent = 5.5", "vat_percent = 7").replace("PS-", "QS-");
    let provider = Provider::start().await;
    let contract = "contractual_renewable = { share = 0.75, evidence = \"hourly-ppa\" }";
    let fresh =
        Bench::new().settings(&other).provider_with("a", &provider, contract, "").load(running.storage());
    running.reload(fresh).await;
    let query = format!("account=acme&from={}&to={}", days.ago(6), days.ago(5));
    let query = format!("/admin/invoice?{query}");
    assert_eq!(admin.get(&query).await.json(), first);
    let third = admin.post("/admin/invoices", &days.issue_request("acme", 3, 3)).await.json();
    assert_eq!((&third["number"], &third["vat_percent"]), (&json!(format!("QS-{year}-000003")), &json!("7")));
    let numbers = |list: &Value| -> Vec<String> {
        list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["number"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = admin.get("/admin/invoices").await.json();
    assert_eq!(
        numbers(&all),
        [format!("QS-{year}-000003"), format!("PS-{year}-000002"), format!("PS-{year}-000001")]
    );
    assert!(numbers(&admin.get("/admin/invoices?account=other").await.json()).is_empty());
    assert_eq!(admin.get("/admin/invoices?account=nobody").await.status, 404);
    let log = admin.get(&format!("/admin/audit?target=PS-{year}-000001")).await.json();
    assert_eq!((&log["data"][0]["what"], &log["data"][1]), (&json!("invoice.issue"), &json!(null)), "{log}");
    // A restart does not change the invoice.
    let before = admin.get(&query).await.json();
    let provider = Provider::start().await;
    let again = Bench::new().settings(INVOICE).provider("a", &provider).restart(running.halt().await).await;
    assert_eq!(again.admin().get(&query).await.json(), before);
    let fourth = again.admin().post("/admin/invoices", &days.issue_request("acme", 2, 2)).await.json();
    assert_eq!(fourth["number"], json!(format!("PS-{year}-000004")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finance_issues_an_invoice_on_its_page_and_the_account_holder_reads_it() {
    let (_provider, running, days) = bench_with_history().await;
    let (mut finance, own) =
        (signed_in(&running, "fin", "finance").await, holder(&running, "ada", "acme").await);
    let page = "/console/accounts/acme/invoice";
    let (from, to) = (days.ago(4), days.ago(3));
    let range = format!("from={from}&to={to}");
    let empty = finance.get(&format!("{page}?from=2026-01-01&to=2026-01-31")).await.text();
    assert!(
        !empty.contains("Issue with the next number") && empty.contains("no amount above 0.00 EUR"),
        "{empty}"
    );
    let shown = finance.get(&format!("{page}?{range}")).await.text();
    assert!(shown.contains("Issue with the next number") && shown.contains("Draft"), "{shown}");
    let held = own.get(&format!("/dashboard/invoice?{range}")).await.text();
    assert!(!held.contains("Issue with the next number") && held.contains("Draft"));
    let token = finance.token(page).await;
    let form = [("form_token", token.as_str()), ("from", &from), ("to", &to)];
    let issued = finance.confirm(&format!("{page}/issue"), &form).await;
    assert_eq!(issued.status, 200, "{}", issued.text());
    let text = issued.text();
    assert!(text.contains("-000001 was issued") && text.contains(&to) && !text.contains("Draft"), "{text}");
    let held = own.get(&format!("/dashboard/invoice?{range}")).await.text();
    assert!(held.contains("-000001") && !held.contains("Draft"), "{held}");
    let csv = own.get(&format!("/dashboard/invoice.csv?{range}")).await.text();
    assert!(csv.lines().nth(1).unwrap().contains("-000001"), "{csv}");
    let json = own.get(&format!("/dashboard/invoice.json?{range}")).await.json();
    assert!(json["number"].as_str().unwrap().ends_with("-000001"), "{json}");
    for role in ["operator", "viewer"] {
        let mut browser = signed_in(&running, role, role).await;
        let token = browser.token("/console/").await;
        let refused = browser
            .post(&format!("{page}/issue"), &[("form_token", &token), ("from", &from), ("to", &to)])
            .await;
        assert_eq!(refused.status, 403, "{role}");
    }
    // The dashboard has no route that issues an invoice.
    let mut own = own;
    let token = own.token("/dashboard/").await;
    for (path, status) in [("/dashboard/invoice", 405), ("/dashboard/invoice/issue", 404)] {
        let refused = own.post(path, &[("form_token", &token), ("from", &from), ("to", &to)]).await;
        assert_eq!(refused.status, status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_correction_is_a_line_that_names_its_charge_and_its_invoice() {
    let (_provider, running, days) = bench_with_history().await;
    let admin = running.admin();
    ask(&running, "acme", 1).await;
    let day = days.ago(3);
    let issued = admin.post("/admin/invoices", &days.issue_request("acme", 4, 3)).await.json();
    let found = admin.get(&format!("/admin/ledger/entries?account=acme&from={day}&to={day}")).await.json();
    let old =
        found["data"].as_array().unwrap().iter().find(|entry| entry["act"] == "settle").unwrap().clone();
    let all = entries(&running).await;
    let new = all.iter().rev().find(|entry| entry["act"] == "settle" && entry["account"] == "acme").unwrap();
    let mut made = Vec::new();
    for charge in [&old["entry"], &new["seq"]] {
        let correction = admin.post("/admin/credits/correct", &json!({"entry": charge, "credits": 0})).await;
        assert_eq!(correction.status, 201, "{}", correction.text());
        made.push(correction.json()["entry"].clone());
    }
    let today = days.ago(0);
    let invoice = admin.get(&format!("/admin/invoice?account=acme&from={today}&to={today}")).await.json();
    let lines = invoice["lines"].as_array().unwrap();
    let corrections: Vec<&Value> = lines.iter().filter(|line| line["is_correction"] == true).collect();
    assert_eq!(corrections.len(), 2, "{invoice}");
    for (line, entry, charge, charged, number) in [
        (corrections[0], &made[0], &old["entry"], &day, &issued["number"]),
        (corrections[1], &made[1], &new["seq"], &today, &Value::Null),
    ] {
        assert_eq!((&line["entry"], &line["corrects_entry"]), (entry, charge), "{line}");
        assert_eq!((&line["day"], &line["corrects_day"]), (&json!(today), &json!(charged)), "{line}");
        assert_eq!(&line["corrects_invoice"], number, "{line}");
    }
    assert_eq!(decimal(&corrections[0]["eur"]), -decimal(&old["eur"]));
    assert_eq!(sum(&invoice["lines"], "eur"), decimal(&invoice["total"]["eur"]), "{invoice}");
    let finance = signed_in(&running, "fin", "finance").await;
    let page = finance.get(&format!("/console/accounts/acme/invoice?from={today}&to={today}")).await.text();
    assert!(page.contains(&format!("on invoice {}", issued["number"].as_str().unwrap())), "{page}");
    let (from, to) = (days.ago(2), days.ago(2));
    let path = format!("/console/accounts/acme/invoice/issue?from={from}&to={to}");
    let question = finance.get(&path).await.text();
    for shown in ["75001 Paris", "Total", "EUR", "Issue with the next number"] {
        assert!(question.contains(shown), "{shown}: {question}");
    }
}
