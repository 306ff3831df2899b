//! `POST /v1/responses`: a request in the responses dialect, which the failover driver sends to a provider; and `POST
//! /v1/responses/input_tokens`, which counts the tokens of such a request without a charge. The submodules have the
//! endpoints of stored responses.

mod background;
mod include;
mod input_items;
mod previous;
mod references;
mod stored;
mod stream;
mod stream_watch;

pub use input_items::ListInputItemsEndpoint;
pub use stored::{CancelResponseEndpoint, DeleteResponseEndpoint, GetResponseEndpoint};

use super::count_tokens::{count_prompt, send_token_count};
use super::{Endpoint, EndpointFuture, boxed_handler};
use crate::proxy::endpoint::openapi::{EVENT_STREAM_CONTENT, EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::ConfigSnapshot;
use bytes::Bytes;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::{ApiError, PreviousResponse, StoredResponseAccess};
use penstock_dialect::repeated_items::{has_item_ids, remove_repeated_items};
use penstock_request_validation::{
    ResponsesPurpose, validate_responses_request, validate_responses_request_with_storage,
};

/// Endpoint `POST /v1/responses`.
pub struct CreateResponseEndpoint;

impl Endpoint for CreateResponseEndpoint {
    fn name(&self) -> &'static str {
        "responses"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/responses"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Responses",
            EndpointWorkKind::Model,
            "Answers a conversation, in the responses dialect",
            &[(200, &[(JSON_CONTENT_TYPE, "Response"), EVENT_STREAM_CONTENT])],
        )
        .with_body(JSON_CONTENT_TYPE, "ResponsesRequest")
    }

    fn accepts_batch_lines(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        boxed_handler(move || async move {
            let body = x.read_json_body().await?;
            if x.principal.stores_responses {
                // A request without a socket is a line of a batch, or a background response that runs.
                if x.caller.in_process_line().is_none() && background::is_background_requested(&body) {
                    return background::create_and_send_response(x, body).await;
                }
                let (body, storage) = stored_conversation(x, body).await?;
                return failover::serve_request(
                    x,
                    RequestBody::ResponsesWithStorage(body, Box::new(storage)),
                )
                .await;
            }
            let parse = |body, live: &ConfigSnapshot| {
                validate_responses_request(body, &live.request_limits, ResponsesPurpose::Generate)
            };
            failover::serve_request(x, RequestBody::Json(body, parse)).await
        })
    }
}

/// Replaces references in a body by the stored items, and loads the conversation that it continues. Items that the
/// conversation already has are removed from the body.
///
/// # Errors
/// Returns the errors of [`references::resolve_item_references`] and of [`previous::load_stored_response_access`].
async fn stored_conversation(
    x: &mut Exchange<'_>,
    body: Bytes,
) -> Result<(Bytes, StoredResponseAccess), ApiError> {
    let body = references::resolve_item_references(x, body).await?;
    let storage = previous::load_stored_response_access(x, &body).await?;
    if !has_item_ids(&body) {
        return Ok((body, storage));
    }
    let previous: &[u8] = match &storage.previous {
        PreviousResponse::Items(items) => items,
        PreviousResponse::NotAllowed
        | PreviousResponse::NotFound
        | PreviousResponse::Unanswered
        | PreviousResponse::EndedUnanswered => &[],
    };
    // The memory is reserved for the body that is left, and for the items that it is compared with.
    x.reserve_memory(body.len().saturating_add(previous.len()))?;
    Ok((remove_repeated_items(&body, previous), storage))
}

/// Endpoint `POST /v1/responses/input_tokens`, which counts tokens.
pub struct CountInputTokensEndpoint;

impl Endpoint for CountInputTokensEndpoint {
    fn name(&self) -> &'static str {
        "input_tokens"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/responses/input_tokens"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Responses",
            EndpointWorkKind::Model,
            "Counts the tokens of a conversation without charge",
            &[(200, &[(JSON_CONTENT_TYPE, "InputTokenCount")])],
        )
        .with_body(JSON_CONTENT_TYPE, "InputTokensRequest")
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let mut body = x.read_json_body().await?;
            let mut storage = StoredResponseAccess::default();
            if x.principal.stores_responses {
                (body, storage) = stored_conversation(x, body).await?;
            }
            let default = x.config.settings.default_models.count_tokens.as_deref();
            let purpose = ResponsesPurpose::Count(default);
            let ask =
                validate_responses_request_with_storage(body, &x.config.request_limits, purpose, &storage)?;
            let Some(count) = count_prompt(x, &ask).await? else { return Ok(WriteOutcome::Disconnected) };
            let body = format!("{{\"object\":\"response.input_tokens\",\"input_tokens\":{}}}", count.tokens);
            Ok(send_token_count(x, &count, body).await)
        })
    }
}
