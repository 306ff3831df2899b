//! Several gateways on one PostgreSQL database: keys, limits, budgets and balances are those of one gateway, whichever
//! gateway a client uses, and whichever process dies.

mod budgets;
mod chaos;
mod charges;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod clocks;
mod failpoints;
mod figures;
mod file_faults;
mod gateways;
mod journal;
mod limits;
mod many_members;
mod migration;
mod outage;
mod promoted_standby;
mod revocation;
mod rolling_upgrade;
mod spending;

use crate::harness::{Client, until_answered};
use gateways::{Fleet, ask, served, until_status};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_and_a_balance_are_known_at_every_gateway_and_a_revocation_too() {
    let fleet = Fleet::start(3).await;
    let (key, id) = fleet.key(0, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    until_status(&fleet.at(2, &key), 402, &[503]).await;
    fleet.grant(1, "10").await;
    for gateway in 0..3 {
        until_status(&fleet.at(gateway, &key), 200, &[402, 503]).await;
    }
    let is_charged =
        || async { fleet.balance(2).await < 10.0 && fleet.balance(0).await == fleet.balance(1).await };
    until_answered("the charges to be written", is_charged).await;
    for gateway in 0..3 {
        for path in [format!("/admin/keys/{id}"), "/admin/accounts/default".to_owned()] {
            let shows_all = || async {
                let spent = 10.0 - fleet.balance(0).await;
                let shown = fleet.admin(gateway).get(&path).await.json();
                let shown: f64 = shown["now"]["spent_today"].as_str().unwrap().parse().unwrap();
                (shown - spent).abs() < 1e-9
            };
            until_answered("the spending of all gateways", shows_all).await;
        }
    }
    let revoked = fleet.admin(1).post(&format!("/admin/keys/{id}/revoke"), &json!({})).await;
    assert!(revoked.status < 300, "{}", revoked.text());
    fleet.until_everywhere(&key, 401).await;
    assert_eq!(fleet.provider.calls(), 3);
    fleet.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_start_at_once_on_an_empty_database_are_one_fleet() {
    let mut fleet = Fleet::start(0).await;
    fleet.add_at_once(3).await;
    fleet.grant(0, "10").await;
    let (key, _) = fleet.key(1, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    for gateway in 0..3 {
        until_status(&fleet.at(gateway, &key), 200, &[402, 503]).await;
    }
    fleet.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_another_configuration_is_named_with_the_sections_that_differ() {
    let fleet = Fleet::start(2).await;
    let path = fleet.homes[1].config();
    let before = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, before + "[overload]\nrequests = 777\n").unwrap();
    let reloaded = fleet.admin(1).post("/admin/reload", &json!({})).await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    for gateway in &fleet.gateways {
        gateway.wait_for_line("fleet_config_differs").await;
        let log = gateway.output();
        let line = log.lines().find(|line| line.contains("fleet_config_differs")).unwrap();
        assert!(line.contains(r#""sections":"overload""#), "{line}");
        assert!(line.contains(r#""settings":"overload.requests""#), "{line}");
        assert!(!line.contains("777"), "no value: {line}");
    }
    fleet.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_requests_is_that_of_the_fleet() {
    // The gateways start together, so they exchange their reports at the same moments. Before an exchange, no gateway
    // knows of requests at the others.
    let mut fleet = Fleet::start(0).await;
    fleet.add_at_once(3).await;
    fleet.grant(0, "100").await;
    let (key, _) = fleet.key(0, json!({"requests_per_minute": 60})).await;
    fleet.until_everywhere(&key, 200).await;
    let clients: Vec<Client> = (0..3).map(|gateway| fleet.at(gateway, &key)).collect();
    let started = std::time::Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for client in clients {
        tasks.spawn(async move {
            let mut passed = 0;
            for _ in 0..60 {
                passed += usize::from(ask(&client).await.status == 200);
            }
            passed
        });
    }
    let passed: usize = tasks.join_all().await.into_iter().sum();
    // The bucket refills by one each second.
    let refilled = started.elapsed().as_secs() as usize + 1;
    assert!((40..=63 + refilled).contains(&passed), "{passed} of 60 and {refilled}");
    fleet.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balance_is_spent_once_whichever_gateways_spend_it() {
    let fleet = Fleet::start(3).await;
    let (key, _) = fleet.key(0, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.grant(0, "0.2").await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..12 {
        let client = fleet.at(n % 3, &key);
        tasks.spawn(async move {
            let mut passed = 0;
            for _ in 0..40 {
                let answer = ask(&client).await;
                assert!([200, 402, 503].contains(&answer.status), "{}", answer.text());
                passed += usize::from(answer.status == 200);
            }
            passed
        });
    }
    let passed: usize = tasks.join_all().await.into_iter().sum();
    assert!(passed > 0);
    for gateway in 0..3 {
        let is_written = || async {
            let status = fleet.admin(gateway).get("/status").await.json();
            status["ledger"]["unwritten_bytes"] == json!(0)
        };
        until_answered("the charges to be written", is_written).await;
    }
    let left = fleet.balance(1).await;
    assert!((0.0..0.2).contains(&left), "{left} left after {passed} requests");
    assert_eq!(fleet.provider.calls(), passed);
    fleet.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_is_buried_and_its_credits_return() {
    let mut fleet = Fleet::start_with(2, "claim = \"5s\"\nlease = \"8s\"").await;
    let (key, _) = fleet.key(0, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.grant(0, "10").await;
    served(&fleet.at(1, &key)).await;
    let mut killed = fleet.gateways.pop().unwrap();
    killed.signal("KILL");
    killed.until_ended().await;
    fleet.homes.pop();
    let metric = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.split(' ').nth(1).and_then(|value| value.parse::<f64>().ok()))
    };
    let admin = fleet.admin(0);
    let is_evicted = || async {
        metric(&admin.get("/metrics").await.text(), "penstock_fleet_evictions_total") == Some(1.0)
    };
    until_answered("the eviction", is_evicted).await;
    assert_eq!(metric(&admin.get("/metrics").await.text(), "penstock_fleet_members"), Some(1.0));
    served(&fleet.at(0, &key)).await;
    fleet.add().await;
    served(&fleet.at(1, &key)).await;
    fleet.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_with_leases_go_on_while_the_database_is_away() {
    let mut fleet = Fleet::start(2).await;
    let (key, _) = fleet.key(0, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.grant(0, "10").await;
    for gateway in 0..2 {
        served(&fleet.at(gateway, &key)).await;
    }
    fleet.server.crash();
    for gateway in 0..2 {
        let answer = ask(&fleet.at(gateway, &key)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    fleet.server.restart();
    for gateway in 0..2 {
        served(&fleet.at(gateway, &key)).await;
    }
    fleet.verify().await;
}
