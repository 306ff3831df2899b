//! Limits without a test file of their own, each with a non-default value, and a check that every key of `[limits]` is
//! set by some test.

use crate::harness::script::{completion, json_answer};
use crate::harness::{Bench, Provider, until, within};
use crate::{files, transcriptions};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unstreamed_answer_is_as_large_as_its_bound_and_no_larger() {
    const MOST: usize = 8 << 10;
    let provider = Provider::start().await;
    let settings = "[limits]\nresponse_buffer = \"8KiB\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let empty = completion("").to_string().len();
    for (size, status) in [(MOST - 1, 200), (MOST, 200), (MOST + 1, 503)] {
        let text = "y".repeat(size - empty);
        provider.then(json_answer(200, &completion(&text)));
        let answer = running.chat().await;
        assert_eq!(answer.status, status, "{size}: {}", answer.text());
        if status == 200 {
            assert_eq!(answer.json()["choices"][0]["message"]["content"], text);
        } else {
            let attempt = &answer.json()["error"]["details"]["attempts"][0];
            assert_eq!(attempt["reason"], "unavailable", "{}", answer.text());
        }
    }
    assert_eq!(provider.calls(), 3);
}

/// Tests that the body of a form has its own timeout. In this test it is longer than the timeout of other bodies and
/// shorter than the idle timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_comes_whole_in_its_own_time() {
    const UPLOAD: Duration = Duration::from_millis(700);
    const BODY_IDLE: Duration = Duration::from_secs(15);
    let provider = Provider::start().await;
    let bench = transcriptions::hears(&[("a", &provider, "")]);
    let running = bench.settings("[limits]\nupload = \"700ms\"\nbody = \"100ms\"").start().await;
    let form = transcriptions::form(&[("model", false, b"w"), ("file", true, b"RIFF")]);
    let file = files::batch(&files::lines(1));
    for (path, form) in [(transcriptions::PATH, form), ("/v1/files", file)] {
        let length = form.len().to_string();
        let headers = [transcriptions::TYPE, ("content-length", length.as_str())];
        let began = Instant::now();
        let mut open = running.client.open("POST", path, &headers, &form[..form.len() - 4]).await;
        let answer = within("the refusal", open.finish()).await;
        let took = began.elapsed();
        assert_eq!(answer.status, 408, "{path}: {}", answer.text());
        assert!((UPLOAD..BODY_IDLE).contains(&took), "{path}: {took:?}");
    }
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_taken_until_so_much_is_unwritten_and_again_when_it_is_written() {
    const BACKLOG: u64 = 4 << 10;
    let provider = Provider::start().await;
    // With this window, ledger entries for which no request waits are written only after one hour.
    let settings = "[ledger]\nbacklog = \"4KiB\"\nwindow = \"1h\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let app = &running.gateway.app;
    let mut answered = 0;
    let last = loop {
        let waiting = app.ledger.durability_snapshot().waiting;
        let answer = running.chat().await;
        if answer.status != 200 {
            assert!(waiting > BACKLOG, "refused where {waiting} bytes wait");
            break answer;
        }
        assert!(waiting <= BACKLOG, "taken where {waiting} bytes wait");
        answered += 1;
        // The charge is queued when the request has ended.
        until("the request to end", || app.in_flight_exchanges() == 0).await;
    };
    assert_eq!((last.status, last.header("retry-after")), (503, Some("5")), "{}", last.text());
    assert!(answered > 1);
    // A grant waits for the disk, and queued entries are written with it.
    let grant = json!({"account": "default", "credits": "1"});
    let granted = running.admin().post("/admin/credits/grant", &grant).await;
    assert_eq!(granted.status, 201, "{}", granted.text());
    until("the charges to be written", || app.ledger.durability_snapshot().waiting == 0).await;
    assert_eq!(running.chat().await.status, 200);
    assert_eq!(provider.calls(), answered + 1, "who was refused was asked of nobody");
}

/// Returns every `key = value` below a table, in the configurations that the tests write.
fn set(table: &str) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    let mut open = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it"))];
    while let Some(folder) = open.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for rest in text.split(&format!("[{table}]")).skip(1) {
                // The settings of the table end at the end of the string literal, or at the start of the next table.
                let end = rest.match_indices('"').map(|(at, _)| at).find(|at| !rest[..*at].ends_with('\\'));
                let lines = rest[..end.unwrap_or(rest.len())].split("\\n[").next().unwrap();
                for (key, value) in lines.split("\\n").filter_map(|line| line.split_once('=')) {
                    let key = key.trim_matches(|c: char| c == '\\' || c.is_whitespace());
                    let value = value.trim().trim_matches(['\\', '"']);
                    found.entry(key.to_owned()).or_default().push(value.to_owned());
                }
            }
        }
    }
    found
}

#[test]
fn every_limit_is_set_by_some_test() {
    let schema: Value = serde_json::from_str(include_str!("../../conf/penstock.schema.json")).unwrap();
    for table in ["limits", "overload"] {
        let keys = schema["properties"][table]["properties"].as_object().unwrap();
        assert!(keys.len() >= 4, "the keys of {table} were found");
        let set = set(table);
        for (key, property) in keys {
            let default =
                property["default"].as_str().map_or_else(|| property["default"].to_string(), str::to_owned);
            let others =
                set.get(key).map_or(0, |values| values.iter().filter(|value| **value != default).count());
            assert!(others > 0, "no test sets {table}.{key} to anything but {default}: {:?}", set.get(key));
        }
    }
}
