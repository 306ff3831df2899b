//! Clients that ask all the time, over connections that they keep and over new
//! ones, and count what goes wrong. Processes that follow each other, by their log.

use crate::harness::process::Home;
use crate::harness::{until, within};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// What became of their requests.
#[derive(Default)]
pub struct Tally {
    pub answered: AtomicUsize,
    pub refused: AtomicUsize,
    /// The first that went wrong.
    pub wrong: parking_lot::Mutex<Vec<String>>,
    pub slowest_us: AtomicU64,
    stop: AtomicBool,
}

/// Clients at work.
pub struct Crowd {
    pub tally: Arc<Tally>,
    clients: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// So many clients, each with so many requests a second; every second one keeps its connection.
    pub fn start(address: SocketAddr, key: &str, body: &Value, clients: usize, rate: u32) -> Self {
        let tally = Arc::<Tally>::default();
        let text = body.to_string();
        let request: Arc<str> = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        )
        .into();
        let client = |number: usize| {
            let (tally, request) = (tally.clone(), request.clone());
            tokio::spawn(async move { ask(address, &request, &tally, number.is_multiple_of(2), rate).await })
        };
        let clients = (0..clients).map(client).collect();
        Self { tally, clients }
    }

    /// Lets each end its request.
    pub async fn stop(self) -> Arc<Tally> {
        self.tally.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            within("a client to end", client).await.unwrap();
        }
        self.tally
    }
}

async fn ask(address: SocketAddr, request: &str, tally: &Tally, keeps: bool, rate: u32) {
    let mut pace = tokio::time::interval(Duration::from_secs(1) / rate);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut kept: Option<TcpStream> = None;
    while !tally.stop.load(Ordering::SeqCst) {
        pace.tick().await;
        let begun = Instant::now();
        let again = kept.is_some();
        let done = match kept.take() {
            Some(socket) => exchange(socket, request).await,
            None => match TcpStream::connect(address).await {
                Ok(socket) => exchange(socket, request).await,
                Err(why) => Err(format!("not connected: {why}")),
            },
        };
        match done {
            Ok((200, socket)) => {
                tally.answered.fetch_add(1, Ordering::SeqCst);
                kept = socket.filter(|_| keeps);
            }
            Ok((status, _)) => {
                tally.refused.fetch_add(1, Ordering::SeqCst);
                tally.wrong.lock().push(format!("status {status}"));
            }
            Err(why) => {
                tally.refused.fetch_add(1, Ordering::SeqCst);
                tally.wrong.lock().push(format!("{why}, kept: {again}"));
            }
        }
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap();
        tally.slowest_us.fetch_max(took, Ordering::SeqCst);
    }
}

/// One request; the connection comes back if it may serve another.
async fn exchange(mut socket: TcpStream, request: &str) -> Result<(u16, Option<TcpStream>), String> {
    socket.write_all(request.as_bytes()).await.map_err(|why| format!("not sent: {why}"))?;
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let length: usize = length.and_then(|digits| digits.parse().ok()).ok_or("no length")?;
            if bytes.len() >= head.len() + 4 + length {
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
                let last = head.contains("connection: close");
                return Ok((status, (!last).then_some(socket)));
            }
        }
        let mut piece = [0; 16 * 1024];
        match socket.read(&mut piece).await {
            Ok(0) => return Err(format!("cut after {} bytes", bytes.len())),
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
            Err(why) => return Err(format!("cut: {why}")),
        }
    }
}

/// A process that the test did not start itself; ended with it.
pub struct Heir(pub u32);

impl Heir {
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

impl Drop for Heir {
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

/// Ended, whether somebody has asked how or not.
pub fn is_gone(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.map_or(true, |stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

/// Everything that all processes of a home have written.
pub fn said(home: &Home) -> String {
    std::fs::read_to_string(home.path().join("said")).unwrap()
}

/// The processes that have listened there, in order.
pub fn processes(home: &Home) -> Vec<u32> {
    let lines = said(home);
    let listening = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    listening
        .filter(|line| line["event"] == "listening")
        .map(|line| line["process"].as_str().unwrap().parse().unwrap())
        .collect()
}

/// Tells the process that serves to upgrade; the next one, once it serves and the other knows.
pub async fn upgrade(home: &Home) -> Heir {
    let before = processes(home);
    let told = said(home).matches("\"handed_over\"").count();
    let failed = said(home).matches("upgrade_failed").count();
    signal(*before.last().unwrap(), "USR2");
    until("the next process to serve", || {
        let lines = said(home);
        assert_eq!(lines.matches("upgrade_failed").count(), failed, "{lines}");
        processes(home).len() > before.len() && lines.matches("\"handed_over\"").count() > told
    })
    .await;
    Heir(*processes(home).last().unwrap())
}

/// The acts of the ledger's second copy, by request.
pub fn acts(home: &Home) -> BTreeMap<String, Vec<String>> {
    let mut acts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in std::fs::read_dir(home.storage().join("ledger")).unwrap() {
        for line in std::fs::read_to_string(file.unwrap().path()).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            if let Some(request) = line["request"].as_str() {
                acts.entry(request.to_owned()).or_default().push(line["act"].as_str().unwrap().to_owned());
            }
        }
    }
    acts
}

/// Each request reserved once and ended once; how many were charged.
pub fn charges(home: &Home) -> usize {
    let acts = acts(home);
    for (request, acts) in &acts {
        assert!(acts.len() == 2 && acts[0] == "reserve", "{request}: {acts:?}");
    }
    acts.values().filter(|acts| acts[1] == "settle").count()
}
