//! Grid intensity over real sockets: its origin and age at a provider, the past hours after a restart, and the plot
//! together with the batch requests of all accounts and of one account.

use crate::billing::entries;
use crate::harness::batch_jobs::{batch, ended, lines};
use crate::harness::browser::{holder, signed_in};
use crate::harness::gateway::Running;
use crate::harness::{Bench, Provider};
use penstock_core::calendar::format_rfc3339;
use penstock_storage::{StoreTable, Transaction};
use serde_json::{Value, json};

const HOUR: u64 = 3_600;
const DASHBOARD: &str = "[console]\nlisten = \"127.0.0.1:0\"\n";

fn typical(grams: u32) -> String {
    format!("[grid]\nsaving = 1\nhours = {{ FR = {:?} }}\n", [grams; 24])
}

fn now(running: &Running) -> u64 {
    running.gateway.app.clock.unix_seconds()
}

async fn grid(running: &Running, query: &str) -> Value {
    let answer = running.admin().get(&format!("/admin/grid{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Intensity and origin of a zone in the hour of this time.
fn at(grid: &Value, zone: usize, time: u64) -> (u64, String) {
    let hour = json!(format_rfc3339(time / HOUR * HOUR));
    let index = grid["hours"].as_array().unwrap().iter().position(|one| *one == hour).unwrap();
    let row = &grid["data"][zone];
    (row["g_per_kwh"][index].as_u64().unwrap(), row["sources"][index].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_shows_the_intensity_of_its_grid_with_origin_and_age() {
    let provider = Provider::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forecast.csv");
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let hours = (0..3).map(|hour| format!("FR,{},44\n", format_rfc3339((time / HOUR + hour) * HOUR)));
    std::fs::write(&path, hours.collect::<String>()).unwrap();
    let own = format!("[grid]\nhours = {{ a = {:?} }}\n", [7; 24]);
    for (settings, zone, grams, source, english, german) in [
        (String::new(), "FR", 31, "yearly", "mean of 2025", "Mittelwert 2025"),
        (typical(250), "FR", 250, "typical", "usual at this hour", "üblich um diese Uhrzeit"),
        (own, "a", 7, "typical", "usual at this hour", "üblich um diese Uhrzeit"),
        (
            format!("[grid]\nforecast = {path:?}\n"),
            "FR",
            44,
            "forecast",
            "forecast, 0\u{202f}min old",
            "Prognose, 0\u{202f}min alt",
        ),
    ] {
        let running = Bench::new().settings(&settings).provider("a", &provider).start().await;
        let shown = running.admin().get("/admin/providers").await.json()["data"][0]["grid"].clone();
        assert_eq!((&shown["zone"], &shown["g_per_kwh"]), (&json!(zone), &json!(grams)), "{shown}");
        assert_eq!(shown["source"], source);
        assert_eq!(shown["year"].is_null(), source != "yearly", "{shown}");
        assert_eq!(shown["seconds_old"].is_null(), source != "forecast", "{shown}");
        let browser = signed_in(&running, "vic", "viewer").await;
        for (language, says) in [("en", english), ("de", german)] {
            let headers = [("cookie", browser.cookie.as_str()), ("accept-language", language)];
            let page = browser.site.send("GET", "/console/providers", &headers, b"").await.text();
            let cells: Vec<&str> =
                page.split("</td>").map(|cell| cell.rsplit('>').next().unwrap().trim()).collect();
            assert!(cells.contains(&&*format!("{grams}\u{202f}g/kWh")), "{page}");
            assert!(cells.contains(&says), "{says}: {page}");
        }
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_hours_stay_as_they_were_known_across_a_restart() {
    let provider = Provider::start().await;
    let first = Bench::new().settings(&typical(300)).provider("a", &provider).start().await;
    let (app, time) = (first.gateway.app.clone(), now(&first));
    // Records the previous hour, as the gateway would have done during that hour.
    app.grid_records.record_current_hour(&app.config_snapshot(), time - HOUR);
    drop(app);
    let left = first.halt().await;
    let second = Bench::new().settings(&typical(20)).provider("a", &provider).restart(left).await;
    let day = grid(&second, "").await;
    assert_eq!(day["hours"].as_array().unwrap().len(), 24);
    assert_eq!(at(&day, 0, time - HOUR), (300, "typical".to_owned()), "{day}");
    assert_eq!(at(&day, 0, time - 2 * HOUR), (20, "typical".to_owned()), "never recorded: {day}");
    assert_eq!(at(&day, 0, now(&second)), (20, "typical".to_owned()), "{day}");
    // The records of a zone without providers are deleted.
    let own = format!("[grid]\nhours = {{ a = {:?} }}\n", [7; 24]);
    let left = second.halt().await;
    let third = Bench::new().settings(&own).provider("a", &provider).restart(left).await;
    let day = grid(&third, "").await;
    assert_eq!(at(&day, 0, time - HOUR), (7, "typical".to_owned()), "{day}");
    let mut rows = Vec::new();
    let each = |name: String, _: Option<Value>| rows.push(name);
    third.gateway.app.stores.measurements.for_each("g", each).unwrap();
    assert!(!rows.contains(&"gFR".to_owned()), "{rows:?}");
    third.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_batches_are_plotted_beside_the_intensity_of_all_and_of_one_account() {
    let provider = Provider::start().await;
    let settings = format!("{DASHBOARD}{}", typical(250));
    let running = Bench::new().settings(&settings).provider("a", &provider).start().await;
    for account in ["acme", "other"] {
        running.admin().post("/admin/accounts", &json!({"id": account})).await;
    }
    let acme = running.key(&json!({"account": "acme", "scopes": ["*"]})).await;
    let made = batch(&acme, &lines(3)).await;
    assert_eq!(ended(&acme, &made).await["status"], "completed");
    let mut ask = running.ask();
    ask["model"] = json!("m:batch");
    assert_eq!(acme.post("/v1/chat/completions", &ask).await.status, 200);
    // A request at the full price is not counted as a batch request.
    assert_eq!(running.chat().await.status, 200);
    entries(&running).await;
    let requests = |grid: &Value| -> u64 {
        let hours = grid["data"][0]["batch_requests"].as_array().into_iter().flatten();
        hours.filter_map(Value::as_u64).sum()
    };
    assert_eq!(requests(&grid(&running, "").await), 4);
    let own = grid(&running, "?account=acme").await;
    assert_eq!((requests(&own), &own["data"][0]["zone"]), (4, &json!("FR")), "{own}");
    assert_eq!(grid(&running, "?account=other").await["data"], json!([]));
    let usage = acme.get("/v1/usage").await.json();
    assert_eq!(usage["total"]["batch_requests"], 4, "{usage}");
    let plots = [
        (signed_in(&running, "ops", "operator").await, "/console/batches", true),
        (holder(&running, "ada", "acme").await, "/dashboard/batches", true),
        (holder(&running, "bob", "other").await, "/dashboard/batches", false),
    ];
    for (browser, path, is_plotted) in plots {
        let page = browser.get(path).await;
        assert_eq!(page.status, 200);
        let page = page.text();
        assert_eq!(page.contains("<polyline class=\"line s0\""), is_plotted, "{path}: {page}");
        if is_plotted {
            let sum = "250\u{202f}g/kWh to 250\u{202f}g/kWh; 4 requests of batches\"";
            assert!(page.contains("role=\"img\"") && page.contains(sum), "{page}");
            assert!(page.contains("<summary>Values as a table</summary>"), "{page}");
            for requests in [0, 4] {
                assert!(page.contains(&format!("<td>250</td><td>{requests}</td>")), "{page}");
            }
        }
    }
    assert_eq!(verified(&running).await["good"], true);
    running.stop().await;
}

async fn verified(running: &Running) -> Value {
    running.admin().get("/admin/usage/verify").await.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollups_of_an_earlier_version_count_no_batches_and_are_intact() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let mut ask = running.ask();
    ask["model"] = json!("m:batch");
    assert_eq!(running.client.post("/v1/chat/completions", &ask).await.status, 200);
    entries(&running).await;
    let store = running.gateway.app.stores.store.clone();
    let rows = store.scan(StoreTable::Usage, b"", None, 100).unwrap().rows;
    assert!(rows.iter().all(|row| String::from_utf8_lossy(&row.value).contains("\"batch\":1")), "{rows:?}");
    for (batch, is_intact) in [("", true), ("\"batch\":1,", true), ("\"batch\":2,", false)] {
        for row in &rows {
            let value = String::from_utf8_lossy(&row.value).replace("\"batch\":1,", batch);
            store
                .apply(Transaction::new().put(StoreTable::Usage, row.key.clone(), value.into_bytes()))
                .unwrap();
        }
        let check = verified(&running).await;
        assert_eq!(check["good"], is_intact, "{batch}: {check}");
    }
    running.stop().await;
}
