//! `/v1/batches`: files of requests that run asynchronously. A batch belongs to an account, but its files belong to
//! the key that created them.

mod query;

use super::{Endpoint, EndpointFuture, find_endpoint};
use crate::batch::{BatchManager, api_object, input_not_found};
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::{Exchange, WriteOutcome};
use http::Method;
use penstock_auth::KeyScope;
use penstock_batch::create_request::CreateBatchRequest;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::batches::BatchRecord;
use penstock_storage::files::{FilePurpose, FileRecord, FileStatus};
use query::BatchListQuery;
use serde_json::{Value, json};

const BATCHES_PATH: &str = "/v1/batches";
const BATCH_PATH: &str = "/v1/batches/*";
const CANCEL_PATH: &str = "/v1/batches/*/cancel";

/// Endpoint `POST /v1/batches`.
pub struct CreateBatchEndpoint;

impl Endpoint for CreateBatchEndpoint {
    fn name(&self) -> &'static str {
        "batches_create"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        BATCHES_PATH
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Batches",
            EndpointWorkKind::Store,
            "Creates a batch",
            &[(200, &[(JSON_CONTENT_TYPE, "Batch")])],
        )
        .with_body(JSON_CONTENT_TYPE, "BatchRequest")
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let body = x.read_json_body().await?;
            penstock_request_validation::validate_object_body(&body, &x.config.request_limits)?;
            let asked = CreateBatchRequest::parse(&body, penstock_batch::jsonl::BATCH_PATHS)?;
            let (lines, _) = find_endpoint(&Method::POST, asked.endpoint)?;
            x.principal.require_scope(lines.required_scope())?;
            let when = x.app.file_expiry_context();
            let file = x.app.files.get(&x.principal.public_id, &asked.input_file_id, when).await;
            let file =
                file.map_err(
                    |refusal| if refusal.code == ErrorCode::NotFound { input_not_found() } else { refusal },
                )?;
            check_input(&file, &asked)?;
            let record = BatchManager::create(&x.app.batch_context, &x.principal, asked).await?;
            Ok(respond(x, &api_object::batch_object(&record)).await)
        })
    }
}

/// Checks that a file can be the input of the requested batch.
fn check_input(file: &FileRecord, asked: &CreateBatchRequest) -> Result<(), ApiError> {
    if file.purpose != FilePurpose::Batch {
        let expected = "input_file_id: expected a file that was uploaded with purpose \"batch\"";
        return Err(ApiError::invalid("input_file_id", expected));
    }
    if file.status != FileStatus::Processed {
        return Err(ApiError::invalid("input_file_id", "input_file_id: expected a file without errors"));
    }
    match file.url.as_deref() {
        Some(url) if url == asked.endpoint => Ok(()),
        url => {
            let url = url.unwrap_or("nothing");
            let expected = format!("endpoint: expected {url}, the url of the file's lines");
            Err(ApiError::invalid("endpoint", expected))
        }
    }
}

/// Endpoint `GET /v1/batches`.
pub struct ListBatchesEndpoint;

impl Endpoint for ListBatchesEndpoint {
    fn name(&self) -> &'static str {
        "batches"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        BATCHES_PATH
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Batches",
            EndpointWorkKind::Store,
            "Lists the batches of the account",
            &[(200, &[(JSON_CONTENT_TYPE, "BatchList")])],
        )
        .with_query(&["after", "limit 1 100 20"])
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let query = BatchListQuery::parse(x.caller.query().unwrap_or_default())?;
            let page =
                x.app.batches.list(&x.principal.account.id, query.after.as_deref(), query.limit).await?;
            let id = |record: Option<&BatchRecord>| record.map(|record| record.id.clone());
            let body = json!({
                "object": "list",
                "first_id": id(page.batches.first()),
                "last_id": id(page.batches.last()),
                "has_more": page.next.is_some(),
                "data": page.batches.iter().map(api_object::batch_object).collect::<Vec<_>>(),
            });
            Ok(respond(x, &body).await)
        })
    }
}

/// Endpoint `GET /v1/batches/{id}`.
pub struct GetBatchEndpoint;

impl Endpoint for GetBatchEndpoint {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        BATCH_PATH
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Batches",
            EndpointWorkKind::Store,
            "A batch",
            &[(200, &[(JSON_CONTENT_TYPE, "Batch")])],
        )
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let record = x.app.batches.get(&x.principal.account.id, tail).await?;
            Ok(respond(x, &api_object::batch_object(&record)).await)
        })
    }
}

/// Endpoint `POST /v1/batches/{id}/cancel`.
pub struct CancelBatchEndpoint;

impl Endpoint for CancelBatchEndpoint {
    fn name(&self) -> &'static str {
        "batch_cancel"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        CANCEL_PATH
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Batches",
            EndpointWorkKind::Store,
            "Cancels a batch",
            &[(200, &[(JSON_CONTENT_TYPE, "Batch")])],
        )
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, id: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let batches = &x.app.batches;
            let record = batches.get(&x.principal.account.id, id).await?;
            // A key that may create a batch may also cancel it: this needs the same scopes. `inference.batches`
            // allows both for each endpoint.
            if !x.principal.has_directly_granted_scope(KeyScope::Batches)
                && let Ok((lines, _)) = find_endpoint(&Method::POST, &record.endpoint)
            {
                x.principal.require_scope(lines.required_scope())?;
            }
            let record = batches.cancel(&x.principal.account.id, id).await?;
            Ok(respond(x, &api_object::batch_object(&record)).await)
        })
    }
}

async fn respond(x: &mut Exchange<'_>, body: &Value) -> WriteOutcome {
    x.send_json(200, body.to_string().into_bytes()).await
}
