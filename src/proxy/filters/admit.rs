//! Admission: takes a provisional permit of the limits, before any work is put into a request.

use super::request::{InferenceRequest, RequestFilter};
use crate::proxy::exchange::Ended;
use penstock_contract::Refusal;
use std::ops::ControlFlow;

/// Filter that refuses a request of a key or account that is over its limits, whatever the request costs.
pub struct AdmitRequest;

impl RequestFilter for AdmitRequest {
    const NAME: &'static str = "admit";

    async fn check(request: &mut InferenceRequest<'_, '_>) -> Result<ControlFlow<Ended>, Refusal> {
        request.entry = Some(request.x.come_in()?);
        Ok(ControlFlow::Continue(()))
    }
}
