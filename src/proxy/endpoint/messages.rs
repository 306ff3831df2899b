//! `POST /v1/messages`: a request in the messages dialect, handled by the relay.

use super::Endpoint;
use crate::proxy::exchange::{Ended, Exchange};
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::Live;
use async_trait::async_trait;
use http::Method;
use penstock_admission::Purpose;
use penstock_auth::KeyScope;
use penstock_contract::Refusal;

/// Endpoint of messages.
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

    fn scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn takes_lines(&self) -> bool {
        true
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let body = x.json_body().await?;
        let parse =
            |body, live: &Live| penstock_admission::messages(body, &live.admission, Purpose::Generate);
        failover::run(x, RequestBody::Json(body, parse)).await
    }
}
