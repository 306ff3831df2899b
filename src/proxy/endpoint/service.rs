//! `GET /`: name of the service and links to its description. `GET /health`, `/healthz`: 200 while requests are
//! accepted. `GET /openapi.json`: the description of every endpoint. None of them needs a key.

use super::{Endpoint, EndpointFuture, openapi};
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::{Exchange, write_outcome};
use crate::telemetry::HEALTH_ENDPOINT_NAME;
use bytes::Bytes;
use http::{Method, header};
use penstock_auth::KeyScope;
use penstock_core::{ApiError, ErrorCode};
use serde_json::json;

/// Endpoint of the index page.
pub struct RootEndpoint;

impl Endpoint for RootEndpoint {
    fn name(&self) -> &'static str {
        "root"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Models
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Service",
            EndpointWorkKind::Direct,
            "Name and links of the service",
            &[(200, &[(JSON_CONTENT_TYPE, "Root")])],
        )
    }

    fn is_public(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let documentation = x.config.settings.listen.documentation.as_deref();
            let page = json!({
                "name": "Penstock",
                "description": "A gateway to open-weight models at providers in the European Union. Requests need an API key, \
                    as Authorization: Bearer or x-api-key.",
                "base_path": "/v1",
                "openapi": openapi::OPENAPI_PATH,
                "documentation": documentation.unwrap_or(openapi::OPENAPI_PATH),
                "health": "/health",
            });
            Ok(x.send_json(200, page.to_string().into_bytes()).await)
        })
    }
}

/// Endpoint of the health status, without details, at one of its paths.
pub struct GetHealthEndpoint(pub &'static str);

impl Endpoint for GetHealthEndpoint {
    fn name(&self) -> &'static str {
        HEALTH_ENDPOINT_NAME
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        self.0
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Models
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Service",
            EndpointWorkKind::Direct,
            "200 while requests are accepted",
            &[(200, &[(JSON_CONTENT_TYPE, "Health")])],
        )
    }

    fn is_public(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            if x.app.is_draining() {
                return Err(ApiError::new(ErrorCode::Overloaded).with_retry_after(1));
            }
            x.record.status = 200;
            let head = x.new_response_head(200).with_field(header::CACHE_CONTROL, "no-store");
            Ok(write_outcome(
                head.send_json(&mut x.caller, vec![Bytes::from_static(br#"{"status":"ok"}"#)]).await,
            ))
        })
    }
}

/// Endpoint of the OpenAPI document.
pub struct GetOpenApiDocumentEndpoint;

impl Endpoint for GetOpenApiDocumentEndpoint {
    fn name(&self) -> &'static str {
        "openapi"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        openapi::OPENAPI_PATH
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Models
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Service",
            EndpointWorkKind::Direct,
            "This document",
            &[(200, &[(JSON_CONTENT_TYPE, "Document")])],
        )
    }

    fn is_public(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            x.record.status = 200;
            let document = Bytes::from_static(openapi::document_text().as_bytes());
            x.reserve_memory(document.len())?;
            let head = x.new_response_head(200).with_field(header::CACHE_CONTROL, "public, max-age=3600");
            Ok(write_outcome(head.send_json(&mut x.caller, vec![document]).await))
        })
    }
}
