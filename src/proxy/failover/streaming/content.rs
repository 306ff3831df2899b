//! Delivery of the content of a stream to the client.

use super::super::{FailoverRun, ResponseProgress};
use super::{AttemptError, write_piece};
use crate::proxy::downstream::FirstWriteOutcome;
use bytes::Bytes;

/// Sends a piece of content. The delivery of the first one is recorded, because nothing is charged without it.
///
/// # Errors
/// Returns an error if the client has disconnected.
pub(in super::super) async fn write_content(
    run: &mut FailoverRun<'_, '_>,
    piece: Bytes,
) -> Result<(), AttemptError> {
    if run.progress.has_delivered_content() || piece.is_empty() {
        return write_piece(run, piece, false).await;
    }
    let outcome = run.exchange.caller.write_first_content(piece).await;
    if outcome != FirstWriteOutcome::Undelivered {
        run.progress = ResponseProgress::ContentDelivered;
    }
    if outcome == FirstWriteOutcome::Complete { Ok(()) } else { Err(AttemptError::Disconnected) }
}
