//! Credit notes over real sockets: they contain the corrections of an issued invoice's charges, and each correction
//! is on one document only.

use crate::billing::entries;
use crate::harness::browser::{holder, signed_in};
use crate::harness::gateway::Running;
use crate::harness::{Bench, Provider};
use crate::invoices::{INVOICE, bench_with_history, decimal};
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// Number of charges that amount to more than a cent, and that each day has.
const CENTS: usize = 10;

/// Charges of a day.
async fn charges(running: &Running, day: &str) -> Vec<Value> {
    let path = format!("/admin/ledger/entries?account=acme&from={day}&to={day}");
    let found = running.admin().get(&path).await.json();
    found["data"].as_array().unwrap().iter().filter(|entry| entry["act"] == "settle").cloned().collect()
}

/// Corrects a charge to zero; returns the number of the correction.
async fn cancel(running: &Running, charge: &Value) -> u64 {
    let correct = json!({"entry": charge["entry"], "credits": 0});
    let correction = running.admin().post("/admin/credits/correct", &correct).await;
    assert_eq!(correction.status, 201, "{}", correction.text());
    correction.json()["entry"].as_u64().unwrap()
}

/// Corrects the first charges of a day to zero; returns the numbers of the corrections and the sum of the charges.
async fn cancel_charges(running: &Running, day: &str, count: usize) -> (Vec<u64>, Decimal) {
    let (mut made, mut sum) = (Vec::new(), Decimal::ZERO);
    for charge in charges(running, day).await.iter().take(count) {
        made.push(cancel(running, charge).await);
        sum += decimal(&charge["eur"]);
    }
    assert_eq!(made.len(), count);
    (made, sum)
}

fn entries_of(document: &Value) -> Vec<u64> {
    document["lines"].as_array().unwrap().iter().map(|line| line["entry"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credit_note_has_the_corrections_of_an_invoice_and_no_other_document_has_them() {
    let (_provider, running, days) = bench_with_history().await;
    let admin = running.admin();
    let invoice = admin.post("/admin/invoices", &days.issue_request("acme", 4, 3)).await.json();
    let number = invoice["number"].as_str().unwrap();
    let ask = json!({"account": "acme", "invoice": number});
    let nothing = admin.post("/admin/credit-notes", &ask).await;
    assert_eq!((nothing.status, nothing.json()["error"]["param"].as_str()), (409, Some("invoice")));
    let (made, sum) = cancel_charges(&running, &days.ago(3), CENTS).await;
    // If a charge is on no invoice, its correction is on no credit note.
    let (other, _) = cancel_charges(&running, &days.ago(1), 1).await;
    let today = days.ago(0);
    let draft_of_today = format!("/admin/invoice?account=acme&from={today}&to={today}");
    let before = admin.get(&draft_of_today).await.json();
    let path = format!("/admin/credit-note?account=acme&invoice={number}");
    let draft = admin.get(&path).await.json();
    assert_eq!((&draft["number"], &draft["can_issue"]), (&Value::Null, &json!(true)), "{draft}");
    let note = admin.post("/admin/credit-notes", &ask).await;
    assert_eq!(note.status, 200, "{}", note.text());
    let note = note.json();
    assert_eq!(entries_of(&note), made);
    assert_eq!(note["invoice"], invoice["number"]);
    assert!(note["number"].as_str().unwrap().ends_with("-000002"), "the numbers of invoices: {note}");
    for member in ["seller", "customer", "vat_percent", "from", "to"] {
        assert_eq!(note[member], invoice[member], "{member}");
    }
    let net = -sum.round_dp(2);
    let vat = (net * Decimal::new(55, 3)).round_dp(2);
    assert_eq!((decimal(&note["net_eur"]), decimal(&note["total_eur"])), (net, net + vat), "{note}");
    // The next invoice contains only the correction that is on no credit note, and its groups add up.
    let after = admin.get(&draft_of_today).await.json();
    let corrections = |invoice: &Value| -> Vec<u64> {
        let lines = invoice["lines"].as_array().unwrap().iter();
        lines.filter_map(|line| line["entry"].as_u64()).collect()
    };
    assert_eq!((corrections(&before), corrections(&after)), ([made.clone(), other.clone()].concat(), other));
    assert_eq!(decimal(&after["total"]["eur"]) - decimal(&before["total"]["eur"]), sum);
    for rows in ["lines", "keys", "days", "locations"] {
        let of_rows: Decimal = after[rows].as_array().unwrap().iter().map(|row| decimal(&row["eur"])).sum();
        assert_eq!(of_rows, decimal(&after["total"]["eur"]), "{rows}: {after}");
    }
    assert!(after["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().ends_with(": 10.")));
    // A second credit note is refused, since no corrections are left. A later correction goes on a further credit
    // note.
    assert_eq!(admin.post("/admin/credit-notes", &ask).await.status, 409);
    let (made, _) = cancel_charges(&running, &days.ago(4), CENTS).await;
    assert_eq!(entries_of(&admin.post("/admin/credit-notes", &ask).await.json()), made);
    let list = admin.get("/admin/credit-notes?account=acme").await.json();
    let numbers: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|row| row["number"].as_str().unwrap()).collect();
    assert!(numbers[0].ends_with("-000003") && numbers[1].ends_with("-000002"), "{list}");
    let stored = admin.get(&format!("/admin/credit-note?account=acme&number={}", numbers[1])).await.json();
    assert_eq!(stored, note);
    for (query, param) in
        [("account=acme&invoice=X", "invoice"), ("account=acme&number=X", "number"), ("invoice=X", "account")]
    {
        let refused = admin.get(&format!("/admin/credit-note?{query}")).await;
        assert_eq!(
            (refused.status, refused.json()["error"]["param"].as_str()),
            (400, Some(param)),
            "{query}"
        );
    }
    let audit = admin.get("/admin/audit").await.text();
    assert!(audit.contains("credit_note.issue"), "{audit}");
    entries(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_correction_that_raises_a_charge_is_on_the_next_invoice() {
    let (_provider, running, days) = bench_with_history().await;
    let admin = running.admin();
    let invoice = admin.post("/admin/invoices", &days.issue_request("acme", 4, 3)).await.json();
    let number = invoice["number"].as_str().unwrap();
    let day = days.ago(3);
    let found = admin.get(&format!("/admin/ledger/entries?account=acme&from={day}&to={day}")).await.json();
    let charge = found["data"].as_array().unwrap().iter().find(|entry| entry["act"] == "settle").unwrap();
    let raise = json!({"entry": charge["entry"], "credits": 1_000, "increase": true});
    let raised = admin.post("/admin/credits/correct", &raise).await;
    assert_eq!(raised.status, 201, "{}", raised.text());
    let ask = json!({"account": "acme", "invoice": number});
    assert_eq!(admin.post("/admin/credit-notes", &ask).await.status, 409, "nothing is credited");
    let (lowered, _) = cancel_charges(&running, &days.ago(4), CENTS).await;
    let note = admin.post("/admin/credit-notes", &ask).await.json();
    assert_eq!(entries_of(&note), lowered);
    assert!(decimal(&note["net_eur"]) <= Decimal::ZERO, "{note}");
    let today = days.ago(0);
    let next = admin.get(&format!("/admin/invoice?account=acme&from={today}&to={today}")).await.json();
    let corrections: Vec<&Value> =
        next["lines"].as_array().unwrap().iter().filter(|line| line["is_correction"] == true).collect();
    assert_eq!(corrections.len(), 1, "{next}");
    assert_eq!(corrections[0]["entry"], raised.json()["entry"], "{next}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finance_issues_a_credit_note_on_the_page_of_the_invoice_and_the_account_holder_reads_it() {
    let (_provider, running, days) = bench_with_history().await;
    let (mut finance, own) =
        (signed_in(&running, "fin", "finance").await, holder(&running, "ada", "acme").await);
    let invoice = running.admin().post("/admin/invoices", &days.issue_request("acme", 4, 3)).await.json();
    let number = invoice["number"].as_str().unwrap();
    let page = "/console/accounts/acme/invoice";
    let shown = format!("{page}?from={}&to={}", days.ago(4), days.ago(3));
    assert!(!finance.get(&shown).await.text().contains(&format!("{page}/credit")), "nothing was corrected");
    cancel_charges(&running, &days.ago(3), CENTS).await;
    assert!(finance.get(&shown).await.text().contains(&format!("{page}/credit")));
    let held = own.get(&format!("/dashboard/invoice?from={}&to={}", days.ago(4), days.ago(3))).await.text();
    assert!(!held.contains("/credit\""), "{held}");
    let token = finance.token(page).await;
    let form = [("form_token", token.as_str()), ("invoice", number)];
    let issued = finance.confirm(&format!("{page}/credit"), &form).await.text();
    assert!(issued.contains("-000002 was issued"), "{issued}");
    let note = number.replace("-000001", "-000002");
    for (browser, path) in [(&finance, "/console/accounts/acme"), (&own, "/dashboard")] {
        let list = browser.get(&format!("{path}/invoice")).await.text();
        let link = format!("{path}/credit-note?number={note}");
        assert!(list.contains(&format!("href=\"{link}\"")), "{list}");
        let page = browser.get(&link).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.text();
        for text in [note.as_str(), number, "Example Hosting GmbH", "75001 Paris", "VAT, 5.5 %"] {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert!(!page.contains("Draft") && !page.contains("<script>alert"), "{page}");
        let csv = browser.get(&format!("{path}/credit-note.csv?number={note}")).await.text();
        assert!(csv.starts_with("row,invoice,account,"), "{csv}");
        assert!(csv.contains(&format!("line,{note},acme,")) && csv.contains(number), "{csv}");
        let json = browser.get(&format!("{path}/credit-note.json?number={note}")).await.json();
        assert_eq!(json["number"], note);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credit_notes_are_rounded_together_and_none_is_of_zero() {
    let (_provider, running, days) = bench_with_history().await;
    let admin = running.admin();
    let invoice = admin.post("/admin/invoices", &days.issue_request("acme", 3, 3)).await.json();
    let number = invoice["number"].as_str().unwrap();
    let ask = json!({"account": "acme", "invoice": number, "invoice_from": invoice["from"]});
    let path = format!("/admin/credit-note?account=acme&invoice={number}");
    let (mut open, mut sum) = (Vec::new(), Decimal::ZERO);
    let (mut net, mut vat, mut notes, mut refusals) = (Decimal::ZERO, Decimal::ZERO, 0, 0);
    // Each charge is less than half a cent.
    for charge in charges(&running, &days.ago(3)).await {
        open.push(cancel(&running, &charge).await);
        sum += decimal(&charge["eur"]);
        let is_ready = -sum.round_dp(2) < net;
        let draft = admin.get(&path).await.json();
        assert_eq!((&draft["can_issue"], entries_of(&draft)), (&json!(is_ready), open.clone()), "{draft}");
        assert_eq!(draft["issue_state"], if is_ready { "ready" } else { "empty" });
        let note = admin.post("/admin/credit-notes", &ask).await;
        if !is_ready {
            let refusal = note.json();
            assert_eq!((note.status, refusal["error"]["param"].as_str()), (409, Some("invoice")));
            assert!(note.text().contains("amount to 0.00 EUR"), "{}", note.text());
            refusals += 1;
            continue;
        }
        let note = note.json();
        assert_eq!((entries_of(&note), &note["issue_state"]), (open, &json!("issued")), "{note}");
        (open, notes) = (Vec::new(), notes + 1);
        (net, vat) = (net + decimal(&note["net_eur"]), vat + decimal(&note["vat_eur"]));
        assert_eq!(net, -sum.round_dp(2), "{note}");
    }
    assert!(notes >= 2 && refusals >= notes, "{notes} {refusals}");
    assert_eq!((net, vat), (-decimal(&invoice["net_eur"]), -decimal(&invoice["vat_eur"])));
    let list = admin.get("/admin/credit-notes?account=acme").await.json();
    assert_eq!(list["data"].as_array().unwrap().len(), notes, "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_is_on_two_documents_when_the_seller_changes() {
    let (_provider, running, days) = bench_with_history().await;
    let admin = running.admin();
    let year = days.ago(0)[..4].to_owned();
    let issue = async |from: u64, to: u64| {
        let issued = admin.post("/admin/invoices", &days.issue_request("acme", from, to)).await;
        issued.json()["number"].as_str().map(str::to_owned).unwrap_or_else(|| panic!("{}", issued.text()))
    };
    let correct = async |invoice: &str, days_ago: u64| {
        cancel_charges(&running, &days.ago(days_ago), CENTS).await;
        let ask = json!({"account": "acme", "invoice": invoice});
        let note = admin.post("/admin/credit-notes", &ask).await;
        note.json()["number"].as_str().map(str::to_owned).unwrap_or_else(|| panic!("{}", note.text()))
    };
    let sell_as = async |vat_id: &str, prefix: &str| {
        let settings = INVOICE.replace("DE123456789", vat_id).replace("PS-", prefix);
        let provider = Provider::start().await;
        running
            .reload(Bench::new().settings(&settings).provider("a", &provider).load(running.storage()))
            .await;
    };
    let first = issue(5, 4).await;
    let mut numbers = vec![first.clone(), correct(&first, 5).await];
    // The second note of the account has the same number in the series of another seller.
    sell_as("DE999999999", "QS-").await;
    let second = issue(3, 3).await;
    numbers.extend([second.clone(), correct(&second, 3).await]);
    // A note of the first seller has the prefix of its invoice.
    numbers.push(correct(&first, 4).await);
    // The numbers of a seller with the prefix of another one continue.
    sell_as("DE777777777", "PS-").await;
    numbers.push(issue(2, 2).await);
    let expected = ["PS-1", "PS-2", "QS-1", "QS-2", "PS-3", "PS-4"].map(|short| {
        let (prefix, number) = short.split_once('-').unwrap();
        format!("{prefix}-{year}-00000{number}")
    });
    assert_eq!(numbers, expected);
    for note in [&numbers[1], &numbers[3], &numbers[4]] {
        let stored = admin.get(&format!("/admin/credit-note?account=acme&number={note}")).await.json();
        assert_eq!(stored["number"], **note);
    }
}
