//! Budgets that are spent at all gateways at once: they never spend more than the budget, and can spend nearly all of
//! it.

use super::gateways::Fleet;
use crate::harness::{Answer, Client, until_answered, within};
use crate::limits::answer_using;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const GATEWAYS: usize = 3;
/// Clients of each gateway.
const CLIENTS: usize = 4;
/// Size of the budgets in micro-credits; enough for some hundred requests.
const BUDGET: i64 = 48_000_000;
/// Longest time from the first refusal until all but one percent is spent.
const SPENT_WITHIN: Duration = Duration::from_secs(5);

fn question() -> Value {
    json!({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]})
}

fn micro_credits(answer: &Answer) -> i64 {
    (answer.json()["billing_cost"]["credits"].as_f64().unwrap() * 1e6).round() as i64
}

fn credits(micro: i64) -> f64 {
    micro as f64 / 1e6
}

/// Seconds until midnight, when the daily budgets are reset.
fn seconds_to_midnight() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    86_400 - now.as_secs() % 86_400
}

/// Fleet with one key that has a budget.
struct Budgeted {
    fleet: Fleet,
    key: String,
    id: String,
    charged: Arc<AtomicI64>,
}

impl Budgeted {
    async fn start(lines: &'static str, limits: Value) -> Self {
        until_answered("the day to be young", || async { seconds_to_midnight() > 50 }).await;
        let fleet = Fleet::start_with(GATEWAYS, lines).await;
        // The charge of a request is nearly what it reserves, so that nearly all of a budget can be spent.
        fleet.provider.always(answer_using(1_020, 7));
        fleet.grant(0, "10000").await;
        let (key, id) = fleet.key(0, limits).await;
        fleet.until_everywhere(&key, 200).await;
        Self { fleet, key, id, charged: Arc::default() }
    }

    fn charged(&self) -> i64 {
        self.charged.load(Ordering::Acquire)
    }

    /// Sends a request to a gateway; returns false if it is refused because of the budget.
    async fn ask(client: &Client, charged: &AtomicI64) -> bool {
        let answer = client.post("/v1/chat/completions", &question()).await;
        match answer.status {
            200 => {
                charged.fetch_add(micro_credits(&answer), Ordering::AcqRel);
            }
            402 => assert_eq!(answer.json()["error"]["code"], "BILLING_4002", "{}", answer.text()),
            // Other refusals are allowed. On a busy machine, leasing a part of the budget may take longer than a
            // request waits (503). A new limit per minute has to be divided between the gateways first (429).
            status => assert!([429, 503].contains(&status), "{}", answer.text()),
        }
        answer.status != 402
    }

    /// Sends requests to the gateways in turn, until `micro` micro-credits are charged.
    async fn spend(&self, micro: i64) {
        within("the charges", async {
            while self.charged() < micro {
                for gateway in 0..self.fleet.homes.len() {
                    Self::ask(&self.fleet.at(gateway, &self.key), &self.charged).await;
                }
            }
        })
        .await;
    }

    /// Sends requests to all gateways at the same time until all but one percent of the budget is charged; returns
    /// the time since the first refusal.
    async fn spend_all(&self, budget: i64) -> Duration {
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..CLIENTS * self.fleet.homes.len() {
            let client = self.fleet.at(n % self.fleet.homes.len(), &self.key);
            let charged = self.charged.clone();
            tasks.spawn(async move {
                let mut refused_at = None;
                while charged.load(Ordering::Acquire) < budget * 99 / 100 {
                    if !Self::ask(&client, &charged).await {
                        refused_at.get_or_insert_with(Instant::now);
                    }
                    let waited = refused_at.map(|at: Instant| at.elapsed()).unwrap_or_default();
                    assert!(waited < SPENT_WITHIN * 4, "{charged:?} of {budget} in {waited:?}");
                }
                refused_at.map(|at| at.elapsed()).unwrap_or_default()
            });
        }
        tasks.join_all().await.into_iter().max().unwrap_or_default()
    }

    /// Sends requests to each gateway until all of them refuse, and checks the sum of the charges.
    async fn check_spent(&self, budget: i64) {
        for gateway in 0..self.fleet.homes.len() {
            let client = self.fleet.at(gateway, &self.key);
            let is_refused = || async { !Self::ask(&client, &self.charged).await };
            until_answered("a refusal", is_refused).await;
        }
        let charged = self.charged();
        assert!((budget * 99 / 100..=budget).contains(&charged), "{charged} of {budget}");
    }

    /// Waits until the store has all charges.
    async fn until_written(&self, gateway: usize) {
        let admin = self.fleet.admin(gateway);
        let path = format!("/admin/keys/{}", self.id);
        let is_written = || async {
            let shown = admin.get(&path).await.json();
            let spent = shown["now"]["spent_today"].as_str().and_then(|spent| spent.parse::<f64>().ok());
            spent.map(|spent| (spent * 1e6).round() as i64) == Some(self.charged())
        };
        until_answered("the spending of the key", is_written).await;
    }

    /// Changes the limits at the first gateway, and waits until all gateways have them. A request limit in the
    /// answers shows that a gateway has the new limits.
    async fn change(&self, budget: i64, requests: u64) {
        let limits = json!({"budget_per_day": credits(budget), "requests_per_minute": requests});
        let (path, body) = (format!("/admin/keys/{}", self.id), json!({"limits": limits}).to_string());
        let changed = self.fleet.admin(0).send("PATCH", &path, &[], body.as_bytes()).await;
        assert_eq!(changed.status, 200, "{}", changed.text());
        for gateway in 0..GATEWAYS {
            let client = self.fleet.at(gateway, &self.key);
            let is_known = || async {
                let answer = client.get("/v1/models").await;
                answer.header("x-ratelimit-limit-requests") == Some(requests.to_string().as_str())
            };
            until_answered("every gateway to know a budget", is_known).await;
        }
    }

    /// Returns the sum of the parts of the budget that the gateways have leased.
    fn leased(&self) -> i64 {
        -self.amount(&format!("'fleet/pool/budget/day/key/{}'::bytea", self.id)).unwrap_or(0)
    }

    /// Returns the part of the budget that a member has leased; `None` if it has none.
    fn part(&self, member: u64) -> Option<i64> {
        let (prefix, pool) = ("'fleet/part/'::bytea", format!("'budget/day/key/{}'::bytea", self.id));
        self.amount(&format!("{prefix} || int4send({member}) || {pool}"))
    }

    /// Returns the amount in a row of the database.
    fn amount(&self, key: &str) -> Option<i64> {
        let statement = format!("select encode(value, 'hex') from penstock.meta where key = {key}");
        let row = self.fleet.server.query(&statement);
        let amount = |row: &str| i64::from_be_bytes(u64::from_str_radix(row, 16).unwrap().to_le_bytes());
        row.lines().next().map(amount)
    }

    /// Returns the member number of a gateway in the fleet.
    async fn member(&self, gateway: usize) -> u64 {
        let status = self.fleet.admin(gateway).get("/status").await.json();
        status["fleet"]["member"].as_u64().unwrap_or_else(|| panic!("{status}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_are_asked_at_once_charge_no_more_than_a_budget_and_nearly_all_of_it() {
    let limits = json!({"budget_per_day": credits(BUDGET), "budget_per_month": credits(2 * BUDGET)});
    let budgeted = Budgeted::start("", limits).await;
    let waited = budgeted.spend_all(BUDGET).await;
    eprintln!("{} of {BUDGET} charged, {waited:?} after the first refusal", budgeted.charged());
    assert!(waited < SPENT_WITHIN, "{waited:?}");
    budgeted.check_spent(BUDGET).await;
    budgeted.until_written(1).await;
    budgeted.fleet.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parts_of_a_killed_gateway_return_and_the_budget_holds() {
    let limits = json!({"budget_per_day": credits(BUDGET)});
    let mut budgeted = Budgeted::start("claim = \"5s\"\nlease = \"8s\"", limits).await;
    budgeted.spend(BUDGET / 4).await;
    // A budget does not count spending that a killed process had not written.
    budgeted.until_written(0).await;
    let member = budgeted.member(GATEWAYS - 1).await;
    // The test needs a killed member that has leased a large part. If that part were lost, less than 99 percent of
    // the budget could be spent.
    let has_part = || async { budgeted.part(member).is_some_and(|part| part > BUDGET / 50) };
    until_answered("the part of the gateway", has_part).await;
    let mut killed = budgeted.fleet.gateways.pop().unwrap();
    killed.signal("KILL");
    killed.until_ended().await;
    budgeted.fleet.homes.pop();
    let part = budgeted.part(member);
    eprintln!("{part:?} micro-credits leased at a kill, {} charged", budgeted.charged());
    assert!(
        part.is_some_and(|part| part > BUDGET / 50),
        "a process that was killed returns nothing: {part:?}"
    );
    budgeted.spend_all(BUDGET).await;
    assert_eq!(budgeted.part(member), None, "the part has returned");
    budgeted.check_spent(BUDGET).await;
    budgeted.fleet.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lowered_or_raised_budget_holds_at_every_gateway_that_knows_it() {
    let budgeted = Budgeted::start("", json!({"budget_per_day": credits(20 * BUDGET)})).await;
    within("the leases", async {
        while budgeted.leased() < 2 * BUDGET {
            budgeted.spend(budgeted.charged() + 1).await;
        }
    })
    .await;
    for (budget, requests) in [(BUDGET, 1_000_001), (BUDGET * 3 / 2, 1_000_002)] {
        budgeted.change(budget, requests).await;
        budgeted.spend_all(budget).await;
        budgeted.check_spent(budget).await;
    }
    budgeted.until_written(2).await;
    budgeted.fleet.verify().await;
}
