//! Watch over an open stream of a background response. The stream ends early if the client leaves, the key becomes
//! invalid, the response is deleted, or the process stops.

use super::background::current_response;
use super::include::IncludedParts;
use super::stored::find_response;
use crate::batch::ResponseWatcher;
use crate::limits::background_stream_permits::BackgroundStreamPermit;
use crate::proxy::exchange::Exchange;
use crate::proxy::failover::wait::{ClientWatch, WaitOutcome};
use penstock_core::{ApiError, ErrorCode};
use penstock_dialect::background_response::is_queued;
use penstock_storage::batches::BatchState;
use std::future::pending;
use std::pin::pin;
use std::time::{Duration, Instant};

/// Interval of checks of a response that another gateway runs, and of the key.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of consecutive failed checks after which a stream ends; with one check per second, this is half a minute.
const MAX_FAILED_CHECKS: u32 = 30;
/// Time from the start of a drain until a stream ends. A response in progress may continue for three seconds, so the
/// stream can still send its end.
const DRAIN_GRACE: Duration = Duration::from_secs(4);
/// Memory of a piece of the stream, for each byte of the response: its largest part is a whole item, whose text is in
/// four events.
const PIECE_FACTOR: usize = 4;

/// Reason for which a stream ends before its response.
#[derive(Debug, PartialEq)]
pub(super) enum StreamInterruption {
    /// The client has left.
    Disconnected,
    /// The stream breaks off: the key is no longer valid, the response was deleted, or the process stops.
    BrokenOff(ErrorCode),
    /// The response could not be read for some time.
    Unreadable(ApiError),
}

/// Watch over one stream. It holds the permit of the stream.
pub(super) struct StreamWatch {
    client: ClientWatch,
    /// Changes of the response; `None` if it does not run in this process.
    changes: Option<ResponseWatcher>,
    /// Time at which the stream ends because the process drains; `None` while it does not drain.
    drain_end: Option<Instant>,
    parts: IncludedParts,
    _permit: BackgroundStreamPermit,
}

impl StreamWatch {
    /// Creates the watch over the stream of a response. No change from then on is missed.
    pub(super) fn new(
        x: &Exchange<'_>,
        id: &str,
        permit: BackgroundStreamPermit,
        parts: IncludedParts,
    ) -> Self {
        Self {
            client: ClientWatch::new(x.principal.clone(), Some(x.config.settings.limits.heartbeat)),
            changes: x.app.batches.watch_background_response(id),
            drain_end: None,
            parts,
            _permit: permit,
        }
    }

    /// Records that a part of the stream was sent. The next heartbeat is due one interval later.
    pub(super) fn record_write(&mut self) {
        self.client.record_write(Instant::now());
    }

    /// Waits until the response has another state than in `shown`, and returns it. While the stream waits, it holds no
    /// memory and no permit of admission control.
    ///
    /// # Errors
    /// Returns the reason for which the stream ends before that.
    pub(super) async fn wait_for_changed_response(
        &mut self,
        x: &mut Exchange<'_>,
        id: &str,
        shown: Vec<u8>,
    ) -> Result<Vec<u8>, StreamInterruption> {
        let is_shown_running = !is_queued(&shown);
        drop(shown);
        x.release_admission();
        let mut failures = CheckFailures::default();
        loop {
            if !is_key_valid(x) {
                return Err(StreamInterruption::BrokenOff(ErrorCode::InvalidKey));
            }
            let checked = changed_response(x, id, is_shown_running, self.parts).await;
            if let Some(response) = failures.record(checked)? {
                return Ok(response);
            }
            // A check that failed may have reserved memory.
            x.release_admission();
            self.wait(x).await?;
        }
    }

    /// Waits for a change in this process, at most until the next check.
    async fn wait(&mut self, x: &mut Exchange<'_>) -> Result<(), StreamInterruption> {
        let next_check = Instant::now() + CHECK_INTERVAL;
        let waited = {
            let changes = &mut self.changes;
            let changed = async {
                match changes {
                    Some(receiver) => receiver.changed().await.is_ok(),
                    None => pending().await,
                }
            };
            self.client.wait_for_work(&mut x.caller, pin!(changed), next_check).await
        };
        match waited {
            WaitOutcome::Ready(true) | WaitOutcome::Deadline => {}
            // The response no longer runs in this process, which therefore sends no more changes.
            WaitOutcome::Ready(false) => self.changes = None,
            WaitOutcome::Disconnected => return Err(StreamInterruption::Disconnected),
            WaitOutcome::Interrupted => {
                let code = x.interruption_error().map_or(ErrorCode::Unavailable, |error| error.code);
                return Err(StreamInterruption::BrokenOff(code));
            }
        }
        if !x.app.is_draining() {
            return Ok(());
        }
        let end = *self.drain_end.get_or_insert_with(|| Instant::now() + DRAIN_GRACE);
        if Instant::now() < end {
            return Ok(());
        }
        Err(StreamInterruption::BrokenOff(ErrorCode::Unavailable))
    }
}

/// Returns true if the key of the stream is valid now: its record may have changed since the stream began, and it may
/// have expired.
fn is_key_valid(x: &Exchange<'_>) -> bool {
    let principal = x.app.key_cache.find_principal(&x.principal.public_id);
    principal.is_some_and(|principal| principal.is_valid_at(x.app.clock.unix_seconds()))
}

/// Returns the response if its state differs from the one that the client has.
async fn changed_response(
    x: &mut Exchange<'_>,
    id: &str,
    is_shown_running: bool,
    parts: IncludedParts,
) -> Result<Option<Vec<u8>>, ApiError> {
    let unfinished = x.app.batches.find_unfinished_response(&x.principal.public_id, id).await?;
    if unfinished.is_some_and(|record| (record.state == BatchState::InProgress) == is_shown_running) {
        return Ok(None);
    }
    load_current_response(x, id, parts).await.map(Some)
}

/// Reads the response as its client sees it now, with memory for a piece of its stream.
///
/// # Errors
/// Returns 404 if it does not exist, and the errors of the store and of admission control.
pub(super) async fn load_current_response(
    x: &mut Exchange<'_>,
    id: &str,
    parts: IncludedParts,
) -> Result<Vec<u8>, ApiError> {
    let document = find_response(x, id).await?;
    let response = current_response(x, id, &document).await?;
    let response = parts.add_to_response(x, response)?;
    x.reserve_memory(response.len().saturating_mul(PIECE_FACTOR))?;
    Ok(response)
}

/// Number of failed checks in a row.
#[derive(Debug, Default)]
struct CheckFailures(u32);

impl CheckFailures {
    /// Records a check. A failed check shows no change.
    ///
    /// # Errors
    /// Returns the end of the stream if the response was deleted, or if too many checks in a row have failed.
    fn record<T>(&mut self, checked: Result<Option<T>, ApiError>) -> Result<Option<T>, StreamInterruption> {
        match checked {
            Ok(found) => {
                self.0 = 0;
                Ok(found)
            }
            Err(refusal) if refusal.code == ErrorCode::NotFound => {
                Err(StreamInterruption::BrokenOff(ErrorCode::NotFound))
            }
            Err(refusal) => {
                self.0 += 1;
                if self.0 < MAX_FAILED_CHECKS {
                    Ok(None)
                } else {
                    Err(StreamInterruption::Unreadable(refusal))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(code: ErrorCode) -> Result<Option<u8>, ApiError> {
        Err(ApiError::new(code))
    }

    #[test]
    fn a_stream_outlasts_some_failed_checks_and_ends_after_too_many_in_a_row() {
        let mut failures = CheckFailures::default();
        for found in [None, Some(1)] {
            for _ in 1..MAX_FAILED_CHECKS {
                assert_eq!(failures.record(failed(ErrorCode::Internal)), Ok(None));
            }
            assert_eq!(failures.record(Ok(found)), Ok(found), "the next failure is the first one");
        }
        for _ in 1..MAX_FAILED_CHECKS {
            assert_eq!(failures.record(failed(ErrorCode::Overloaded)), Ok(None));
        }
        let last = StreamInterruption::Unreadable(ApiError::new(ErrorCode::Overloaded));
        assert_eq!(failures.record(failed(ErrorCode::Overloaded)), Err(last));
    }

    #[test]
    fn a_stream_ends_with_its_response_at_once() {
        let end = StreamInterruption::BrokenOff(ErrorCode::NotFound);
        assert_eq!(CheckFailures::default().record(failed(ErrorCode::NotFound)), Err(end));
    }
}
