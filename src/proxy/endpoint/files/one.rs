//! `GET /v1/files/{id}` and `DELETE /v1/files/{id}`.

use super::object::object;
use crate::proxy::endpoint::{Endpoint, decoded};
use crate::proxy::exchange::{Ended, Exchange};
use async_trait::async_trait;
use http::Method;
use penstock_auth::KeyScope;
use penstock_contract::Refusal;
use serde_json::json;

/// Endpoint of a file's metadata.
pub struct One;

#[async_trait]
impl Endpoint for One {
    fn name(&self) -> &'static str {
        "file"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/files/*"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    async fn handle(&self, x: &mut Exchange<'_>, tail: &str) -> Result<Ended, Refusal> {
        let at = x.house.when();
        let file = x.house.files.get(&x.grant.public_id, &decoded(tail), at).await?;
        let body = object(&file, at).to_string();
        Ok(x.answer(200, body.into_bytes()).await)
    }
}

/// Endpoint that deletes a file; the file is unreadable once the response is sent. A batch that still
/// reads it fails first.
pub struct Delete;

#[async_trait]
impl Endpoint for Delete {
    fn name(&self) -> &'static str {
        "file_delete"
    }

    fn method(&self) -> Method {
        Method::DELETE
    }

    fn path(&self) -> &'static str {
        "/v1/files/*"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    async fn handle(&self, x: &mut Exchange<'_>, tail: &str) -> Result<Ended, Refusal> {
        let (id, at) = (decoded(tail), x.house.when());
        x.house.files.delete(&x.grant.public_id, &id, at).await?;
        let body = json!({"id": id, "object": "file", "deleted": true}).to_string();
        Ok(x.answer(200, body.into_bytes()).await)
    }
}
