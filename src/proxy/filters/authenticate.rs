//! Authentication: finds the API key of a request and checks the scope that its endpoint needs.

use super::RequestFilter;
use crate::proxy::endpoint::Endpoint;
use crate::proxy::exchange::Exchange;
use penstock_core::{ApiError, ErrorCode};

/// Filter that checks the API key before the body is read. A batch line uses the principal of its batch, and a request
/// of the console uses the principal of the chosen key.
pub struct Authenticate;

impl RequestFilter for Authenticate {
    const NAME: &'static str = "authenticate";

    fn early_check(x: &mut Exchange<'_>, endpoint: &dyn Endpoint) -> Result<(), ApiError> {
        if x.caller.request_source().is_some_and(|source| source.as_playground_request().is_some()) {
            x.record.key = Some(x.principal.public_id.clone());
            x.app.key_cache.authorize_without_secret(&x.principal)?;
        } else if x.caller.in_process_line().is_some() {
            x.record.key = Some(x.principal.public_id.clone());
            if !x.principal.is_valid_at(x.app.clock.unix_seconds()) {
                return Err(ApiError::new(ErrorCode::InvalidKey));
            }
        } else if endpoint.is_public() {
            return Ok(());
        } else {
            x.principal = x.authenticate()?;
            x.record.key = Some(x.principal.public_id.clone());
        }
        x.principal.require_scope(endpoint.required_scope())
    }
}
