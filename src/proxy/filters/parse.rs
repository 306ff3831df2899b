//! Parsing: converts the body into the gateway's own request type.

use super::request::{InferenceContext, RequestBody, RequestFilter};
use crate::proxy::exchange::WriteOutcome;
use bytes::Bytes;
use penstock_core::{ApiError, BodyMembers, InferenceRequest, ModelKind};
use penstock_limits::WorkClass;
use penstock_request_validation::{ResponsesPurpose, validate_responses_request_with_storage};
use std::ops::ControlFlow;

/// Filter that parses the body and validates its fields.
pub struct ParseRequest;

impl RequestFilter for ParseRequest {
    const NAME: &'static str = "parse";

    async fn check(request: &mut InferenceContext<'_, '_>) -> Result<ControlFlow<WriteOutcome>, ApiError> {
        let ask = match request.body.take() {
            None => return Ok(ControlFlow::Continue(())),
            Some(RequestBody::Json(body, parser)) => parser(body, &request.exchange.config)?,
            Some(RequestBody::ResponsesWithStorage(body, storage)) => {
                let (limits, purpose) = (&request.exchange.config.request_limits, ResponsesPurpose::Generate);
                validate_responses_request_with_storage(body, limits, purpose, &storage)?
            }
            Some(RequestBody::Form(model, task, upload)) => {
                request.upload = Some(upload);
                InferenceRequest::from_non_chat_task(
                    ModelKind::Transcription,
                    Bytes::new(),
                    BodyMembers::default(),
                    model,
                    task,
                )
            }
        };
        if ask.stream && request.exchange.work == WorkClass::BatchLine {
            return Err(ApiError::invalid("stream", "stream: expected false in a line of a batch."));
        }
        request.exchange.record.stream = ask.stream;
        let open_streams = &request.exchange.app.history.open_streams;
        request.exchange.record.open_stream = ask.stream.then(|| open_streams.track_stream());
        request.ask = Some(ask);
        Ok(ControlFlow::Continue(()))
    }
}
