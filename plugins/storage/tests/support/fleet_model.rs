//! Model of gateway replicas that run the fleet protocol in simulated time, under kills, pauses and failures of the
//! store. The rows are checked after each step.

use crate::flaky::{Failure, FlakyStore};
use penstock_storage::fleet::{
    Fleet, FleetError, HeartbeatReport, Incarnation, LeaseTerm, PeerWatch, PoolAmount, PoolRequest,
    SharedFleet,
};
use penstock_storage::{Store, StoreTable, Transaction, parse_counter};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DEAD_AFTER: Duration = Duration::from_secs(2);
const POOLS: usize = 3;
const CHARGES: StoreTable = StoreTable::Lines;

/// Served request: its number, pool and cost.
type Served = (u64, String, i64);

/// Deliberate mistake of the replicas, which the check must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)]
pub enum PlantedBug {
    None,
    /// The report of an evicted incarnation is still applied.
    LostFence,
    /// A report with an unknown outcome is sent again as a new report.
    DoubleReport,
}

/// One process.
pub struct Replica {
    fleet: SharedFleet,
    store: Arc<dyn Store>,
    pub bug: PlantedBug,
    incarnation: Option<Incarnation>,
    lease: BTreeMap<String, i64>,
    /// Requests whose charge is not confirmed yet.
    unreported: Vec<Served>,
    /// Report with an unknown outcome, and the number of requests in it.
    in_flight: Option<(HeartbeatReport, usize)>,
    /// True if a draw had an unknown outcome, so the parts must be read again.
    is_stale: bool,
    watch: PeerWatch,
    term: LeaseTerm,
    paused_until: Duration,
}

/// All processes, and the true state that no process knows completely.
pub struct World {
    store: Arc<dyn Store>,
    pub replicas: Vec<Replica>,
    granted: i64,
    served: BTreeMap<u64, Served>,
    now: Duration,
    random: StdRng,
    pub kills: u32,
    pub evicted: u32,
}

fn pool(random: &mut StdRng) -> String {
    format!("acct{}", random.random_range(0..POOLS))
}

impl World {
    /// Creates a replica for each store. `failing` of a thousand transactions have an unknown outcome.
    pub fn new(stores: &[Arc<dyn Store>], granted: i64, failing: u32, seed: u64) -> World {
        let replica = |(number, store): (u64, &Arc<dyn Store>)| {
            let random = Mutex::new(StdRng::seed_from_u64(seed * 31 + number));
            let next_failure = move || {
                let mut random = random.lock().unwrap();
                match (random.random_range(0..1_000) < failing, random.random_range(0..2)) {
                    (false, _) => Failure::None,
                    (true, 0) => Failure::Before,
                    (true, _) => Failure::After,
                }
            };
            let store = FlakyStore { store: store.clone(), next_failure: Box::new(next_failure) };
            let store: Arc<dyn Store> = Arc::new(store);
            Replica {
                fleet: SharedFleet::new(store.clone()),
                store,
                bug: PlantedBug::None,
                incarnation: None,
                lease: BTreeMap::new(),
                unreported: Vec::new(),
                in_flight: None,
                is_stale: false,
                watch: PeerWatch::new(DEAD_AFTER),
                term: LeaseTerm::new(DEAD_AFTER),
                paused_until: Duration::ZERO,
            }
        };
        for number in 0..POOLS {
            let grant = PoolAmount { pool: format!("acct{number}"), amount: granted };
            stores[0].apply(SharedFleet::credit_pool_operations(&grant)).unwrap();
        }
        World {
            store: stores[0].clone(),
            replicas: (0..).zip(stores).map(replica).collect(),
            granted,
            served: BTreeMap::new(),
            now: Duration::ZERO,
            random: StdRng::seed_from_u64(seed),
            kills: 0,
            evicted: 0,
        }
    }

    /// Makes one replica perform a random step.
    pub fn step(&mut self) {
        self.now += Duration::from_millis(self.random.random_range(0..80));
        let index = self.random.random_range(0..self.replicas.len());
        let (now, random) = (self.now, &mut self.random);
        let replica = &mut self.replicas[index];
        if now < replica.paused_until {
            return;
        }
        match random.random_range(0..100) {
            0 => {
                self.kills += 1;
                replica.forget();
            }
            1 => replica.paused_until = now + Duration::from_millis(random.random_range(0..4_000)),
            2..30 => replica.report(now),
            30..45 => self.evicted += replica.bury_dead(now),
            _ => {
                let number = self.served.len() as u64;
                if let Some(request) = replica.serve(number, pool(random), random.random_range(1..20), now) {
                    self.served.insert(number, request);
                }
            }
        }
    }

    /// Advances the time until all replicas have reported their served requests and the dead replicas are evicted.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            self.now += Duration::from_millis(50);
            let now = self.now;
            for replica in &mut self.replicas {
                replica.report(now);
                self.evicted += replica.bury_dead(now);
            }
        }
    }

    fn counter(&self, key: String) -> i64 {
        parse_counter(self.store.get(StoreTable::Meta, key.as_bytes()).unwrap().as_deref()).unwrap()
    }

    /// Checks the rows: each pool adds up, and no charge is duplicated or without a served request.
    pub fn check(&self) -> Result<(), String> {
        let mut charged: BTreeMap<String, i64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for row in self.store.scan(CHARGES, b"", None, usize::MAX).unwrap().rows {
            for (number, pool, cost) in serde_json::from_slice::<Vec<Served>>(&row.value).unwrap() {
                if !seen.insert(number) {
                    return Err(format!("request {number} is charged twice"));
                }
                if self.served.get(&number) != Some(&(number, pool.clone(), cost)) {
                    return Err(format!("request {number} was not served so"));
                }
                *charged.entry(pool).or_default() += cost;
            }
        }
        let mut parts: BTreeMap<String, i64> = BTreeMap::new();
        for row in self.store.scan(StoreTable::Meta, b"fleet/part/", None, usize::MAX).unwrap().rows {
            let amount = parse_counter(Some(&row.value)).unwrap();
            if amount < 0 {
                return Err(format!("a part is {amount}"));
            }
            *parts.entry(String::from_utf8(row.key[15..].to_vec()).unwrap()).or_default() += amount;
        }
        for number in 0..POOLS {
            let pool = format!("acct{number}");
            let rest = self.counter(format!("fleet/pool/{pool}"));
            let of = |amounts: &BTreeMap<String, i64>| amounts.get(&pool).copied().unwrap_or(0);
            if rest < 0 || rest + of(&parts) + of(&charged) != self.granted {
                return Err(format!(
                    "{pool}: {rest} + {} + {} is not {}",
                    of(&parts),
                    of(&charged),
                    self.granted
                ));
            }
        }
        Ok(())
    }

    /// Returns the charged and the served cost of all pools.
    pub fn totals(&self) -> (i64, i64) {
        let rows = self.store.scan(CHARGES, b"", None, usize::MAX).unwrap().rows;
        let requests = rows.iter().flat_map(|row| serde_json::from_slice::<Vec<Served>>(&row.value).unwrap());
        (requests.map(|request| request.2).sum(), self.served.values().map(|request| request.2).sum())
    }

    /// Writes a charge twice, as a report without its guard would. The check must detect this.
    #[allow(dead_code)]
    pub fn plant_double_charge(&self) {
        let row = self.store.scan(CHARGES, b"", None, 1).unwrap().rows.remove(0);
        self.store.apply(Transaction::new().put(CHARGES, b"planted", row.value)).unwrap();
    }

    /// Overwrites the rest of a pool with an earlier value, as a write of absolute balances would. The check must
    /// detect this.
    #[allow(dead_code)]
    pub fn plant_absolute_balance(&self) {
        let key = b"fleet/pool/acct0";
        let rest = self.counter("fleet/pool/acct0".to_owned());
        let row = penstock_storage::counter_row(rest + 1);
        self.store.apply(Transaction::new().put(StoreTable::Meta, key, row)).unwrap();
    }
}

impl Replica {
    /// Clears the state of the replica, as a kill does. Other replicas then evict its incarnation.
    fn forget(&mut self) {
        self.incarnation = None;
        self.lease.clear();
        self.unreported.clear();
        self.in_flight = None;
        self.is_stale = false;
        self.watch.reset();
        self.term = LeaseTerm::new(DEAD_AFTER);
    }

    fn incarnation(&mut self, now: Duration) -> Option<Incarnation> {
        if self.incarnation.is_none() {
            self.incarnation = self.fleet.join("model").ok();
            if self.incarnation.is_some() {
                self.term.renew(now);
            }
        }
        self.incarnation
    }

    fn serve(&mut self, number: u64, pool: String, cost: i64, now: Duration) -> Option<Served> {
        let incarnation = self.incarnation(now)?;
        if !self.term.is_valid(now) {
            return None;
        }
        if self.lease.get(&pool).is_none_or(|lease| *lease < cost) && !self.is_stale {
            match self
                .fleet
                .draw_from_pool(incarnation, &PoolRequest { pool: pool.clone(), wanted: 200, least: cost })
            {
                Ok(drawn) => *self.lease.entry(pool.clone()).or_default() += drawn,
                Err(FleetError::Evicted) => self.forget(),
                Err(_) => self.is_stale = true,
            }
        }
        let lease = self.lease.get_mut(&pool).filter(|lease| **lease >= cost)?;
        *lease -= cost;
        self.unreported.push((number, pool.clone(), cost));
        Some((number, pool, cost))
    }

    fn report(&mut self, now: Duration) {
        let Some(incarnation) = self.incarnation(now) else { return };
        let (report, count) = self.in_flight.take().unwrap_or_else(|| self.new_report(incarnation));
        match self.fleet.heartbeat(incarnation, &report) {
            Ok(next) => {
                self.incarnation = Some(next);
                self.term.renew(now);
                self.unreported.drain(..count);
                if self.is_stale
                    && let Ok(parts) = self.fleet.pool_parts(next)
                {
                    self.lease = parts.into_iter().map(|part| (part.pool, part.amount)).collect();
                    for (_, pool, cost) in &self.unreported {
                        *self.lease.entry(pool.clone()).or_default() -= cost;
                    }
                    self.is_stale = false;
                }
            }
            Err(FleetError::Evicted) => {
                if self.bug == PlantedBug::LostFence {
                    self.report_unfenced(incarnation, report);
                }
                self.forget();
            }
            Err(_) if self.bug == PlantedBug::DoubleReport => {
                self.incarnation = Some(Incarnation { beat: incarnation.beat + 1, ..incarnation });
            }
            Err(_) => self.in_flight = Some((report, count)),
        }
    }

    /// Applies a report without the proof that the incarnation is alive.
    fn report_unfenced(&self, incarnation: Incarnation, report: HeartbeatReport) {
        let mut batch = report.with;
        for PoolAmount { pool, amount } in report.spent {
            let part = [b"fleet/part/", &incarnation.id.to_be_bytes()[..], pool.as_bytes()].concat();
            batch = batch.add_to_counter(StoreTable::Meta, part, -amount, None, None);
        }
        let _ = self.store.apply(batch);
    }

    fn new_report(&self, incarnation: Incarnation) -> (HeartbeatReport, usize) {
        let mut spent: BTreeMap<&str, i64> = BTreeMap::new();
        for (_, pool, cost) in &self.unreported {
            *spent.entry(pool).or_default() += cost;
        }
        let spent = spent.into_iter().map(|(pool, amount)| PoolAmount { pool: pool.to_owned(), amount });
        let mut with = Transaction::new();
        if !self.unreported.is_empty() {
            let key = format!("{}/{}", incarnation.id, incarnation.beat);
            let value = serde_json::to_vec(&self.unreported).unwrap();
            with = with.put(CHARGES, key, value);
        }
        (HeartbeatReport { spent: spent.collect(), returned: Vec::new(), with }, self.unreported.len())
    }

    fn bury_dead(&mut self, now: Duration) -> u32 {
        let own = self.incarnation.map_or(0, |incarnation| incarnation.id);
        let Ok(peers) = self.fleet.incarnations() else { return 0 };
        let dead = self.watch.observe_and_find_dead(own, &peers, now);
        let evicted = dead.iter().filter(|peer| matches!(self.fleet.evict(peer), Ok(true)));
        u32::try_from(evicted.count()).unwrap()
    }
}
