//! Storage of a response whose request asks for it. It is stored after its settlement, and before the client receives
//! its end. The client's next request can therefore continue it.

use super::FailoverRun;
use crate::storage::responses::RESPONSE_ID_PREFIX;
use bytes::Bytes;
use penstock_core::StoredInput;
use penstock_dialect::stored_response::{build_document, storable_response};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Longest time for which the end of an answer waits for the disk; after that time the write continues in the
/// background.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Returns the input of a request whose response is to be stored; `None` if the response is not stored.
pub(super) fn input_to_store<'r>(run: &FailoverRun<'r, '_>) -> Option<&'r StoredInput> {
    run.request.responses.as_deref()?.stored_input.as_ref()
}

/// Returns the pieces from the one on in which the last event starts; all pieces of a buffered body. The start of an
/// event is never divided.
fn last_event_pieces(answer: &[Bytes]) -> &[Bytes] {
    let starts_event = |piece: &Bytes| memchr::memmem::find(piece, b"\ndata: ").is_some();
    answer.get(answer.iter().rposition(starts_event).unwrap_or(0)..).unwrap_or_default()
}

/// Starts to store the response in `answer`, which is a buffered body or the end of a stream. The returned future waits
/// for the write, at most `MAX_WAIT`. A failure is logged and does not change the answer.
pub(super) fn store_response(
    run: &FailoverRun<'_, '_>,
    input: &StoredInput,
    answer: &[Bytes],
) -> impl Future<Output = ()> + Send + use<> {
    let (app, input, answer) = (run.exchange.app.clone(), input.clone(), last_event_pieces(answer).concat());
    let key = run.exchange.principal.public_id.clone();
    let id = run.exchange.id;
    let limits = app.stored_response_limits();
    let write = move || {
        let Some(response) = storable_response(&answer) else { return };
        let document = build_document(&input, response, id.random_part());
        let name = format!("{RESPONSE_ID_PREFIX}{}", id.random_part());
        let now = app.clock.unix_seconds();
        if let Err(error) = app.responses.insert((&key, &name), now, &document, limits) {
            tracing::error!(name: "response_not_stored", id = id.as_str(), why = %error.kind());
        }
    };
    let written = spawn_blocking(write);
    async move {
        timeout(MAX_WAIT, written).await.ok();
    }
}
