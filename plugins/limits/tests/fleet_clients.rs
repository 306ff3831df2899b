//! Simulation of clients that send one request after the other to changing gateways of a fleet, wait for `Retry-After`
//! and give up after two retries, as client libraries do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod fleet_model;

use fleet_model::FleetModel;
use penstock_limits::{ActualCost, CostEstimate, LimitExceeded, RetryAfter, UsageLimits};
use std::num::{NonZeroU32, NonZeroU64};

/// Milliseconds between two steps of the simulation.
const STEP: u64 = 10;
const RETRIES: u32 = 2;
const SEEDS: u64 = 3;
/// Duration of the simulation of bursts.
const SECONDS: u64 = 240;

/// Order in which a client uses the gateways.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Choice {
    Rotating,
    Random,
    /// The first gateway only.
    First,
}

const CHOICES: [Choice; 3] = [Choice::Rotating, Choice::Random, Choice::First];

/// Requests of a client: each reserves `estimate` tokens, uses `used` tokens, and takes `duration` milliseconds; the
/// next request follows after `pause` milliseconds.
#[derive(Clone, Copy, Debug)]
struct Requests {
    estimate: u64,
    used: u64,
    duration: u64,
    pause: u64,
}

struct Client {
    choice: Choice,
    requests: Requests,
    next_at: u64,
    /// Number of attempts so far, and number of retries of the current request.
    attempts: usize,
    retries: u32,
    succeeded: u64,
    /// Attempts that were refused, and requests that failed after all retries.
    refused: u64,
    failed: u64,
}

impl Client {
    fn new(choice: Choice, requests: Requests, first: usize) -> Self {
        let next_at = 100 + 7 * first as u64;
        Self { choice, requests, next_at, attempts: first, retries: 0, succeeded: 0, refused: 0, failed: 0 }
    }

    fn step(&mut self, fleet: &mut FleetModel, at: u64) {
        if at < self.next_at {
            return;
        }
        let gateways = fleet.gateways.len();
        let gateway = match self.choice {
            Choice::Rotating => self.attempts % gateways,
            Choice::Random => fleet.random.below(gateways as u64) as usize,
            Choice::First => 0,
        };
        self.attempts += 1;
        let Requests { estimate, used, duration, pause } = self.requests;
        match fleet.request(gateway, at, (cost(estimate), tokens(used), duration)) {
            Ok(()) => {
                self.succeeded += 1;
                self.retries = 0;
                self.next_at = at + duration + pause;
            }
            Err(refused) => {
                self.refused += 1;
                self.retries += 1;
                self.next_at = at + wait(&refused);
                if self.retries > RETRIES {
                    self.failed += 1;
                    self.retries = 0;
                    self.next_at = at + pause;
                }
            }
        }
    }
}

/// Returns the milliseconds of `Retry-After`, and a little more.
fn wait(refused: &LimitExceeded) -> u64 {
    20 + match refused.retry_after {
        RetryAfter::OnLease | RetryAfter::OnRelease => 1_000,
        RetryAfter::After(wait) => u64::try_from(wait.as_millis().div_ceil(1_000).max(1)).unwrap() * 1_000,
        RetryAfter::Never => panic!("{refused:?}"),
    }
}

fn cost(output: u64) -> CostEstimate {
    CostEstimate { output, ..CostEstimate::default() }
}

fn tokens(output: u64) -> ActualCost {
    ActualCost { output, ..ActualCost::default() }
}

fn tokens_per_minute(limit: u64) -> UsageLimits {
    UsageLimits { tokens: NonZeroU64::new(limit), ..UsageLimits::default() }
}

fn requests_per_minute(limit: u64) -> UsageLimits {
    UsageLimits { requests: NonZeroU64::new(limit), ..UsageLimits::default() }
}

fn in_flight(limit: u32) -> UsageLimits {
    UsageLimits { concurrent: NonZeroU32::new(limit), ..UsageLimits::default() }
}

/// Runs clients for a time in seconds; each begins at another gateway.
fn run(
    limits: UsageLimits,
    gateways: usize,
    (choice, requests, clients): (Choice, Requests, usize),
    seconds: u64,
    seed: u64,
) -> (Client, usize) {
    let mut fleet = FleetModel::new(limits, gateways, seed);
    let mut clients: Vec<Client> = (0..clients).map(|first| Client::new(choice, requests, first)).collect();
    let mut most_in_flight = 0;
    for at in (0..seconds * 1_000).step_by(STEP as usize) {
        fleet.step(at);
        clients.iter_mut().for_each(|client| client.step(&mut fleet, at));
        most_in_flight = most_in_flight.max(fleet.in_flight());
    }
    let mut all = Client::new(choice, requests, 0);
    for client in clients {
        all.succeeded += client.succeeded;
        all.refused += client.refused;
        all.failed += client.failed;
    }
    (all, most_in_flight)
}

/// Token limits, and requests of one client that stay within them.
const WITHIN_LIMIT: [(u64, Requests); 7] = [
    (10_000, Requests { estimate: 5_000, used: 300, duration: 10, pause: 2_000 }),
    (10_000, Requests { estimate: 3_000, used: 100, duration: 10, pause: 2_000 }),
    (10_000, Requests { estimate: 8_000, used: 100, duration: 10, pause: 5_000 }),
    (1_000, Requests { estimate: 500, used: 50, duration: 10, pause: 4_000 }),
    (10_000, Requests { estimate: 5_000, used: 300, duration: 10, pause: 10_000 }),
    (100_000, Requests { estimate: 40_000, used: 300, duration: 10, pause: 2_000 }),
    (4_000, Requests { estimate: 1_030, used: 50, duration: 10, pause: 1_000 }),
];

#[test]
fn a_client_within_its_token_limit_is_never_refused_at_any_gateway() {
    for (limit, requests) in WITHIN_LIMIT {
        for (gateways, choice) in [2, 3, 10].into_iter().flat_map(|n| CHOICES.map(|choice| (n, choice))) {
            for seed in 0..SEEDS {
                let (client, _) = run(tokens_per_minute(limit), gateways, (choice, requests, 1), 60, seed);
                let case = format!("{limit} {requests:?} {gateways} {choice:?} {seed}");
                assert_eq!((client.refused, client.failed), (0, 0), "{case}");
            }
        }
    }
}

/// Limits, and requests of one client that are more than the limits.
fn above_limits() -> [(UsageLimits, u64, Requests); 10] {
    let requests = |estimate, used, duration| Requests { estimate, used, duration, pause: 50 };
    [
        (tokens_per_minute(600), 600, requests(590, 500, 10)),
        (tokens_per_minute(600), 600, requests(400, 400, 10)),
        (tokens_per_minute(600), 600, requests(600, 500, 10)),
        (tokens_per_minute(10_000), 10_000, requests(1_000, 1_000, 10)),
        (tokens_per_minute(10_000), 10_000, requests(5_000, 1_000, 10)),
        (tokens_per_minute(10_000), 10_000, requests(5_000, 1_000, 3_000)),
        (requests_per_minute(1), 1, requests(1, 1, 10)),
        (requests_per_minute(3), 3, requests(1, 1, 10)),
        (requests_per_minute(12), 12, requests(1, 1, 10)),
        (requests_per_minute(60), 60, requests(1, 1, 10)),
    ]
}

#[test]
fn a_client_above_its_limit_is_served_as_by_one_gateway() {
    for (limits, limit, requests) in above_limits() {
        let (alone, _) = run(limits, 1, (Choice::First, requests, 1), 600, 0);
        for (gateways, choice) in [2, 3, 10].into_iter().flat_map(|n| CHOICES.map(|choice| (n, choice))) {
            for seed in 0..SEEDS {
                let (client, _) = run(limits, gateways, (choice, requests, 1), 600, seed);
                let (succeeded, failed) = (client.succeeded, client.failed);
                let case = format!(
                    "{limit} {requests:?} {gateways} {choice:?} {seed}: {succeeded} of {}, {failed} failed",
                    alone.succeeded
                );
                // While the client waits for the last gateway of the order, a part of the burst remains unused.
                let burst = (limit / requests.used / 2).min(gateways as u64 - 1);
                let least = if requests.duration > 1_000 { 90 } else { 97 };
                assert!(succeeded + 2 * burst + 1 >= alone.succeeded * least / 100, "{case}");
                assert!(succeeded < alone.succeeded * 105 / 100 + gateways as u64, "{case}");
                assert!(failed * 3 <= succeeded, "{case}");
            }
        }
    }
}

#[test]
fn few_permits_for_requests_in_flight_are_used_at_any_gateway() {
    for (limit, clients) in [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2)] {
        for duration in [10, 400, 5_000] {
            let requests = Requests { estimate: 1, used: 1, duration, pause: 500 };
            for (gateways, choice) in [2, 3, 5].into_iter().flat_map(|n| CHOICES.map(|choice| (n, choice))) {
                for seed in 0..SEEDS {
                    let (client, most) =
                        run(in_flight(limit), gateways, (choice, requests, clients), 300, seed);
                    let case = format!("{limit} {clients} {duration} {gateways} {choice:?} {seed}");
                    assert!(client.failed * 200 <= client.succeeded, "{case}: {} failed", client.failed);
                    assert!(clients > 1 || client.failed == 0, "{case}: {} failed", client.failed);
                    assert!(most <= limit as usize, "{case}: {most}");
                }
            }
        }
    }
}

#[test]
fn a_refused_request_passes_after_its_wait_at_any_gateway() {
    for limit in [3, 5, 12, 20] {
        // With a smaller limit, gateways may exceed it before the others know.
        let fleets = [2, 3, 5].into_iter().filter(|gateways| limit + 1 >= 2 * gateways);
        for (gateways, seed) in fleets.flat_map(|gateways| (0..20).map(move |seed| (gateways, seed))) {
            let gateways = gateways as usize;
            let mut fleet = FleetModel::new(requests_per_minute(limit), gateways, seed);
            let mut attempt = |from: u64, until: u64, gateway: usize| {
                (from..=until).step_by(STEP as usize).for_each(|at| fleet.step(at));
                fleet.request(gateway, until, (cost(1), tokens(1), 10))
            };
            // All gateways use their parts at once, in the middle between two exchanges or at one.
            let mut at = 3_000 + seed * 50;
            for number in 0..2 * limit as usize * gateways {
                let _ = attempt(at, at, number % gateways);
            }
            for number in 0..10 {
                let refused = (0..=limit).find_map(|_| attempt(at, at, number % gateways).err()).unwrap();
                let retry_at = (at + wait(&refused)) / STEP * STEP;
                let retried = attempt(at, retry_at, (number + 1) % gateways);
                assert_eq!(retried, Ok(()), "{limit} {gateways} {seed} {number}: {refused:?}");
                at = retry_at;
            }
        }
    }
}

/// Sends bursts of requests at random times to random gateways. Returns the time and the size of each admitted request.
fn send_bursts(limits: UsageLimits, gateways: usize, sizes: &[u64], seed: u64) -> Vec<(u64, u64)> {
    let mut fleet = FleetModel::new(limits, gateways, seed);
    let mut admitted = Vec::new();
    let (mut next_at, mut size, mut chosen) = (0, 1, 0);
    for at in (0..SECONDS * 1_000).step_by(20) {
        fleet.step(at);
        if at >= next_at {
            let random = &mut fleet.random;
            next_at = at + [20, 100, 1_000, 3_000, 20_000, 70_000][random.below(6) as usize];
            size = sizes[random.below(sizes.len() as u64) as usize];
            chosen = random.below(1 << gateways);
        }
        for gateway in (0..gateways).filter(|gateway| chosen >> gateway & 1 == 1) {
            while fleet.request(gateway, at, (cost(size), tokens(size), 10)).is_ok() {
                admitted.push((at, size));
            }
        }
    }
    admitted
}

/// Returns by how much the admitted amounts exceed 105 % of `limit` · (1 + t) in any span of t minutes.
fn excess(admitted: &[(u64, u64)], limit: u64) -> f64 {
    let (mut level, mut last, mut worst) = (1.05 * limit as f64, 0, f64::MAX);
    for (at, amount) in admitted {
        level = (level + 1.05 * limit as f64 * (at - last) as f64 / 60_000.0).min(1.05 * limit as f64);
        level -= *amount as f64;
        worst = worst.min(level);
        last = *at;
    }
    -worst
}

#[test]
fn bursts_at_random_gateways_exceed_a_limit_by_few_requests() {
    for (limit, sizes) in [
        (600, &[1][..]),
        (60, &[1]),
        (12, &[1]),
        (3, &[1]),
        (10_000, &[100]),
        (10_000, &[100, 3_000]),
        (10_000, &[5_000]),
        (10_000, &[100, 5_000, 10_000]),
    ] {
        for gateways in [2, 3, 5] {
            let kind = if limit <= 600 { requests_per_minute(limit) } else { tokens_per_minute(limit) };
            for seed in 0..4 {
                let admitted = send_bursts(kind, gateways, sizes, seed);
                let worst = excess(&admitted, limit);
                let largest = *sizes.iter().max().unwrap();
                let others = gateways as u64 - 1;
                let bound = others * largest + limit / 100;
                let case = format!("{limit} {sizes:?} {gateways} {seed}: {worst} above, bound {bound}");
                assert!(worst <= bound as f64, "{case}");
            }
        }
    }
}
