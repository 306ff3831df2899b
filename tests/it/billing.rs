//! The billing law, a test a row: who pays what when an answer fails, breaks off,
//! moves on, tells no usage, or nobody waits for it.

use crate::harness::bench::Running;
use crate::harness::script::{
    Act, Script, completion, cut, delta, done, event, finish, json_answer, plain, role, sse, status, stream,
    text, usage,
};
use crate::harness::{Bench, Provider, until};
use penstock::ledger::report;
use penstock_ledger::Wallet;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PREPAID: &str = "[billing]\ncredit = \"prepaid\"\n";
const CHAT: &str = "/v1/chat/completions";

/// The ledger's entries as JSON, once everything is written and every reserve has ended.
pub async fn entries(running: &Running) -> Vec<Value> {
    let ledger = &running.gateway.house.ledger;
    until("the ledger to be written", || {
        let state = ledger.state();
        running.gateway.house.exchanges() == 0 && state.waiting == 0 && state.open == 0
    })
    .await;
    let (mut all, mut after) = (Vec::new(), 0);
    while let Some((text, last)) = report::page(&ledger.store, after).unwrap() {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        all.extend(lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()));
        after = last;
    }
    let proof = report::verify(&ledger.store).unwrap();
    assert!(proof.good(), "{proof:?}");
    all
}

/// Those of one kind.
async fn of(running: &Running, act: &str) -> Vec<Value> {
    entries(running).await.into_iter().filter(|entry| entry["act"] == act).collect()
}

/// What the account has, in micro-credits.
fn balance(running: &Running) -> i64 {
    running.gateway.house.ledger.balance("default").credits.amount
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

/// Exactly one reserve and one void, and nothing was charged.
async fn assert_free(running: &Running, why: &str) -> Value {
    let all = entries(running).await;
    let acts: Vec<&str> = all.iter().map(|entry| entry["act"].as_str().unwrap()).collect();
    assert_eq!(acts, ["reserve", "void"], "{all:?}");
    assert_eq!(all[1]["why"], why);
    assert_eq!(all[0]["amount"], all[1]["held"]);
    assert_eq!(balance(running), 0);
    all[1].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_charged_once_what_it_says_it_costs() {
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
async fn an_account_without_enough_gets_402_before_anything_is_sent() {
    let provider = Provider::start().await;
    let running = Bench::new().settings(PREPAID).provider("a", &provider).start().await;
    for path in [CHAT, "/v1/messages"] {
        for streamed in [false, true] {
            let mut ask = if streamed { running.ask_stream() } else { running.ask() };
            ask["max_tokens"] = json!(100);
            let refused = running.client.post(path, &ask).await;
            assert_eq!(refused.status, 402, "{}", refused.text());
            let error = &refused.json()["error"];
            let details = &error["details"];
            assert_eq!(details["wallet"], "credits", "{}", refused.text());
            assert_eq!(details["available"].as_f64(), Some(0.0));
            assert!(details["required"].as_f64().unwrap() > 0.02, "100 tokens of output at 2 EUR a million");
            assert!(refused.text().contains("BILLING_4001"));
            assert!(refused.header("retry-after").is_none());
        }
    }
    assert_eq!((provider.calls(), entries(&running).await.len()), (0, 0));
    grant(&running, "1").await;
    let mut ask = running.ask();
    ask["max_tokens"] = json!(100);
    assert_eq!(running.client.post(CHAT, &ask).await.status, 200);
    entries(&running).await;
    assert_eq!(balance(&running), 1_000_000 - 2_500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_without_output_is_free_and_what_it_drew_is_kept() {
    for script in [status(500), status(503), json_answer(200, &json!({"nonsense": true})), cut()] {
        let (_provider, running) = one(script).await;
        assert_eq!(running.chat().await.status, 503);
        let void = assert_free(&running, "failed").await;
        let drawn: f64 = void["kwh"].as_str().unwrap_or("0").parse().unwrap();
        assert!(drawn > 0.0, "the prompt was worked on: {void}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_the_attempt_that_answered_is_paid_and_all_are_counted() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(status(500));
    let running = Bench::new()
        .provider("bad", &bad)
        .provider_with(
            "good",
            &good,
            crate::harness::bench::PATIENT,
            "price = { input = 50.0, output = 50.0 }",
        )
        .start()
        .await;
    let mut ask = running.ask();
    ask["model"] = json!("m:price");
    let answer = running.client.post(CHAT, &ask).await;
    assert_eq!(answer.header("x-penstock-provider"), Some("good"));
    let charges = of(&running, "settle").await;
    // At the price of the offer that served: 18 tokens at 50 EUR a million.
    assert_eq!((charges.len(), charges[0]["amount"].as_i64()), (1, Some(90_000)));
    assert_eq!(charges[0]["provider"], "good");
    let alone = one(plain("Hello")).await.1.chat().await.json();
    let kwh: f64 = charges[0]["kwh"].as_str().unwrap().parse().unwrap();
    assert!(kwh > alone["environment_impact"]["energy_kwh"].as_f64().unwrap(), "the failed attempt drew too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_cut_by_the_provider_is_free() {
    for then in [Act::Cut, Act::End, Act::Chunk(b"data: {\"error\":{\"message\":\"x\"}}\n\n".to_vec())] {
        let (_provider, running) = one(vec![sse(), role(), text("One "), text("two "), then]).await;
        let answer = running.chat_stream().await;
        assert!(answer.text().contains("\"error\""), "{}", answer.text());
        assert_free(&running, "failed").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rescued_stream_is_paid_once() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(vec![sse(), role(), text("One "), Act::Cut]);
    good.always(stream(&["One ", "two"]));
    let running = Bench::new()
        .provider("bad", &bad)
        .provider_with(
            "good",
            &good,
            crate::harness::bench::PATIENT,
            "price = { input = 50.0, output = 50.0 }",
        )
        .start()
        .await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:price");
    assert_eq!(running.client.post(CHAT, &ask).await.streamed(), "One two");
    let charges = of(&running, "settle").await;
    assert_eq!((charges.len(), charges[0]["provider"].as_str()), (1, Some("good")));
    assert_eq!(charges[0]["amount"], (11 + 2) * 5_000);
}

/// A client that leaves after each event pays what it had until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_pays_what_was_received_at_each_event() {
    let words = ["Alpha beta gamma ", "delta epsilon zeta ", "eta theta iota "];
    for event in 0..=words.len() {
        let mut script = vec![sse(), role()];
        script.extend(words.iter().take(event).map(|word| text(word)));
        script.push(Act::Hang);
        let (provider, running) = one(script).await;
        if event == 0 {
            let body = running.ask_stream().to_string();
            let open = running.client.open("POST", CHAT, &[], body.as_bytes()).await;
            provider.until_calls(1).await;
            drop(open);
            provider.until_left(1).await;
            assert_free(&running, "left").await;
            continue;
        }
        let open = running.client.stream_until(CHAT, &running.ask_stream(), words[event - 1]).await;
        drop(open);
        provider.until_left(1).await;
        let charges = of(&running, "settle").await;
        assert_eq!(charges.len(), 1, "after event {event}");
        let bytes: usize = words.iter().take(event).map(|word| word.len()).sum();
        assert_eq!(charges[0]["output"].as_u64(), Some(bytes as u64 / 4), "after event {event}");
        assert_eq!(charges[0]["counted"], true, "the gateway's own count is marked");
        assert!(charges[0]["amount"].as_i64().unwrap() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_before_a_plain_answer_pays_nothing() {
    let (provider, running) = one(vec![Act::Hang]).await;
    let body = running.ask().to_string();
    let open = running.client.open("POST", CHAT, &[], body.as_bytes()).await;
    provider.until_calls(1).await;
    drop(open);
    provider.until_left(1).await;
    assert_free(&running, "left").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_usage_is_counted_and_marked() {
    let mut body = completion("twelve letters and some more");
    body.as_object_mut().unwrap().remove("usage");
    let (_provider, running) = one(json_answer(200, &body)).await;
    let answer = running.chat().await;
    let charges = of(&running, "settle").await;
    assert_eq!((charges.len(), charges[0]["counted"].as_bool()), (1, Some(true)));
    assert_eq!(charges[0]["output"].as_u64(), Some("twelve letters and some more".len() as u64 / 4));
    assert!(answer.json()["billing_cost"]["credits"].as_f64().unwrap() > 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usage_of_nothing_is_not_replaced_by_a_guess() {
    let mut body = completion("Hello");
    body["usage"] = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
    let streamed = vec![sse(), role(), text("Hello"), finish("stop"), usage(0, 0), done(), Act::End];
    for (script, stream) in [(json_answer(200, &body), false), (streamed, true)] {
        let (_provider, running) = one(script).await;
        if stream {
            running.chat_stream().await
        } else {
            running.chat().await
        };
        let charges = of(&running, "settle").await;
        assert_eq!((charges.len(), charges[0]["amount"].as_i64()), (1, Some(0)));
        assert!(charges[0].get("counted").is_none());
        assert_eq!(balance(&running), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_in_any_chunk_counts_and_the_last_one_wins() {
    let mut early = delta(json!({"content": "Hel"}), None);
    early["usage"] = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
    let script =
        vec![sse(), role(), event(&early), text("lo"), finish("stop"), usage(11, 7), done(), Act::End];
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
async fn a_model_billed_in_energy_is_paid_from_the_energy_wallet_then_in_credits() {
    let provider = Provider::start().await;
    let running =
        Bench::new().settings(PREPAID).model("billing = \"energy\"").provider("a", &provider).start().await;
    let mut ask = running.ask();
    ask["max_tokens"] = json!(10);
    let refused = running.client.post(CHAT, &ask).await;
    assert_eq!(refused.status, 402);
    assert!(refused.json()["error"]["details"]["energy"]["required_kwh"].as_f64().unwrap() > 0.0);
    let made =
        running.admin().post("/admin/credits/grant", &json!({"account": "default", "kwh": "0.001"})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let paid = running.client.post(CHAT, &ask).await.json();
    assert_eq!(paid["billing_cost"]["paid_with"], "energy");
    assert_eq!(paid["billing_cost"]["credits"].as_f64(), Some(0.0));
    entries(&running).await;
    let energy = running.gateway.house.ledger.balance("default").energy.amount;
    assert!(energy < 1_000_000 && energy > 0, "{energy}");
    // Emptied by the operator, so that credits have to pay.
    let grants = of(&running, "grant").await;
    let correct = json!({"entry": grants[0]["seq"], "kwh": "0"});
    assert_eq!(running.admin().post("/admin/credits/correct", &correct).await.status, 201);
    grant(&running, "5").await;
    let paid = running.client.post(CHAT, &ask).await.json();
    assert_eq!(paid["billing_cost"]["paid_with"], "credits");
    entries(&running).await;
    assert!(balance(&running) < 5_000_000);
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
async fn many_at_once_never_spend_more_than_there_is() {
    let provider = Provider::start().await;
    let running = Bench::new().settings(PREPAID).provider("a", &provider).start().await;
    grant(&running, "0.5").await;
    let mut ask = running.ask();
    ask["max_tokens"] = json!(7);
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (client, ask) = (running.client.clone(), ask.clone());
            tokio::spawn(async move {
                let mut served = 0;
                for _ in 0..5 {
                    let status = client.post(CHAT, &ask).await.status;
                    assert!(status == 200 || status == 402, "{status}");
                    served += i64::from(status == 200);
                }
                served
            })
        })
        .collect();
    let mut served = 0;
    for task in tasks {
        served += task.await.unwrap();
    }
    let charges = of(&running, "settle").await;
    assert_eq!(charges.len() as i64, served);
    assert_eq!(balance(&running), 500_000 - 2_500 * served);
    assert!(balance(&running) >= 0 && served > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_from_the_ledger_agrees_with_the_answers() {
    let (_provider, running) = one(plain("Hello")).await;
    for _ in 0..3 {
        running.chat().await;
    }
    // Of the days and months that the charges are of: the clock may go over midnight on the way.
    let days: BTreeSet<String> = of(&running, "settle")
        .await
        .iter()
        .map(|entry| penstock::civil::day(entry["at"].as_u64().unwrap()))
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_account_that_is_there_is_granted_anything() {
    let (_provider, running) = one(plain("Hello")).await;
    let admin = running.admin();
    for name in ["defualt", "a b", "x"] {
        let refused =
            admin.post("/admin/credits/grant", &json!({"account": name, "credits": 1, "id": "g"})).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (404, &json!("account")), "{name}");
    }
    let nobody = admin.post("/admin/credits/grant", &json!({"account": "", "credits": 1})).await;
    assert_eq!((nobody.status, &nobody.json()["error"]["param"]), (400, &json!("account")));
    assert_eq!(entries(&running).await.len(), 0);
    admin.post("/admin/accounts", &json!({"id": "acme"})).await;
    let made = admin.post("/admin/credits/grant", &json!({"account": "acme", "credits": 1, "id": "g"})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    // An account that earlier versions gave something, and that was never made: what it has can be taken back.
    let ledger = &running.gateway.house.ledger;
    let number = ledger.grant("typo", "old", Wallet::Credits, 5_000_000, ("", "me")).await.unwrap();
    let back = admin.post("/admin/credits/correct", &json!({"entry": number, "credits": 0})).await;
    assert_eq!((back.status, &back.json()["account"]), (201, &json!("typo")), "{}", back.text());
    assert_eq!(ledger.balance("typo").credits.amount, 0);
}
