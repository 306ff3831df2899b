//! `POST /v1/messages/count_tokens`: counts the tokens of a request in the messages dialect, without a charge.

use super::{Endpoint, EndpointFuture};
use crate::proxy::context_window;
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::{Exchange, WriteOutcome, write_outcome};
use crate::proxy::failover::check_offer_filters;
use crate::proxy::filters::model_for_request;
use bytes::Bytes;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::{ApiError, InferenceRequest};
use penstock_limits::CostEstimate;
use penstock_tokens::TokenCount;

/// Endpoint `POST /v1/messages/count_tokens`.
pub struct CountTokensEndpoint;

impl Endpoint for CountTokensEndpoint {
    fn name(&self) -> &'static str {
        "count_tokens"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/messages/count_tokens"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Messages",
            EndpointWorkKind::Model,
            "Counts the tokens of a conversation without charge",
            &[(200, &[(JSON_CONTENT_TYPE, "TokenCount")])],
        )
        .with_body(JSON_CONTENT_TYPE, "CountTokensRequest")
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let body = x.read_json_body().await?;
            let ask = penstock_request_validation::validate_count_tokens_request(
                body,
                &x.config.request_limits,
                x.config.settings.default_models.count_tokens.as_deref(),
            )?;
            let Some(count) = count_prompt(x, &ask).await? else { return Ok(WriteOutcome::Disconnected) };
            let body = format!("{{\"input_tokens\":{}}}", count.tokens);
            Ok(send_token_count(x, &count, body).await)
        })
    }
}

/// Counts the tokens of a prompt; `None` if the client has disconnected. The call counts as a request in the limits of
/// its key and account, but its tokens do not count.
///
/// # Errors
/// Returns a refusal of the limits, of an unknown model, of filters that no offer meets, or of the count.
pub(super) async fn count_prompt(
    x: &mut Exchange<'_>,
    ask: &InferenceRequest,
) -> Result<Option<TokenCount>, ApiError> {
    let (entry, _) = x.acquire_provisional_limits_permit()?;
    let (name, _) = penstock_routing::split_flavor(&ask.model);
    let model = model_for_request(x, ask, name)?;
    let counting = x.token_count_context();
    check_offer_filters(&counting, &x.principal, &model, ask)?;
    x.reserve_limits(entry, &CostEstimate::default())?;
    let counted = tokio::select! {
        biased;
        count = context_window::count_prompt_tokens(&counting, &model, ask) => count.map(Some),
        () = x.caller.wait_for_disconnect() => Ok(None),
    };
    x.record.waited += counting.take_engine_wait();
    counted
}

/// Sends `body`, which states the count; a header field of the response names the method of the count.
pub(super) async fn send_token_count(x: &mut Exchange<'_>, count: &TokenCount, body: String) -> WriteOutcome {
    x.record.status = 200;
    let head = x.new_response_head(200).with_field("x-token-count-method", count.method.name());
    write_outcome(head.send_json(&mut x.caller, vec![Bytes::from(body)]).await)
}
