//! Gateways of one fleet, each in its own process, on one database.

use crate::file_bucket::{bucket_settings, write_access_key};
use crate::harness::process::{Home, Process, catalogue, complaint};
use crate::harness::tcp_proxy::TcpProxy;
use crate::harness::{Answer, Client, Provider, until_answered, within};
use crate::postgres_server::PostgresServer;
use crate::seaweedfs::SeaweedServer;
use serde_json::{Value, json};
use std::process::{Command, Output};

const CHAT: &str = "/v1/chat/completions";
/// Digits of the pepper that all gateways have.
const PEPPER: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Micro-credits of some thousand requests.
const LARGE_LEASE: i64 = 5_000_000;

/// Gateways of one fleet.
pub struct Fleet {
    pub provider: Provider,
    pub server: PostgresServer,
    pub homes: Vec<Home>,
    pub gateways: Vec<Process>,
    /// Folder of the contents of files, which all gateways share.
    pub files: tempfile::TempDir,
    /// Network between the gateways and the database; `None` if they use its Unix socket.
    pub network: Option<TcpProxy>,
    /// Further lines of `[fleet]`.
    pub lines: &'static str,
    /// Lines of `[files]`.
    file_lines: String,
}

impl Fleet {
    pub async fn start(count: usize) -> Self {
        Self::start_with(count, "").await
    }

    /// Starts gateways with further lines of `[fleet]`.
    pub async fn start_with(count: usize, lines: &'static str) -> Self {
        Self::start_over(PostgresServer::start(), None, None, count, lines).await
    }

    /// Starts gateways with their files in a bucket.
    pub async fn start_with_bucket(bucket: &SeaweedServer, count: usize, lines: &'static str) -> Self {
        let files = format!("keep_free = \"0B\"\n{}", bucket_settings(bucket));
        Self::start_over(PostgresServer::start(), None, Some(files), count, lines).await
    }

    /// Starts gateways that reach the database through a proxy.
    pub async fn start_behind_network(count: usize, lines: &'static str) -> Self {
        let server = PostgresServer::start();
        let network = TcpProxy::start(server.socket()).await;
        Self::start_over(server, Some(network), None, count, lines).await
    }

    async fn start_over(
        server: PostgresServer,
        network: Option<TcpProxy>,
        file_lines: Option<String>,
        count: usize,
        lines: &'static str,
    ) -> Self {
        let files = tempfile::tempdir().unwrap();
        let file_lines = file_lines.unwrap_or_else(|| format!("path = {:?}\n", files.path()));
        let mut fleet = Self {
            provider: Provider::start().await,
            server,
            homes: Vec::new(),
            gateways: Vec::new(),
            files,
            network,
            lines,
            file_lines,
        };
        for _ in 0..count {
            fleet.add().await;
        }
        fleet.until_all_are_known().await;
        fleet
    }

    /// Waits until each gateway knows all others.
    pub async fn until_all_are_known(&self) {
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

    /// Starts gateways at the same moment.
    pub async fn add_at_once(&mut self, count: usize) {
        let homes: Vec<Home> = (0..count).map(|_| self.home()).collect();
        let starts: Vec<Process> = homes.iter().map(Home::spawn).collect();
        for (home, process) in homes.into_iter().zip(starts) {
            self.gateways.push(home.until_ready(process).await);
            self.homes.push(home);
        }
        self.until_all_are_known().await;
    }

    /// Starts another gateway in its own folder.
    pub async fn add(&mut self) {
        let home = self.home();
        self.gateways.push(home.run().await);
        self.homes.push(home);
    }

    /// Starts another gateway, after `around` has changed its command.
    pub async fn add_with(&mut self, around: impl FnOnce(&mut Command)) {
        let home = self.home();
        self.gateways.push(home.run_with(around).await);
        self.homes.push(home);
    }

    /// Folder of a gateway of this fleet, with its configuration.
    fn home(&self) -> Home {
        let home = Home::new();
        let url = match &self.network {
            None => self.server.options().url,
            Some(network) => format!("postgresql://penstock@{}/postgres", network.address),
        };
        std::fs::write(home.path().join("database"), url).unwrap();
        std::fs::write(home.path().join("pepper-given"), PEPPER).unwrap();
        write_access_key(&home);
        home.write(&format!(
            "engine = \"postgres\"\nurl = {{ file = \"database\" }}\npepper = {{ file = \"pepper-given\" }}\n\
             [fleet]\nahead = \"1d\"\n{}\n[files]\n{}[billing]\ncredit = \"prepaid\"\n{}",
            self.lines,
            self.file_lines,
            catalogue(&self.provider, "")
        ));
        home
    }

    /// The admin listener of a gateway, with its token.
    pub fn admin(&self, gateway: usize) -> Client {
        let home = &self.homes[gateway];
        let token = std::fs::read_to_string(home.storage().join("admin.token")).unwrap();
        Client { address: home.admin, key: token.trim().to_owned() }
    }

    /// Returns a client with this key at this gateway.
    pub fn at(&self, gateway: usize, key: &str) -> Client {
        Client { address: self.homes[gateway].http, key: key.to_owned() }
    }

    /// Creates a key through a gateway; returns the key and its id.
    pub async fn key(&self, gateway: usize, limits: Value) -> (String, String) {
        let made = self.admin(gateway).post("/admin/keys", &json!({"name": "n", "limits": limits})).await;
        assert!(made.status < 300, "{}", made.text());
        let made = made.json();
        let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        (text("key"), text("id"))
    }

    /// Waits until a request of the key gets this status at every gateway.
    pub async fn until_everywhere(&self, key: &str, status: u16) {
        for gateway in 0..self.homes.len() {
            let client = self.at(gateway, key);
            let is_known = || async { client.get("/v1/models").await.status == status };
            until_answered("every gateway to know a key", is_known).await;
        }
    }

    pub async fn grant(&self, gateway: usize, credits: &str) {
        let grant = json!({"account": "default", "credits": credits.parse::<f64>().unwrap(), "id": credits});
        let granted = self.admin(gateway).post("/admin/credits/grant", &grant).await;
        assert!(granted.status < 300, "{}", granted.text());
    }

    pub async fn balance(&self, gateway: usize) -> f64 {
        let answer = self.admin(gateway).get("/admin/credits").await;
        answer.json()["data"][0]["credits"]["balance"].as_f64().unwrap_or_else(|| panic!("{}", answer.text()))
    }

    /// Returns the amounts that the gateways have leased of the account's credits, in micro-credits.
    fn leases(&self, account: &str) -> Vec<i64> {
        // The query ignores the member number in the key, so that it finds the leases of all gateways.
        self.amounts(&format!(
            "overlay(key placing ''::bytea from 12 for 4) = 'fleet/part/credits/{account}'::bytea"
        ))
    }

    /// Returns the amounts in the rows of the fleet for which an SQL condition is true.
    pub fn amounts(&self, condition: &str) -> Vec<i64> {
        let statement = format!("select encode(value, 'hex') from penstock.meta where {condition}");
        let amount = |row: &str| i64::from_be_bytes(u64::from_str_radix(row, 16).unwrap().to_le_bytes());
        self.server.query(&statement).lines().map(amount).collect()
    }

    /// Returns the sum of all leases of the account's credits, in micro-credits.
    pub fn leased(&self, account: &str) -> i64 {
        self.leases(account).into_iter().sum()
    }

    /// Waits until each gateway has leased credits for thousands of requests.
    pub async fn until_funded(&self) {
        let is_funded = || async {
            self.leases("default").into_iter().filter(|lease| *lease >= LARGE_LEASE).count()
                == self.homes.len()
        };
        until_answered("the leases", is_funded).await;
    }

    /// Returns the entries of the ledger; the gateways must be stopped.
    pub fn exported_entries(&self) -> Vec<Value> {
        let exported = self.homes[0].command(&["credits", "export"]);
        succeeded(&exported);
        let lines = String::from_utf8(exported.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Stops all gateways gracefully, and verifies the ledger.
    pub async fn verify(self) {
        self.stop().await;
    }

    /// Stops all gateways gracefully, verifies the ledger, and leaves the database running.
    pub async fn stop(mut self) -> Self {
        for gateway in &mut self.gateways {
            gateway.signal("TERM");
        }
        for gateway in &mut self.gateways {
            assert!(gateway.until_ended().await.success(), "{}", gateway.output());
        }
        for command in [["credits", "verify"], ["usage", "verify"], ["store", "verify"]] {
            succeeded(&self.homes[0].command(&command));
        }
        self
    }
}

pub fn succeeded(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}{text}", complaint(output));
}

pub fn question() -> Value {
    json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]})
}

pub async fn ask(client: &Client) -> Answer {
    client.post(CHAT, &question()).await
}

/// Sends requests until the answer has this status, and returns that answer. Earlier answers may have a status of
/// `before`: on a busy machine, leasing credits may take longer than a request waits, which gives 503.
pub async fn until_status(client: &Client, expected: u16, before: &[u16]) -> Answer {
    within("the status of an answer", async {
        loop {
            let answer = ask(client).await;
            if answer.status == expected {
                return answer;
            }
            assert!(before.contains(&answer.status), "{}", answer.text());
        }
    })
    .await
}

pub async fn served(client: &Client) -> Answer {
    until_status(client, 200, &[503]).await
}
