//! Admission: acquires a provisional permit of the limits before any work is done for a request.

use super::request::{InferenceContext, RequestFilter};
use crate::proxy::exchange::WriteOutcome;
use penstock_core::ApiError;
use std::ops::ControlFlow;

/// Filter that refuses a request if its key or account has reached a limit, regardless of the cost of the request.
pub struct AcquireProvisionalPermit;

impl RequestFilter for AcquireProvisionalPermit {
    const NAME: &'static str = "admit";

    async fn check(request: &mut InferenceContext<'_, '_>) -> Result<ControlFlow<WriteOutcome>, ApiError> {
        request.provisional_permit = Some(request.exchange.acquire_provisional_limits_permit()?);
        Ok(ControlFlow::Continue(()))
    }
}
