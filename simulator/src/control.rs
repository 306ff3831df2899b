//! The other side of a simulated provider: what tests switch and what they read.

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

/// Calls that are remembered, and bytes of their bodies.
const REMEMBERED: usize = 64;
const REMEMBERED_BYTES: usize = 64 << 20;
/// Bytes of a body in the control endpoint's answer.
const SHOWN: usize = 64 << 10;

/// What has happened. Calls of the control endpoint do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were read.
    pub calls: u64,
    /// Those by path.
    pub by_path: BTreeMap<String, u64>,
    /// Those that generate tokens.
    pub generations: u64,
    /// Requests in hand.
    pub open: u64,
    /// The most there were at once.
    pub most_open: u64,
    /// Answered to the end.
    pub finished: u64,
    /// Broken off by a fault.
    pub cut: u64,
    /// Left by the client before the end.
    pub cancelled: u64,
    /// Waiting in a fault until the client leaves or [`Control::release`] is called.
    pub held: u64,
    /// Connections that were accepted.
    pub connections: u64,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its method.
    pub method: String,
    /// Its path, query included.
    pub path: String,
    /// Whether it came over HTTP/2.
    pub h2: bool,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Call {
    /// The body as JSON; `null` if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Value of a header, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answered to the end.
    Finished,
    /// Broken off by a fault.
    Cut,
    /// Left by the client.
    Gone,
}

/// Handle on a provider in this process. Clones are the same one.
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

    /// Adds a rule behind the others. A call takes the first rule with `times` that fits, and every
    /// standing rule that fits.
    pub fn fault(&self, rule: impl Into<Rule>) {
        self.shared.state.lock().rules.push(rule.into());
    }

    /// Forgets all rules.
    pub fn clear(&self) {
        self.shared.state.lock().rules.clear();
    }

    /// Forgets counters and calls; what is open stays counted.
    pub fn forget(&self) {
        let mut state = self.shared.state.lock();
        let Counts { open, held, .. } = state.counts;
        state.counts = Counts { open, held, most_open: open, ..Counts::default() };
        state.calls.clear();
        state.bytes = 0;
    }

    /// Lets everything that waits in a fault go on.
    pub fn release(&self) {
        self.shared.released.send_replace(());
    }

    /// Changes the pace of calls to come: delay of the first token, tokens a second (0: all at once).
    pub fn pace(&self, first_token: Duration, tokens_per_second: f64) {
        self.shared.state.lock().pace = Pace::new(first_token, tokens_per_second);
    }

    /// What has happened.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.state.lock().counts.clone()
    }

    /// The last requests, the oldest first: 64 of them, and at most 64 MiB of bodies.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.state.lock().calls.iter().cloned().collect()
    }

    /// The last request.
    #[must_use]
    pub fn last(&self) -> Option<Call> {
        self.shared.state.lock().calls.back().cloned()
    }

    /// Waits until the counters are so.
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

    /// Counts a request in.
    pub(super) fn begin(&self, request: &Request, generates: bool) -> Open {
        let mut state = self.shared.state.lock();
        let counts = &mut state.counts;
        counts.calls += 1;
        counts.generations += u64::from(generates);
        counts.open += 1;
        counts.most_open = counts.most_open.max(counts.open);
        // Paths are the client's: as many as that are counted, the others together.
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

    /// The faults of this call.
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

    /// Reads an order of the control endpoint: a rule, a list of rules, or an object with any of `rules`,
    /// `clear`, `forget`, `release` and `pace` (`first_token_ms`, `tokens_per_second`).
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

    /// The counters and the last calls; of headers the names only, they may hold secrets.
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

/// A request in hand; counted out when dropped.
pub(super) struct Open {
    control: Control,
    /// How it ended; [`Outcome::Gone`] until it is known.
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
