//! A hundred members on one database: each exchanges its report with all others once a second, as gateways do.

use crate::harness::is_long_run;
use crate::postgres_server::PostgresServer;
use penstock::config::settings::FleetSettings;
use penstock::fleet::{FleetMember, KeyUsageReport, MemberReport};
use penstock_storage::fleet::SharedFleet;
use penstock_storage::{PostgresOptions, StoreSharing, open_postgres};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Interval of the heartbeats.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of keys in each report. A gateway reports the keys with limits that were used in the last two minutes.
const REPORTED_KEYS: usize = 20;
/// Clock ticks per second of processor time.
const TICKS: f64 = 100.0;

fn settings() -> FleetSettings {
    FleetSettings {
        name: None,
        claim: Duration::from_secs(15),
        lease: Duration::from_secs(600),
        advance: Duration::from_secs(300),
        stale: None,
    }
}

fn report(start: usize) -> MemberReport {
    let key = |n: usize| KeyUsageReport { owner: format!("key/{n:016}"), ..KeyUsageReport::default() };
    MemberReport {
        process_number: start as u64,
        version: "1.0.0".to_owned(),
        config_version: "0123456789abcdef".to_owned(),
        keys: (0..REPORTED_KEYS).map(key).collect(),
        ..MemberReport::default()
    }
}

/// Processor time of the server's processes that have a session, in seconds.
fn server_seconds(server: &PostgresServer) -> f64 {
    let statement = "select pid from pg_stat_activity where application_name <> 'psql'";
    let ticks = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        Some(fields[11].parse::<f64>().ok()? + fields[12].parse::<f64>().ok()?)
    };
    server.query(statement).lines().filter_map(ticks).sum::<f64>() / TICKS
}

/// One member: joins, and exchanges reports until the end; returns the durations of its exchanges.
fn run_member(
    options: &PostgresOptions,
    folder: &std::path::Path,
    number: usize,
    members: usize,
    (joined, stop): (&AtomicUsize, &AtomicBool),
) -> Vec<Duration> {
    let options = PostgresOptions { folder: folder.join(format!("{number}")), ..options.clone() };
    let store = open_postgres(&options).unwrap();
    let member =
        FleetMember::join(SharedFleet::new(store), &settings(), &options.folder.join("member")).unwrap();
    joined.fetch_add(1, Ordering::SeqCst);
    // Distributes the starts over the interval, because real gateways do not start at the same moment.
    let phase = INTERVAL.mul_f64(number as f64 / members as f64);
    let mut next = Instant::now() + phase;
    let (mut durations, mut known) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let begun = Instant::now();
        member.refresh_members(begun).unwrap();
        known = known.max(member.live_members().len());
        member.write_heartbeat(&report(number), Vec::new(), begun).unwrap();
        durations.push(begun.elapsed());
        next += INTERVAL;
    }
    // `known` is the maximum so far, because members that have already ended are no longer listed.
    assert!(known >= members, "{known} of {members} members were known");
    durations
}

#[test]
fn a_hundred_members_exchange_their_reports_within_a_second() {
    let (members, span) =
        if is_long_run() { (100, Duration::from_secs(30)) } else { (12, Duration::from_secs(4)) };
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let options = PostgresOptions { sharing: StoreSharing::Shared, ..server.options() };
    let (joined, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (durations, share) = std::thread::scope(|scope| {
        let run = |number| {
            let (options, folder, signals) = (&options, folder.path(), (&joined, &stop));
            scope.spawn(move || run_member(options, folder, number, members, signals))
        };
        let threads: Vec<_> = (0..members).map(run).collect();
        while joined.load(Ordering::SeqCst) < members && !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::yield_now();
        }
        let (before, begun) = (server_seconds(&server), Instant::now());
        std::thread::sleep(span);
        let share = (server_seconds(&server) - before) / begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let durations: Vec<Duration> =
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (durations, share)
    });
    let mut durations = durations;
    durations.sort();
    let at = |part: f64| durations[((durations.len() - 1) as f64 * part) as usize];
    eprintln!(
        "{members} members: an exchange takes {:?} (p50), {:?} (p99); the server needs {:.0} % of a processor",
        at(0.5),
        at(0.99),
        share * 100.0
    );
    assert!(
        durations.len() >= members * (span.as_secs() as usize - 1) * 3 / 4,
        "{} exchanges",
        durations.len()
    );
    assert!(at(0.5) < INTERVAL, "{:?}", at(0.5));
}
