//! Parsing: turns the body into a request of the gateway's own form.

use super::request::{InferenceRequest, RequestBody, RequestFilter};
use crate::proxy::exchange::Ended;
use bytes::Bytes;
use penstock_contract::{Ask, Fields, Kind, Refusal};
use penstock_limits::Work;
use std::ops::ControlFlow;

/// Filter that parses the body and validates its fields.
pub struct Parse;

impl RequestFilter for Parse {
    const NAME: &'static str = "parse";

    async fn check(request: &mut InferenceRequest<'_, '_>) -> Result<ControlFlow<Ended>, Refusal> {
        let ask = match request.body.take() {
            None => return Ok(ControlFlow::Continue(())),
            Some(RequestBody::Json(body, parser)) => parser(body, &request.x.live)?,
            Some(RequestBody::Form(model, task, upload)) => {
                request.upload = Some(upload);
                Ask::plain(Kind::Transcription, Bytes::new(), Fields::default(), model, task)
            }
        };
        if ask.stream && request.x.work == Work::BatchLine {
            return Err(Refusal::invalid("stream", "stream: expected false in a line of a batch."));
        }
        request.x.record.stream = ask.stream;
        request.ask = Some(ask);
        Ok(ControlFlow::Continue(()))
    }
}
