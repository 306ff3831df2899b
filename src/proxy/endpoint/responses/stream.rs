//! Streams of background responses: the events of a response as it is now, and those that follow until its end. They come
//! from the stored object, so any gateway of a fleet can send them, and continue a stream that broke off.
//!
//! While the response has no end, the stream holds a connection and no memory; the client gets heartbeats. A stream that
//! cannot be completed breaks off: the client continues it with `starting_after`.

use super::background::current_response;
use super::stored::find_response;
use crate::batch::ResponseWatcher;
use crate::proxy::endpoint::query_parameters;
use crate::proxy::exchange::{Exchange, WriteOutcome, write_outcome};
use crate::proxy::failover::wait::{ClientWatch, WaitOutcome};
use bytes::Bytes;
use penstock_core::{ApiError, ErrorCode};
use penstock_dialect::background_response::{ResponseReplay, is_background, is_pending, is_queued};
use penstock_storage::batches::{BatchRecord, BatchState};
use std::future::pending;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Permits of the streams of this process.
static STREAMS: Semaphore = Semaphore::const_new(1_024);
/// Seconds after which a client may ask again when no permit is free.
const RETRY_SECONDS: u32 = 5;
/// Interval of checks of a response that another gateway runs.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a stream gets when the process drains: a response in progress gets three seconds.
const DRAIN_GRACE: Duration = Duration::from_secs(4);
/// Memory of a piece of the stream, for each byte of the response: its largest part is a whole item, whose text is in
/// four events.
const PIECE_FACTOR: usize = 4;

const NOT_BACKGROUND: &str =
    "stream: only background responses are streamed after their creation; leave it out.";
const STARTING_AFTER: &str = "starting_after: expected the sequence_number of an event.";

/// Returns the number of the event after which a stream starts, if the query asks for a stream: the outer `None` is none.
///
/// # Errors
/// Returns 400 if the number is invalid.
pub(super) fn requested_stream(query: &str) -> Result<Option<Option<u64>>, ApiError> {
    let find =
        |wanted: &str| query_parameters(query).find(|(name, _)| name == wanted).map(|(_, value)| value);
    if find("stream").as_deref() != Some("true") {
        return Ok(None);
    }
    let invalid = |_| ApiError::invalid("starting_after", STARTING_AFTER);
    find("starting_after").map(|after| after.parse().map_err(invalid)).transpose().map(Some)
}

/// Streams the background response of this id, without the events up to `after`.
///
/// # Errors
/// Returns the refusal of a response that is not there or has no stream, before the stream begins.
pub(super) async fn stream_response(
    x: &mut Exchange<'_>,
    id: &str,
    after: Option<u64>,
) -> Result<WriteOutcome, ApiError> {
    let permit = STREAMS.try_acquire();
    let _permit = permit.map_err(|_| ApiError::new(ErrorCode::Overloaded).with_retry_after(RETRY_SECONDS))?;
    let mut watch = StreamWatch {
        client: ClientWatch::new(x.principal.clone(), Some(x.config.settings.limits.heartbeat)),
        changes: x.app.batches.response_changes(id),
        drain_end: None,
    };
    let mut replay = ResponseReplay::new(after);
    let mut response = load_response(x, id).await?;
    if !is_background(&response) {
        return Err(ApiError::unsupported("stream", NOT_BACKGROUND));
    }
    x.record.status = 200;
    let head = x.response_head(200);
    if head.start_event_stream(&mut x.caller).await.is_err() {
        return Ok(WriteOutcome::Disconnected);
    }
    loop {
        if write_events(x, &mut replay, &response).await == WriteOutcome::Disconnected {
            return Ok(WriteOutcome::Disconnected);
        }
        watch.client.record_write(Instant::now());
        if !is_pending(&response) {
            return Ok(write_outcome(x.caller.write_response_body(Bytes::new(), true).await));
        }
        match watch.next_response(x, id, response).await {
            Some(next) => response = next,
            None => return Ok(WriteOutcome::Disconnected),
        }
    }
}

/// Reads the response as it is now, with memory for its stream.
async fn load_response(x: &mut Exchange<'_>, id: &str) -> Result<Vec<u8>, ApiError> {
    let document = find_response(x, id).await?;
    let response = current_response(x, id, &document).await?;
    x.reserve_memory(response.len().saturating_mul(PIECE_FACTOR))?;
    Ok(response)
}

/// Sends all events that the state of the response has.
async fn write_events(x: &mut Exchange<'_>, replay: &mut ResponseReplay, response: &[u8]) -> WriteOutcome {
    let mut piece = Vec::new();
    while replay.write_next(response, &mut piece) {
        if piece.is_empty() {
            continue;
        }
        let bytes = Bytes::from(std::mem::take(&mut piece));
        if x.caller.write_response_body(bytes, false).await.is_err() {
            return WriteOutcome::Disconnected;
        }
    }
    // A stream without events so far has its head.
    write_outcome(x.caller.flush().await)
}

/// Watch over the client, the response and the process.
struct StreamWatch {
    client: ClientWatch,
    /// Changes of a response that this process runs.
    changes: Option<ResponseWatcher>,
    /// End of the stream while the process drains.
    drain_end: Option<Instant>,
}

impl StreamWatch {
    /// Waits until the response has another state than in `shown`, and returns it. `None` if the stream breaks off: the
    /// client left, its key was revoked, the process stops, or the response was deleted or cannot be read.
    async fn next_response(&mut self, x: &mut Exchange<'_>, id: &str, shown: Vec<u8>) -> Option<Vec<u8>> {
        let is_shown_running = !is_queued(&shown);
        drop(shown);
        loop {
            x.release_admission();
            let unfinished = x.app.batches.unfinished_response(&x.principal.public_id, id).await.ok()?;
            let is_running = |record: &BatchRecord| record.state == BatchState::InProgress;
            if unfinished.is_none_or(|record| is_running(&record) != is_shown_running) {
                match load_response(x, id).await {
                    Ok(response) => return Some(response),
                    // There is no memory for it at the moment.
                    Err(refusal) if refusal.code == ErrorCode::Overloaded => {}
                    Err(_) => return None,
                }
            }
            self.wait(x).await?;
        }
    }

    /// Waits for a change in this process, at most until the next check. `None` if the stream breaks off.
    async fn wait(&mut self, x: &mut Exchange<'_>) -> Option<()> {
        let next_check = Instant::now() + CHECK_INTERVAL;
        let waited = {
            let changes = &mut self.changes;
            let changed = async {
                match changes {
                    Some(receiver) => receiver.changed().await.is_ok(),
                    None => pending().await,
                }
            };
            self.client.wait_for(&mut x.caller, pin!(changed), next_check).await
        };
        match waited {
            WaitOutcome::Ready(true) | WaitOutcome::Deadline => {}
            // The run has left this process.
            WaitOutcome::Ready(false) => self.changes = None,
            WaitOutcome::Disconnected | WaitOutcome::Revoked => return None,
        }
        if !x.app.is_draining() {
            return Some(());
        }
        let end = *self.drain_end.get_or_insert_with(|| Instant::now() + DRAIN_GRACE);
        (Instant::now() < end).then_some(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stream_starts_after_the_event_of_the_query() {
        for (query, expected) in [
            ("", None),
            ("stream=false&starting_after=x", None),
            ("stream=true", Some(None)),
            ("stream=true&starting_after=0", Some(Some(0))),
            ("include[]=a&starting_after=17&stream=true", Some(Some(17))),
        ] {
            assert_eq!(requested_stream(query).unwrap(), expected, "{query}");
        }
        for after in ["", "-1", "1.5", "x", "99999999999999999999"] {
            let refusal = requested_stream(&format!("stream=true&starting_after={after}")).unwrap_err();
            assert_eq!(refusal.param.as_deref(), Some("starting_after"), "{after}");
        }
    }
}
