//! `GET /v1/files/{id}` and `DELETE /v1/files/{id}`.

use super::object::file_object;
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::endpoint::{Endpoint, EndpointFuture, decode_segment};
use crate::proxy::exchange::Exchange;
use http::Method;
use penstock_auth::KeyScope;
use serde_json::json;

/// Endpoint of a file's metadata.
pub struct GetFileEndpoint;

impl Endpoint for GetFileEndpoint {
    fn name(&self) -> &'static str {
        "file"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/files/*"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Files",
            EndpointWorkKind::Store,
            "A file's metadata",
            &[(200, &[(JSON_CONTENT_TYPE, "File")])],
        )
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let at = x.app.file_expiry_context();
            let file = x.app.files.get(&x.principal.public_id, &decode_segment(tail), at).await?;
            let body = file_object(&file, at).to_string();
            Ok(x.send_json(200, body.into_bytes()).await)
        })
    }
}

/// Endpoint that deletes a file. The file is no longer readable when the response is sent. A batch that still reads the
/// file is ended before the deletion.
pub struct DeleteFileEndpoint;

impl Endpoint for DeleteFileEndpoint {
    fn name(&self) -> &'static str {
        "file_delete"
    }

    fn method(&self) -> Method {
        Method::DELETE
    }

    fn path(&self) -> &'static str {
        "/v1/files/*"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Files",
            EndpointWorkKind::Store,
            "Deletes a file",
            &[(200, &[(JSON_CONTENT_TYPE, "FileDeletion")])],
        )
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let (id, at) = (decode_segment(tail), x.app.file_expiry_context());
            x.app.files.delete(&x.principal.public_id, &id, at).await?;
            let body = json!({"id": id, "object": "file", "deleted": true}).to_string();
            Ok(x.send_json(200, body.into_bytes()).await)
        })
    }
}
