//! Benchmark of batch lines compared with client requests: `cargo bench --bench lines`.
//!
//! One gateway and one provider that answers at once, both in this process. First clients send requests over
//! persistent connections; then batch lines are executed, their answers appended to a file and synced, and their
//! charges recorded with a row of progress. Goals: the lines per second are at least 60 % of the requests per second,
//! and at least 2,000 lines per second are synced to the disk.
#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what is made up here is well-formed")]
#![allow(clippy::print_stdout, reason = "figures are for whoever runs this")]

use bytes::Bytes;
use penstock::admin::keys;
use penstock::app::gateway::RunningGateway;
use penstock::app::startup::fixed_config_loader;
use penstock::batch::{LineOrigin, LineRequest, LineResponse};
use penstock::billing::MAX_OUTCOMES;
use penstock::config::{ResolveEnv, load_text};
use penstock::state::AppState;
use penstock::telemetry::log;
use penstock_storage::StoreTable;
use penstock_storage::ledger::RowWrite;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const AT_ONCE: usize = 64;
const SECONDS: u64 = 5;
const PATH: &str = "/v1/chat/completions";
const ASK: &str =
    r#"{"model":"m","max_tokens":20,"messages":[{"role":"user","content":"Name a river in Europe."}]}"#;
const ANSWER: &str = r#"{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"The Danube."},"finish_reason":"stop"}],"usage":{"prompt_tokens":14,"completion_tokens":4,"total_tokens":18}}"#;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run());
}

async fn run() {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[storage]\npath = {:?}\nballast = \"0B\"\n[log]\nlevel = \"error\"\n\
         [[models]]\nid = \"m\"\nkind = \"chat\"\ncontext_length = 4096\nprice = {{ input = 1.0, output = 2.0 }}\n\
         supported_parameters = [\"max_tokens\"]\nenergy = {{ active_params_b = 8.0, total_params_b = 8.0, joules_per_output_token = 0.119 }}\n\
         [[providers]]\nid = \"p\"\noperator = \"P\"\ncountry = \"FR\"\ncity = \"Paris\"\nbase_url = \"http://{}/v1\"\npue = 1.16\nwue = 0.2\n\
         [[providers.offers]]\nmodel = \"m\"\nname = \"m\"\n",
        folder.path().join("store"),
        provider().await
    );
    let settings =
        load_text("bench.toml", &toml, ResolveEnv { env: &|_| None }).expect("it is sane").settings;
    log::apply_log_settings(settings.log);
    let gateway = RunningGateway::start(settings.clone(), fixed_config_loader(settings)).await.unwrap();
    let (_, key) = keys::create_demo_key(&gateway.app).await.unwrap();
    for round in 1..=3 {
        let requests = requests(*gateway.http_addresses.first().unwrap(), &key).await;
        let lines = lines(&gateway.app, &key, &folder.path().join(format!("{round}.jsonl"))).await;
        println!(
            "{requests:.0} requests/s, {lines:.0} lines/s on the disk: {:.0} %",
            lines / requests * 100.0
        );
    }
    gateway.stop(Duration::from_secs(5)).await;
}

/// Runs a provider that answers each request with the same bytes.
async fn provider() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ANSWER}",
        ANSWER.len()
    );
    let answer = Bytes::from(answer);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let answer = answer.clone();
            socket.set_nodelay(true).ok();
            tokio::spawn(async move {
                while read(&mut socket).await.is_some() && socket.write_all(&answer).await.is_ok() {}
            });
        }
    });
    address
}

/// Reads one message with `content-length`.
async fn read(socket: &mut TcpStream) -> Option<()> {
    let mut bytes = Vec::with_capacity(4096);
    loop {
        if let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(bytes.get(..head)?).to_ascii_lowercase();
            let length: usize = text.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
            if bytes.len() >= head + 4 + length {
                return Some(());
            }
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// Returns the requests per second over persistent connections.
async fn requests(gateway: SocketAddr, key: &str) -> f64 {
    let ask = format!(
        "POST {PATH} HTTP/1.1\r\nhost: b\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ASK}",
        ASK.len()
    );
    let (deadline, count) = (Instant::now() + Duration::from_secs(SECONDS), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (ask, count) = (ask.clone(), count.clone());
            tokio::spawn(async move {
                let mut socket = TcpStream::connect(gateway).await.unwrap();
                socket.set_nodelay(true).unwrap();
                while Instant::now() < deadline {
                    socket.write_all(ask.as_bytes()).await.unwrap();
                    read(&mut socket).await.expect("an answer");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    count.load(Ordering::Relaxed) as f64 / SECONDS as f64
}

/// Returns the batch lines per second; a line counts once its answer is synced to the disk.
async fn lines(app: &Arc<AppState>, key: &str, file: &std::path::Path) -> f64 {
    let principal = app.key_cache.find_principal(key.get(7..23).unwrap()).unwrap();
    let (done, ended) = mpsc::channel(AT_ONCE * 4);
    let began = Instant::now();
    let deadline = began + Duration::from_secs(SECONDS);
    for _ in 0..AT_ONCE {
        let (app, principal, done) = (app.clone(), principal.clone(), done.clone());
        tokio::spawn(async move {
            while Instant::now() < deadline {
                let cancel = CancellationToken::default();
                let ask = LineRequest {
                    principal: principal.clone(),
                    path: PATH,
                    body: Bytes::from_static(ASK.as_bytes()),
                    cancel,
                    interrupted: CancellationToken::default(),
                    origin: LineOrigin::Batch,
                };
                let executor = app.batch_context.executor.get().unwrap();
                done.send(executor.execute(ask).await).await.ok();
            }
        });
    }
    drop(done);
    let count = keep(app.clone(), ended, File::create(file).unwrap()).await;
    count as f64 / began.elapsed().as_secs_f64()
}

/// Writes answers and charges of batch lines to the disk, group by group; returns the number of lines.
async fn keep(app: Arc<AppState>, mut ended: mpsc::Receiver<LineResponse>, file: File) -> u64 {
    let (mut count, mut bytes, file) = (0, 0, Arc::new(file));
    let mut group = Vec::new();
    let mut ticket = 0;
    while ended.recv_many(&mut group, MAX_OUTCOMES).await > 0 {
        let mut text = Vec::new();
        let mut ends = Vec::new();
        for done in group.drain(..) {
            assert_eq!(done.status, 200, "{:?}", done.body);
            done.body.iter().for_each(|piece| text.extend_from_slice(piece));
            text.push(b'\n');
            ends.extend(done.hold_end);
        }
        count += ends.len() as u64;
        bytes += text.len() as u64;
        let file = file.clone();
        tokio::task::spawn_blocking(move || (&*file).write_all(&text).and_then(|()| file.sync_data()))
            .await
            .unwrap()
            .unwrap();
        let progress = [count.to_le_bytes(), bytes.to_le_bytes()].concat();
        let row = RowWrite { table: StoreTable::Batches, key: b"bench".to_vec(), value: Some(progress) };
        ticket = app.ledger.record_outcomes(ends, vec![row]).map_err(|_| "too much").unwrap();
        // Collects the next group while the disk writes the last one.
        assert!(app.ledger.wait_durable(ticket).await);
    }
    assert!(app.ledger.wait_durable(ticket).await);
    count
}
