//! `POST /v1/messages`: a messages ask goes to the relay.

use super::Endpoint;
use crate::exchange::{Ended, Exchange};
use crate::live::Live;
use crate::proxy::filters::RequestBody;
use crate::relay;
use async_trait::async_trait;
use http::Method;
use penstock_admission::Purpose;
use penstock_auth::Scope;
use penstock_contract::Refusal;

/// The endpoint.
pub struct Messages;

#[async_trait]
impl Endpoint for Messages {
    fn name(&self) -> &'static str {
        "messages"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn scope(&self) -> Scope {
        Scope::Chat
    }

    fn takes_lines(&self) -> bool {
        true
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let body = x.json_body().await?;
        let parse =
            |body, live: &Live| penstock_admission::messages(body, &live.admission, Purpose::Generate);
        relay::run(x, RequestBody::Json(body, parse)).await
    }
}
