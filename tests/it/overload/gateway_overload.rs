//! Four times the capacity of the gateway: its permits stay in use, and further requests are rejected at once. The full
//! form runs at full rate if `PENSTOCK_BINARY` names an optimised build.

use super::provider_overload::GROWTH;
use super::{CHAT, form, full, percentile};
use crate::harness::process::{Home, Process, catalogue};
use crate::harness::script::{ScriptStep, plain};
use crate::harness::{Client, Provider, within};
use memchr::memmem;
use parking_lot::Mutex;
use serde_json::json;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Number of requests that may wait for a permit.
const QUEUE: usize = 8;

/// Load of a run.
struct LoadSize {
    /// Permits of the gateway, and the duration of a request.
    permits: usize,
    thinks: Duration,
    /// Duration of the peak measurement, and of the overload at four times the peak rate.
    peak: Duration,
    lasts: Duration,
}

impl LoadSize {
    fn of_this_form() -> Self {
        let seconds = Duration::from_secs;
        let optimised = std::env::var_os("PENSTOCK_BINARY").is_some();
        let (permits, thinks) = if full() && optimised { (64, 40) } else { (8, 200) };
        let (peak, lasts) = form((seconds(2), seconds(4)), (seconds(60), seconds(300)));
        Self { permits, thinks: Duration::from_millis(thinks), peak, lasts }
    }

    /// Permits that one account may take: the last eighth is reserved for others.
    fn own(&self) -> usize {
        self.permits - self.permits / 8
    }
}

/// Class of an answer.
enum ResponseClass {
    Good,
    Refused(Duration),
    /// No answer: the connection ended. The text states if it was a reused or a new connection.
    Broken(std::io::Error, &'static str),
}

/// Clients of one account. Connections are reused: at this rate, new connections would use up the machine's ports.
struct ClientLoad {
    address: SocketAddr,
    request: Vec<u8>,
    idle: Mutex<Vec<TcpStream>>,
}

impl ClientLoad {
    fn new(client: &Client) -> Arc<Self> {
        let body = json!({"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]})
            .to_string();
        let request = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            client.key,
            body.len()
        );
        Arc::new(Self { address: client.address, request: request.into(), idle: Mutex::default() })
    }

    async fn ask(&self) -> ResponseClass {
        let (began, reused) = (Instant::now(), self.idle.lock().pop());
        let which = if reused.is_some() { "kept" } else { "new" };
        match self.ask_over(reused, began).await {
            Ok(was) => was,
            Err(error) => ResponseClass::Broken(error, which),
        }
    }

    async fn ask_over(&self, reused: Option<TcpStream>, began: Instant) -> std::io::Result<ResponseClass> {
        let mut socket = match reused {
            Some(socket) => socket,
            None => TcpStream::connect(self.address).await?,
        };
        socket.write_all(&self.request).await?;
        let (head, body) = within("an answer", answer(&mut socket)).await?;
        let took = began.elapsed();
        if !head.contains("connection: close") {
            self.idle.lock().push(socket);
        }
        if head.starts_with("http/1.1 200 ") {
            return Ok(ResponseClass::Good);
        }
        let body = String::from_utf8(body).unwrap();
        assert!(head.starts_with("http/1.1 503 ") && body.contains("SERVER_9002"), "{head}{body}");
        assert!(head.contains("retry-after: "), "a refusal says when to come back: {head}");
        Ok(ResponseClass::Refused(took))
    }
}

/// Reads one answer: its head in lower case, and its body.
async fn answer(socket: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let (mut bytes, mut ends) = (Vec::with_capacity(4096), None);
    loop {
        if socket.read_buf(&mut bytes).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if ends.is_none()
            && let Some(end) = memmem::find(&bytes, b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).expect("a length").split("\r\n").next();
            ends = Some((end + 4, end + 4 + length.unwrap().parse::<usize>().unwrap(), head));
        }
        if let Some((begins, end, head)) = ends.take_if(|(_, end, _)| bytes.len() >= *end) {
            return Ok((head, bytes[begins..end].to_vec()));
        }
    }
}

/// Measures the good answers per second, with one sequential client per permit.
async fn peak(crowd: &Arc<ClientLoad>, scale: &LoadSize) -> f64 {
    let (began, mut clients) = (Instant::now(), JoinSet::new());
    for _ in 0..scale.own() {
        let (crowd, until) = (crowd.clone(), began + scale.peak);
        clients.spawn(async move {
            let mut good = 0;
            while Instant::now() < until {
                good += u32::from(matches!(crowd.ask().await, ResponseClass::Good));
            }
            good
        });
    }
    let good: u32 = clients.join_all().await.iter().sum();
    f64::from(good) / began.elapsed().as_secs_f64()
}

/// Outcomes of requests at a given rate.
#[derive(Default)]
struct LoadOutcome {
    good: u32,
    /// Time of the last good answer.
    last: Option<Instant>,
    refused: Vec<Duration>,
    broken: Vec<(std::io::Error, &'static str)>,
}

impl LoadOutcome {
    fn note(&mut self, was: ResponseClass, at: Instant) {
        match was {
            ResponseClass::Good => (self.good, self.last) = (self.good + 1, self.last.max(Some(at))),
            ResponseClass::Refused(took) => self.refused.push(took),
            ResponseClass::Broken(error, which) => self.broken.push((error, which)),
        }
    }
}

async fn rush(crowd: &Arc<ClientLoad>, rate: f64, count: u32) -> (LoadOutcome, f64) {
    let (mut became, mut asked, began) = (LoadOutcome::default(), JoinSet::new(), Instant::now());
    for number in 0..count {
        tokio::time::sleep_until((began + Duration::from_secs_f64(f64::from(number) / rate)).into()).await;
        let crowd = crowd.clone();
        asked.spawn(async move { (crowd.ask().await, Instant::now()) });
        while let Some(done) = asked.try_join_next() {
            let (was, at) = done.unwrap();
            became.note(was, at);
        }
    }
    let poured = began.elapsed().as_secs_f64();
    for (was, at) in asked.join_all().await {
        became.note(was, at);
    }
    let served = became.last.unwrap().duration_since(began).as_secs_f64();
    let goodput = f64::from(became.good) / served;
    let wanted = f64::from(count) / rate;
    assert!(poured < 1.05 * wanted || !full(), "the clients took {poured:.1} s instead of {wanted:.1}");
    (became, goodput)
}

/// Gateway with a number of permits, whose provider delays each answer.
async fn app(scale: &LoadSize) -> (Provider, Home, Process, Client) {
    let mut script = vec![ScriptStep::Pause(scale.thinks)];
    script.extend(plain("Hello"));
    let provider = Provider::with_selector(Box::new(move |_| script.clone())).await;
    let home = Home::new();
    home.write(&format!(
        "[log]\nlevel = \"error\"\n[limits]\nkeep_alive = \"10m\"\n[overload]\nrequests = {}\nqueue = {QUEUE}\n{}",
        scale.permits,
        catalogue(&provider, "")
    ));
    let process = home.run().await;
    let (client, _) = home.key();
    (provider, home, process, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_times_the_gateway_capacity_is_served_at_peak_rate() {
    let scale = LoadSize::of_this_form();
    let (_provider, home, process, client) = app(&scale).await;
    let crowd = ClientLoad::new(&client);
    let peak = peak(&crowd, &scale).await;
    let idle = process.memory("VmRSS");

    let rate = 4.0 * peak;
    let count = (rate * scale.lasts.as_secs_f64()) as u32;
    let (mut became, goodput) = rush(&crowd, rate, count).await;
    let broken = &became.broken;
    assert!(broken.is_empty(), "{} without an answer: {:?}; {}", broken.len(), broken[0], process.output());
    let grown = process.memory("VmHWM").saturating_sub(idle);
    let (half, most) = (percentile(&mut became.refused, 50), percentile(&mut became.refused, 99));
    eprintln!(
        "rush: {} places, peak {peak:.0}/s, asked {rate:.0}/s, good {goodput:.0}/s ({:.0} %), refused {} (p50 {half:?}, \
         p99 {most:?}), grown by {grown} KiB over {idle}, {} connections",
        scale.own(),
        100.0 * goodput / peak,
        became.refused.len(),
        crowd.idle.lock().len()
    );
    // The short form has a lower bound, because the machine may have other load.
    assert!(goodput >= form(0.7, 0.9) * peak, "{goodput} of {peak}");
    // About three of four requests must be refused. The bound is lower, because fewer are refused if the measured
    // peak is too low.
    assert!(became.refused.len() as u32 > count / form(4, 2));
    assert!(most <= Duration::from_millis(10) || !full(), "{most:?}");
    assert!(half <= Duration::from_millis(250), "{half:?}");
    assert!(grown < GROWTH, "grown by {grown} KiB");
    let placed = async || home.admin().get("/metrics").await.text();
    within("every permit to be released", async {
        while !placed().await.contains("penstock_requests_admitted 0\n") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
