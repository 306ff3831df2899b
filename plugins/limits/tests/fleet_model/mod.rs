//! Model of gateways that share limits: each gateway exchanges reports at its own irregular times, and its reports
//! reach the others late.
#![allow(dead_code, reason = "each test uses a part of the model")]

use penstock_limits::{
    ActualCost, CostEstimate, LimitExceeded, LimitReservation, PeerUsage, UsageLimits, UsageMeter,
    UsageTotals, WorkClass, receives_remainder, turn_position,
};
use std::collections::VecDeque;
use std::time::Duration;

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Report of a gateway: its number and its content.
type Report = (u64, UsageTotals);

#[derive(Default)]
pub struct Gateway {
    meter: UsageMeter,
    /// Report that the others read now, and the reports that have not reached them yet.
    report: Report,
    sent: VecDeque<(u64, Report)>,
    /// Last report of each gateway, and the demand in it.
    seen: Vec<(Report, PeerUsage)>,
    /// Time of the last demand of each gateway, this one included.
    demanded_at: Vec<Option<u64>>,
    next_exchange: u64,
    /// Requests in flight: the end of each, and its usage.
    pub open: Vec<(u64, ActualCost, LimitReservation)>,
}

impl Gateway {
    fn has_recent_demand(&self, gateway: usize, at: u64) -> bool {
        self.demanded_at[gateway].is_some_and(|demanded_at| at - demanded_at < 5_000)
    }
}

/// Gateways that share the limits of one key. Times are in milliseconds.
pub struct FleetModel {
    pub limits: UsageLimits,
    pub gateways: Vec<Gateway>,
    pub random: Random,
}

impl FleetModel {
    pub fn new(limits: UsageLimits, gateways: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let gateway = |_| Gateway {
            seen: vec![Default::default(); gateways],
            demanded_at: vec![None; gateways],
            next_exchange: random.below(1_000),
            ..Gateway::default()
        };
        let gateways = (0..gateways).map(gateway).collect();
        Self { limits, gateways, random }
    }

    /// Delivers reports, ends requests, and lets the gateways exchange reports.
    pub fn step(&mut self, at: u64) {
        for gateway in &mut self.gateways {
            while gateway.sent.front().is_some_and(|(due, _)| *due <= at) {
                gateway.report = gateway.sent.pop_front().unwrap().1;
            }
            for (_, used, held) in gateway.open.extract_if(.., |(end, ..)| *end <= at) {
                gateway.meter.settle(held, &self.limits, &used, time(at));
            }
        }
        for gateway in 0..self.gateways.len() {
            self.exchange(gateway, at);
        }
    }

    fn exchange(&mut self, own: usize, at: u64) {
        if at < self.gateways[own].next_exchange {
            return;
        }
        let members = self.gateways.len();
        let mut peers = PeerUsage { members: members as u32, ..PeerUsage::default() };
        let mut demanding = Vec::new();
        let others: Vec<u32> = (0..members as u32).filter(|other| *other as usize != own).collect();
        for &number in &others {
            let other = number as usize;
            self.add_report(own, other, &mut peers, at);
            if self.gateways[own].has_recent_demand(other, at) {
                demanding.push(number);
            }
        }
        peers.may_use_remainder = self.gateways[own].has_recent_demand(own, at)
            && receives_remainder("key/k", own as u32, &demanding, time(at));
        peers.position = turn_position("key/k", own as u32, &others, time(at));
        let gateway = &mut self.gateways[own];
        let has_demand = gateway.meter.usage_totals().wanted_requests > 0;
        if !has_demand && peers.silent_peers + 1 == members as u32 {
            gateway.next_exchange = at + 1_000 + self.random.below(80);
            return;
        }
        peers.is_silent = gateway.report.0 == 0 && gateway.sent.is_empty();
        gateway.meter.apply_peer_usage(&self.limits, &peers, time(at));
        let totals = gateway.meter.usage_totals();
        if totals.wanted_requests > 0 {
            gateway.sent.push_back((at + 10 + self.random.below(60), (at, totals)));
        }
        gateway.next_exchange = at + 1_000 + self.random.below(80);
    }

    /// Adds the report of another gateway to the usage of the others.
    fn add_report(&mut self, own: usize, other: usize, peers: &mut PeerUsage, at: u64) {
        let (number, now) = self.gateways[other].report;
        let ((seen, before), demand) = &mut self.gateways[own].seen[other];
        peers.requests += now.requests - before.requests;
        peers.tokens += now.tokens - before.tokens;
        peers.in_flight += now.in_flight;
        peers.reserved_tokens += now.reserved_tokens;
        peers.allowed.requests += now.allowed.requests;
        peers.allowed.tokens += now.allowed.tokens;
        peers.allowed.in_flight += now.allowed.in_flight;
        peers.silent_peers += u32::from(now.wanted_requests == 0);
        // The demand is updated only by a new report: an old one that is read again contains no new demand.
        if number != *seen {
            demand.wanted_requests = now.wanted_requests - before.wanted_requests;
            demand.wanted_tokens = now.wanted_tokens - before.wanted_tokens;
            demand.refused_requests = demand.wanted_requests - (now.requests - before.requests);
        }
        (*seen, *before) = (number, now);
        peers.wanted_requests += demand.wanted_requests;
        peers.wanted_tokens += demand.wanted_tokens;
        peers.refused_requests += demand.refused_requests;
        if demand.wanted_requests > 0 {
            self.gateways[own].demanded_at[other] = Some(at);
        }
    }

    /// Sends a request that ends after `duration` with the usage `used`.
    pub fn request(
        &mut self,
        gateway: usize,
        at: u64,
        (estimate, used, duration): (CostEstimate, ActualCost, u64),
    ) -> Result<(), LimitExceeded> {
        let (members, now) = (self.gateways.len() as u32, time(at));
        let gateway_state = &mut self.gateways[gateway];
        gateway_state.demanded_at[gateway] = Some(at);
        let meter = &mut gateway_state.meter;
        meter.begin_limit_sharing(&self.limits, members, now);
        if let Err(refused) = meter.check_limits(&self.limits, &estimate, WorkClass::Request, now) {
            meter.record_refused_demand(&estimate);
            return Err(refused);
        }
        let held = meter.reserve(&self.limits, &estimate, WorkClass::Request, now);
        gateway_state.open.push((at + duration, used, held));
        Ok(())
    }

    /// Returns the number of requests in flight at all gateways.
    pub fn in_flight(&self) -> usize {
        self.gateways.iter().map(|gateway| gateway.open.len()).sum()
    }
}

pub fn time(at: u64) -> Duration {
    Duration::from_secs(1_000_000) + Duration::from_millis(at)
}
