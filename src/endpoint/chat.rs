//! `POST /v1/chat/completions`: a chat ask goes to the relay.

use super::Endpoint;
use crate::exchange::{Ended, Exchange};
use crate::live::Live;
use crate::proxy::filters::RequestBody;
use crate::relay;
use async_trait::async_trait;
use http::Method;
use penstock_auth::Scope;
use penstock_contract::Refusal;

/// The endpoint.
pub struct Chat;

#[async_trait]
impl Endpoint for Chat {
    fn name(&self) -> &'static str {
        "chat"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/chat/completions"
    }

    fn scope(&self) -> Scope {
        Scope::Chat
    }

    fn takes_lines(&self) -> bool {
        true
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let body = x.json_body().await?;
        let parse = |body, live: &Live| penstock_admission::chat(body, &live.admission);
        relay::run(x, RequestBody::Json(body, parse)).await
    }
}
