//! Tests of the conditions of faults, and of the counters.

use super::{CHAT, FaultRule, MESSAGES, SimulatedFault, ask, once, post, receive, send, server};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn faults_with_a_number_wait_in_a_queue_and_the_others_stand() {
    let server = server().await;
    let control = server.control();
    control.add_rule(SimulatedFault::NoUsage {});
    once(&control, SimulatedFault::status(500));
    once(&control, SimulatedFault::status(429));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let seen = post(server.address, CHAT, &ask(&json!({}))).await;
        statuses.push(seen.status);
        assert!(!seen.text().contains("usage"));
    }
    assert_eq!(statuses, [500, 429, 200]);
    control.clear_rules();
    assert!(post(server.address, CHAT, &ask(&json!({}))).await.text().contains("usage"));
}

#[tokio::test]
async fn a_flapping_provider_fails_every_other_time() {
    let server = server().await;
    post(server.address, "/control", &json!({ "rules": [{ "fault": "flap" }] })).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(post(server.address, CHAT, &ask(&json!({}))).await.status);
    }
    assert_eq!(statuses, [503, 200, 503, 200]);
}

#[tokio::test]
async fn rules_keep_to_their_path_model_and_turn() {
    let server = server().await;
    let control = server.control();
    control.add_rule(FaultRule::from(SimulatedFault::status(500)).path("/messages"));
    control.add_rule(FaultRule::from(SimulatedFault::status(501)).model("bad"));
    control.add_rule(FaultRule::from(SimulatedFault::status(502)).path("/models"));
    assert_eq!(post(server.address, MESSAGES, &ask(&json!({}))).await.status, 500);
    assert_eq!(post(server.address, CHAT, &ask(&json!({}))).await.status, 200);
    assert_eq!(post(server.address, CHAT, &ask(&json!({ "model": "bad" }))).await.status, 501);
    assert_eq!(receive(send(server.address, "GET", "/v1/models", "").await).await.status, 502);
    control.clear_rules();
    control.add_rule(FaultRule::from(SimulatedFault::status(503)).skip(1).times(1));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(post(server.address, CHAT, &ask(&json!({}))).await.status);
    }
    assert_eq!(statuses, [200, 503, 200]);
}

#[tokio::test]
async fn a_models_name_can_order_several_faults_for_its_own_call() {
    let server = server().await;
    let asked = json!({ "model": "org/m#fault=content_type&value=text/x#fault=no_usage" });
    let seen = post(server.address, CHAT, &ask(&asked)).await;
    assert_eq!((seen.header("content-type"), &seen.json()["model"]), (Some("text/x"), &json!("org/m")));
    assert!(seen.json().get("usage").is_none());
}

#[tokio::test]
async fn an_invalid_order_is_refused_and_changes_nothing() {
    let server = server().await;
    for order in [
        json!({ "fault": "unheard_of" }),
        json!({ "fault": "stall", "aftr": 1 }),
        json!({ "fault": "stall", "times": "x" }),
        json!([{ "fault": "silent" }, { "fault": 1 }]),
        json!({ "relase": true }),
        json!(7),
    ] {
        assert_eq!(post(server.address, "/control", &order).await.status, 400, "{order}");
    }
    assert_eq!(post(server.address, CHAT, &ask(&json!({}))).await.status, 200);
}

#[tokio::test]
async fn calls_are_counted_and_recorded_without_their_header_values() {
    let server = server().await;
    let control = server.control();
    post(server.address, CHAT, &ask(&json!({ "temperature": 0.25 }))).await;
    receive(send(server.address, "GET", "/v1/models?limit=1", "").await).await;
    let counts = control.until(|counts| counts.finished == 2).await;
    assert_eq!((counts.calls, counts.generations, counts.open, counts.cut), (2, 1, 0, 0));
    assert_eq!(counts.by_path[CHAT], 1);
    assert_eq!(control.calls()[0].json()["temperature"], 0.25);
    assert_eq!(control.last_call().unwrap().path, "/v1/models?limit=1");
    let report = receive(send(server.address, "GET", "/control", "").await).await.json();
    assert_eq!((&report["calls"], &report["by_path"]["/v1/models"]), (&json!(2), &json!(1)));
    assert_eq!(report["last"][1]["headers"], json!(["host", "connection", "content-length"]));
    assert_eq!(report["last"][1]["bytes"], control.calls()[0].body.len());
    control.reset_counts();
    assert_eq!((control.counts().calls, control.calls().len()), (0, 0));
}

#[tokio::test]
async fn only_the_last_calls_are_remembered() {
    let server = server().await;
    for number in 0..70 {
        receive(send(server.address, "GET", &format!("/{number}"), "").await).await;
    }
    let calls = server.control().calls();
    assert_eq!((calls.len(), calls[0].path.as_str(), server.control().counts().calls), (64, "/6", 70));
}

#[tokio::test]
async fn the_pace_is_the_configured_one() {
    let server = server().await;
    let begin = std::time::Instant::now();
    server.control().set_pace(Duration::from_millis(30), 100.0);
    let seen = post(server.address, CHAT, &ask(&json!({ "max_tokens": 11, "stream": true }))).await;
    assert!(seen.whole);
    // 30 ms for the first token and 10 ms for each of the ten others. Only an earlier end is an error, because a busy
    // machine may be slower.
    assert!(begin.elapsed() >= Duration::from_millis(130));
}
