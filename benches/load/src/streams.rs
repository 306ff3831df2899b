//! Test with many open streams, one event per second each: memory and processor time per stream, delay of events, and
//! whether the memory is released when all have ended.

use crate::Options;
use crate::goals::{self, Goals};
use crate::load::request;
use crate::process::Process;
use crate::targets::{Bench, Target};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// Number of new streams per second.
const OPENED: usize = 500;
/// Time after which the released memory is measured, and timeout of opening the streams.
const AFTER: Duration = Duration::from_secs(60);
/// Byte before the time of an event, which occurs nowhere else in an answer.
pub const MARK: &[u8] = b"~";
/// Number of base-36 digits of a time: so few that an event's text is not much longer than a token's.
const DIGITS: u32 = 6;
/// Microseconds after which these times wrap around: about half an hour.
const WRAP_MICROS: u64 = 36_u64.pow(DIGITS);
/// End of a chunked body.
const LAST: &[u8] = b"\r\n0\r\n\r\n";

/// Returns the microseconds of the clock: provider and client run on one machine.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or_default() % WRAP_MICROS
}

/// Returns the current time as an event states it.
pub fn stamp() -> String {
    let now = now();
    (0..DIGITS)
        .rev()
        .filter_map(|digit| char::from_digit((now / 36_u64.pow(digit) % 36) as u32, 36))
        .collect()
}

/// Returns the microseconds since the time that an event states.
fn since(digits: &[u8]) -> Option<u64> {
    let then = std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 36).ok())?;
    Some((now() + WRAP_MICROS - then) % WRAP_MICROS)
}

/// Number of events that a stream may lack: one may be just missed at either end of the measurement.
const MISSING_EVENTS: f64 = 2.0;

/// State of one stream, shared with the task that reads it. The task cannot return a result, because it waits forever
/// if no event comes.
#[derive(Default)]
struct StreamState {
    /// True if the answer has begun.
    opened: AtomicBool,
    /// Number of events during the measurement.
    events: AtomicUsize,
    /// True if the stream ended too early.
    ended: AtomicBool,
}

impl StreamState {
    fn is_open(&self) -> bool {
        self.opened.load(Ordering::Relaxed)
    }

    /// Returns true if the stream has opened, or has ended without opening.
    fn is_settled(&self) -> bool {
        self.is_open() || self.ended.load(Ordering::Relaxed)
    }

    /// Returns true if the stream ended, or sent fewer than `least` events: a stalled stream counts as broken.
    fn is_broken(&self, least: usize) -> bool {
        self.ended.load(Ordering::Relaxed) || self.events.load(Ordering::Relaxed) < least
    }
}

#[derive(Default)]
struct SharedState {
    streams: Vec<StreamState>,
    /// True during the measurement, while events are counted.
    counts: AtomicBool,
    over: AtomicBool,
    /// Delays of events, in microseconds.
    delays: Mutex<Vec<u32>>,
}

/// Results of one target.
struct Figures {
    /// Processor time in percent of one processor.
    cpu: f64,
    /// Memory before, with all streams open, and one minute after, in MiB.
    memory: [f64; 3],
    kib_each: f64,
    p50: f64,
    p99: f64,
    broken: usize,
}

/// Measures all targets except the provider, one after the other, and checks Penstock against its goals.
pub fn compare(options: &Options, streams: usize) -> Result<Goals, String> {
    let bench = Bench::streams(&options.penstock, streams, options.alone)?;
    let runtime = runtime()?;
    println!(
        "{streams} streams, an event a second each, {:.0} s\n{:14} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>9} {:>7}",
        options.seconds,
        "",
        "CPU %",
        "idle MiB",
        "open MiB",
        "KiB each",
        "p50 ms",
        "p99 ms",
        "after MiB",
        "broken"
    );
    let (mut goals, mut bare) = (Goals::default(), None);
    for target in &bench.targets {
        let Some(process) = &target.process else { continue };
        let of = one(&runtime, target, process, streams, options.seconds)?;
        let [idle, open, after] = of.memory;
        println!(
            "{:14} {:>9.1} {idle:>9.1} {open:>11.1} {:>9.1} {:>9.2} {:>9.2} {after:>9.1} {:>7}",
            target.name, of.cpu, of.kib_each, of.p50, of.p99, of.broken
        );
        if target.name == "Penstock" {
            reach(&of, bare, &mut goals);
        } else {
            bare = Some(of.cpu);
        }
    }
    print!("{}", goals.take_text());
    Ok(goals)
}

fn reach(of: &Figures, bare: Option<f64>, goals: &mut Goals) {
    let [idle, _, after] = of.memory;
    if let Some(bare) = bare {
        goals.check_max("processor time beside the bare Pingora", Some(of.cpu / bare), goals::STREAMS_CPU);
    }
    goals.check_max("memory before, MiB", Some(idle), goals::IDLE_MIB);
    goals.check_max("memory of each, KiB", Some(of.kib_each), goals::STREAM_KIB);
    goals.check_max("delay p99, ms", Some(of.p99).filter(|p99| p99.is_finite()), goals::DELAY_P99);
    goals.check_max("memory a minute after, MiB", Some(after), goals::AFTER_MIB);
    goals.check_max("broken", Some(of.broken as f64), 0.0);
}

/// Creates the runtime of the client and of the provider.
pub fn runtime() -> Result<Runtime, String> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|why| why.to_string())
}

fn one(
    runtime: &Runtime,
    target: &Target,
    process: &Process,
    streams: usize,
    seconds: f64,
) -> Result<Figures, String> {
    let mib = || process.resident_kib() as f64 / 1024.0;
    let states = (0..streams).map(|_| StreamState::default()).collect();
    let (idle, shared) = (mib(), Arc::new(SharedState { streams: states, ..SharedState::default() }));
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"Tell me."}]}"#;
    let request: Arc<[u8]> = request(target.address, target.key.as_deref(), body).into();
    for number in 0..streams {
        runtime.spawn(stream(number, target.address, request.clone(), shared.clone()));
        if number % 10 == 9 {
            sleep(Duration::from_secs(10) / u32::try_from(OPENED).unwrap_or(u32::MAX));
        }
    }
    let patience = Instant::now();
    while !shared.streams.iter().all(StreamState::is_settled) {
        if patience.elapsed() > AFTER {
            let opened = shared.streams.iter().filter(|state| state.is_open()).count();
            return Err(format!("{}: only {opened} streams opened", target.name));
        }
        sleep(Duration::from_millis(100));
    }
    sleep(Duration::from_secs(2));
    shared.counts.store(true, Ordering::Relaxed);
    let (before, begun) = (process.spent(), Instant::now());
    sleep(Duration::from_secs_f64(seconds));
    let spent = process.spent().since(&before) as f64 / begun.elapsed().as_nanos() as f64 * 100.0;
    let open = mib();
    shared.over.store(true, Ordering::Relaxed);
    let least = (seconds - MISSING_EVENTS).max(0.0) as usize;
    let broken = shared.streams.iter().filter(|state| state.is_broken(least)).count();
    let mut delays = shared.delays.lock().map(|mut delays| std::mem::take(&mut *delays)).unwrap_or_default();
    delays.sort_unstable();
    let share = |share: f64| {
        let at = (delays.len().saturating_sub(1) as f64 * share).round() as usize;
        delays.get(at).map_or(f64::NAN, |delay| f64::from(*delay) / 1e3)
    };
    sleep(AFTER);
    Ok(Figures {
        cpu: spent,
        memory: [idle, open, mib()],
        kib_each: (open - idle) * 1024.0 / streams.max(1) as f64,
        p50: share(0.5),
        p99: share(0.99),
        broken,
    })
}

/// Runs one stream until the measurement is over.
async fn stream(number: usize, to: SocketAddr, request: Arc<[u8]>, shared: Arc<SharedState>) {
    let Some(state) = shared.streams.get(number) else { return };
    if read(to, &request, &shared, state).await.is_none() && !shared.over.load(Ordering::Relaxed) {
        state.ended.store(true, Ordering::Relaxed);
    }
}

async fn read(to: SocketAddr, request: &[u8], shared: &SharedState, state: &StreamState) -> Option<()> {
    let mut socket = TcpStream::connect(to).await.ok()?;
    socket.set_nodelay(true).ok()?;
    socket.write_all(request).await.ok()?;
    let (mut piece, mut first) = (vec![0; 4096], true);
    while !shared.over.load(Ordering::Relaxed) {
        let count = socket.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        let read = piece.get(..count)?;
        let at = read.windows(MARK.len()).position(|window| window == MARK);
        if std::mem::take(&mut first) {
            if !read.starts_with(b"HTTP/1.1 200") {
                return None;
            }
            state.opened.store(true, Ordering::Relaxed);
        }
        // The provider's streams are endless, so any end is too early.
        if read.ends_with(LAST) {
            return None;
        }
        let Some(at) = at.filter(|_| shared.counts.load(Ordering::Relaxed)) else { continue };
        let events = read.windows(MARK.len()).filter(|window| *window == MARK).count();
        state.events.fetch_add(events, Ordering::Relaxed);
        let digits = read.get(at + MARK.len()..)?;
        // Split across two reads: this delay is not counted.
        let Some(late) = digits.get(..DIGITS as usize).and_then(since) else { continue };
        let late = u32::try_from(late).unwrap_or(u32::MAX);
        if let Ok(mut delays) = shared.delays.lock() {
            delays.push(late);
        }
    }
    Some(())
}
