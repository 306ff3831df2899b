//! `GET /v1/files`: the files of a key in pages, sorted by creation time. A page continues after a given ID even if the
//! file with this ID was deleted, so that deletions do not break pagination.

use super::object::file_object;
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::endpoint::{Endpoint, EndpointFuture, query_parameters};
use crate::proxy::exchange::Exchange;
use crate::storage::files::{FILE_ID_PREFIX, FileListQuery};
use crate::storage::object_id;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::ApiError;
use penstock_storage::files::FilePurpose;
use serde_json::{Value, json};

/// Maximum number of files on a page, which is also the default.
const MAX_LIMIT: usize = 10_000;

/// Endpoint of the file list.
pub struct ListFilesEndpoint;

impl Endpoint for ListFilesEndpoint {
    fn name(&self) -> &'static str {
        "files"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/files"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Files",
            EndpointWorkKind::Store,
            "Lists the files of the key",
            &[(200, &[(JSON_CONTENT_TYPE, "FileList")])],
        )
        .with_query(&["after", "limit 1 10000 10000", "order", "purpose"])
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let text = x.caller.query().unwrap_or_default();
            let query = parse_query(&x.principal.public_id, text)?;
            let at = x.app.file_expiry_context();
            let page = x.app.files.list(query, at).await?;
            let id = |file: Option<&penstock_storage::files::FileRecord>| file.map(|file| file.id.clone());
            let body = json!({
                "object": "list",
                "data": page.files.iter().map(|file| file_object(file, at)).collect::<Vec<Value>>(),
                "first_id": id(page.files.first()),
                "last_id": id(page.files.last()),
                "has_more": page.next.is_some(),
            });
            Ok(x.send_json(200, body.to_string().into_bytes()).await)
        })
    }
}

/// Parses the query. Unknown parameters are ignored, and empty ones count as absent.
fn parse_query(key: &str, text: &str) -> Result<FileListQuery, ApiError> {
    let mut query =
        FileListQuery { key: key.into(), purpose: None, after: None, ascending: false, limit: MAX_LIMIT };
    for (name, value) in query_parameters(text) {
        let invalid = |name: &str, expected: &str| {
            Err(ApiError::invalid(name, format!("{name}: expected {expected}.")))
        };
        match &*name {
            _ if value.is_empty() => {}
            "limit" => match value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit)) {
                Some(limit) => query.limit = limit,
                None => return invalid(&name, "a whole number from 1 to 10000"),
            },
            "order" => match &*value {
                "asc" => query.ascending = true,
                "desc" => query.ascending = false,
                _ => return invalid(&name, "\"asc\" or \"desc\""),
            },
            "purpose" => match FilePurpose::ALL.into_iter().find(|purpose| purpose.name() == value) {
                Some(purpose) => query.purpose = Some(purpose),
                None => return invalid(&name, "\"batch\" or \"batch_output\""),
            },
            "after" if object_id::is_valid(FILE_ID_PREFIX, &value) => query.after = Some(value.into_owned()),
            "after" => return invalid(&name, "the id of a file"),
            _ => {}
        }
    }
    Ok(query)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parameters_are_parsed_and_invalid_ones_named() {
        let id = object_id::new(FILE_ID_PREFIX, std::time::Duration::from_secs(5));
        let read = parse_query("k", &format!("limit=2&order=asc&after={id}&purpose=batch%5Foutput&other=x"))
            .unwrap();
        assert_eq!(
            (read.limit, read.ascending, read.after, read.purpose),
            (2, true, Some(id), Some(FilePurpose::BatchOutput))
        );
        let plain = parse_query("k", "limit=&after=").unwrap();
        assert_eq!((plain.limit, plain.ascending, plain.after), (MAX_LIMIT, false, None));
        for (text, name) in [
            ("limit=0", "limit"),
            ("limit=10001", "limit"),
            ("limit=x", "limit"),
            ("order=up", "order"),
            ("purpose=assistants", "purpose"),
            ("after=file-1", "after"),
        ] {
            assert_eq!(parse_query("k", text).unwrap_err().param.as_deref(), Some(name), "{text}");
        }
    }
}
