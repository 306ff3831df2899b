//! Streams of background responses: the events of a response as it is now, and those that follow until its end. They
//! come from the stored object, so any gateway of a fleet can send them, and continue a stream that broke off.
//!
//! While the response has no end, the stream holds a connection, its permit and no memory; the client gets heartbeats.
//! A stream that cannot be completed breaks off, or ends with an error event: the client continues it with
//! `starting_after`.

use super::include::IncludedParts;
use super::stream_watch::{StreamInterruption, StreamWatch, load_current_response};
use crate::limits::background_stream_permits::BackgroundStreamPermit;
use crate::proxy::endpoint::query_parameters;
use crate::proxy::exchange::{Exchange, WriteOutcome, write_outcome};
use bytes::Bytes;
use penstock_core::ApiError;
use penstock_dialect::background_response::{
    LAST_PENDING_EVENT, ReplayPieces, ResponseReplay, is_background, is_pending,
};
use tokio::task::yield_now;

const NOT_BACKGROUND: &str =
    "stream: only background responses are streamed after their creation; leave it out.";
const STARTING_AFTER: &str = "starting_after: expected the sequence_number of an event.";
const STREAM: &str = "stream: expected true or false.";
const NO_STREAM: &str = "starting_after: only a stream starts after an event; send stream=true too.";

/// Parses the query. Returns `None` if it requests no stream; otherwise the number of the event after which the stream
/// starts, or `Some(None)` if it starts with the first event.
///
/// # Errors
/// Returns 400 if `stream` is no boolean, or if the number is invalid or comes without a stream.
pub(super) fn parse_stream_query(query: &str) -> Result<Option<Option<u64>>, ApiError> {
    let find =
        |wanted: &str| query_parameters(query).find(|(name, _)| name == wanted).map(|(_, value)| value);
    match find("stream").as_deref() {
        None | Some("false") if find("starting_after").is_some() => {
            return Err(ApiError::invalid("starting_after", NO_STREAM));
        }
        None | Some("false") => return Ok(None),
        Some("true") => {}
        Some(_) => return Err(ApiError::invalid("stream", STREAM)),
    }
    let invalid = |_| ApiError::invalid("starting_after", STARTING_AFTER);
    find("starting_after").map(|after| after.parse().map_err(invalid)).transpose().map(Some)
}

/// Streams the background response with this id until its end, without the events up to the number `after`.
///
/// # Errors
/// Returns a refusal before the stream begins: if the response does not exist or has no stream, or if too many
/// streams are open.
pub(super) async fn stream_response(
    x: &mut Exchange<'_>,
    id: &str,
    after: Option<u64>,
    parts: IncludedParts,
) -> Result<WriteOutcome, ApiError> {
    let permit = x.app.background_stream_permits.acquire(&x.principal.account.id)?;
    let watch = StreamWatch::new(x, id, permit, parts);
    let response = load_current_response(x, id, parts).await?;
    if !is_background(&response) {
        return Err(ApiError::unsupported("stream", NOT_BACKGROUND));
    }
    if let Some(after) = after
        && !has_event(&response, after).await
    {
        return Err(ApiError::invalid("starting_after", STARTING_AFTER));
    }
    Ok(send_events(x, id, watch, (ResponseReplay::new(after), response)).await)
}

/// Returns true if a client may have the event with this number. A client that reconnects after the last event of a
/// response that has ended has a valid number, so it gets an empty stream and no refusal. Before its end, a response
/// has at most the events up to its start, also if it is queued again after a restart.
async fn has_event(response: &[u8], number: u64) -> bool {
    if is_pending(response) {
        return number <= LAST_PENDING_EVENT;
    }
    let Some(previous) = number.checked_sub(1) else { return true };
    next_piece(&mut ResponseReplay::new(Some(previous)).pieces(response)).await.is_some()
}

/// Streams a response that was created just now; `queued` is its object. The memory that was reserved for the request
/// covers the first events.
pub(super) async fn stream_created_response(
    x: &mut Exchange<'_>,
    id: &str,
    permit: BackgroundStreamPermit,
    queued: Vec<u8>,
) -> WriteOutcome {
    // The stored response already has the parts that its request asked for.
    let watch = StreamWatch::new(x, id, permit, IncludedParts::default());
    send_events(x, id, watch, (ResponseReplay::new(None), queued)).await
}

/// Sends the head and the events of a response, from its first state on, until its end.
async fn send_events(
    x: &mut Exchange<'_>,
    id: &str,
    mut watch: StreamWatch,
    (mut replay, mut response): (ResponseReplay, Vec<u8>),
) -> WriteOutcome {
    x.record.status = 200;
    let head = x.new_response_head(200);
    if head.start_event_stream(&mut x.caller).await.is_err() {
        return WriteOutcome::Disconnected;
    }
    loop {
        if write_events(x, &mut replay, &response).await == WriteOutcome::Disconnected {
            return WriteOutcome::Disconnected;
        }
        watch.record_write();
        if !is_pending(&response) {
            return write_outcome(x.caller.write_response_body(Bytes::new(), true).await);
        }
        match watch.wait_for_changed_response(x, id, response).await {
            Ok(next) => response = next,
            Err(why) => return end_early(x, id, &replay, why).await,
        }
    }
}

/// Sends all events that the state of the response has.
async fn write_events(x: &mut Exchange<'_>, replay: &mut ResponseReplay, response: &[u8]) -> WriteOutcome {
    let mut pieces = replay.pieces(response);
    while let Some(piece) = next_piece(&mut pieces).await {
        if x.caller.write_response_body(piece, false).await.is_err() {
            return WriteOutcome::Disconnected;
        }
    }
    // The head is sent even if there are no events yet.
    write_outcome(x.caller.flush().await)
}

/// Returns the next piece with events that the client does not have yet; `None` if this state of the response has no
/// more. Many pieces may be skipped, so the task yields after each of them.
async fn next_piece(pieces: &mut ReplayPieces<'_>) -> Option<Bytes> {
    let mut piece = Vec::new();
    while pieces.write_next(&mut piece) {
        if !piece.is_empty() {
            // Memory is reserved for the length of a piece, so its spare capacity is freed before the client reads it.
            return Some(piece.into_boxed_slice().into());
        }
        yield_now().await;
    }
    None
}

/// Ends a stream before its response, and records why.
async fn end_early(
    x: &mut Exchange<'_>,
    id: &str,
    replay: &ResponseReplay,
    why: StreamInterruption,
) -> WriteOutcome {
    match why {
        StreamInterruption::Disconnected => WriteOutcome::Disconnected,
        StreamInterruption::BrokenOff(code) => {
            x.record.record_broken_stream(&ApiError::new(code));
            WriteOutcome::Disconnected
        }
        StreamInterruption::Unreadable(refusal) => {
            let why = refusal.spec().code;
            tracing::warn!(name: "response_stream_broken", id = x.id.as_str(), response = id, why);
            x.record.record_broken_stream(&refusal);
            let mut event = Vec::new();
            replay.write_error(&refusal, &mut event);
            write_outcome(x.caller.write_response_body(event.into(), true).await)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    /// Returns a background response that has ended, with this number of calls.
    fn ended_response(calls: usize) -> Vec<u8> {
        let call = json!({"type": "function_call", "id": "fc_1", "name": "look", "arguments": "{}"});
        let output = vec![call; calls];
        json!({"id": "resp_1", "background": true, "status": "completed", "output": output})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn a_stream_starts_after_the_event_of_the_query() {
        for (query, expected) in [
            ("", None),
            ("stream=false", None),
            ("stream=true", Some(None)),
            ("stream=true&starting_after=0", Some(Some(0))),
            ("include[]=a&starting_after=17&stream=true", Some(Some(17))),
        ] {
            assert_eq!(parse_stream_query(query).unwrap(), expected, "{query}");
        }
        for query in ["stream=zz", "stream=", "stream=True"] {
            assert_eq!(parse_stream_query(query).unwrap_err().param.as_deref(), Some("stream"), "{query}");
        }
        for query in ["starting_after=1", "stream=false&starting_after=x", "starting_after="] {
            let refusal = parse_stream_query(query).unwrap_err();
            assert_eq!(refusal.param.as_deref(), Some("starting_after"), "{query}");
            assert_eq!(refusal.message, NO_STREAM);
        }
        for after in ["", "-1", "1.5", "x", "99999999999999999999"] {
            let refusal = parse_stream_query(&format!("stream=true&starting_after={after}")).unwrap_err();
            assert_eq!(refusal.param.as_deref(), Some("starting_after"), "{after}");
        }
    }
    #[tokio::test]
    async fn a_stream_cannot_start_after_an_event_that_a_response_does_not_have() {
        let (response, mut last) = (ended_response(2), 0);
        while has_event(&response, last + 1).await {
            last += 1;
        }
        let mut replay = ResponseReplay::new(None);
        let mut pieces = replay.pieces(&response);
        let mut text = Vec::new();
        while pieces.write_next(&mut text) {}
        let events = String::from_utf8(text).unwrap().matches("sequence_number").count();
        assert_eq!(usize::try_from(last).unwrap() + 1, events);
        assert!(has_event(&response, 0).await && !has_event(&response, u64::MAX).await);
    }

    #[tokio::test]
    async fn a_response_without_an_answer_has_the_events_up_to_its_start() {
        for status in ["queued", "in_progress"] {
            let response = json!({"id": "resp_1", "background": true, "status": status, "output": []});
            let response = response.to_string().into_bytes();
            assert!(has_event(&response, 0).await && has_event(&response, 2).await, "{status}");
            assert!(!has_event(&response, 3).await && !has_event(&response, u64::MAX).await, "{status}");
        }
        let running = json!({"background": true, "status": "in_progress"}).to_string().into_bytes();
        let (mut replay, mut text) = (ResponseReplay::new(None), Vec::new());
        let mut pieces = replay.pieces(&running);
        while pieces.write_next(&mut text) {}
        let last = format!("\"sequence_number\":{LAST_PENDING_EVENT}");
        assert!(String::from_utf8(text).unwrap().rsplit("event: ").next().unwrap().contains(&last));
    }

    #[tokio::test]
    async fn a_piece_takes_no_more_memory_than_its_length() {
        let (response, mut replay, mut count) = (ended_response(2), ResponseReplay::new(None), 0);
        let mut pieces = replay.pieces(&response);
        while let Some(piece) = next_piece(&mut pieces).await {
            let length = piece.len();
            assert_eq!(piece.try_into_mut().unwrap().capacity(), length);
            count += 1;
        }
        assert_eq!(count, 3 + 2 + 1, "the start, the items, the end");
    }

    #[tokio::test]
    async fn other_tasks_run_while_pieces_are_skipped() {
        let response = ended_response(100);
        let other = tokio::spawn(async {
            for _ in 0..50 {
                yield_now().await;
            }
        });
        let mut replay = ResponseReplay::new(Some(u64::MAX));
        assert_eq!(next_piece(&mut replay.pieces(&response)).await, None);
        assert!(other.is_finished());
    }
}
