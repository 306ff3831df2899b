//! Upgrades and replacements of the gateways of a fleet, one after the other, under load: no request fails, no stream is
//! cut, and each answer is charged once.

use super::gateways::{Fleet, ask, served, succeeded};
use super::outage::Served;
use crate::harness::client::OpenResponse;
use crate::harness::script::{Script, ScriptStep, done, finish, role, sse, text, usage};
use crate::harness::{Answer, Client, is_long_run, until_answered};
use crate::lifecycle::load_clients::{SpawnedProcess, upgrade};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, RwLock};
use tokio::task::JoinSet;

const CHAT: &str = "/v1/chat/completions";
const GATEWAYS: usize = 3;
const CLIENTS: usize = 6;

/// Stream that stops after its first words until the test continues it.
pub fn interrupted(go: &Arc<Notify>) -> Script {
    let wait = ScriptStep::Wait(go.clone());
    vec![sse(), role(), text("Hel"), wait, text("lo"), finish("stop"), usage(5, 2), done()]
}

pub async fn open_stream(client: &Client) -> OpenResponse {
    let ask = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
    client.stream_until(CHAT, &ask, "Hel").await
}

/// Checks that a stream is complete. Returns its answer with the event that contains `billing_cost` as the body.
pub fn stream_charge(answer: Answer) -> Answer {
    let text = answer.text();
    assert!(answer.whole && text.contains("[DONE]"), "{text}");
    let events = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let mut events = events.map(|event| serde_json::from_str::<Value>(&format!("{{{event}")).unwrap());
    let charged = events.rfind(|event| event["billing_cost"].is_object()).unwrap();
    Answer { body: charged.to_string().into_bytes(), ..answer }
}

/// Balancer that sends requests to the gateways in turn, but skips gateways that were taken out of rotation.
struct Balancer {
    /// For each gateway, true if it is in rotation; locked for reading by the requests in flight.
    in_rotation: Vec<RwLock<bool>>,
    clients: Vec<Client>,
    stop: AtomicBool,
}

impl Balancer {
    async fn set(&self, gateway: usize, in_rotation: bool) {
        *self.in_rotation[gateway].write().await = in_rotation;
    }

    /// Sends requests until the load ends; returns each answer with the index of its gateway.
    async fn send_requests(&self, first: usize) -> Vec<(usize, Answer)> {
        let mut answers = Vec::new();
        for gateway in (0..GATEWAYS).cycle().skip(first) {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            if let Ok(in_rotation) = self.in_rotation[gateway].try_read()
                && *in_rotation
            {
                let answer = ask(&self.clients[gateway]).await;
                assert_eq!(answer.status, 200, "gateway {gateway}: {}", answer.text());
                answers.push((gateway, answer));
            }
            tokio::task::yield_now().await;
        }
        answers
    }
}

/// Fleet with a key, a funded account and clients.
struct Load {
    fleet: Fleet,
    balancer: Arc<Balancer>,
    tasks: JoinSet<Vec<(usize, Answer)>>,
    served: Served,
    go: Arc<Notify>,
}

impl Load {
    async fn start() -> Self {
        let fleet = Fleet::start_with(GATEWAYS, "claim = \"5s\"\nlease = \"8s\"").await;
        let go = Arc::new(Notify::new());
        fleet.provider.streams(interrupted(&go));
        let (key, _) = fleet.key(0, json!({})).await;
        fleet.until_everywhere(&key, 200).await;
        fleet.grant(0, "10000").await;
        let clients: Vec<Client> = (0..GATEWAYS).map(|gateway| fleet.at(gateway, &key)).collect();
        let mut charged = Served::default();
        for client in &clients {
            charged.add(&served(client).await);
        }
        fleet.until_funded().await;
        let in_rotation = clients.iter().map(|_| RwLock::new(true)).collect();
        let balancer = Arc::new(Balancer { in_rotation, clients, stop: AtomicBool::new(false) });
        let mut tasks = JoinSet::new();
        for first in 0..CLIENTS {
            let balancer = balancer.clone();
            tasks.spawn(async move { balancer.send_requests(first).await });
        }
        Self { fleet, balancer, tasks, served: charged, go }
    }

    fn client(&self, gateway: usize) -> &Client {
        &self.balancer.clients[gateway]
    }

    /// Lets a stream end, and adds its charge.
    async fn finish_stream(&mut self, mut stream: OpenResponse) {
        self.go.notify_one();
        self.served.add(&stream_charge(stream.finish().await));
    }

    /// Ends the load; returns the number of answers of each gateway.
    async fn end_requests(&mut self) -> [usize; GATEWAYS] {
        self.balancer.stop.store(true, Ordering::SeqCst);
        let mut counts = [0; GATEWAYS];
        while let Some(answers) = self.tasks.join_next().await {
            for (gateway, answer) in answers.unwrap() {
                counts[gateway] += 1;
                self.served.add(&answer);
            }
        }
        counts
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_are_upgraded_in_turn_refuse_nothing_and_charge_each_answer_once() {
    let mut load = Load::start().await;
    let mut processes: Vec<Option<SpawnedProcess>> = (0..GATEWAYS).map(|_| None).collect();
    for round in 0..if is_long_run() { 5 } else { 1 } {
        for (gateway, process) in processes.iter_mut().enumerate() {
            let stream = open_stream(load.client(gateway)).await;
            let next = upgrade(&load.fleet.homes[gateway]).await;
            load.fleet.until_all_are_known().await;
            load.finish_stream(stream).await;
            // The former process exits after its last stream has ended.
            match process.replace(next) {
                Some(former) => former.until_gone().await,
                None => assert!(load.fleet.gateways[gateway].until_ended().await.success(), "round {round}"),
            }
        }
    }
    let counts = load.end_requests().await;
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    for process in processes.into_iter().flatten() {
        process.signal("TERM");
        process.until_gone().await;
    }
    for command in [["credits", "verify"], ["usage", "verify"], ["store", "verify"]] {
        succeeded(&load.fleet.homes[0].command(&command));
    }
    load.served.assert_charged(&load.fleet);
    assert_eq!(load.fleet.provider.calls(), load.served.requests.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_are_replaced_in_turn_drain_and_charge_each_answer_once() {
    let mut load = Load::start().await;
    for gateway in 0..GATEWAYS {
        let stream = open_stream(load.client(gateway)).await;
        load.balancer.set(gateway, false).await;
        load.fleet.gateways[gateway].signal("TERM");
        let admin = load.fleet.admin(gateway);
        let is_draining = || async { admin.get("/readyz").await.status == 503 };
        until_answered("the gateway to drain", is_draining).await;
        load.finish_stream(stream).await;
        let ended = load.fleet.gateways[gateway].until_ended().await;
        assert!(ended.success(), "{}", load.fleet.gateways[gateway].output());
        load.fleet.gateways[gateway] = load.fleet.homes[gateway].run().await;
        load.fleet.until_all_are_known().await;
        load.balancer.set(gateway, true).await;
    }
    let counts = load.end_requests().await;
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let calls = load.fleet.provider.calls();
    let fleet = load.fleet.stop().await;
    load.served.assert_charged(&fleet);
    assert_eq!(calls, load.served.requests.len());
}
