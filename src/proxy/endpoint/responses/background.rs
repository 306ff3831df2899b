//! Background responses: creation, cancellation, and their state as clients see it.

use super::stored::{find_response, load_response, response_not_found};
use super::{stored_conversation, stream};
use crate::batch::{BatchManager, NewBackgroundResponse};
use crate::limits::background_stream_permits::BackgroundStreamPermit;
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::filters::model_for_request;
use crate::storage::responses::RESPONSE_ID_PREFIX;
use bytes::Bytes;
use memchr::memmem;
use penstock_core::{AnswerModelName, ApiError, ErrorCode};
use penstock_dialect::background_response::{
    BackgroundResponseState, ResponseFailure, build_pending_document, is_background, is_pending,
    queued_response, request_without_stream, with_background_state,
};
use penstock_dialect::stored_response::StoredResponse;
use penstock_dialect::write::ResponseIdentity;
use penstock_json_scan::json;
use penstock_request_validation::{ResponsesPurpose, validate_responses_request_with_storage};
use penstock_routing::split_flavor;
use penstock_storage::batches::BatchState;

const MEMBER: &str = "background";
const LOST: &str = "The gateway does not run this response any more; send the request again.";

/// Returns true if a body that is not validated yet asks for a background response.
pub(super) fn is_background_requested(body: &[u8]) -> bool {
    if memmem::find(body, MEMBER.as_bytes()).is_none() {
        return false;
    }
    let mut members = json::members(body);
    while let Some((name, value)) = members.next_raw() {
        if name == MEMBER.as_bytes() {
            return value == b"true";
        }
    }
    false
}

/// Background response that was created.
struct CreatedResponse {
    id: String,
    /// Response object in the state `queued`, as JSON.
    queued: Vec<u8>,
    /// Permit of the stream, if the client asks for one.
    stream_permit: Option<BackgroundStreamPermit>,
}

/// Validates a request, stores it and answers with the queued response, or with the stream of its events.
///
/// # Errors
/// Returns a refusal if the request is invalid, if the model is unknown, if too many streams are open, or if the store
/// fails. No response was created then.
pub(super) async fn create_and_send_response(
    x: &mut Exchange<'_>,
    body: Bytes,
) -> Result<WriteOutcome, ApiError> {
    // The conversation is freed here, because the stream is open for as long as the response runs.
    let CreatedResponse { id, queued, stream_permit } = create_response(x, body).await?;
    Ok(match stream_permit {
        Some(permit) => stream::stream_created_response(x, &id, permit, queued).await,
        None => x.send_json(200, queued).await,
    })
}

/// Validates a request and stores it with the queued response, which starts its run.
async fn create_response(x: &mut Exchange<'_>, body: Bytes) -> Result<CreatedResponse, ApiError> {
    let (resolved, storage) = stored_conversation(x, body.clone()).await?;
    let ask = validate_responses_request_with_storage(
        resolved,
        &x.config.request_limits,
        ResponsesPurpose::Generate,
        &storage,
    )?;
    let name = split_flavor(&ask.model).0;
    model_for_request(x, &ask, name)?;
    let details = ask.responses.as_deref().filter(|details| details.in_background);
    let input = details.and_then(|details| details.stored_input.as_ref());
    let input = input.ok_or(ApiError::new(ErrorCode::Internal))?;
    let model = match ask.dialect.spec().answer_model {
        AnswerModelName::WithoutFlavor => name,
        AnswerModelName::AsSent => &ask.model,
    };
    let (created, unique) = (x.app.clock.calendar_now(), x.id.random_part().to_owned());
    let identity =
        ResponseIdentity { id: unique.clone(), model: model.to_owned(), created: created.as_secs() };
    let queued = queued_response(&ask, identity);
    let stream_permit =
        ask.stream.then(|| x.app.background_stream_permits.acquire(&x.principal.account.id)).transpose()?;
    // The memory is reserved for the document and for its encrypted form.
    x.reserve_memory((input.previous_items.len() + body.len() * 2 + queued.len()).saturating_mul(2))?;
    let document = build_pending_document(input, &queued, &unique, &request_without_stream(&body));
    let id = format!("{RESPONSE_ID_PREFIX}{unique}");
    let new = NewBackgroundResponse { id: id.clone(), document, created };
    BatchManager::create_response(&x.app.batch_context, &x.principal, new).await?;
    Ok(CreatedResponse { id, queued, stream_permit })
}

/// Returns the response of a stored document as its client sees it now. A background response has its current state.
///
/// # Errors
/// Returns 404 if the response was deleted meanwhile, and the errors of the store.
pub(super) async fn current_response(
    x: &mut Exchange<'_>,
    id: &str,
    document: &[u8],
) -> Result<Vec<u8>, ApiError> {
    let response = response_of(document)?;
    if !is_background(response) {
        return Ok(response.to_vec());
    }
    if let Some(record) = x.app.batches.find_unfinished_response(&x.principal.public_id, id).await? {
        let state = match record.state {
            BatchState::InProgress => BackgroundResponseState::InProgress,
            _ => BackgroundResponseState::Queued,
        };
        return Ok(with_background_state(response, &state));
    }
    if !is_pending(response) {
        return Ok(response.to_vec());
    }
    // The response has ended since its document was read, or its record was lost.
    let document = load_response(x, id).await?.ok_or_else(response_not_found)?;
    let response = response_of(&document)?;
    Ok(match is_pending(response) {
        true => with_background_state(
            response,
            &BackgroundResponseState::Failed(ResponseFailure::server_error(LOST)),
        ),
        false => response.to_vec(),
    })
}

/// Cancels the background response with this id, and returns it as its client sees it now.
///
/// # Errors
/// Returns a refusal if the response does not run in the background or does not end in time.
pub(super) async fn cancel_response(x: &mut Exchange<'_>, id: &str) -> Result<Vec<u8>, ApiError> {
    let document = find_response(x, id).await?;
    if !is_background(response_of(&document)?) {
        let message = "Only responses with `background: true` can be cancelled; this one is complete.";
        return Err(ApiError::with_message(ErrorCode::InvalidRequest, message));
    }
    x.app.batches.cancel_background_response(&x.principal.public_id, id).await?;
    let document = find_response(x, id).await?;
    current_response(x, id, &document).await
}

fn response_of(document: &[u8]) -> Result<&[u8], ApiError> {
    StoredResponse::parse(document).map(|stored| stored.response).ok_or_else(response_not_found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_member_is_found_at_the_top_of_the_body_alone() {
        for (body, expected) in [
            (r#"{"model":"m","background":true}"#, true),
            (r#"{"model":"m", "background" : true , "input":"x"}"#, true),
            (r#"{"background":false}"#, false),
            (r#"{"background":null}"#, false),
            (r#"{"background":"true"}"#, false),
            (r#"{"metadata":{"background":true}}"#, false),
            (r#"{"input":"background"}"#, false),
            ("{\"background\"", false),
        ] {
            assert_eq!(is_background_requested(body.as_bytes()), expected, "{body}");
        }
    }
}
