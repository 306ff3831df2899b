//! `/v1/batches`: files of requests that run asynchronously. Batches belong to the account, their files to the
//! key that created them.

mod query;

use super::{Endpoint, find};
use crate::batch::{Batches, api_object, no_file};
use crate::proxy::exchange::{Ended, Exchange};
use async_trait::async_trait;
use http::Method;
use penstock_auth::KeyScope;
use penstock_batch::create_request::CreateBatchRequest;
use penstock_contract::{Code, Refusal};
use penstock_storage::batches::BatchRecord;
use penstock_storage::files::{FilePurpose, FileRecord, FileStatus};
use query::Query;
use serde_json::{Value, json};

const ALL: &str = "/v1/batches";
const ONE: &str = "/v1/batches/*";
const CANCEL: &str = "/v1/batches/*/cancel";

/// `POST /v1/batches`.
pub struct Post;

#[async_trait]
impl Endpoint for Post {
    fn name(&self) -> &'static str {
        "batches_create"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        ALL
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let asked = CreateBatchRequest::parse(&x.json_body().await?, penstock_batch::jsonl::BATCH_PATHS)?;
        let (lines, _) = find(&Method::POST, asked.endpoint)?;
        x.grant.require(lines.scope())?;
        let when = x.house.when();
        let file = x.house.files.get(&x.grant.public_id, &asked.input_file_id, when).await;
        let file =
            file.map_err(|refusal| if refusal.code == Code::NotFound { no_file() } else { refusal })?;
        fits(&file, &asked)?;
        let record = Batches::create(&x.house.batch, &x.grant, asked).await?;
        Ok(answer(x, &api_object::object(&record)).await)
    }
}

/// Checks that a file can be the input of the requested batch.
fn fits(file: &FileRecord, asked: &CreateBatchRequest) -> Result<(), Refusal> {
    if file.purpose != FilePurpose::Batch {
        let expected = "input_file_id: expected a file that was uploaded with purpose \"batch\"";
        return Err(Refusal::invalid("input_file_id", expected));
    }
    if file.status != FileStatus::Processed {
        return Err(Refusal::invalid("input_file_id", "input_file_id: expected a file without errors"));
    }
    match file.url.as_deref() {
        Some(url) if url == asked.endpoint => Ok(()),
        url => {
            let url = url.unwrap_or("nothing");
            let expected = format!("endpoint: expected {url}, the url of the file's lines");
            Err(Refusal::invalid("endpoint", expected))
        }
    }
}

/// `GET /v1/batches`.
pub struct List;

#[async_trait]
impl Endpoint for List {
    fn name(&self) -> &'static str {
        "batches"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        ALL
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let query = Query::parse(x.caller.query().unwrap_or_default())?;
        let page = x.house.batches.list(&x.grant.account.id, query.after.as_deref(), query.limit).await?;
        let id = |record: Option<&BatchRecord>| record.map(|record| record.id.clone());
        let body = json!({
            "object": "list",
            "first_id": id(page.batches.first()),
            "last_id": id(page.batches.last()),
            "has_more": page.more,
            "data": page.batches.iter().map(api_object::object).collect::<Vec<_>>(),
        });
        Ok(answer(x, &body).await)
    }
}

/// `GET /v1/batches/{id}`.
pub struct Get;

#[async_trait]
impl Endpoint for Get {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        ONE
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    async fn handle(&self, x: &mut Exchange<'_>, tail: &str) -> Result<Ended, Refusal> {
        let record = x.house.batches.get(&x.grant.account.id, tail).await?;
        Ok(answer(x, &api_object::object(&record)).await)
    }
}

/// `POST /v1/batches/{id}/cancel`.
pub struct Cancel;

#[async_trait]
impl Endpoint for Cancel {
    fn name(&self) -> &'static str {
        "batch_cancel"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        CANCEL
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    async fn handle(&self, x: &mut Exchange<'_>, id: &str) -> Result<Ended, Refusal> {
        let batches = &x.house.batches;
        let record = batches.get(&x.grant.account.id, id).await?;
        // Cancelling needs the same scopes as creating; `inference.batches` allows both for each endpoint.
        if !x.grant.holds(KeyScope::Batches)
            && let Ok((lines, _)) = find(&Method::POST, &record.endpoint)
        {
            x.grant.require(lines.scope())?;
        }
        let record = batches.cancel(&x.grant.account.id, id).await?;
        Ok(answer(x, &api_object::object(&record)).await)
    }
}

async fn answer(x: &mut Exchange<'_>, body: &Value) -> Ended {
    x.answer(200, body.to_string().into_bytes()).await
}
