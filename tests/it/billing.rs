//! Billing rules, one test for each: charges when an answer fails, breaks off, fails over, reports no usage, or its
//! client disconnects.

mod balances;
mod corrections;
mod delivered_parts;
mod implausible_usage;
mod interruptions;
mod output_limits;

use crate::harness::gateway::Running;
use crate::harness::script::{
    Script, ScriptStep, completion, delta, done, event, finish, json_answer, plain, role, sse, text, usage,
};
use crate::harness::{Bench, Provider, until};
use penstock::billing::report;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PREPAID: &str = "[billing]\ncredit = \"prepaid\"\n";
const CHAT: &str = "/v1/chat/completions";

/// Returns the ledger's entries as JSON, once all are written and every reserve has ended.
pub async fn entries(running: &Running) -> Vec<Value> {
    let ledger = &running.gateway.app.ledger;
    until("the ledger to be written", || {
        let state = ledger.durability_snapshot();
        running.gateway.app.in_flight_exchanges() == 0 && state.waiting == 0 && state.open == 0
    })
    .await;
    let (mut all, mut after) = (Vec::new(), 0);
    while let Some((text, last)) = report::read_text_page(&ledger.store, &[after]).unwrap() {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        all.extend(lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()));
        after = last;
    }
    let proof = report::verify(&ledger.store).unwrap();
    assert!(proof.is_intact(), "{proof:?}");
    all
}

/// Returns the entries of one kind.
async fn of(running: &Running, act: &str) -> Vec<Value> {
    entries(running).await.into_iter().filter(|entry| entry["act"] == act).collect()
}

/// Balance of the account, in micro-credits.
fn balance(running: &Running) -> i64 {
    running.gateway.app.ledger.balance("default").credits.amount
}

async fn grant(running: &Running, credits: &str) {
    let made = running
        .admin()
        .post("/admin/credits/grant", &json!({"account": "default", "credits": credits}))
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
}

async fn one(script: Script) -> (Provider, Running) {
    let provider = Provider::start().await;
    provider.always(script);
    let running = Bench::new().settings("[routing]\nattempts = 1").provider("a", &provider).start().await;
    (provider, running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_charged_once_with_the_cost_it_reports() {
    let (_provider, running) = one(plain("Hello")).await;
    let answer = running.chat().await;
    let charges = of(&running, "settle").await;
    assert_eq!(charges.len(), 1);
    // 11 tokens at 1 EUR and 7 at 2 EUR a million, a credit a cent: 0.0025 credits.
    assert_eq!(charges[0]["amount"], 2_500);
    assert_eq!(answer.json()["billing_cost"]["credits"].as_f64(), Some(0.0025));
    assert_eq!(charges[0]["request"], answer.header("x-request-id").unwrap());
    assert_eq!((charges[0]["input"].as_u64(), charges[0]["output"].as_u64()), (Some(11), Some(7)));
    let kwh: f64 = charges[0]["kwh"].as_str().unwrap().parse().unwrap();
    assert_eq!(answer.json()["environment_impact"]["energy_kwh"].as_f64(), Some(kwh));
    assert_eq!(balance(&running), -2_500, "without a bound it is owed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_before_dispatch_nothing_is_written() {
    let (provider, running) = one(plain("Hello")).await;
    let mut stranger = running.client.clone();
    stranger.key = "sk-svc-nobody".to_owned();
    assert_eq!(stranger.post(CHAT, &running.ask()).await.status, 401);
    assert_eq!(running.client.post(CHAT, &json!({"model": "m", "messages": []})).await.status, 400);
    assert_eq!(
        running
            .client
            .post(CHAT, &json!({"model": "none", "messages": [{"role": "user", "content": "x"}]}))
            .await
            .status,
        404
    );
    assert_eq!(entries(&running).await.len(), 0);
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_usage_is_counted_and_marked() {
    let mut body = completion("twelve letters and some more");
    body.as_object_mut().unwrap().remove("usage");
    let (_provider, running) = one(json_answer(200, &body)).await;
    let answer = running.chat().await;
    let charges = of(&running, "settle").await;
    assert_eq!((charges.len(), charges[0]["counted"].as_bool()), (1, Some(true)));
    assert_eq!(charges[0]["output"].as_u64(), Some("twelve letters and some more".len().div_ceil(4) as u64));
    assert!(answer.json()["billing_cost"]["credits"].as_f64().unwrap() > 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usage_of_nothing_is_replaced_by_the_gateways_count() {
    let mut body = completion("Hello");
    body["usage"] = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
    let streamed = vec![sse(), role(), text("Hello"), finish("stop"), usage(0, 0), done(), ScriptStep::End];
    for (script, stream) in [(json_answer(200, &body), false), (streamed, true)] {
        let (_provider, running) = one(script).await;
        if stream {
            running.chat_stream().await
        } else {
            running.chat().await
        };
        let charges = of(&running, "settle").await;
        assert_eq!((charges.len(), charges[0]["counted"].as_bool()), (1, Some(true)));
        assert!(charges[0]["amount"] != 0 && charges[0]["output"] == 2, "{charges:?}");
        let metrics = running.admin().get("/metrics").await.text();
        let line = "penstock_usage_understated_total{model=\"m\",provider=\"a\"} 1";
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usage_of_nothing_does_not_replace_an_earlier_one() {
    let script = vec![
        sse(),
        role(),
        text("Hello"),
        finish("stop"),
        usage(11, 7),
        usage(0, 0),
        done(),
        ScriptStep::End,
    ];
    let (_provider, running) = one(script).await;
    running.chat_stream().await;
    let charges = of(&running, "settle").await;
    assert_eq!(
        (charges[0]["input"].as_u64(), charges[0]["output"].as_u64()),
        (Some(11), Some(7)),
        "{charges:?}"
    );
    assert!(charges[0].get("counted").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_in_any_chunk_counts_and_the_last_one_wins() {
    let mut early = delta(json!({"content": "Hel"}), None);
    early["usage"] = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
    let script =
        vec![sse(), role(), event(&early), text("lo"), finish("stop"), usage(11, 7), done(), ScriptStep::End];
    let (_provider, running) = one(script).await;
    running.chat_stream().await;
    assert_eq!(of(&running, "settle").await[0]["amount"], 2_500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_is_half_the_price() {
    let (_provider, running) = one(plain("Hello")).await;
    let mut ask = running.ask();
    ask["model"] = json!("m:batch");
    let answer = running.client.post(CHAT, &ask).await;
    assert_eq!(answer.json()["billing_cost"]["credits"].as_f64(), Some(0.00125));
    let charges = of(&running, "settle").await;
    assert_eq!((charges[0]["amount"].as_i64(), charges[0]["batch"].as_bool()), (Some(1_250), Some(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prices_change_on_their_day() {
    let provider = Provider::start().await;
    let changes = "[[models.price_changes]]\nfrom = \"2001-01-01\"\nprice = { output = 4.0 }\n\
                   [[models.price_changes]]\nfrom = \"2999-01-01\"\nprice = { output = 9000.0 }\n";
    let running = Bench::new()
        .model(&format!("context_length = 131072\nsupported_parameters = []\n{changes}"))
        .provider("a", &provider)
        .start()
        .await;
    let answer = running.chat().await;
    // 11 at 1 EUR and 7 at 4 EUR a million.
    assert_eq!(answer.json()["billing_cost"]["credits"].as_f64(), Some(0.0039));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_agrees_with_the_answers() {
    let (_provider, running) = one(plain("Hello")).await;
    for _ in 0..3 {
        running.chat().await;
    }
    // The days and months come from the charges, because midnight may pass during the test.
    let days: BTreeSet<String> = of(&running, "settle")
        .await
        .iter()
        .map(|entry| penstock::time::format::format_day(entry["at"].as_u64().unwrap()))
        .collect();
    let months: BTreeSet<&str> = days.iter().map(|day| &day[..7]).collect();
    let admin = running.admin();
    let (mut requests, mut tokens, mut eur) = (0, (0, 0), Decimal::ZERO);
    for month in months {
        let month = admin.get(&format!("/admin/statement?month={month}")).await.json();
        let row = &month["accounts"][0];
        assert_eq!(row["account"], "default");
        requests += row["requests"].as_u64().unwrap();
        tokens.0 += row["input_tokens"].as_u64().unwrap();
        tokens.1 += row["output_tokens"].as_u64().unwrap();
        eur += row["eur"].as_str().unwrap().parse::<Decimal>().unwrap();
        assert_eq!(row["keys"].as_array().unwrap().len(), 1);
        assert_eq!(month["methodologies"].as_array().unwrap().len(), 1, "{month}");
    }
    assert_eq!((requests, tokens, eur), (3, (33, 21), Decimal::new(75, 6)));
    let mut charges = 0;
    for day in &days {
        let day = admin.get(&format!("/admin/credits/rerate?day={day}")).await.json();
        charges += day["charges"].as_u64().unwrap();
        assert_eq!((day["same"].as_bool(), &day["charged"]), (Some(true), &day["computed_again"]), "{day}");
    }
    assert_eq!(charges, 3);
    let proof = admin.get("/admin/credits/verify").await.json();
    assert_eq!((proof["good"].as_bool(), proof["open_reserves"].as_u64()), (Some(true), Some(0)), "{proof}");
    let balances = admin.get("/admin/credits?account=default").await.json();
    assert_eq!(balances["data"][0]["credits"]["balance"].as_f64(), Some(-0.0075));
}
