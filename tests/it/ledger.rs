//! The ledger of the real binary: killed in the middle of charged requests, read
//! and proven by the command line, with a gateway and without one.

use crate::harness::process::{Home, catalogue, complaint};
use crate::harness::{Client, Provider, until};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CHAT: &str = "/v1/chat/completions";

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", complaint(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Every entry, as the command line exports it.
fn entries(home: &Home) -> Vec<Value> {
    let text = said(&home.command(&["credits", "export"]));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn credits(home: &Home, account: &str) -> f64 {
    let text = said(&home.command(&["credits", "balance", account, "--json"]));
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["data"][0]["credits"]["reserved"].as_f64(), Some(0.0), "{told}");
    told["data"][0]["credits"]["balance"].as_f64().unwrap()
}

/// What clients got before the process was gone: the ids of whole answers.
async fn load(client: &Client, kill_after: usize, mut kill: impl FnMut()) -> BTreeSet<String> {
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
                    // A connection that breaks is what a kill looks like from here.
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
    let mut whole = BTreeSet::new();
    for task in tasks {
        whole.extend(task.await.unwrap());
    }
    whole
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_charged_requests_nothing_is_charged_twice_and_nothing_answered_is_forgotten()
{
    let requests: usize =
        std::env::var("PENSTOCK_KILLED_REQUESTS").map_or(900, |number| number.parse().unwrap());
    let provider = Provider::start().await;
    let home = Home::new();
    let prepaid = "[billing]\ncredit = \"prepaid\"\n[ledger]\nsync = \"answer\"\nwindow = \"2ms\"\n";
    home.write(&format!("{prepaid}{}", catalogue(&provider, "")));
    said(&home.command(&["credits", "grant", "default", "--credits", "100000", "--id", "invoice-1"]));
    let (client, _) = home.key();
    let mut answered = BTreeSet::new();
    for _ in 0..3 {
        let process = home.run().await;
        answered.extend(load(&client, requests / 3, || process.signal("KILL")).await);
        process.kill().await;
    }
    let proof = said(&home.command(&["credits", "verify"]));
    assert!(proof.contains(", 0 open reserves"), "{proof}");
    let mut ends: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut charged = 0;
    for entry in entries(&home) {
        let act = entry["act"].as_str().unwrap().to_owned();
        if act == "settle" {
            charged += entry["amount"].as_i64().unwrap();
        }
        if act == "settle" || act == "void" {
            ends.entry(entry["request"].as_str().unwrap().to_owned()).or_default().push(act);
        }
    }
    assert!(ends.values().all(|acts| acts.len() == 1), "a reserve ended twice");
    let settled = |id: &String| ends.get(id).is_some_and(|acts| acts[0] == "settle");
    let forgotten: Vec<_> = answered.iter().filter(|id| !settled(id)).collect();
    assert!(forgotten.is_empty(), "{} of {} answers have no charge", forgotten.len(), answered.len());
    assert!(answered.len() >= requests, "{} answers", answered.len());
    let settles = ends.values().filter(|acts| acts[0] == "settle").count();
    assert!(settles <= provider.calls(), "more charges than answers");
    assert!((credits(&home, "default") - (100_000.0 - charged as f64 / 1e6)).abs() < 1e-6);
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
        assert!(granted.status.success() || complaint.contains("done before"), "{complaint}");
    }
    assert_eq!(credits(&home, "default"), 0.5);
    // With one.
    let mut process = home.run().await;
    assert_eq!(client.post(CHAT, &ask).await.status, 200);
    said(&home.command(&["credits", "grant", "default", "--kwh", "0.25", "--note", "a present, for once"]));
    for wrong in [
        &["credits", "grant", "default", "--credits=-1"][..],
        &["credits", "grant", "default", "--credits", "0.0000001"],
        &["credits", "grant", "default", "--credits", "many"],
        &["credits", "grant", "a b", "--credits", "1"],
        &["credits", "correct", "99", "--credits", "1"],
        &["statement", "--month", "2026-13"],
        &["credits", "rerate", "--day", "yesterday"],
    ] {
        let refused = home.command(wrong);
        assert_eq!(refused.status.code(), Some(1), "{wrong:?}: {}", complaint(&refused));
        assert!(complaint(&refused).trim().ends_with('.'), "{}", complaint(&refused));
    }
    until("the charge", || entries(&home).iter().any(|entry| entry["act"] == "settle")).await;
    let charge = entries(&home).into_iter().find(|entry| entry["act"] == "settle").unwrap();
    let number = charge["seq"].to_string();
    said(&home.command(&["credits", "correct", &number, "--credits", "0.001", "--note", "a test"]));
    let twice = home.command(&["credits", "correct", &number, "--credits", "0"]);
    assert!(complaint(&twice).contains("done before"), "{}", complaint(&twice));
    let with = read(&home, &id);
    process.signal("TERM");
    process.until_ended().await;
    // The same without.
    assert_eq!(read(&home, &id), with);
    assert_eq!(credits(&home, "default"), 0.499);
    // The store is lost; its ledger is not.
    std::fs::remove_dir_all(home.storage().join("store")).unwrap();
    let refused = home.command(&["credits", "verify"]);
    assert!(complaint(&refused).contains("rebuild"), "{}", complaint(&refused));
    let rebuilt = said(&home.command(&["credits", "rebuild"]));
    assert!(rebuilt.contains("entries"), "{rebuilt}");
    assert_eq!(read(&home, &id), with);
    assert_eq!(credits(&home, "default"), 0.499);
}

/// Everything that is read from the ledger.
fn read(home: &Home, key: &str) -> Vec<String> {
    let proof = said(&home.command(&["credits", "verify"]));
    assert!(proof.contains("Every entry follows"), "{proof}");
    let csv = said(&home.command(&["credits", "export", "--format", "csv"]));
    assert!(csv.starts_with("seq,at,act,account,key,") && csv.contains("\"a present, for once\""), "{csv}");
    let text = said(&home.command(&["statement"]));
    for word in [key, "Methodology:", "Grid:", "Paris, France", "scope 3"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    let rows = said(&home.command(&["statement", "--format", "csv"]));
    let header: Vec<&str> = rows.lines().next().unwrap().split(',').collect();
    assert!(rows.lines().all(|row| row.split(',').count() == header.len()), "{rows}");
    let json: Value = serde_json::from_str(&said(&home.command(&["statement", "--format", "json"]))).unwrap();
    assert_eq!(json["accounts"][0]["credits"], "0.001", "the correction counts");
    let day = said(&home.command(&["credits", "rerate"]));
    assert!(day.contains("\"same\": true"), "{day}");
    vec![proof, csv, text, rows, json.to_string(), day]
}
