//! Corrections of charges: the new amount is worth what the pricing terms of the charge say, in every view of it.

use super::{CHAT, entries, of};
use crate::harness::gateway::Running;
use crate::harness::script::plain;
use crate::harness::{Bench, Provider};
use penstock_core::calendar::UtcDay;
use rust_decimal::Decimal;
use serde_json::{Value, json};

const EUR_CREDITS: &str = "[billing]\neur_per_credit = 1\n";

/// Returns a free or priced model with a provider, as configuration. `price` is that of a million input tokens in EUR.
fn model_at(id: &str, price: &str, provider: &Provider) -> String {
    format!(
        "[[models]]\nid = \"{id}\"\nname = \"F\"\nkind = \"chat\"\ncreated = 1\ncontext_length = 1000\n\
         price = {{ input = {price}, output = 0.0 }}\nenergy = {{ active_params_b = 8.0, total_params_b = 8.0 }}\n\n\
         [[providers]]\nid = \"{id}-provider\"\noperator = \"F\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
         base_url = \"http://{}/v1\"\n\n[[providers.offers]]\nmodel = \"{id}\"\n",
        provider.address
    )
}

fn decimal(value: &Value) -> Decimal {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned).parse().unwrap()
}

/// Replaces the amount of a charge by a higher one.
async fn raise(running: &Running, charge: &Value, member: &str, amount: u64) {
    let correct = json!({"entry": charge["seq"], member: amount, "increase": true});
    let made = running.admin().post("/admin/credits/correct", &correct).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

/// Returns the EUR of all charges of the account `default` in the statement, the invoice and the usage.
async fn eur_in_views(running: &Running) -> [Decimal; 3] {
    let first = entries(running).await[0]["at"].as_u64().unwrap();
    let admin = running.admin();
    let [from, to] = [first, running.gateway.app.clock.unix_seconds()].map(UtcDay::from_unix);
    let days = format!("account=default&from={from}&to={to}");
    let statement = admin.get(&format!("/admin/statement?{days}")).await.json();
    let invoice = admin.get(&format!("/admin/invoice?{days}")).await.json();
    let usage = admin.get("/admin/usage?account=default").await.json();
    let verified = admin.get("/admin/usage/verify").await.json();
    assert_eq!(verified["good"], true, "{verified}");
    [&statement["accounts"][0]["eur"], &invoice["total"]["eur"], &usage["total"]["eur"]].map(decimal)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_charges_are_raised_at_the_price_of_a_credit() {
    let provider = Provider::start().await;
    // Eleven tokens of input: 0.00000051, 0.00000078 and 0.00000130 EUR, of which each is one micro-credit.
    let models = [("half", "0.0464"), ("most", "0.071"), ("more", "0.1182")];
    let more: String = models.iter().map(|(id, price)| model_at(id, price, &provider)).collect();
    let running = Bench::new().settings(EUR_CREDITS).more(&more).start().await;
    for (model, _) in models {
        let mut ask = running.ask();
        ask["model"] = json!(model);
        assert_eq!(running.client.post(CHAT, &ask).await.status, 200);
    }
    let charges = of(&running, "settle").await;
    let charged: Vec<_> =
        charges.iter().map(|charge| (charge["amount"].clone(), decimal(&charge["eur"]))).collect();
    assert_eq!(charged, [51, 78, 130].map(|eur| (json!(1), Decimal::new(eur, 8))));
    for charge in &charges {
        raise(&running, charge, "credits", 5).await;
    }
    assert_eq!(eur_in_views(&running).await, [Decimal::from(15); 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_charge_is_cancelled_exactly_and_lowered_at_the_price_of_a_credit() {
    let provider = Provider::start().await;
    let more = [model_at("one", "0.0464", &provider), model_at("two", "0.1446", &provider)].concat();
    let running = Bench::new().settings(EUR_CREDITS).more(&more).start().await;
    for model in ["one", "two"] {
        let mut ask = running.ask();
        ask["model"] = json!(model);
        assert_eq!(running.client.post(CHAT, &ask).await.status, 200);
    }
    let charges = of(&running, "settle").await;
    assert_eq!((&charges[0]["amount"], &charges[1]["amount"]), (&json!(1), &json!(2)));
    for (charge, credits) in [(&charges[0], "0"), (&charges[1], "0.000001")] {
        let correct = json!({"entry": charge["seq"], "credits": credits});
        assert_eq!(running.admin().post("/admin/credits/correct", &correct).await.status, 201);
    }
    // The first charge is gone; the second one was 0.00000159 EUR.
    assert_eq!(eur_in_views(&running).await, [Decimal::new(1, 6); 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_charge_of_energy_is_raised_at_the_price_of_a_kilowatt_hour() {
    let provider = Provider::start().await;
    provider.always(plain("Hi"));
    let lines = "billing = \"energy\"";
    let running = Bench::new()
        .settings("[billing]\neur_per_kwh = 0.2\n")
        .model(lines)
        .provider("a", &provider)
        .start()
        .await;
    let grant = json!({"account": "default", "kwh": 1});
    assert_eq!(running.admin().post("/admin/credits/grant", &grant).await.status, 201);
    assert_eq!(running.chat().await.status, 200);
    let charges = of(&running, "settle").await;
    assert_eq!(charges[0]["wallet"], "energy", "{charges:?}");
    raise(&running, &charges[0], "kwh", 10).await;
    assert_eq!(eur_in_views(&running).await, [Decimal::from(2); 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_charge_is_corrected_at_its_terms() {
    let provider = Provider::start().await;
    let running = Bench::new().more(&model_at("free", "0.0", &provider)).start().await;
    let mut ask = running.ask();
    ask["model"] = json!("free");
    assert_eq!(running.client.post(CHAT, &ask).await.status, 200);
    let charges = of(&running, "settle").await;
    assert_eq!(charges[0]["amount"], 0, "{charges:?}");
    let correct = json!({"entry": charges[0]["seq"], "credits": 5, "increase": true});
    let made = running.admin().post("/admin/credits/correct", &correct).await;
    assert_eq!(made.status, 201, "{}", made.text());
    // 5 credits at 0.01 EUR are taken from the account, so the amount in EUR is negative.
    let corrected = of(&running, "correct").await;
    let eur: Decimal = corrected[0]["eur"].as_str().unwrap().parse().unwrap();
    assert_eq!(eur, Decimal::new(-5, 2), "{corrected:?}");
    let statement = running.admin().get("/admin/statement").await.json();
    assert!(statement.to_string().contains("0.05"), "{statement}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_id_is_refused_by_name() {
    let running = Bench::new().start().await;
    let admin = running.admin();
    let grant = json!({"account": "default", "credits": 1});
    let correction = json!({"entry": 1, "credits": 0});
    assert_eq!(admin.post("/admin/credits/grant", &grant).await.status, 201);
    for (path, body, member) in [
        ("grant", &grant, "id"),
        ("grant", &grant, "account"),
        ("correct", &correction, "id"),
        ("correct", &correction, "account"),
    ] {
        let mut body = body.clone();
        body[member] = json!("");
        let refused = admin.post(&format!("/admin/credits/{path}"), &body).await;
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["param"]), (400, &json!(member)), "{path}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{member} has to be ")), "{path}: {message}");
    }
    assert_eq!(entries(&running).await.len(), 1, "only the first grant");
    // An id of `null` is an absent one.
    let mut body = grant.clone();
    body["id"] = Value::Null;
    assert_eq!(admin.post("/admin/credits/grant", &body).await.status, 201);
}
