//! Control interface of a simulated provider: tests set faults and read counters here.

use super::fault::Fault;
use super::head::Request;
use super::pace::Pace;
use super::rule::Rule;
use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Limits on stored calls, and on the bytes of their bodies.
const REMEMBERED: usize = 64;
const REMEMBERED_BYTES: usize = 64 << 20;
/// Bytes of a body shown in the answer of the control endpoint.
const SHOWN: usize = 64 << 10;

/// Counters of a simulated provider. Requests to the control endpoint do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of requests that were read.
    pub calls: u64,
    /// Number of requests by path.
    pub by_path: BTreeMap<String, u64>,
    /// Number of requests that generate tokens.
    pub generations: u64,
    /// Number of requests in flight.
    pub open: u64,
    /// Maximum number of concurrent requests.
    pub most_open: u64,
    /// Number of requests answered completely.
    pub finished: u64,
    /// Number of requests cut off by a fault.
    pub cut: u64,
    /// Number of requests whose client disconnected before the end.
    pub cancelled: u64,
    /// Number of requests that wait in a fault until the client disconnects or [`Control::release`] is called.
    pub held: u64,
    /// Number of accepted connections.
    pub connections: u64,
}

/// Recorded request.
#[derive(Clone, Debug)]
pub struct Call {
    /// Method of the request.
    pub method: String,
    /// Path with its query.
    pub path: String,
    /// True if the request came over HTTP/2.
    pub h2: bool,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// Body of the request.
    pub body: Bytes,
}

impl Call {
    /// Parses the body as JSON; `null` if it is invalid.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Returns the value of a header, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answered completely.
    Finished,
    /// Cut off by a fault.
    Cut,
    /// Client disconnected.
    Gone,
}

/// Handle on a provider in this process. Clones share its state.
#[derive(Clone, Debug)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    released: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    rules: Vec<Rule>,
    counts: Counts,
    calls: VecDeque<Call>,
    bytes: usize,
}

impl Control {
    pub(super) fn new(pace: Pace) -> Self {
        let state =
            State { pace, rules: Vec::new(), counts: Counts::default(), calls: VecDeque::new(), bytes: 0 };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: watch::Sender::new(()),
                released: watch::Sender::new(()),
            }),
        }
    }

    /// Appends a rule. A call takes the first matching rule with `times`, and every matching permanent rule.
    pub fn fault(&self, rule: impl Into<Rule>) {
        self.shared.state.lock().rules.push(rule.into());
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.shared.state.lock().rules.clear();
    }

    /// Resets counters and recorded calls; requests in flight stay counted.
    pub fn forget(&self) {
        let mut state = self.shared.state.lock();
        let Counts { open, held, .. } = state.counts;
        state.counts = Counts { open, held, most_open: open, ..Counts::default() };
        state.calls.clear();
        state.bytes = 0;
    }

    /// Lets all requests that wait in a fault continue.
    pub fn release(&self) {
        self.shared.released.send_replace(());
    }

    /// Changes the pace of later calls: delay of the first token, tokens per second (0: all at once).
    pub fn pace(&self, first_token: Duration, tokens_per_second: f64) {
        self.shared.state.lock().pace = Pace::new(first_token, tokens_per_second);
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.state.lock().counts.clone()
    }

    /// Returns the last requests, the oldest first: 64 of them, and at most 64 MiB of bodies.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.state.lock().calls.iter().cloned().collect()
    }

    /// Returns the last request.
    #[must_use]
    pub fn last(&self) -> Option<Call> {
        self.shared.state.lock().calls.back().cloned()
    }

    /// Waits until the counters satisfy a condition.
    pub async fn until(&self, so: impl Fn(&Counts) -> bool) -> Counts {
        let mut changed = self.shared.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let counts = self.counts();
            if so(&counts) {
                return counts;
            }
            // The sender lives as long as `self`.
            changed.changed().await.ok();
        }
    }

    pub(super) fn current_pace(&self) -> Pace {
        self.shared.state.lock().pace
    }

    pub(super) fn connected(&self) {
        self.change(|counts| counts.connections += 1);
    }

    /// Counts a request as in flight.
    pub(super) fn begin(&self, request: &Request, generates: bool) -> Open {
        let mut state = self.shared.state.lock();
        let counts = &mut state.counts;
        counts.calls += 1;
        counts.generations += u64::from(generates);
        counts.open += 1;
        counts.most_open = counts.most_open.max(counts.open);
        // Paths come from the client: a limited number is counted separately, the others together.
        let path = if counts.by_path.len() < REMEMBERED { request.route() } else { "*" };
        match counts.by_path.get_mut(path) {
            Some(count) => *count += 1,
            None => drop(counts.by_path.insert(path.to_owned(), 1)),
        }
        state.bytes += request.body.len();
        state.calls.push_back(request.call());
        while state.calls.len() > REMEMBERED || (state.bytes > REMEMBERED_BYTES && state.calls.len() > 1) {
            let Some(old) = state.calls.pop_front() else { break };
            state.bytes = state.bytes.saturating_sub(old.body.len());
        }
        drop(state);
        self.shared.changed.send_replace(());
        Open { control: self.clone(), outcome: Outcome::Gone }
    }

    /// Returns the faults of this call.
    pub(super) fn faults(&self, path: &str, generates: bool, model: &str) -> Vec<Fault> {
        let mut state = self.shared.state.lock();
        let mut faults = Vec::new();
        let mut queued = false;
        for rule in &mut state.rules {
            if (rule.stands() || !queued) && rule.takes(path, generates, model) {
                queued |= !rule.stands();
                faults.extend(rule.faults.iter().cloned());
            }
        }
        state.rules.retain(|rule| !rule.is_over());
        faults
    }

    /// Waits for [`Control::release`].
    pub(super) async fn held(&self) {
        let mut released = self.shared.released.subscribe();
        self.change(|counts| counts.held += 1);
        let _held = Held(self);
        released.changed().await.ok();
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.shared.state.lock().counts);
        self.shared.changed.send_replace(());
    }

    /// Executes a command of the control endpoint: a rule, a list of rules, or an object with any of `rules`, `clear`,
    /// `forget`, `release` and `pace` (`first_token_ms`, `tokens_per_second`).
    pub(super) fn order(&self, order: Value) -> Result<(), String> {
        let rules = match order {
            Value::Array(rules) => rules,
            Value::Object(object) if object.contains_key("fault") => vec![Value::Object(object)],
            Value::Object(mut object) => {
                let mut told =
                    |name: &str| object.remove(name).is_some_and(|value| value != Value::Bool(false));
                let (clear, forget, release) = (told("clear"), told("forget"), told("release"));
                let pace = object.remove("pace");
                let rules = object.remove("rules").unwrap_or_else(|| json!([]));
                if let Some(name) = object.keys().next() {
                    return Err(format!("`{name}` is no order: rules, clear, forget, release and pace are."));
                }
                if let Some(pace) = pace {
                    let number = |name: &str| pace.get(name).and_then(Value::as_f64).unwrap_or(0.0).max(0.0);
                    let first = Duration::try_from_secs_f64(number("first_token_ms") / 1000.0);
                    self.pace(first.unwrap_or_default(), number("tokens_per_second"));
                }
                clear.then(|| self.clear());
                forget.then(|| self.forget());
                release.then(|| self.release());
                rules.as_array().cloned().ok_or_else(|| "`rules` is a list.".to_owned())?
            }
            _ => return Err("An order is an object or a list of rules.".to_owned()),
        };
        let rules = rules.into_iter().map(Rule::read).collect::<Result<Vec<_>, _>>()?;
        rules.into_iter().for_each(|rule| self.fault(rule));
        Ok(())
    }

    /// Returns the counters and the last calls; only the names of headers, because values may be secrets.
    pub(super) fn report(&self) -> Value {
        let state = self.shared.state.lock();
        let counts = &state.counts;
        let calls: Vec<Value> = state.calls.iter().rev().take(8).map(shown).collect();
        json!({
            "calls": counts.calls, "by_path": counts.by_path, "generations": counts.generations,
            "open": counts.open, "most_open": counts.most_open, "finished": counts.finished, "cut": counts.cut,
            "cancelled": counts.cancelled, "held": counts.held, "connections": counts.connections,
            "rules": state.rules.len(), "last": calls,
        })
    }
}

fn shown(call: &Call) -> Value {
    let names: Vec<&str> = call.headers.keys().map(http::HeaderName::as_str).collect();
    let body = call.body.get(..call.body.len().min(SHOWN)).unwrap_or_default();
    json!({
        "method": call.method, "path": call.path, "h2": call.h2, "headers": names,
        "bytes": call.body.len(), "body": String::from_utf8_lossy(body),
    })
}

/// Guard of a request in flight, counted out on drop.
pub(super) struct Open {
    control: Control,
    /// Outcome of the request; [`Outcome::Gone`] until it is known.
    pub outcome: Outcome,
}

impl Drop for Open {
    fn drop(&mut self) {
        let outcome = self.outcome;
        self.control.change(|counts| {
            counts.open -= 1;
            match outcome {
                Outcome::Finished => counts.finished += 1,
                Outcome::Cut => counts.cut += 1,
                Outcome::Gone => counts.cancelled += 1,
            }
        });
    }
}

struct Held<'a>(&'a Control);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.change(|counts| counts.held -= 1);
    }
}
