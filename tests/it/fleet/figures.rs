//! Costs of a fleet member: transactions and bytes of its connections, and processor time per request, compared with
//! a gateway with the embedded store. `docs/fleet.md` has the figures of a run with `PENSTOCK_FULL=1`.

use super::gateways::{Fleet, ask, served};
use crate::harness::process::{Home, Process, catalogue, optimised};
use crate::harness::{Client, is_long_run, until};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of concurrent clients of a gateway.
const CLIENTS: usize = 4;
/// Members of the measured fleet.
const MEMBERS: usize = 2;

/// Requests that are repeated until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    tasks: tokio::task::JoinSet<()>,
}

impl Load {
    fn start(clients: &[Client]) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for client in clients.iter().flat_map(|client| vec![client.clone(); CLIENTS]) {
            let (stop, answered) = (stop.clone(), answered.clone());
            tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let answer = ask(&client).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { stop, answered, tasks }
    }

    /// Stops the requests; returns their number.
    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
        self.answered.load(Ordering::Relaxed)
    }
}

/// Transactions and bytes per second and member.
struct Rates {
    transactions: f64,
    bytes: f64,
}

/// Measures the rates during a span of time.
async fn rates(fleet: &Fleet, span: Duration) -> Rates {
    let read = || {
        let statement = "select pg_stat_force_next_flush(); \
                         select sum(xact_commit + xact_rollback) from pg_stat_database where datname = 'postgres'";
        let transactions: f64 = fleet.server.query(statement).lines().last().unwrap().trim().parse().unwrap();
        (transactions, fleet.network.as_ref().unwrap().bytes() as f64, Instant::now())
    };
    let (transactions, bytes, begun) = read();
    until("the end of the span", || begun.elapsed() >= span).await;
    let (transactions_after, bytes_after, ended) = read();
    let members = MEMBERS as f64 * (ended - begun).as_secs_f64();
    Rates {
        // The two readings are transactions too, and are subtracted.
        transactions: (transactions_after - transactions - 2.0) / members,
        bytes: (bytes_after - bytes) / members,
    }
}

/// Measures up to four spans until one has fewer transactions than the bound; returns the last one. A single span may
/// exceed the bound: the server counts transactions up to a second late, and counts its own maintenance too.
async fn rates_below(bound: f64, fleet: &Fleet, span: Duration) -> Rates {
    let mut measured = rates(fleet, span).await;
    for _ in 0..3 {
        if measured.transactions < bound {
            break;
        }
        measured = rates(fleet, span).await;
    }
    measured
}

/// Processor time per request in milliseconds, and the number of requests, measured under load for a span of time.
async fn processor_time(process: &Process, client: &Client, span: Duration) -> (f64, u64) {
    let (ticks, begun) = (process.ticks(), Instant::now());
    let load = Load::start(std::slice::from_ref(client));
    until("the end of the span", || begun.elapsed() >= span).await;
    let requests = load.end().await;
    ((process.ticks() - ticks) as f64 * 10.0 / requests as f64, requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_costs_the_database_and_the_processor_little() {
    let span = Duration::from_secs(if is_long_run() { 30 } else { 4 });
    let fleet = Fleet::start_behind_network(MEMBERS, "").await;
    let (key, _) = fleet.key(0, json!({"requests_per_minute": 100_000_000})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.grant(0, "100000").await;
    let clients: Vec<Client> = (0..MEMBERS).map(|gateway| fleet.at(gateway, &key)).collect();

    // Tasks that run every 30 seconds weigh more in the short spans of the short form, so its bounds are higher.
    let (idle_bound, loaded_bound) = if is_long_run() { (4.5, 12.0) } else { (6.0, 16.0) };
    let idle = rates_below(idle_bound, &fleet, span).await;
    // Excludes `psql`, since the server process of a finished command may still exist.
    let statement =
        "select count(*) from pg_stat_activity where usename = 'penstock' and application_name <> 'psql'";
    let connections: usize = fleet.server.query(statement).parse().unwrap();
    for client in &clients {
        served(client).await;
    }
    let (load, begun) = (Load::start(&clients), Instant::now());
    let loaded = rates_below(loaded_bound, &fleet, span).await;
    let seconds = begun.elapsed().as_secs_f64();
    let requests = load.end().await;

    let home = Home::new();
    home.write(&format!("[billing]\ncredit = \"prepaid\"\n{}", catalogue(&fleet.provider, "")));
    let (embedded_client, _) = home.key();
    assert!(home.command(&["credits", "grant", "default", "--credits", "100000"]).status.success());
    let embedded = home.run().await;
    ask(&embedded_client).await;
    let mut pairs = Vec::new();
    for _ in 0..3 {
        let (alone, _) = processor_time(&embedded, &embedded_client, span / 3).await;
        let (member, _) = processor_time(&fleet.gateways[0], &clients[0], span / 3).await;
        pairs.push(member / alone);
    }
    pairs.sort_by(f64::total_cmp);
    let ratio = pairs[1];
    eprintln!(
        "a member: idle {:.1} transactions and {:.0} bytes a second; with {:.0} requests a second {:.1} transactions and \
         {:.0} bytes a second; {} connections; {ratio:.2} times the processor time per request of an embedded gateway",
        idle.transactions,
        idle.bytes,
        requests as f64 / seconds / MEMBERS as f64,
        loaded.transactions,
        loaded.bytes,
        connections / MEMBERS,
    );
    fleet.verify().await;
    assert!(idle.transactions < idle_bound, "{}", idle.transactions);
    assert!(loaded.transactions < loaded_bound, "{}", loaded.transactions);
    // The bounds assume an idle machine, which only the long form requires.
    if is_long_run() {
        assert!(connections <= 3 * MEMBERS, "{connections}");
        assert!(!optimised() || ratio < 1.25, "{ratio}");
    }
}
