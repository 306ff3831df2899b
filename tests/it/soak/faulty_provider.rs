//! Providers that fail in every known form and are down at times. They count their responses.

use crate::harness::Provider;
use crate::harness::provider::RecordedRequest;
use crate::harness::script::{
    Script, ScriptStep, cut, done, finish, plain, retry_after, role, sse, status, text, usage,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Pieces of a stream, and the pause between them.
const PIECES: u64 = 6;
const PACE: Duration = Duration::from_millis(10);

/// Numbers of a provider's responses, by kind.
#[derive(Default)]
pub struct ResponseCounts {
    calls: AtomicU64,
    /// Requests for which it started a good and complete answer.
    pub good: AtomicU64,
    pub bad: AtomicU64,
    /// Downtime: every connection is closed without a response.
    pub away: AtomicBool,
}

impl ResponseCounts {
    pub fn good(&self) -> u64 {
        self.good.load(Ordering::Relaxed)
    }

    pub fn bad(&self) -> u64 {
        self.bad.load(Ordering::Relaxed)
    }

    fn script(&self, seen: &RecordedRequest) -> Script {
        if seen.method == "GET" {
            return if self.away.load(Ordering::Relaxed) { cut() } else { plain("ok") };
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let fault = match number % 50 {
            _ if self.away.load(Ordering::Relaxed) => Some(cut()),
            3 => Some(status(503)),
            13 => Some(cut()),
            23 => Some(retry_after(429, 1)),
            // Fails in the middle of its answer: half a body, or half a stream.
            33 if seen.streamed() => Some(streamed(PIECES / 2)),
            33 => Some(vec![
                ScriptStep::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"id\":".to_vec()),
                ScriptStep::Cut,
            ]),
            _ => None,
        };
        let counter = if fault.is_some() { &self.bad } else { &self.good };
        counter.fetch_add(1, Ordering::Relaxed);
        match fault {
            Some(fault) => fault,
            None if seen.streamed() => {
                let mut script = streamed(PIECES);
                script.pop();
                script.extend([finish("stop"), usage(11, PIECES), done(), ScriptStep::End]);
                script
            }
            None if number % 50 == 43 => slow(plain("late")),
            None => plain("Hello"),
        }
    }
}

/// Returns a stream that ends after this number of pieces, without an end event.
fn streamed(pieces: u64) -> Script {
    let mut script = vec![sse(), role()];
    for piece in 0..pieces {
        script.extend([text(&format!("piece {piece} ")), ScriptStep::Pause(PACE)]);
    }
    script.push(ScriptStep::Cut);
    script
}

fn slow(script: Script) -> Script {
    let mut slow = vec![ScriptStep::Pause(Duration::from_millis(200))];
    slow.extend(script);
    slow
}

/// Starts a faulty provider; returns it with the counts of its responses.
pub async fn start() -> (Provider, Arc<ResponseCounts>) {
    let tally = Arc::new(ResponseCounts::default());
    let own = tally.clone();
    (Provider::with_selector(Box::new(move |seen| own.script(seen))).await, tally)
}
