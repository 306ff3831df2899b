//! The gateway with its store in a real PostgreSQL: kills, outages of the database, a second gateway, and archives that
//! move between the engines.

use crate::harness::process::{Home, catalogue, complaint};
use crate::harness::{Client, Provider, until, until_answered, within};
use crate::postgres_server::PostgresServer;
use serde_json::{Value, json};
use std::process::Output;

const CHAT: &str = "/v1/chat/completions";

/// A configuration folder for this database, or for the embedded store.
fn home(provider: &Provider, server: Option<&PostgresServer>) -> Home {
    let home = Home::new();
    let engine = server.map_or("", |_| "engine = \"postgres\"\nurl = { file = \"database\" }\n");
    if let Some(server) = server {
        std::fs::write(home.path().join("database"), server.options().url).unwrap();
    }
    home.write(&format!("{engine}[billing]\ncredit = \"prepaid\"\n{}", catalogue(provider, "")));
    home
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", complaint(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn question() -> Value {
    json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]})
}

async fn ask(client: &Client) {
    let answer = client.post(CHAT, &question()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn balances(home: &Home) -> Value {
    serde_json::from_str(&succeeded(&home.command(&["credits", "balance", "--json"]))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_on_postgresql_survives_kills_and_outages_and_is_alone() {
    let provider = Provider::start().await;
    let mut server = PostgresServer::start();
    let home = home(&provider, Some(&server));
    let checked = home.command(&["check", "--reach"]);
    succeeded(&checked);
    assert!(
        complaint(&checked).contains("The setting fsync of the database's server is off"),
        "{}",
        complaint(&checked)
    );
    let (client, _) = home.key();
    succeeded(&home.command(&["credits", "grant", "default", "--credits", "10"]));
    let mut gateway = home.run().await;
    ask(&client).await;

    let second = self::home(&provider, Some(&server));
    let mut refused = second.spawn();
    assert!(!refused.until_ended().await.success());
    assert!(refused.output().contains("in use by another gateway"), "{}", refused.output());

    let metrics = || async { home.admin().get("/status").await };
    let written = async {
        while metrics().await.json()["ledger"]["unwritten_bytes"] != json!(0) {
            tokio::task::yield_now().await;
        }
    };
    within("the charge to be written", written).await;
    gateway.signal("KILL");
    gateway.until_ended().await;
    let before = balances(&home);
    let mut gateway = home.run().await;
    assert_eq!(balances(&home), before);

    server.crash();
    ask(&client).await;
    let degraded = async {
        while !home.admin().get("/readyz").await.text().contains("the database cannot be reached") {
            tokio::task::yield_now().await;
        }
    };
    within("the outage to be noticed", degraded).await;
    assert_eq!(home.admin().get("/readyz").await.status, 200);
    let token = std::fs::read_to_string(home.storage().join("admin.token")).unwrap();
    let admin = Client { address: home.admin, key: token.trim().to_owned() };
    let made = admin.post("/admin/keys", &json!({"name": "away"})).await;
    assert_eq!(made.status, 503, "{}", made.text());
    assert_eq!(made.header("retry-after"), Some("5"));
    ask(&client).await;
    server.restart();
    gateway.signal("TERM");
    assert!(gateway.until_ended().await.success());
    until("the ledger to be whole", || home.command(&["store", "verify"]).status.success()).await;
    assert_ne!(balances(&home), before);
    assert_eq!(provider.calls(), 3);
    succeeded(&home.command(&["credits", "verify"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_of_which_a_promoted_standby_lacks_the_end_is_restored_from_its_second_copy() {
    let provider = Provider::start().await;
    let mut server = PostgresServer::start();
    let home = home(&provider, Some(&server));
    let (client, _) = home.key();
    succeeded(&home.command(&["credits", "grant", "default", "--credits", "10"]));
    let mut gateway = home.run().await;
    let status = || async { home.admin().get("/status").await.json() };
    let is_written = || async { status().await["ledger"]["unwritten_bytes"] == json!(0) };
    ask(&client).await;
    until_answered("the charge to be written", is_written).await;
    server.copy();
    for _ in 0..5 {
        ask(&client).await;
    }
    until_answered("the charges to be written", is_written).await;
    let before = status().await;
    server.promote_copy();
    assert!(!gateway.until_ended().await.success(), "{}", gateway.output());
    assert!(gateway.output().contains("restart_needed"), "{}", gateway.output());
    let mut refused = home.spawn();
    assert!(!refused.until_ended().await.success());
    assert!(refused.output().contains("`penstock credits rebuild`"), "{}", refused.output());
    succeeded(&home.command(&["credits", "rebuild"]));
    succeeded(&home.command(&["credits", "verify"]));
    succeeded(&home.command(&["usage", "verify"]));
    let mut gateway = home.run().await;
    assert_eq!(status().await["ledger"]["entries"], before["ledger"]["entries"]);
    ask(&client).await;
    gateway.signal("TERM");
    assert!(gateway.until_ended().await.success());
    succeeded(&home.command(&["store", "verify"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_moves_to_postgresql_and_back() {
    let provider = Provider::start().await;
    let server = PostgresServer::start();
    let embedded = home(&provider, None);
    let (client, _) = embedded.key();
    succeeded(&embedded.command(&["credits", "grant", "default", "--credits", "10"]));
    let mut gateway = embedded.run().await;
    ask(&client).await;
    gateway.signal("TERM");
    gateway.until_ended().await;

    let database = home(&provider, Some(&server));
    let back = home(&provider, None);
    for (from, to) in [(&embedded, &database), (&database, &back)] {
        let archive = from.path().join("archive");
        let archive = archive.to_str().unwrap();
        succeeded(&from.command(&["store", "export", archive]));
        succeeded(&to.command(&["store", "import", archive]));
        succeeded(&to.command(&["store", "verify"]));
        assert_eq!(balances(to), balances(from));
    }
    let twice = database.command(&["store", "import", embedded.path().join("archive").to_str().unwrap()]);
    assert!(complaint(&twice).contains("an import needs an empty store"), "{}", complaint(&twice));
    let mut gateway = database.run().await;
    ask(&Client { address: database.http, ..client }).await;
    gateway.signal("TERM");
    gateway.until_ended().await;
}

#[test]
fn a_database_that_cannot_be_used_is_refused_with_a_remedy() {
    let home = Home::new();
    let check = |storage: &str, url: &str, words: &[&str]| {
        std::fs::write(home.path().join("database"), url).unwrap();
        home.write(storage);
        complaint(&home.command(words))
    };
    let whole = "engine = \"postgres\"\nurl = { file = \"database\" }\n";
    for (storage, url, remedy) in [
        ("engine = \"postgres\"\n", "", "needs the URL of its database"),
        ("url = { file = \"database\" }\n", "postgresql://u@h/x", "write `engine = \"postgres\"`"),
        (whole, "postgresql://u:hidden@h/x?sslmode=prefer", "sslmode has to be verify-full"),
        (whole, "mysql://u:hidden@h/x", "has to start with postgresql://"),
    ] {
        let refused = check(storage, url, &["check"]);
        assert!(refused.contains(remedy) && !refused.contains("hidden"), "{refused}");
    }
    let nobody = format!("postgresql://u:hidden@{}/x", home.http);
    let refused = check(whole, &nobody, &["check", "--reach"]);
    assert!(refused.contains("cannot be reached") && !refused.contains("hidden"), "{refused}");
}
