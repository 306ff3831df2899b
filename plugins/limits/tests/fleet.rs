//! Simulation of limits that three gateways share: each gateway exchanges reports at its own irregular times, its
//! reports reach the others late, and the demand is distributed in many ways.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use penstock_limits::{
    ActualCost, CostEstimate, LargestRefusedRequest, LimitReservation, PeerUsage, UsageLimits, UsageMeter,
    UsageTotals, WorkClass, receives_remainder,
};
use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

const GATEWAYS: usize = 3;
/// Milliseconds between two steps of the simulation, and duration of a request in milliseconds.
const STEP: u64 = 20;
const REQUEST: u64 = 200;
/// Tokens that a request uses, and tokens that are reserved for it.
const USED: ActualCost = ActualCost { input: 20, output: 80, money: penstock_core::MicroCredits(0) };
const ESTIMATE: CostEstimate = CostEstimate { input: 20, output: 160, money: penstock_core::MicroCredits(0) };
const SEEDS: u64 = 3;

/// Shared limit: requests a minute, tokens a minute that suffice for this number of requests, or another kind below.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Requests(u64),
    Tokens(u64),
    /// Limit in tokens a minute, and tokens of each request.
    LargeRequests(u64, u64),
    InFlight(u32),
}

impl Limit {
    fn requests(self) -> u64 {
        match self {
            Self::Requests(requests) | Self::Tokens(requests) => requests,
            Self::LargeRequests(tokens, each) => tokens / each,
            Self::InFlight(most) => most.into(),
        }
    }

    fn estimate(self) -> CostEstimate {
        match self {
            Self::LargeRequests(_, output) => CostEstimate { input: 0, output, ..CostEstimate::default() },
            _ => ESTIMATE,
        }
    }

    fn used(self) -> ActualCost {
        match self {
            Self::LargeRequests(_, output) => ActualCost { input: 0, output, ..ActualCost::default() },
            _ => USED,
        }
    }

    fn limits(self) -> UsageLimits {
        match self {
            Self::Requests(requests) => {
                UsageLimits { requests: NonZeroU64::new(requests), ..UsageLimits::default() }
            }
            Self::Tokens(requests) => UsageLimits {
                tokens: NonZeroU64::new(requests * (USED.input + USED.output)),
                ..UsageLimits::default()
            },
            Self::LargeRequests(tokens, _) => {
                UsageLimits { tokens: NonZeroU64::new(tokens), ..UsageLimits::default() }
            }
            Self::InFlight(most) => {
                UsageLimits { concurrent: NonZeroU32::new(most), ..UsageLimits::default() }
            }
        }
    }
}

/// Distribution of demand between the gateways.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Skew {
    /// Percent for each gateway.
    Fixed([u64; GATEWAYS]),
    /// All demand at one gateway for this number of milliseconds, then at the next one.
    Moving(u64),
}

const SKEWS: [Skew; 7] = [
    Skew::Fixed([100, 0, 0]),
    Skew::Fixed([34, 33, 33]),
    Skew::Fixed([90, 9, 1]),
    Skew::Moving(300),
    Skew::Moving(1_000),
    Skew::Moving(2_000),
    Skew::Moving(5_000),
];

impl Skew {
    fn percent(self, at: u64, gateway: usize) -> u64 {
        match self {
            Self::Fixed(percents) => percents[gateway],
            Self::Moving(each) => {
                if at / each % GATEWAYS as u64 == gateway as u64 {
                    100
                } else {
                    0
                }
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[derive(Default)]
struct Gateway {
    meter: UsageMeter,
    /// Number and content of the report that the others read now, and the reports that have not reached them yet.
    report: (u64, UsageTotals),
    sent: VecDeque<(u64, (u64, UsageTotals))>,
    /// Last report of each gateway, and the demand in it.
    seen: [((u64, UsageTotals), PeerUsage); GATEWAYS],
    /// Time of the last demand of each gateway, this one included.
    demanded_at: [Option<u64>; GATEWAYS],
    next_exchange: u64,
    /// Demand that is not yet sent as requests; 6,000,000 units are one request.
    due: u64,
    open: VecDeque<(u64, LimitReservation)>,
}

impl Gateway {
    fn has_recent_demand(&self, gateway: usize, at: u64) -> bool {
        self.demanded_at[gateway].is_some_and(|demanded_at| at - demanded_at < 5_000)
    }
}

struct Simulation {
    limit: Limit,
    limits: UsageLimits,
    gateways: [Gateway; GATEWAYS],
    random: Random,
    /// Admitted requests by second, and by gateway.
    admitted: Vec<u64>,
    by_gateway: [u64; GATEWAYS],
    /// Maximum number of requests in flight at the end of a step, and the sum of these numbers over all steps.
    most_in_flight: usize,
    in_flight_steps: usize,
    refused: u64,
}

impl Simulation {
    /// Runs with a demand in requests a minute.
    fn run(limit: Limit, skew: Skew, demand: u64, seconds: u64, seed: u64) -> Self {
        let mut simulation = Self {
            limit,
            limits: limit.limits(),
            gateways: Default::default(),
            random: Random(seed),
            admitted: vec![0; usize::try_from(seconds).unwrap()],
            by_gateway: [0; GATEWAYS],
            most_in_flight: 0,
            in_flight_steps: 0,
            refused: 0,
        };
        for gateway in 0..GATEWAYS {
            simulation.gateways[gateway].next_exchange = simulation.random.below(1_000);
        }
        for at in (0..seconds * 1_000).step_by(usize::try_from(STEP).unwrap()) {
            simulation.deliver(at);
            for gateway in 0..GATEWAYS {
                simulation.exchange(gateway, at);
                // A minute has 60,000 milliseconds, and `skew` gives percents, so a request is 60,000 · 100 units.
                simulation.gateways[gateway].due += demand * STEP * skew.percent(at, gateway);
                while simulation.gateways[gateway].due >= 6_000_000 {
                    simulation.gateways[gateway].due -= 6_000_000;
                    simulation.request(gateway, at);
                }
            }
            let in_flight = simulation.gateways.iter().map(|gateway| gateway.open.len()).sum();
            simulation.most_in_flight = simulation.most_in_flight.max(in_flight);
            simulation.in_flight_steps += in_flight;
        }
        simulation
    }

    /// Delivers reports and ends requests.
    fn deliver(&mut self, at: u64) {
        for gateway in &mut self.gateways {
            while let Some(report) = take_due(&mut gateway.sent, at) {
                gateway.report = report;
            }
            while let Some(held) = take_due(&mut gateway.open, at) {
                gateway.meter.settle(held, &self.limits, &self.limit.used(), time(at));
            }
        }
    }

    fn exchange(&mut self, own: usize, at: u64) {
        if at < self.gateways[own].next_exchange {
            return;
        }
        let mut peers = PeerUsage { members: GATEWAYS as u32, ..PeerUsage::default() };
        let mut demanding = Vec::new();
        for other in (0..GATEWAYS).filter(|other| *other != own) {
            let (number, now) = self.gateways[other].report;
            let ((seen, before), demand) = &mut self.gateways[own].seen[other];
            peers.requests += now.requests - before.requests;
            peers.tokens += now.tokens - before.tokens;
            peers.in_flight += now.in_flight;
            peers.allowed.requests += now.allowed.requests;
            peers.allowed.tokens += now.allowed.tokens;
            peers.allowed.in_flight += now.allowed.in_flight;
            peers.silent_peers += u32::from(now.wanted_requests == 0);
            // The demand is updated only by a new report: an old one that is read again contains no new demand.
            if number != *seen {
                demand.wanted_requests = now.wanted_requests - before.wanted_requests;
                demand.wanted_tokens = now.wanted_tokens - before.wanted_tokens;
                demand.refused_requests = demand.wanted_requests - (now.requests - before.requests);
                demand.refused =
                    LargestRefusedRequest { amount: now.largest_refused, wanted: demand.wanted_tokens };
            }
            (*seen, *before) = (number, now);
            peers.wanted_requests += demand.wanted_requests;
            peers.wanted_tokens += demand.wanted_tokens;
            peers.refused_requests += demand.refused_requests;
            if demand.refused.amount > peers.refused.amount {
                peers.refused = demand.refused;
            }
            if demand.wanted_requests > 0 {
                self.gateways[own].demanded_at[other] = Some(at);
            }
            if self.gateways[own].has_recent_demand(other, at) {
                demanding.push(other as u32);
            }
        }
        peers.may_use_remainder = self.gateways[own].has_recent_demand(own, at)
            && receives_remainder("key/k", own as u32, &demanding, time(at));
        let gateway = &mut self.gateways[own];
        gateway.meter.apply_peer_usage(&self.limits, &peers, time(at));
        let totals = gateway.meter.usage_totals();
        if totals.wanted_requests > 0 {
            gateway.sent.push_back((at + 10 + self.random.below(60), (at, totals)));
        }
        gateway.next_exchange = at + 1_000 + self.random.below(80);
    }

    fn request(&mut self, gateway: usize, at: u64) {
        self.gateways[gateway].demanded_at[gateway] = Some(at);
        let (meter, now) = (&mut self.gateways[gateway].meter, time(at));
        let estimate = self.limit.estimate();
        meter.begin_limit_sharing(&self.limits, GATEWAYS as u32, now);
        if meter.check_limits(&self.limits, &estimate, WorkClass::Request, now).is_ok() {
            let held = meter.reserve(&self.limits, &estimate, WorkClass::Request, now);
            self.gateways[gateway].open.push_back((at + REQUEST, held));
            self.admitted[usize::try_from(at / 1_000).unwrap()] += 1;
            self.by_gateway[gateway] += 1;
        } else {
            meter.record_refused_demand(&estimate);
            self.refused += 1;
        }
    }

    /// Returns the admitted requests between two seconds as a percentage of a full bucket and its refill in that
    /// time.
    fn percent(&self, from: usize, to: usize, limit: u64) -> u64 {
        let admitted: u64 = self.admitted[from..to].iter().sum();
        admitted * 100 / (limit + limit * (to - from) as u64 / 60)
    }
}

/// Returns the first item of a queue if its time has come.
fn take_due<T>(queue: &mut VecDeque<(u64, T)>, at: u64) -> Option<T> {
    let is_due = queue.front().is_some_and(|(due, _)| *due <= at);
    if is_due { queue.pop_front().map(|(_, item)| item) } else { None }
}

fn time(at: u64) -> Duration {
    Duration::from_secs(1_000_000) + Duration::from_millis(at)
}

#[test]
fn gateways_together_admit_the_limit_under_every_skew() {
    for limit in [Limit::Requests(60), Limit::Requests(600), Limit::Tokens(600)] {
        for (skew, seed) in SKEWS.into_iter().flat_map(|skew| (0..SEEDS).map(move |seed| (skew, seed))) {
            for demand in [limit.requests() * 3 / 2, limit.requests() * 4] {
                let run = Simulation::run(limit, skew, demand, 300, seed);
                let percents = [60, 120, 300].map(|end| (end, run.percent(0, end, limit.requests())));
                // A part of a burst is refused during the first two seconds in which its gateway has all of its demand.
                let has_full_demand = demand > limit.requests() * 2;
                let least = |end| match skew {
                    _ if end == 300 => 96,
                    Skew::Fixed(_) if end == 120 || has_full_demand => 95,
                    Skew::Moving(_) if has_full_demand => 92,
                    _ if end == 120 => 90,
                    _ => 0,
                };
                let case = format!("{limit:?} {skew:?} {demand} {seed}: {percents:?}");
                assert!(percents.iter().all(|(end, percent)| *percent >= least(*end)), "{case}");
                for from in (0..300).step_by(7) {
                    for to in from + 1..300 {
                        assert!(run.percent(from, to, limit.requests()) <= 105, "{case} {from}..{to}");
                    }
                }
            }
        }
    }
}

#[test]
fn demand_below_three_quarters_of_the_limit_is_not_refused_under_any_skew() {
    // The tokens of a request have to be less than the base of each gateway, which is a twelfth of the limit.
    for limit in [Limit::Requests(12), Limit::Requests(60), Limit::Requests(3_000), Limit::Tokens(60)] {
        for (skew, seed) in SKEWS.into_iter().flat_map(|skew| (0..SEEDS).map(move |seed| (skew, seed))) {
            let run = Simulation::run(limit, skew, limit.requests() * 74 / 100, 600, seed);
            assert_eq!(run.refused, 0, "{limit:?} {skew:?} {seed}");
        }
    }
}

/// Distributions of demand for tests with a small limit: equal at all gateways, unequal, at two gateways, and at one.
const SMALL_SKEWS: [Skew; 4] = [
    Skew::Fixed([34, 33, 33]),
    Skew::Fixed([60, 30, 10]),
    Skew::Fixed([0, 50, 50]),
    Skew::Fixed([100, 0, 0]),
];

/// Asserts that each gateway with demand admits at least one of every `part` admitted requests.
fn assert_fair(run: &Simulation, skew: Skew, part: u64, case: &str) {
    let total: u64 = run.by_gateway.iter().sum();
    for (gateway, admitted) in run.by_gateway.into_iter().enumerate() {
        let has_demand = skew.percent(0, gateway) > 0;
        assert!(!has_demand || admitted * part >= total, "{case}: {:?}", run.by_gateway);
    }
}

#[test]
fn a_limit_of_fewer_requests_than_gateways_is_used_at_each_of_them_in_turn() {
    for (limit, skew, seed) in [1, 2, 3]
        .into_iter()
        .flat_map(|limit| SMALL_SKEWS.map(|skew| (limit, skew)))
        .flat_map(|(limit, skew)| (0..SEEDS).map(move |seed| (limit, skew, seed)))
    {
        let run = Simulation::run(Limit::Requests(limit), skew, 600, 1_200, seed);
        let percent = run.percent(0, 1_200, limit);
        let case = format!("{limit} {skew:?} {seed}: {percent} %");
        // Each gateway may admit one request at the first use.
        let most = 105 + 100 * (GATEWAYS as u64 - limit) / (limit * 21);
        assert!((90..=most).contains(&percent), "{case}");
        assert_fair(&run, skew, 8, &case);
    }
}

#[test]
fn a_request_of_more_tokens_than_an_equal_part_passes_at_each_gateway_in_turn() {
    for (limit, skew, seed) in [(200_000, 90_000), (1_000, 600), (1_000, 1_000), (2_000, 900)]
        .into_iter()
        .flat_map(|limit| SMALL_SKEWS.map(|skew| (limit, skew)))
        .flat_map(|(limit, skew)| (0..SEEDS).map(move |seed| (limit, skew, seed)))
    {
        let run = Simulation::run(Limit::LargeRequests(limit.0, limit.1), skew, 360, 1_200, seed);
        let used = run.admitted.iter().sum::<u64>() * limit.1;
        let percent = used * 100 / (limit.0 * 21);
        let case = format!("{limit:?} {skew:?} {seed}: {percent} %");
        assert_fair(&run, skew, 50, &case);
    }
}

#[test]
fn requests_in_flight_are_shared_by_gateways_that_always_have_more() {
    for (limit, skew, seed) in [1, 2, 4, 12, 50]
        .into_iter()
        .flat_map(|limit| SMALL_SKEWS.map(|skew| (limit, skew)))
        .flat_map(|(limit, skew)| (0..SEEDS).map(move |seed| (limit, skew, seed)))
    {
        let run = Simulation::run(Limit::InFlight(limit), skew, 60_000, 300, seed);
        let percent = run.in_flight_steps * 100 / (limit as usize * 300_000 / STEP as usize);
        let case = format!("{limit} {skew:?} {seed}: {percent} %, at most {}", run.most_in_flight);
        assert_fair(&run, skew, 8, &case);
    }
}
