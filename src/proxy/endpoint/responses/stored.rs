//! `/v1/responses/{id}`: stored responses. Each belongs to the key that created it.

use super::include::IncludedParts;
use super::{background, stream};
use crate::proxy::endpoint::openapi::{EVENT_STREAM_CONTENT, EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::endpoint::{Endpoint, EndpointFuture, decode_segment};
use crate::proxy::exchange::Exchange;
use crate::storage::files::io_to_api_error;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::{ApiError, ErrorCode};
use serde_json::json;
use std::io::ErrorKind;
use tokio::task::spawn_blocking;

const RESPONSE_PATH: &str = "/v1/responses/*";

/// Endpoint `GET /v1/responses/{id}`.
pub struct GetResponseEndpoint;

impl Endpoint for GetResponseEndpoint {
    fn name(&self) -> &'static str {
        "response"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        RESPONSE_PATH
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Responses",
            EndpointWorkKind::Store,
            "A stored response, or the events of a background response",
            &[(200, &[(JSON_CONTENT_TYPE, "Response"), EVENT_STREAM_CONTENT])],
        )
        .with_query(&["include[]", "stream", "starting_after"])
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let id = decode_segment(tail).into_owned();
            let query = x.caller.query().unwrap_or_default();
            let parts = IncludedParts::parse(query)?;
            if let Some(after) = stream::parse_stream_query(query)? {
                return stream::stream_response(x, &id, after, parts).await;
            }
            let document = find_response(x, &id).await?;
            let response = background::current_response(x, &id, &document).await?;
            drop(document);
            let response = parts.add_to_response(x, response)?;
            Ok(x.send_json(200, response).await)
        })
    }
}

/// Endpoint `DELETE /v1/responses/{id}`.
pub struct DeleteResponseEndpoint;

impl Endpoint for DeleteResponseEndpoint {
    fn name(&self) -> &'static str {
        "response_delete"
    }

    fn method(&self) -> Method {
        Method::DELETE
    }

    fn path(&self) -> &'static str {
        RESPONSE_PATH
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Responses",
            EndpointWorkKind::Store,
            "Deletes a stored response",
            &[(200, &[(JSON_CONTENT_TYPE, "ResponseDeletion")])],
        )
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let id = decode_segment(tail).into_owned();
            x.app.batches.cancel_background_response(&x.principal.public_id, &id).await?;
            let (app, key, name) = (x.app.clone(), x.principal.public_id.clone(), id.clone());
            let retention = x.config.settings.responses.retention;
            let removed = spawn_blocking(move || {
                let has_expired =
                    app.responses.has_expired(&key, &name, app.clock.unix_seconds(), retention)?;
                // The file of an expired response is removed too, but for its client the response no longer exists.
                app.responses.delete(&key, &name).map(|is_removed| is_removed && !has_expired)
            });
            let removed = removed.await.map_err(|_| ApiError::new(ErrorCode::Internal))?;
            if !removed.map_err(|error| io_to_api_error(&error))? {
                return Err(response_not_found());
            }
            let body = json!({"id": id, "object": "response", "deleted": true}).to_string();
            Ok(x.send_json(200, body.into_bytes()).await)
        })
    }
}

/// Endpoint `POST /v1/responses/{id}/cancel`, for background responses.
pub struct CancelResponseEndpoint;

impl Endpoint for CancelResponseEndpoint {
    fn name(&self) -> &'static str {
        "response_cancel"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/responses/*/cancel"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Responses",
            EndpointWorkKind::Store,
            "Cancels a background response",
            &[(200, &[(JSON_CONTENT_TYPE, "Response")])],
        )
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let response = background::cancel_response(x, &decode_segment(tail)).await?;
            Ok(x.send_json(200, response).await)
        })
    }
}

/// Returns the document of a stored response of the key.
///
/// # Errors
/// Returns 404 if the key has no response with this id, and the errors of [`load_response`].
pub(super) async fn find_response(x: &mut Exchange<'_>, id: &str) -> Result<Vec<u8>, ApiError> {
    load_response(x, id).await?.ok_or_else(response_not_found)
}

/// Reserves memory for the document of a response and reads it; `None` if the key has no response with this id, or if
/// it has expired or cannot be decrypted.
///
/// # Errors
/// Returns a refusal if the disk fails, or if there is no memory for the document.
pub(super) async fn load_response(x: &mut Exchange<'_>, id: &str) -> Result<Option<Vec<u8>>, ApiError> {
    let (app, key, name) = (x.app.clone(), x.principal.public_id.clone(), id.to_owned());
    let size = spawn_blocking(move || app.responses.size(&key, &name)).await;
    let size =
        size.map_err(|_| ApiError::new(ErrorCode::Internal))?.map_err(|error| io_to_api_error(&error))?;
    let Some(bytes) = size else { return Ok(None) };
    x.reserve_memory(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    let (app, key, id) = (x.app.clone(), x.principal.public_id.clone(), id.to_owned());
    let retention = x.config.settings.responses.retention;
    let read =
        spawn_blocking(move || app.responses.get(&key, &id, app.clock.unix_seconds(), retention)).await;
    match read.map_err(|_| ApiError::new(ErrorCode::Internal))? {
        Ok(document) => Ok(document),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            tracing::error!(
                name: "stored_response_unreadable",
                id = x.id.as_str(),
                why = "it was changed, or encrypted with another pepper",
            );
            Ok(None)
        }
        Err(error) => Err(io_to_api_error(&error)),
    }
}

/// Returns the 404 of a response that is not stored for the key.
pub(super) fn response_not_found() -> ApiError {
    let message = "No response of this id is stored for this API key, or not any more.";
    ApiError::with_message(ErrorCode::NotFound, message)
}
