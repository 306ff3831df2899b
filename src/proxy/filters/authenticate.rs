//! Authentication: finds the API key of a request and checks the scope that its endpoint needs.

use super::RequestFilter;
use crate::proxy::endpoint::Endpoint;
use crate::proxy::exchange::Exchange;
use penstock_contract::{Code, Refusal};

/// Filter that checks the API key, before the body is read. A line of a batch has the grant of its batch.
pub struct Authenticate;

impl RequestFilter for Authenticate {
    const NAME: &'static str = "authenticate";

    fn early_check(x: &mut Exchange<'_>, endpoint: &dyn Endpoint) -> Result<(), Refusal> {
        if x.caller.line().is_some() {
            x.record.key = Some(x.grant.public_id.clone());
            if !x.grant.good(x.house.clock.unix()) {
                return Err(Refusal::new(Code::InvalidKey));
            }
        } else if endpoint.is_open() {
            return Ok(());
        } else {
            x.grant = x.admit()?;
            x.record.key = Some(x.grant.public_id.clone());
        }
        x.grant.require(endpoint.scope())
    }
}
