//! Random faults of gateways, database and network under load. After each fault the balance agrees with the answers;
//! at the end each answer is charged once, and nothing else is charged.

use super::charges::{Charges, Outcome, try_ask};
use super::gateways::Fleet;
use crate::harness::tcp_proxy::Network;
use crate::harness::{Client, is_long_run, until, until_answered};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::RwLock;
use tokio::task::JoinSet;

const GATEWAYS: usize = 3;
const CLIENTS: usize = 2;
const GRANTED: f64 = 10_000.0;
/// Number of answers of the fleet that the test waits for before and during a fault.
const ANSWERS: usize = 20;

/// Fault, and the gateway that it affects.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill(usize),
    /// All gateways except this one are killed at the same time.
    KillOthers(usize),
    /// The process is suspended until the other gateways have evicted it, and then continued.
    Suspend(usize),
    CrashDatabase,
    /// The gateway is killed while the database is stopped.
    CrashDatabaseAndKill(usize),
    /// The gateway is killed while the network carries no bytes.
    SilenceAndKill(usize),
    CutAndKill(usize),
}

const KINDS: [fn(usize) -> Fault; 7] = [
    Fault::Kill,
    Fault::KillOthers,
    Fault::Suspend,
    |_| Fault::CrashDatabase,
    Fault::CrashDatabaseAndKill,
    Fault::SilenceAndKill,
    Fault::CutAndKill,
];

/// Requests that are sent until the end, by clients of each gateway.
struct Load {
    clients: Vec<Client>,
    /// Locked for reading by each request in flight; locked for writing while the load is paused.
    pause: RwLock<()>,
    /// For each gateway, true if the other gateways may have evicted it. Its answers are then possibly never charged.
    may_be_buried: [AtomicBool; GATEWAYS],
    charges: Mutex<Charges>,
    answers: [AtomicUsize; GATEWAYS],
    stop: AtomicBool,
}

impl Load {
    async fn send_requests(&self, gateway: usize) {
        while !self.stop.load(Ordering::SeqCst) {
            let request = self.pause.read().await;
            let outcome = try_ask(&self.clients[gateway]).await;
            match outcome {
                Outcome::Answered(answer) => {
                    let is_certain = !self.may_be_buried[gateway].load(Ordering::SeqCst);
                    self.charges.lock().unwrap().add(answer, is_certain);
                    self.answers[gateway].fetch_add(1, Ordering::SeqCst);
                }
                Outcome::Refused(status) => assert!([402, 503].contains(&status), "{status}"),
                Outcome::Lost => self.charges.lock().unwrap().lost += 1,
                Outcome::NotSent => {}
            }
            drop(request);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until each of these gateways has answered [`ANSWERS`] more requests.
    async fn until_answered(&self, gateways: impl IntoIterator<Item = usize>) {
        for gateway in gateways {
            let before = self.answers[gateway].load(Ordering::SeqCst);
            let is_answered = || self.answers[gateway].load(Ordering::SeqCst) >= before + ANSWERS;
            until("answers of a gateway", is_answered).await;
        }
    }
}

struct Chaos {
    fleet: Fleet,
    load: Arc<Load>,
    tasks: JoinSet<()>,
}

impl Chaos {
    async fn start() -> Self {
        let lines = "claim = \"5s\"\nlease = \"12s\"\n[ledger]\nsync = \"answer\"";
        let fleet = Fleet::start_behind_network(GATEWAYS, lines).await;
        let (key, _) = fleet.key(0, json!({})).await;
        fleet.until_everywhere(&key, 200).await;
        fleet.grant(0, &GRANTED.to_string()).await;
        let load = Arc::new(Load {
            clients: (0..GATEWAYS).map(|gateway| fleet.at(gateway, &key)).collect(),
            pause: RwLock::default(),
            may_be_buried: Default::default(),
            charges: Mutex::default(),
            answers: Default::default(),
            stop: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for n in 0..GATEWAYS * CLIENTS {
            let load = load.clone();
            tasks.spawn(async move { load.send_requests(n % GATEWAYS).await });
        }
        Self { fleet, load, tasks }
    }

    async fn kill(&mut self, gateway: usize) {
        self.fleet.gateways[gateway].signal("KILL");
        self.fleet.gateways[gateway].until_ended().await;
    }

    async fn restart(&mut self, gateway: usize) {
        // The start is repeated if it fails: with a connection pooler, the first connection after a restart of the
        // server may be broken.
        self.fleet.gateways[gateway] = self.fleet.homes[gateway].run_again().await;
    }

    fn network(&self, network: Network) {
        self.fleet.network.as_ref().unwrap().set(network);
    }

    /// Causes a fault, and repairs it.
    async fn cause(&mut self, fault: Fault) {
        let others = |gateway| (0..GATEWAYS).filter(move |other| *other != gateway);
        match fault {
            Fault::Kill(gateway) => {
                self.kill(gateway).await;
                self.load.until_answered(others(gateway)).await;
                self.restart(gateway).await;
            }
            Fault::KillOthers(gateway) => {
                for other in others(gateway) {
                    self.kill(other).await;
                }
                self.load.until_answered([gateway]).await;
                for other in others(gateway) {
                    self.restart(other).await;
                }
            }
            Fault::Suspend(gateway) => self.suspend(gateway).await,
            Fault::CrashDatabase => {
                self.fleet.server.crash();
                self.load.until_answered(0..GATEWAYS).await;
                self.fleet.server.restart();
            }
            Fault::CrashDatabaseAndKill(gateway) => {
                self.fleet.server.crash();
                self.load.until_answered(0..GATEWAYS).await;
                self.kill(gateway).await;
                self.load.until_answered(others(gateway)).await;
                self.fleet.server.restart();
                self.restart(gateway).await;
            }
            Fault::SilenceAndKill(gateway) => self.kill_behind(Network::Silent, gateway).await,
            Fault::CutAndKill(gateway) => self.kill_behind(Network::Cut, gateway).await,
        }
    }

    async fn kill_behind(&mut self, network: Network, gateway: usize) {
        self.network(network);
        self.load.until_answered(0..GATEWAYS).await;
        self.kill(gateway).await;
        self.network(Network::Open);
        self.restart(gateway).await;
    }

    /// Suspends a gateway until the others have evicted it. After that, it serves no more requests, and a new process
    /// replaces it.
    async fn suspend(&mut self, gateway: usize) {
        let others = || (0..GATEWAYS).filter(|other| *other != gateway);
        let before = self.evictions(others()).await;
        self.load.may_be_buried[gateway].store(true, Ordering::SeqCst);
        self.fleet.gateways[gateway].signal("STOP");
        let is_evicted = || async { self.evictions(others()).await > before };
        until_answered("the eviction", is_evicted).await;
        self.fleet.gateways[gateway].signal("CONT");
        // An evicted gateway exits, so that its service manager starts it again.
        let ended = self.fleet.gateways[gateway].until_ended().await;
        assert!(!ended.success() && self.fleet.gateways[gateway].output().contains("restart_needed"));
        self.restart(gateway).await;
        // Locked for writing, `pause` shows that no request to the former process is in flight any more.
        let paused = self.load.pause.write().await;
        self.load.may_be_buried[gateway].store(false, Ordering::SeqCst);
        drop(paused);
    }

    /// Sum of the evictions that these gateways have made.
    async fn evictions(&self, asked: impl Iterator<Item = usize>) -> u64 {
        let mut evictions = 0;
        for gateway in asked {
            let metrics = self.fleet.admin(gateway).get("/metrics").await.text();
            let count = metrics.lines().find_map(|line| line.strip_prefix("penstock_fleet_evictions_total "));
            evictions += count.unwrap().parse::<u64>().unwrap();
        }
        evictions
    }

    /// Pauses the load, waits until all charges are written, and compares the balance with the answers.
    async fn check(&self, fault: Fault) {
        let paused = self.load.pause.write().await;
        self.fleet.until_all_are_known().await;
        for gateway in 0..GATEWAYS {
            let admin = self.fleet.admin(gateway);
            let is_written =
                || async { admin.get("/status").await.json()["ledger"]["unwritten_bytes"] == json!(0) };
            until_answered("the charges to be written", is_written).await;
        }
        let begun = Instant::now();
        loop {
            let mut balances = Vec::new();
            for gateway in 0..GATEWAYS {
                balances.push(self.fleet.balance(gateway).await);
            }
            let bounds = self.load.charges.lock().unwrap().bounds();
            let spent = ((GRANTED - balances[0]) * 1e6).round() as i64;
            if bounds.contains(&spent) && balances.iter().all(|balance| *balance == balances[0]) {
                break;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{fault:?}: {balances:?}, {spent} of {bounds:?}"
            );
        }
        drop(paused);
    }

    async fn end(mut self) {
        self.load.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let fleet = self.fleet.stop().await;
        let charges = std::mem::take(&mut *self.load.charges.lock().unwrap());
        eprintln!("{charges}");
        charges.check(&fleet.exported_entries()).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_charged_once_whatever_fails() {
    let seed = std::env::var("PENSTOCK_SEED").map_or(20_261_127, |seed| seed.parse().unwrap());
    let rounds =
        std::env::var("PENSTOCK_FAULTS").map_or(if is_long_run() { 30 } else { 1 }, |n| n.parse().unwrap());
    let mut rng = StdRng::seed_from_u64(seed);
    let mut chaos = Chaos::start().await;
    for _ in 0..rounds {
        let mut kinds = KINDS;
        kinds.shuffle(&mut rng);
        for kind in kinds {
            let fault = kind(rng.random_range(0..GATEWAYS));
            chaos.load.until_answered(0..GATEWAYS).await;
            chaos.cause(fault).await;
            chaos.check(fault).await;
        }
    }
    chaos.end().await;
}
