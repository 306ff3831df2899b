//! Load generators over persistent and new connections, which count failures; helpers that observe successive gateway
//! processes in their log.

use super::transports::{Connection, GatewayListeners, Request, RequestFailure, TRANSPORTS, Transport};
use crate::harness::process::Home;
use crate::harness::{until, within};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Outcomes of the requests.
#[derive(Default)]
pub struct RequestOutcomes {
    pub answered: AtomicUsize,
    pub refused: AtomicUsize,
    /// HTTP/2 requests that were sent again on another connection, because of a GOAWAY.
    pub anew: AtomicUsize,
    /// First failures.
    pub failures: parking_lot::Mutex<Vec<String>>,
    pub slowest_us: AtomicU64,
    stop: AtomicBool,
}

impl RequestOutcomes {
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }
}

/// Running clients.
pub struct ClientLoad {
    pub tally: Arc<RequestOutcomes>,
    clients: Vec<JoinHandle<()>>,
    rate: u32,
    begun: Instant,
}

impl ClientLoad {
    /// Starts this number of clients, each with this number of requests per second. They rotate through the transports;
    /// every second client keeps its connection open.
    pub fn start(listeners: &GatewayListeners, key: &str, body: &Value, clients: usize, rate: u32) -> Self {
        let (tally, request) = (Arc::<RequestOutcomes>::default(), Arc::new(Request::new(key, body)));
        let client = |number: usize| {
            let (tally, request, listeners) = (tally.clone(), request.clone(), listeners.clone());
            let (transport, keeps) = (TRANSPORTS[number % TRANSPORTS.len()], number.is_multiple_of(2));
            tokio::spawn(async move { ask(&listeners, transport, &request, &tally, keeps, rate).await })
        };
        let clients = (0..clients).map(client).collect();
        Self { tally, clients, rate, begun: Instant::now() }
    }

    /// Returns the number of requests that would have been sent by now if no request had to wait.
    pub fn due(&self) -> usize {
        (self.begun.elapsed().as_secs_f64() * f64::from(self.rate) * self.clients.len() as f64) as usize
    }

    /// Stops the clients after their current requests.
    pub async fn stop(self) -> Arc<RequestOutcomes> {
        self.tally.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            within("a client to end", client).await.unwrap();
        }
        self.tally
    }
}

async fn ask(
    listeners: &GatewayListeners,
    transport: Transport,
    request: &Request,
    tally: &RequestOutcomes,
    keeps: bool,
    rate: u32,
) {
    let mut pace = tokio::time::interval(Duration::from_secs(1) / rate);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut idle: Option<Connection> = None;
    while !tally.stop.load(Ordering::SeqCst) {
        pace.tick().await;
        let begun = Instant::now();
        let again = idle.is_some();
        let mut done = once(listeners, transport, request, idle.take()).await;
        if again && matches!(done, Err(RequestFailure::Unheard)) {
            tally.anew.fetch_add(1, Ordering::SeqCst);
            done = once(listeners, transport, request, None).await;
        }
        let failure = match done {
            Ok((200, connection)) => {
                tally.answered.fetch_add(1, Ordering::SeqCst);
                idle = connection.filter(|_| keeps);
                None
            }
            Ok((status, _)) => Some(format!("status {status}")),
            Err(RequestFailure::Failed(why)) => Some(why),
            Err(RequestFailure::Unheard) => Some("sent away unheard".to_owned()),
        };
        if let Some(why) = failure {
            tally.refused.fetch_add(1, Ordering::SeqCst);
            tally.failures.lock().push(format!("{why}, {transport:?}, kept: {again}"));
        }
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap();
        tally.slowest_us.fetch_max(took, Ordering::SeqCst);
    }
}

async fn once(
    listeners: &GatewayListeners,
    transport: Transport,
    request: &Request,
    idle: Option<Connection>,
) -> Result<(u16, Option<Connection>), RequestFailure> {
    let connection = match idle {
        Some(connection) => connection,
        None => Connection::open(listeners, transport, request).await?,
    };
    connection.ask(request).await
}

/// Gateway process that another gateway has started. It is killed when this value is dropped.
pub struct SpawnedProcess(pub u32);

impl SpawnedProcess {
    pub fn signal(&self, name: &str) {
        signal(self.0, name);
    }

    pub async fn until_gone(&self) {
        within("a process to end", async {
            while !is_gone(self.0) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

impl Drop for SpawnedProcess {
    fn drop(&mut self) {
        if !is_gone(self.0) {
            let line = format!("kill -KILL {}", self.0);
            Command::new("sh").args(["-c", &line]).stderr(std::process::Stdio::null()).status().ok();
        }
    }
}

pub fn signal(process: u32, name: &str) {
    let line = format!("kill -{name} {process}");
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
}

/// Returns true if the process has ended, even if it is still a zombie.
pub fn is_gone(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.map_or(true, |stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

/// Returns the log of all processes of a home.
pub fn log_text(home: &Home) -> String {
    std::fs::read_to_string(home.path().join("said")).unwrap()
}

/// Returns the processes that have listened, in order.
pub fn processes(home: &Home) -> Vec<u32> {
    let lines = log_text(home);
    let listening = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    listening
        .filter(|line| line["event"] == "listening")
        .map(|line| line["process"].as_str().unwrap().parse().unwrap())
        .collect()
}

/// Signals the running process to upgrade; returns the next one, once it serves and the log says so.
pub async fn upgrade(home: &Home) -> SpawnedProcess {
    // The log line may come shortly after the process has started to serve.
    until("the line of who serves", || !processes(home).is_empty()).await;
    let before = processes(home);
    let handed_over = log_text(home).matches("\"handed_over\"").count();
    let failed = log_text(home).matches("upgrade_failed").count();
    signal(*before.last().unwrap(), "USR2");
    until("the next process to serve", || {
        let lines = log_text(home);
        assert_eq!(lines.matches("upgrade_failed").count(), failed, "{lines}");
        processes(home).len() > before.len() && lines.matches("\"handed_over\"").count() > handed_over
    })
    .await;
    SpawnedProcess(*processes(home).last().unwrap())
}

/// Returns the ledger actions (such as `settle`) of each request, from the ledger's second copy.
pub fn acts(home: &Home) -> BTreeMap<String, Vec<String>> {
    let mut acts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in std::fs::read_dir(home.storage().join("ledger")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        // The last line may be incomplete.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let line: Value = serde_json::from_str(line).unwrap();
            if let Some(request) = line["request"].as_str() {
                acts.entry(request.to_owned()).or_default().push(line["act"].as_str().unwrap().to_owned());
            }
        }
    }
    acts
}

/// Asserts that each request has one reserve and one end; returns the number of charges.
pub fn charges(home: &Home) -> usize {
    let acts = acts(home);
    for (request, acts) in &acts {
        assert!(acts.len() == 2 && acts[0] == "reserve", "{request}: {acts:?}");
    }
    acts.values().filter(|acts| acts[1] == "settle").count()
}
