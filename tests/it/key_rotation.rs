//! Rotation of a key while the secret from before the last rotation is still valid, by the admin API and by the forms.

use crate::harness::browser::{between, holder};
use crate::harness::gateway::Running;
use crate::harness::{Bench, Client, Provider};
use crate::limits::public_id;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    let dashboard = "[console]\nlisten = \"127.0.0.1:0\"\n";
    let running = Bench::new().settings(dashboard).provider("a", &provider).start().await;
    running.admin().post("/admin/accounts", &json!({"id": "acme"})).await;
    (provider, running)
}

fn client(running: &Running, key: impl Into<String>) -> Client {
    Client { address: running.client.address, key: key.into() }
}

async fn statuses(running: &Running, clients: &[&Client]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for client in clients {
        statuses.push(client.post(CHAT, &running.ask()).await.status);
    }
    statuses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_rotation_ends_no_secret_before_its_time_without_permission() {
    let (_provider, running) = bench().await;
    let admin = running.admin();
    let first = running.key(&json!({"name": "k"})).await;
    let path = format!("/admin/keys/{}/rotate", public_id(&first));
    let rotate = async |body: Value| {
        let rotated = admin.post(&path, &body).await.json();
        client(&running, rotated["key"].as_str().unwrap_or_else(|| panic!("{rotated}")))
    };
    let second = rotate(json!({"overlap_seconds": 86_400})).await;
    let until = admin.get(&format!("/admin/keys/{}", public_id(&first))).await.json();
    let until = until["previous_good_until"].as_u64().unwrap();
    let refused = admin.post(&path, &json!({"overlap_seconds": 3_600})).await;
    assert_eq!(refused.status, 409);
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(&penstock_core::calendar::format_rfc3339(until)), "{message}");
    assert!(message.contains("end_previous"), "{message}");
    assert_eq!(statuses(&running, &[&first, &second]).await, [200, 200], "nothing was changed");
    let third = rotate(json!({"overlap_seconds": 3_600, "end_previous": true})).await;
    assert_eq!(statuses(&running, &[&first, &second, &third]).await, [401, 200, 200]);
    let fourth = rotate(json!({"overlap_seconds": 0})).await;
    assert_eq!(statuses(&running, &[&second, &third, &fourth]).await, [401, 401, 200]);
    // No earlier secret is left, so nothing has to be permitted.
    let fifth = rotate(json!({})).await;
    assert_eq!(statuses(&running, &[&fourth, &fifth]).await, [200, 200]);
    let invalid = admin.post(&path, &json!({"end_previous": "yes"})).await;
    assert_eq!((invalid.status, invalid.json()["error"]["param"].as_str()), (400, Some("end_previous")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_form_asks_before_it_ends_an_earlier_secret() {
    let (_provider, running) = bench().await;
    let mut browser = holder(&running, "ada", "acme").await;
    let token = browser.token("/dashboard/keys").await;
    let create = [("form_token", token.as_str()), ("name", "k"), ("scopes", "inference.*")];
    let created = browser.post("/dashboard/keys", &create).await;
    let first = client(&running, between(&created.text(), "<code>", "</code>"));
    let page = format!("/dashboard/keys/{}", public_id(&first));
    let path = format!("{page}/rotate");
    assert!(!browser.get(&page).await.text().contains("name=\"end_previous\""));
    let rotate = [("form_token", token.as_str()), ("overlap_seconds", "86400")];
    let rotated = browser.post(&path, &rotate).await;
    let second = client(&running, between(&rotated.text(), "<code>", "</code>"));
    // A form that was shown before the first rotation is refused.
    assert_eq!(browser.post(&path, &rotate).await.status, 409);
    assert!(browser.get(&page).await.text().contains("name=\"end_previous\""));
    let ending = [("form_token", token.as_str()), ("overlap_seconds", "86400"), ("end_previous", "true")];
    let asked = browser.post(&path, &ending).await;
    let question = browser.get(asked.header("location").unwrap()).await.text();
    assert!(question.contains("the secret before the present one"), "{question}");
    assert_eq!(statuses(&running, &[&first, &second]).await, [200, 200], "nothing was changed");
    let rotated = browser.confirm(&path, &ending).await;
    let third = client(&running, between(&rotated.text(), "<code>", "</code>"));
    assert_eq!(statuses(&running, &[&first, &second, &third]).await, [401, 200, 200]);
}
