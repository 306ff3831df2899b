//! `GET /v1/files`: a key's files in pages, sorted by creation time. A page continues after an ID, even if that file
//! was deleted, so that deletions do not break pagination.

use super::object::object;
use crate::proxy::endpoint::{Endpoint, parameters};
use crate::proxy::exchange::{Ended, Exchange};
use crate::storage::files::{ListQuery, PREFIX};
use crate::storage::object_id;
use async_trait::async_trait;
use http::Method;
use penstock_auth::KeyScope;
use penstock_contract::Refusal;
use penstock_storage::files::FilePurpose;
use serde_json::{Value, json};

/// Largest page size, and the default.
const MOST: usize = 10_000;

/// Endpoint of the file list.
pub struct List;

#[async_trait]
impl Endpoint for List {
    fn name(&self) -> &'static str {
        "files"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/files"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let text = x.caller.query().unwrap_or_default();
        let query = query(&x.grant.public_id, text)?;
        let at = x.house.when();
        let page = x.house.files.list(query, at).await?;
        let id = |file: Option<&penstock_storage::files::FileRecord>| file.map(|file| file.id.clone());
        let body = json!({
            "object": "list",
            "data": page.files.iter().map(|file| object(file, at)).collect::<Vec<Value>>(),
            "first_id": id(page.files.first()),
            "last_id": id(page.files.last()),
            "has_more": page.more,
        });
        Ok(x.answer(200, body.to_string().into_bytes()).await)
    }
}

/// Parses the query. Unknown parameters are ignored, and empty ones count as absent.
fn query(key: &str, text: &str) -> Result<ListQuery, Refusal> {
    let mut query = ListQuery { key: key.into(), purpose: None, after: None, rising: false, limit: MOST };
    for (name, value) in parameters(text) {
        let wrong =
            |name: &str, expected: &str| Err(Refusal::invalid(name, format!("{name}: expected {expected}.")));
        match &*name {
            _ if value.is_empty() => {}
            "limit" => match value.parse().ok().filter(|limit| (1..=MOST).contains(limit)) {
                Some(limit) => query.limit = limit,
                None => return wrong(&name, "a whole number from 1 to 10000"),
            },
            "order" => match &*value {
                "asc" => query.rising = true,
                "desc" => query.rising = false,
                _ => return wrong(&name, "\"asc\" or \"desc\""),
            },
            "purpose" => match FilePurpose::ALL.into_iter().find(|purpose| purpose.name() == value) {
                Some(purpose) => query.purpose = Some(purpose),
                None => return wrong(&name, "\"batch\" or \"batch_output\""),
            },
            "after" if object_id::is(PREFIX, &value) => query.after = Some(value.into_owned()),
            "after" => return wrong(&name, "the id of a file"),
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
    fn parameters_are_read_and_wrong_ones_named() {
        let id = object_id::new(PREFIX, std::time::Duration::from_secs(5));
        let read =
            query("k", &format!("limit=2&order=asc&after={id}&purpose=batch%5Foutput&other=x")).unwrap();
        assert_eq!(
            (read.limit, read.rising, read.after, read.purpose),
            (2, true, Some(id), Some(FilePurpose::BatchOutput))
        );
        let plain = query("k", "limit=&after=").unwrap();
        assert_eq!((plain.limit, plain.rising, plain.after), (MOST, false, None));
        for (text, name) in [
            ("limit=0", "limit"),
            ("limit=10001", "limit"),
            ("limit=x", "limit"),
            ("order=up", "order"),
            ("purpose=assistants", "purpose"),
            ("after=file-1", "after"),
        ] {
            assert_eq!(query("k", text).unwrap_err().param.as_deref(), Some(name), "{text}");
        }
    }
}
