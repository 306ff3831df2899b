//! Prepaid accounts that are first spent at all gateways, and then at one: the credits that the others have leased
//! become available to it.

use super::gateways::Fleet;
use crate::harness::script::plain;
use crate::harness::{Answer, Client, is_long_run, until_answered, within};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const GATEWAYS: usize = 3;
/// Granted micro-credits of an account; enough for some hundred requests.
const GRANTED: i64 = 2_000_000;
/// Longest time for which requests of an account are refused although the account still has credits, which the other
/// gateways have leased.
const REFUSED_FOR: Duration = Duration::from_secs(10);

fn question() -> Value {
    json!({"model": "m", "max_tokens": 110, "messages": [{"role": "user", "content": "Hi"}]})
}

fn micro_credits(answer: &Answer) -> i64 {
    (answer.json()["billing_cost"]["credits"].as_f64().unwrap() * 1e6).round() as i64
}

/// Creates an account with credits and a key; returns the key.
async fn create_account(fleet: &Fleet, id: &str) -> String {
    let admin = fleet.admin(0);
    let created = admin.post("/admin/accounts", &json!({"id": id})).await;
    assert!(created.status < 300, "{}", created.text());
    let grant = json!({"account": id, "credits": GRANTED as f64 / 1e6, "id": id});
    let granted = admin.post("/admin/credits/grant", &grant).await;
    assert!(granted.status < 300, "{}", granted.text());
    let created = admin.post("/admin/keys", &json!({"name": "n", "account": id})).await;
    assert!(created.status < 300, "{}", created.text());
    created.json()["key"].as_str().unwrap().to_owned()
}

/// Sends requests to the gateways until they have leased most of the balance; returns the charges in micro-credits.
async fn spend_until_leased(fleet: &Fleet, account: &str, clients: &[Client]) -> i64 {
    let mut spent = 0;
    within("the leases of the other gateways", async {
        while fleet.leased(account) < (GRANTED - spent) * 3 / 5 {
            for client in clients {
                let answer = client.post("/v1/chat/completions", &question()).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                spent += micro_credits(&answer);
            }
        }
    })
    .await;
    spent
}

/// Sends requests to one gateway until the account has less than the highest price of a request; returns the charges,
/// and the time for which requests were refused.
async fn spend_at_one(client: &Client, before: i64) -> (i64, Duration) {
    let (mut spent, mut waited, mut refused_at) = (0, Duration::ZERO, None::<Instant>);
    loop {
        let answer = client.post("/v1/chat/completions", &question()).await;
        if answer.status == 200 {
            spent += micro_credits(&answer);
            waited += refused_at.take().map(|at| at.elapsed()).unwrap_or_default();
            continue;
        }
        assert!([402, 503].contains(&answer.status), "{}", answer.text());
        let waiting = waited + refused_at.get_or_insert_with(Instant::now).elapsed();
        if answer.status == 402 {
            let needed = answer.json()["error"]["details"]["required"].as_f64();
            let needed = needed.unwrap_or_else(|| panic!("{}", answer.text()));
            if GRANTED - before - spent < (needed * 1e6).round() as i64 {
                return (spent, waited);
            }
        }
        let left = GRANTED - before - spent;
        assert!(waiting < REFUSED_FOR, "{left} micro-credits left: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_spent_at_one_gateway_although_the_others_had_leased_its_credits() {
    let fleet = Fleet::start(GATEWAYS).await;
    fleet.provider.always(plain(&"word ".repeat(100)));
    for n in 0..if is_long_run() { 20 } else { 2 } {
        let account = format!("account-{n}");
        let key = create_account(&fleet, &account).await;
        fleet.until_everywhere(&key, 200).await;
        let mut clients: Vec<Client> = (0..GATEWAYS).map(|gateway| fleet.at(gateway, &key)).collect();
        let one = clients.remove(n % GATEWAYS);
        let before = spend_until_leased(&fleet, &account, &clients).await;
        let (spent, refused) = spend_at_one(&one, before).await;
        eprintln!("{account}: {before} of {GRANTED} spent elsewhere, the rest with refusals for {refused:?}");
        let admin = fleet.admin(1);
        let is_charged = || async {
            let shown = admin.get(&format!("/admin/credits?account={account}")).await.json();
            let balance =
                shown["data"][0]["credits"]["balance"].as_f64().unwrap_or_else(|| panic!("{shown}"));
            (balance * 1e6).round() as i64 == GRANTED - before - spent
        };
        until_answered("the charges of an account", is_charged).await;
    }
    fleet.verify().await;
}
