//! Delivery of the content of a stream to the client.

use super::super::{FailoverRun, ResponseProgress};
use super::{AttemptError, write_piece};
use crate::proxy::downstream::FirstWriteOutcome;
use crate::proxy::exchange::{WriteOutcome, write_outcome};
use bytes::{Bytes, BytesMut};
use penstock_core::OutputBuffer;

/// Size in bytes from which a piece is sent in a write of its own. It is not copied, since several pieces may share its
/// memory.
const MIN_SEPARATE_BYTES: usize = 16 << 10;

/// Takes the pieces for the client. Short ones are joined, so that they are sent in one write. For a line in the process,
/// all are joined: the events of the choices of one request are mixed, so each write has whole events.
pub(in super::super) fn take_pieces(run: &FailoverRun<'_, '_>, out: &mut OutputBuffer) -> Vec<Bytes> {
    join_pieces(out, if run.exchange.caller.is_in_process() { usize::MAX } else { MIN_SEPARATE_BYTES })
}

/// Takes the pieces, and joins those of less than `min_separate` bytes.
fn join_pieces(out: &mut OutputBuffer, min_separate: usize) -> Vec<Bytes> {
    let pieces = std::mem::take(&mut out.0);
    if pieces.len() <= 1 {
        return pieces;
    }
    let short = pieces.iter().map(Bytes::len).filter(|length| *length < min_separate).sum();
    let (mut writes, mut joined) = (Vec::with_capacity(1), BytesMut::with_capacity(short));
    for piece in pieces {
        if piece.len() < min_separate {
            joined.extend_from_slice(&piece);
            continue;
        }
        if !joined.is_empty() {
            writes.push(joined.split().freeze());
        }
        writes.push(piece);
    }
    if !joined.is_empty() {
        writes.push(joined.freeze());
    }
    writes
}

/// Sends pieces of a stream that is not at its end.
///
/// # Errors
/// Returns an error if the client has disconnected.
pub(in super::super) async fn write_pieces(
    run: &mut FailoverRun<'_, '_>,
    pieces: Vec<Bytes>,
) -> Result<(), AttemptError> {
    for piece in pieces {
        write_piece(run, piece, false).await?;
    }
    Ok(())
}

/// Sends the last pieces of a stream, and ends it.
pub(super) async fn write_last_pieces(run: &mut FailoverRun<'_, '_>, mut pieces: Vec<Bytes>) -> WriteOutcome {
    let last = pieces.pop().unwrap_or_default();
    if write_pieces(run, pieces).await.is_err() {
        return WriteOutcome::Disconnected;
    }
    write_outcome(run.exchange.caller.write_response_body(last, true).await)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_are_joined_and_long_ones_stay_shared() {
        let long = Bytes::from(vec![b'x'; MIN_SEPARATE_BYTES]);
        let short = || Bytes::from_static(b"short");
        let pieces = vec![short(), short(), long.clone(), short(), long.clone(), long.clone()];
        let whole = join_pieces(&mut OutputBuffer(pieces.clone()), usize::MAX);
        assert_eq!(whole, [pieces.concat()]);
        let writes = join_pieces(&mut OutputBuffer(pieces), MIN_SEPARATE_BYTES);
        let lengths: Vec<_> = writes.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [10, long.len(), 5, long.len(), long.len()]);
        assert_eq!(writes.iter().filter(|piece| piece.as_ptr() == long.as_ptr()).count(), 3);
    }
}
