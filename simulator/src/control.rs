//! Control interface of a simulated provider: tests set faults and read counters here.

use super::fault::SimulatedFault;
use super::http_request::HttpRequest;
use super::rule::FaultRule;
use super::token_pacing::TokenPacing;
use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Maximum number of recorded calls, and of paths that are counted separately.
const MAX_STORED_CALLS: usize = 64;
/// Maximum total bytes of the bodies of the recorded calls. The last call is recorded even if its body is larger.
const MAX_STORED_BYTES: usize = 64 << 20;
/// Maximum bytes of a body that the control endpoint shows.
const MAX_SHOWN_BYTES: usize = 64 << 10;

/// Counters of a simulated provider. Requests to the control endpoint do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Number of requests that were read completely.
    pub calls: u64,
    /// Number of requests by path, without the query. At most 64 paths are counted separately; `*` stands for the rest.
    pub by_path: BTreeMap<String, u64>,
    /// Number of requests that generate output, such as tokens, vectors or images.
    pub generations: u64,
    /// Number of requests in flight.
    pub open: u64,
    /// Maximum number of concurrent requests.
    pub most_open: u64,
    /// Number of requests answered completely.
    pub finished: u64,
    /// Number of responses that a fault cut off.
    pub cut: u64,
    /// Number of requests whose client disconnected before the end.
    pub cancelled: u64,
    /// Number of requests that a fault suspends until the client disconnects or [`SimulatorControl::release`] is
    /// called.
    pub held: u64,
    /// Number of accepted connections.
    pub connections: u64,
}

/// Recorded request.
#[derive(Clone, Debug)]
pub struct RecordedCall {
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

impl RecordedCall {
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
pub(super) enum PlaybackOutcome {
    /// Answered completely.
    Finished,
    /// Cut off by a fault.
    Cut,
    /// Client disconnected.
    ClientGone,
}

/// Handle to control a simulated provider that runs in this process. Clones share its state.
#[derive(Clone, Debug)]
pub struct SimulatorControl {
    shared: Arc<ControlShared>,
}

#[derive(Debug)]
struct ControlShared {
    state: Mutex<ControlState>,
    changed: watch::Sender<()>,
    released: watch::Sender<()>,
}

#[derive(Debug)]
struct ControlState {
    pace: TokenPacing,
    rules: Vec<FaultRule>,
    counts: CallCounts,
    calls: VecDeque<RecordedCall>,
    bytes: usize,
}

impl SimulatorControl {
    pub(super) fn new(pace: TokenPacing) -> Self {
        let state = ControlState {
            pace,
            rules: Vec::new(),
            counts: CallCounts::default(),
            calls: VecDeque::new(),
            bytes: 0,
        };
        Self {
            shared: Arc::new(ControlShared {
                state: Mutex::new(state),
                changed: watch::Sender::new(()),
                released: watch::Sender::new(()),
            }),
        }
    }

    /// Appends a rule. A call takes the first matching rule with `times`, and every matching permanent rule.
    pub fn add_rule(&self, rule: impl Into<FaultRule>) {
        self.shared.state.lock().rules.push(rule.into());
    }

    /// Removes all rules.
    pub fn clear_rules(&self) {
        self.shared.state.lock().rules.clear();
    }

    /// Resets the counters, except the numbers of requests in flight and of suspended requests, and deletes the
    /// recorded calls.
    pub fn reset_counts(&self) {
        let mut state = self.shared.state.lock();
        let CallCounts { open, held, .. } = state.counts;
        state.counts = CallCounts { open, held, most_open: open, ..CallCounts::default() };
        state.calls.clear();
        state.bytes = 0;
    }

    /// Lets all requests continue that a fault has suspended.
    pub fn release(&self) {
        self.shared.released.send_replace(());
    }

    /// Changes the pace of later calls: delay of the first token, and tokens per second (0 for all at once).
    pub fn set_pace(&self, first_token: Duration, tokens_per_second: f64) {
        self.shared.state.lock().pace = TokenPacing::new(first_token, tokens_per_second);
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> CallCounts {
        self.shared.state.lock().counts.clone()
    }

    /// Returns the last requests, the oldest first: at most 64, with at most 64 MiB of bodies in total. The last
    /// request is included even if its body is larger.
    #[must_use]
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.shared.state.lock().calls.iter().cloned().collect()
    }

    /// Returns the last request; `None` if there is none.
    #[must_use]
    pub fn last_call(&self) -> Option<RecordedCall> {
        self.shared.state.lock().calls.back().cloned()
    }

    /// Waits until the counters satisfy a condition; returns them.
    pub async fn until(&self, so: impl Fn(&CallCounts) -> bool) -> CallCounts {
        let mut changed = self.shared.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let counts = self.counts();
            if so(&counts) {
                return counts;
            }
            // An error is impossible, because the sender lives as long as `self`.
            changed.changed().await.ok();
        }
    }

    pub(super) fn current_pace(&self) -> TokenPacing {
        self.shared.state.lock().pace
    }

    pub(super) fn count_connection(&self) {
        self.update_counts(|counts| counts.connections += 1);
    }

    /// Counts a request as in flight.
    pub(super) fn begin_call(&self, request: &HttpRequest, generates: bool) -> InFlightCallGuard {
        let mut state = self.shared.state.lock();
        let counts = &mut state.counts;
        counts.calls += 1;
        counts.generations += u64::from(generates);
        counts.open += 1;
        counts.most_open = counts.most_open.max(counts.open);
        // Clients choose the paths, so only a limited number of paths is counted separately; all further paths are
        // counted together as `*`.
        let path = request.path_only();
        let is_counted = counts.by_path.len() < MAX_STORED_CALLS || counts.by_path.contains_key(path);
        let path = if is_counted { path } else { "*" };
        match counts.by_path.get_mut(path) {
            Some(count) => *count += 1,
            None => drop(counts.by_path.insert(path.to_owned(), 1)),
        }
        state.bytes += request.body.len();
        state.calls.push_back(request.to_recorded_call());
        while state.calls.len() > MAX_STORED_CALLS
            || (state.bytes > MAX_STORED_BYTES && state.calls.len() > 1)
        {
            let Some(old) = state.calls.pop_front() else { break };
            state.bytes = state.bytes.saturating_sub(old.body.len());
        }
        drop(state);
        self.shared.changed.send_replace(());
        InFlightCallGuard { control: self.clone(), outcome: PlaybackOutcome::ClientGone }
    }

    /// Returns the faults that apply to this call, and counts the call for their rules.
    pub(super) fn take_faults(&self, path: &str, generates: bool, model: &str) -> Vec<SimulatedFault> {
        let mut state = self.shared.state.lock();
        let mut faults = Vec::new();
        let mut queued = false;
        for rule in &mut state.rules {
            if (rule.is_permanent() || !queued) && rule.matches_call(path, generates, model) {
                queued |= !rule.is_permanent();
                faults.extend(rule.faults.iter().cloned());
            }
        }
        state.rules.retain(|rule| !rule.is_exhausted());
        faults
    }

    /// Waits for [`SimulatorControl::release`].
    pub(super) async fn wait_for_release(&self) {
        let mut released = self.shared.released.subscribe();
        self.update_counts(|counts| counts.held += 1);
        let _held = HeldGuard(self);
        released.changed().await.ok();
    }

    fn update_counts(&self, change: impl FnOnce(&mut CallCounts)) {
        change(&mut self.shared.state.lock().counts);
        self.shared.changed.send_replace(());
    }

    /// Executes a command of the control endpoint: a rule, a list of rules, or an object with any of `rules`, `clear`,
    /// `forget`, `release` and `pace` (`first_token_ms`, `tokens_per_second`).
    pub(super) fn execute_command(&self, order: Value) -> Result<(), String> {
        let rules = match order {
            Value::Array(rules) => rules,
            Value::Object(object) if object.contains_key("fault") => vec![Value::Object(object)],
            Value::Object(mut object) => {
                let mut is_set =
                    |name: &str| object.remove(name).is_some_and(|value| value != Value::Bool(false));
                let (clear, forget, release) = (is_set("clear"), is_set("forget"), is_set("release"));
                let pace = object.remove("pace");
                let rules = object.remove("rules").unwrap_or_else(|| json!([]));
                if let Some(name) = object.keys().next() {
                    return Err(format!("`{name}` is no order: rules, clear, forget, release and pace are."));
                }
                if let Some(pace) = pace {
                    let number = |name: &str| pace.get(name).and_then(Value::as_f64).unwrap_or(0.0).max(0.0);
                    let first = Duration::try_from_secs_f64(number("first_token_ms") / 1000.0);
                    self.set_pace(first.unwrap_or_default(), number("tokens_per_second"));
                }
                clear.then(|| self.clear_rules());
                forget.then(|| self.reset_counts());
                release.then(|| self.release());
                rules.as_array().cloned().ok_or_else(|| "`rules` is a list.".to_owned())?
            }
            _ => return Err("An order is an object or a list of rules.".to_owned()),
        };
        let rules = rules.into_iter().map(FaultRule::from_json).collect::<Result<Vec<_>, _>>()?;
        rules.into_iter().for_each(|rule| self.add_rule(rule));
        Ok(())
    }

    /// Returns the counters and the last calls as JSON. Headers are shown by name only, because values may be secrets.
    pub(super) fn report(&self) -> Value {
        let state = self.shared.state.lock();
        let counts = &state.counts;
        let calls: Vec<Value> = state.calls.iter().rev().take(8).map(call_json).collect();
        json!({
            "calls": counts.calls, "by_path": counts.by_path, "generations": counts.generations,
            "open": counts.open, "most_open": counts.most_open, "finished": counts.finished, "cut": counts.cut,
            "cancelled": counts.cancelled, "held": counts.held, "connections": counts.connections,
            "rules": state.rules.len(), "last": calls,
        })
    }
}

fn call_json(call: &RecordedCall) -> Value {
    let names: Vec<&str> = call.headers.keys().map(http::HeaderName::as_str).collect();
    let body = call.body.get(..call.body.len().min(MAX_SHOWN_BYTES)).unwrap_or_default();
    json!({
        "method": call.method, "path": call.path, "h2": call.h2, "headers": names,
        "bytes": call.body.len(), "body": String::from_utf8_lossy(body),
    })
}

/// Guard of a request in flight. When it is dropped, the request counts as ended.
pub(super) struct InFlightCallGuard {
    control: SimulatorControl,
    /// Outcome of the request; [`PlaybackOutcome::ClientGone`] until it is known.
    pub outcome: PlaybackOutcome,
}

impl Drop for InFlightCallGuard {
    fn drop(&mut self) {
        let outcome = self.outcome;
        self.control.update_counts(|counts| {
            counts.open -= 1;
            match outcome {
                PlaybackOutcome::Finished => counts.finished += 1,
                PlaybackOutcome::Cut => counts.cut += 1,
                PlaybackOutcome::ClientGone => counts.cancelled += 1,
            }
        });
    }
}

struct HeldGuard<'a>(&'a SimulatorControl);

impl Drop for HeldGuard<'_> {
    fn drop(&mut self) {
        self.0.update_counts(|counts| counts.held -= 1);
    }
}
