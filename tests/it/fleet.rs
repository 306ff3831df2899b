//! Several gateways on one PostgreSQL database: keys, limits, budgets and balances are those of one gateway, whichever a
//! client asks, and whatever dies.

use crate::harness::process::{Home, Process, catalogue, complaint};
use crate::harness::{Answer, Client, Provider, until_answered};
use crate::postgres_server::PostgresServer;
use serde_json::{Value, json};
use std::process::Output;

const CHAT: &str = "/v1/chat/completions";
/// Digits of the pepper that all gateways have.
const PEPPER: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Gateways of one fleet.
struct Fleet {
    provider: Provider,
    server: PostgresServer,
    homes: Vec<Home>,
    gateways: Vec<Process>,
    /// Folder of the contents of files, which all gateways share.
    files: tempfile::TempDir,
    /// Further lines of `[fleet]`.
    lines: &'static str,
}

impl Fleet {
    async fn start(count: usize) -> Self {
        Self::start_with(count, "").await
    }

    /// Starts gateways with further lines of `[fleet]`.
    async fn start_with(count: usize, lines: &'static str) -> Self {
        let (provider, server) = (Provider::start().await, PostgresServer::start());
        let mut fleet = Self {
            provider,
            server,
            homes: Vec::new(),
            gateways: Vec::new(),
            files: tempfile::tempdir().unwrap(),
            lines,
        };
        for _ in 0..count {
            fleet.add().await;
        }
        fleet.until_all_are_known().await;
        fleet
    }

    /// Waits until each gateway knows all others.
    async fn until_all_are_known(&self) {
        for gateway in 0..self.homes.len() {
            let admin = self.admin(gateway);
            let is_known = || async {
                let status = admin.get("/status").await.json();
                assert_eq!(status["not_ready_because"], Value::Null, "{status}");
                status["fleet"]["members"].as_array().map_or(0, Vec::len) == self.homes.len()
            };
            until_answered("the members to know each other", is_known).await;
        }
    }

    /// Starts one more gateway in a folder of its own.
    async fn add(&mut self) {
        let home = Home::new();
        std::fs::write(home.path().join("database"), self.server.options().url).unwrap();
        std::fs::write(home.path().join("pepper-given"), PEPPER).unwrap();
        home.write(&format!(
            "engine = \"postgres\"\nurl = {{ file = \"database\" }}\npepper = {{ file = \"pepper-given\" }}\n\
             [fleet]\nahead = \"1d\"\n{}\n[files]\npath = {:?}\n[billing]\ncredit = \"prepaid\"\n{}",
            self.lines,
            self.files.path(),
            catalogue(&self.provider, "")
        ));
        self.gateways.push(home.run().await);
        self.homes.push(home);
    }

    /// The admin listener of a gateway, with its token.
    fn admin(&self, gateway: usize) -> Client {
        let home = &self.homes[gateway];
        let token = std::fs::read_to_string(home.storage().join("admin.token")).unwrap();
        Client { address: home.admin, key: token.trim().to_owned() }
    }

    /// The same key at another gateway.
    fn at(&self, gateway: usize, key: &str) -> Client {
        Client { address: self.homes[gateway].http, key: key.to_owned() }
    }

    /// Creates a key through a gateway; returns the key and its id.
    async fn key(&self, gateway: usize, limits: Value) -> (String, String) {
        let made = self.admin(gateway).post("/admin/keys", &json!({"name": "n", "limits": limits})).await;
        assert!(made.status < 300, "{}", made.text());
        let made = made.json();
        let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        (text("key"), text("id"))
    }

    /// Waits until a request of the key gets this status at every gateway.
    async fn until_everywhere(&self, key: &str, status: u16) {
        for gateway in 0..self.homes.len() {
            let client = self.at(gateway, key);
            let is_known = || async { client.get("/v1/models").await.status == status };
            until_answered("every gateway to know a key", is_known).await;
        }
    }

    async fn grant(&self, gateway: usize, credits: &str) {
        let grant = json!({"account": "default", "credits": credits.parse::<f64>().unwrap(), "id": credits});
        let granted = self.admin(gateway).post("/admin/credits/grant", &grant).await;
        assert!(granted.status < 300, "{}", granted.text());
    }

    async fn balance(&self, gateway: usize) -> f64 {
        let answer = self.admin(gateway).get("/admin/credits").await;
        answer.json()["data"][0]["credits"]["balance"].as_f64().unwrap_or_else(|| panic!("{}", answer.text()))
    }

    /// Stops all gateways in order, and checks the books.
    async fn verify(mut self) {
        for gateway in &mut self.gateways {
            gateway.signal("TERM");
        }
        for gateway in &mut self.gateways {
            assert!(gateway.until_ended().await.success(), "{}", gateway.said());
        }
        for command in [["credits", "verify"], ["usage", "verify"], ["store", "verify"]] {
            succeeded(&self.homes[0].command(&command));
        }
    }
}

fn succeeded(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}{text}", complaint(output));
}

fn question() -> Value {
    json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]})
}

async fn ask(client: &Client) -> Answer {
    client.post(CHAT, &question()).await
}

/// Asks until the answer has this status. On a busy machine a draw may take longer than a request waits, which is 503.
async fn until_status(client: &Client, expected: u16, before: &[u16]) {
    let is_it = || async {
        let answer = ask(client).await;
        assert!(answer.status == expected || before.contains(&answer.status), "{}", answer.text());
        answer.status == expected
    };
    until_answered("the status of an answer", is_it).await;
}

async fn served(client: &Client) {
    until_status(client, 200, &[503]).await;
}

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
    let revoked = fleet.admin(1).post(&format!("/admin/keys/{id}/revoke"), &json!({})).await;
    assert!(revoked.status < 300, "{}", revoked.text());
    fleet.until_everywhere(&key, 401).await;
    assert_eq!(fleet.provider.calls(), 3);
    fleet.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_requests_is_that_of_the_fleet() {
    let fleet = Fleet::start(3).await;
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
    let is_buried =
        || async { metric(&admin.get("/metrics").await.text(), "penstock_fleet_burials_total") == Some(1.0) };
    until_answered("the burial", is_buried).await;
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
