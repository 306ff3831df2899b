//! Ledger of the real binary: killed amid charged requests, then read and verified by the command line, with and
//! without a running gateway.

use crate::harness::process::{Home, catalogue, complaint};
use crate::harness::{Client, Provider, until, within};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CHAT: &str = "/v1/chat/completions";

fn output_text(output: &Output) -> String {
    assert!(output.status.success(), "{}", complaint(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns every entry, as the command line exports it.
fn entries(home: &Home) -> Vec<Value> {
    let text = output_text(&home.command(&["credits", "export"]));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn credits(home: &Home, account: &str) -> f64 {
    let text = output_text(&home.command(&["credits", "balance", account, "--json"]));
    let printed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(printed["data"][0]["credits"]["reserved"].as_f64(), Some(0.0), "{printed}");
    printed["data"][0]["credits"]["balance"].as_f64().unwrap()
}

/// Returns the answers that clients received before the kill: the ids of complete answers, for each client in order.
async fn load(client: &Client, kill_after: usize, mut kill: impl FnMut()) -> Vec<Vec<String>> {
    let (done, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let (client, done, over) = (client.clone(), done.clone(), over.clone());
            tokio::spawn(async move {
                let ask = json!({"model": "m", "stream": number % 2 == 0, "max_tokens": 20,
                    "messages": [{"role": "user", "content": "Hi"}]});
                let mut whole = Vec::new();
                while !over.load(Ordering::Acquire) {
                    let asked = client.clone();
                    let body = ask.clone();
                    // A kill is visible here as a broken connection.
                    let Ok(answer) = tokio::spawn(async move { asked.post(CHAT, &body).await }).await else {
                        break;
                    };
                    let ended = answer.whole && (number % 2 != 0 || answer.text().contains("[DONE]"));
                    if answer.status == 200 && ended {
                        whole.push(answer.header("x-request-id").unwrap().to_owned());
                        done.fetch_add(1, Ordering::AcqRel);
                    }
                }
                whole
            })
        })
        .collect();
    until("answers", || done.load(Ordering::Acquire) >= kill_after).await;
    kill();
    over.store(true, Ordering::Release);
    let mut whole = Vec::new();
    for task in tasks {
        whole.push(task.await.unwrap());
    }
    whole
}

fn requests() -> usize {
    std::env::var("PENSTOCK_KILLED_REQUESTS").map_or(900, |number| number.parse().unwrap())
}

/// Verifies the ledger and returns the charged requests. Each reserve has one end, each charge has a provider call, and
/// the balance is the grants less the charges.
fn charged(home: &Home, provider: &Provider, granted: f64) -> BTreeSet<String> {
    // Any command that opens the ledger for writing voids the reserves that a kill left open; verifying changes
    // nothing.
    output_text(&home.command(&["credits", "balance"]));
    let proof = output_text(&home.command(&["credits", "verify"]));
    assert!(proof.contains(", 0 open reserves"), "{proof}");
    let mut ends: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut charged = 0;
    for entry in entries(home) {
        let act = entry["act"].as_str().unwrap().to_owned();
        if act == "settle" {
            charged += entry["amount"].as_i64().unwrap();
        }
        if act == "settle" || act == "void" {
            ends.entry(entry["request"].as_str().unwrap().to_owned()).or_default().push(act);
        }
    }
    assert!(ends.values().all(|acts| acts.len() == 1), "a reserve ended twice");
    let settles: BTreeSet<String> =
        ends.into_iter().filter(|(_, acts)| acts[0] == "settle").map(|(request, _)| request).collect();
    assert!(settles.len() <= provider.calls(), "more charges than answers");
    assert!((credits(home, "default") - (granted - charged as f64 / 1e6)).abs() < 1e-6);
    settles
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_charged_requests_nothing_is_charged_twice_and_nothing_answered_is_forgotten()
{
    let requests = requests();
    let provider = Provider::start().await;
    let home = Home::new();
    // `slow` is long, so that a slow disk delays answers instead of failing them. With `sync = "answer"`, no answer
    // is sent before its charge is on the disk.
    let prepaid =
        "[billing]\ncredit = \"prepaid\"\n[ledger]\nsync = \"answer\"\nwindow = \"2ms\"\nslow = \"25s\"\n";
    home.write(&format!("{prepaid}{}", catalogue(&provider, "")));
    output_text(&home.command(&["credits", "grant", "default", "--credits", "100000", "--id", "invoice-1"]));
    let (client, _) = home.key();
    let mut answered = BTreeSet::new();
    for _ in 0..3 {
        let process = home.run().await;
        let whole = load(&client, requests / 3, || process.signal("KILL")).await;
        answered.extend(whole.into_iter().flatten());
        process.kill().await;
    }
    let charged = charged(&home, &provider, 100_000.0);
    let forgotten = answered.iter().filter(|id| !charged.contains(*id)).count();
    assert_eq!(forgotten, 0, "of {} answers have no charge", answered.len());
    assert!(answered.len() >= requests, "{} answers", answered.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_charges_are_written_behind_only_the_last_of_them_are_forgotten() {
    let requests = requests();
    let provider = Provider::start().await;
    let home = Home::new();
    let prepaid = "[billing]\ncredit = \"prepaid\"\n[ledger]\nsync = \"behind\"\nwindow = \"20ms\"\n";
    home.write(&format!("{prepaid}{}", catalogue(&provider, "")));
    output_text(&home.command(&["credits", "grant", "default", "--credits", "100000", "--id", "invoice-1"]));
    let (client, _) = home.key();
    let (mut acknowledged, mut last) = (BTreeSet::new(), Vec::new());
    for _ in 0..3 {
        let process = home.run().await;
        acknowledged.extend(load(&client, requests / 6, || {}).await.into_iter().flatten());
        within("the charges to be written", async {
            loop {
                let status = home.admin().get("/status").await.json();
                if (status["requests_open"].as_u64(), status["ledger"]["unwritten_bytes"].as_u64())
                    == (Some(0), Some(0))
                {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
        last.extend(load(&client, requests / 6, || process.signal("KILL")).await);
        process.kill().await;
    }
    let charged = charged(&home, &provider, 100_000.0);
    let forgotten = acknowledged.iter().filter(|id| !charged.contains(*id)).count();
    assert_eq!(forgotten, 0, "of {} charges that were told to be written are forgotten", acknowledged.len());
    // Only the end of the ledger may be lost: if an entry of a client is missing, no later entry of this client
    // exists.
    for answers in last {
        let written = answers.iter().take_while(|id| charged.contains(*id)).count();
        let later = answers.iter().skip(written).filter(|id| charged.contains(*id)).count();
        assert_eq!(later, 0, "a charge is missing in the middle: {written} of {}", answers.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_does_the_same_with_a_gateway_and_without() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&format!("[billing]\ncredit = \"prepaid\"\n{}", catalogue(&provider, "")));
    let (client, id) = home.key();
    let ask = json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]});
    // Without a gateway.
    for _ in 0..2 {
        let granted = home.command(&["credits", "grant", "default", "--credits", "0.5", "--id", "one"]);
        let complaint = complaint(&granted);
        assert!(granted.status.success(), "{complaint}");
    }
    let other = complaint(&home.command(&["credits", "grant", "default", "--credits", "5", "--id", "one"]));
    let both = ["The id one was used before", ": 0.5 credits to default; asked was 5 credits to default."];
    assert!(both.iter().all(|part| other.contains(part)), "{other}");
    let energy = complaint(&home.command(&["credits", "grant", "default", "--kwh", "0.5", "--id", "one"]));
    assert!(energy.contains("0.5 credits to default; asked was 0.5 kwh to default"), "{energy}");
    assert_eq!(credits(&home, "default"), 0.5);
    // With one.
    let mut process = home.run().await;
    assert_eq!(client.post(CHAT, &ask).await.status, 200);
    output_text(&home.command(&[
        "credits",
        "grant",
        "default",
        "--kwh",
        "0.25",
        "--note",
        "a present, for once",
    ]));
    for arguments in [
        &["credits", "grant", "default", "--credits=-1"][..],
        &["credits", "grant", "default", "--credits", "0.0000001"],
        &["credits", "grant", "default", "--credits", "many"],
        &["credits", "grant", "a b", "--credits", "1"],
        &["credits", "grant", "defualt", "--credits", "1"],
        &["credits", "correct", "99", "--credits", "1"],
        &["credits", "balance", "defualt"],
        &["statement", "--account", "defualt"],
        &["statement", "--month", "2026-13"],
        &["credits", "rerate", "--day", "yesterday"],
    ] {
        let refused = home.command(arguments);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {}", complaint(&refused));
        assert!(complaint(&refused).trim().ends_with('.'), "{}", complaint(&refused));
    }
    until("the charge", || entries(&home).iter().any(|entry| entry["act"] == "settle")).await;
    let charge = entries(&home).into_iter().find(|entry| entry["act"] == "settle").unwrap();
    let number = charge["seq"].to_string();
    output_text(&home.command(&["credits", "correct", &number, "--credits", "0.001", "--note", "a test"]));
    let twice = home.command(&["credits", "correct", &number, "--credits", "0"]);
    let says = "0.001 credits in place of entry ";
    assert!(complaint(&twice).contains("was corrected before"), "{}", complaint(&twice));
    assert!(complaint(&twice).contains(says) && complaint(&twice).contains("asked was 0 credits"));
    let with = read(&home, &id, &charge);
    process.signal("TERM");
    process.until_ended().await;
    // The commands give the same result without a running gateway.
    assert_eq!(read(&home, &id, &charge), with);
    assert_eq!(credits(&home, "default"), 0.499);
    // Simulates the loss of the store; the ledger files, its second copy, still exist.
    std::fs::remove_dir_all(home.storage().join("store")).unwrap();
    let refused = home.command(&["credits", "verify"]);
    assert!(complaint(&refused).contains("rebuild"), "{}", complaint(&refused));
    let rebuilt = output_text(&home.command(&["credits", "rebuild"]));
    assert!(rebuilt.contains("entries"), "{rebuilt}");
    assert_eq!(read(&home, &id, &charge), with);
    assert_eq!(credits(&home, "default"), 0.499);
}

/// Returns everything that the commands read from the ledger, for the day and the month of a charge, because midnight
/// may have passed since.
fn read(home: &Home, key: &str, charge: &Value) -> Vec<String> {
    let day = |entry: &Value| penstock::time::format::format_day(entry["at"].as_u64().unwrap());
    let (of, month) = (day(charge), day(charge)[..7].to_owned());
    let all = entries(home);
    let correction = all.iter().find(|entry| entry["act"] == "correct").unwrap();
    let proof = output_text(&home.command(&["credits", "verify"]));
    assert!(proof.contains("Every entry follows"), "{proof}");
    let csv = output_text(&home.command(&["credits", "export", "--format", "csv"]));
    assert!(csv.starts_with("seq,at,act,account,key,") && csv.contains("\"a present, for once\""), "{csv}");
    let table = output_text(&home.command(&["credits", "export", "--format", "table"]));
    assert!(table.starts_with("ENTRY  TIME") && table.lines().count() == all.len() + 1, "{table}");
    let text = output_text(&home.command(&["statement", "--month", &month]));
    for word in [key, "Methodology:", "Grid:", "Paris, France", "scope 3"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    let rows = output_text(&home.command(&["statement", "--month", &month, "--format", "csv"]));
    let header: Vec<&str> = rows.lines().next().unwrap().split(',').collect();
    assert!(rows.lines().all(|row| row.split(',').count() == header.len()), "{rows}");
    // The rows of each kind add up to the complete bill; the column `of` distinguishes the kinds.
    let kinds: Vec<&str> = rows.lines().filter_map(|row| row.split(',').nth(1)).collect();
    assert_eq!(kinds, ["of", "account", "key", "model"], "{rows}");
    let json = output_text(&home.command(&["statement", "--month", &month, "--format", "json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    let credits = if day(correction).starts_with(&month) { "0.001" } else { "0.0025" };
    let account = &json["accounts"][0];
    for row in [account, &account["keys"][0], &account["models"][0]] {
        assert_eq!(row["credits"], credits, "the correction counts: {json}");
    }
    assert_eq!(account["models"][0]["model"], "m");
    let rated = output_text(&home.command(&["credits", "rerate", "--day", &of]));
    assert!(rated.contains("\"same\": true") && rated.contains("\"charges\": 1"), "{rated}");
    vec![proof, csv, text, rows, json.to_string(), rated]
}
