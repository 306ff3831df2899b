//! Batches and files of all accounts on the admin listener: listed, shown, cancelled, deleted and audited.

use crate::harness::batch_jobs::{batch, ended, lines, uploaded, when};
use crate::harness::script::held;
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

fn ids(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_lists_shows_and_cancels_batches() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Hello"));
    let running = Bench::new().provider("p", &provider).start().await;
    let (client, admin) = (&running.client, running.admin());
    let made = batch(client, &lines(3)).await;
    when(client, &made, "lines at work", |now| now["status"] == "in_progress").await;
    let id = made["id"].as_str().unwrap();

    let listed = admin.get("/admin/batches").await.json();
    assert_eq!(ids(&listed), [id]);
    let account = listed["data"][0]["account"].as_str().unwrap().to_owned();
    assert_eq!(listed["data"][0]["endpoint"], "/v1/chat/completions");
    for (query, found) in [
        (format!("account={account}"), 1),
        ("account=nobody".to_owned(), 0),
        ("state=in_progress".to_owned(), 1),
        ("state=completed".to_owned(), 0),
    ] {
        let listed = admin.get(&format!("/admin/batches?{query}")).await.json();
        assert_eq!(ids(&listed).len(), found, "{query}");
    }
    assert_eq!(admin.get("/admin/batches?status=x").await.status, 400, "the parameter is called state");
    let unknown = admin.get(&format!("/admin/batches?account={account}&after=batch_none")).await;
    assert_eq!((unknown.status, unknown.json()["error"]["param"].as_str()), (400, Some("after")));

    let cancelled = admin.post(&format!("/admin/batches/{id}/cancel"), &json!({})).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text());
    assert_eq!(cancelled.json()["status"], "cancelled");
    assert_eq!(ended(client, &made).await["status"], "cancelled");
    let shown = admin.get(&format!("/admin/batches/{id}")).await.json();
    assert!(shown["ended"].is_u64() && shown["status"] == "cancelled", "{shown}");
    assert_eq!(admin.get("/admin/batches/batch_none").await.status, 404);
    assert_eq!(admin.post("/admin/batches/batch_none/cancel", &json!({})).await.status, 404);
    let audit = admin.get(&format!("/admin/audit?target={id}")).await.json();
    assert_eq!(audit["data"][0]["what"], "batch.cancel");
    go.notify_waiters();
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_lists_shows_and_deletes_files_without_their_contents() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    let (client, admin) = (&running.client, running.admin());
    let first = uploaded(client, &lines(2)).await;
    let second = uploaded(client, &lines(3)).await;

    let page = admin.get("/admin/files?limit=1").await.json();
    assert_eq!((ids(&page), &page["has_more"]), (vec![first.as_str()], &json!(true)));
    let next = page["next"].as_str().unwrap();
    let page = admin.get(&format!("/admin/files?limit=1&after={next}")).await.json();
    assert_eq!((ids(&page), &page["has_more"]), (vec![second.as_str()], &json!(false)));
    assert_eq!(ids(&admin.get("/admin/files?purpose=batch_output").await.json()).len(), 0);

    let shown = admin.get(&format!("/admin/files/{first}")).await.json();
    assert_eq!((&shown["purpose"], &shown["lines"]), (&json!("batch"), &json!(2)));
    let deleted = admin.send("DELETE", &format!("/admin/files/{first}"), &[], b"").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(client.get(&format!("/v1/files/{first}")).await.status, 404);
    assert_eq!(admin.send("DELETE", &format!("/admin/files/{first}"), &[], b"").await.status, 404);
    let audit = admin.get(&format!("/admin/audit?target={first}")).await.json();
    assert_eq!(audit["data"][0]["what"], "file.delete");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_compressed_for_clients_that_ask_for_it() {
    use std::io::Read;
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    let admin = running.admin();
    let plain = admin.get("/metrics").await;
    assert!(plain.header("content-encoding").is_none(), "nobody asked for it");
    let packed = admin.send("GET", "/metrics", &[("accept-encoding", "gzip")], b"").await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
    for name in ["penstock_build_info{version=", "process_resident_memory_bytes ", "penstock_requests_open "]
    {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(packed.body.len() * 2 < text.len());
    running.stop().await;
}
