//! Balances: nothing is sent without funds, concurrent requests never overdraw, and energy is paid from the energy
//! balance first.

use super::{CHAT, PREPAID, balance, entries, grant, of, one};
use crate::harness::script::plain;
use crate::harness::{Bench, Provider};
use penstock_ledger::Wallet;
use serde_json::json;

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
async fn an_image_reserves_what_the_rule_of_its_model_allows() {
    let rule = "tokenizer = { builtin = \"gpt-oss\", images = { rule = \"fixed\", tokens = 256 } }";
    for (lines, status) in [(rule, 200), ("", 402)] {
        let provider = Provider::start().await;
        let model = format!("input_modalities = [\"text\", \"image\"]\n{lines}");
        let running = Bench::new().settings(PREPAID).model(&model).provider("a", &provider).start().await;
        // One credit is 10,000 tokens of input: more than this prompt has, and less than the largest image of any
        // model.
        grant(&running, "1").await;
        let mut ask = running.ask();
        ask["max_tokens"] = json!(10);
        ask["messages"][0]["content"] = json!([
            {"type": "text", "text": "Look."},
            {"type": "image_url", "image_url": {"url": "https://example.eu/a.png"}}
        ]);
        let answer = running.client.post(CHAT, &ask).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(provider.calls(), usize::from(status == 200));
    }
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
    let energy = running.gateway.app.ledger.balance("default").energy.amount;
    assert!(energy < 1_000_000 && energy > 0, "{energy}");
    // The operator empties the energy balance, so that credits have to pay.
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
    // An account with a grant of an earlier version that was never created: its balance can be taken back.
    let ledger = &running.gateway.app.ledger;
    let number = ledger.grant("typo", "old", Wallet::Credits, 5_000_000, ("", "me")).await.unwrap();
    let back = admin.post("/admin/credits/correct", &json!({"entry": number, "credits": 0})).await;
    assert_eq!((back.status, &back.json()["account"]), (201, &json!("typo")), "{}", back.text());
    assert_eq!(ledger.balance("typo").credits.amount, 0);
}
