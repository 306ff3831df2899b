//! Simulation of limits that three gateways share, with demand that is distributed in many ways.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod fleet_model;

use fleet_model::FleetModel;
use penstock_limits::{ActualCost, CostEstimate, UsageLimits};
use std::num::{NonZeroU32, NonZeroU64};

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

struct Simulation {
    limit: Limit,
    fleet: FleetModel,
    /// Demand of each gateway that is not yet sent as requests; 6,000,000 units are one request.
    due: [u64; GATEWAYS],
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
            fleet: FleetModel::new(limit.limits(), GATEWAYS, seed),
            due: [0; GATEWAYS],
            admitted: vec![0; usize::try_from(seconds).unwrap()],
            by_gateway: [0; GATEWAYS],
            most_in_flight: 0,
            in_flight_steps: 0,
            refused: 0,
        };
        for at in (0..seconds * 1_000).step_by(usize::try_from(STEP).unwrap()) {
            simulation.fleet.step(at);
            for gateway in 0..GATEWAYS {
                // A minute has 60,000 milliseconds, and `skew` gives percents, so a request is 60,000 · 100 units.
                simulation.due[gateway] += demand * STEP * skew.percent(at, gateway);
                while simulation.due[gateway] >= 6_000_000 {
                    simulation.due[gateway] -= 6_000_000;
                    simulation.request(gateway, at);
                }
            }
            let in_flight = simulation.fleet.in_flight();
            simulation.most_in_flight = simulation.most_in_flight.max(in_flight);
            simulation.in_flight_steps += in_flight;
        }
        simulation
    }

    fn request(&mut self, gateway: usize, at: u64) {
        let request = (self.limit.estimate(), self.limit.used(), REQUEST);
        if self.fleet.request(gateway, at, request).is_ok() {
            self.admitted[usize::try_from(at / 1_000).unwrap()] += 1;
            self.by_gateway[gateway] += 1;
        } else {
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
        assert!((94..=101).contains(&percent), "{case}");
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
        assert!((75..=100).contains(&percent), "{case}");
        assert!(run.most_in_flight < limit as usize + GATEWAYS, "{case}");
        assert_fair(&run, skew, 8, &case);
    }
}
