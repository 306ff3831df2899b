//! `GET /v1/responses/{id}/input_items`: the items of the conversation to which a stored response is the answer.

use super::include::IncludedParts;
use super::stored::find_response;
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::endpoint::{Endpoint, EndpointFuture, decode_segment, query_parameters};
use crate::proxy::exchange::Exchange;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::{ApiError, ErrorCode};
use penstock_dialect::listed_items::complete_item;
use penstock_dialect::stored_response::{ItemPage, StoredResponse, item_id, item_page};
use penstock_json_scan::json;

/// Default page size of the list; the maximum is `MAX_LIMIT`.
const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

/// Endpoint `GET /v1/responses/{id}/input_items`.
pub struct ListInputItemsEndpoint;

impl Endpoint for ListInputItemsEndpoint {
    fn name(&self) -> &'static str {
        "response_input_items"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/responses/*/input_items"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Responses",
            EndpointWorkKind::Store,
            "Lists the items that a stored response answers",
            &[(200, &[(JSON_CONTENT_TYPE, "ItemList")])],
        )
        .with_query(&["after", "include[]", "limit 1 100 20", "order"])
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let text = x.caller.query().unwrap_or_default();
            let (query, parts) = (ItemQuery::parse(text)?, IncludedParts::parse(text)?);
            let document = find_response(x, &decode_segment(tail)).await?;
            let stored = StoredResponse::parse(&document).ok_or(ApiError::new(ErrorCode::Internal))?;
            let page = item_page(stored.input_items, query.after.as_deref(), query.is_ascending, query.limit);
            let page = page.ok_or_else(|| {
                ApiError::invalid("after", "after: expected the id of an item of this response.")
            })?;
            let mut items = Vec::with_capacity(page.items.len());
            for item in &page.items {
                let item = parts.add_to_item(&complete_item(item)).into_owned();
                // The memory is reserved for the item, and for its copy in the list.
                x.reserve_memory(item.len().saturating_mul(2))?;
                items.push(item);
            }
            Ok(x.send_json(200, list_object(&page, &items)).await)
        })
    }
}

/// Writes the list object of a page, whose items have been completed to `items`.
fn list_object(page: &ItemPage<'_>, items: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(128 + items.iter().map(|item| item.len() + 1).sum::<usize>());
    out.extend_from_slice(br#"{"object":"list","data":["#);
    for (at, item) in items.iter().enumerate() {
        out.extend_from_slice(if at > 0 { b"," } else { b"" });
        out.extend_from_slice(item);
    }
    out.push(b']');
    for (name, item) in [("first_id", page.items.first()), ("last_id", page.items.last())] {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        match item.and_then(|item| item_id(item)) {
            Some(id) => json::write_str(&mut out, &id),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(format!(",\"has_more\":{}}}", page.has_more).as_bytes());
    out
}

/// Query parameters of a request for the list of input items.
#[derive(Debug, PartialEq, Eq)]
struct ItemQuery {
    after: Option<String>,
    is_ascending: bool,
    limit: usize,
}

impl ItemQuery {
    /// Parses the query of a URL. Unknown parameters are ignored, and empty ones count as absent.
    fn parse(text: &str) -> Result<Self, ApiError> {
        let mut query = Self { after: None, is_ascending: false, limit: DEFAULT_LIMIT };
        for (name, value) in query_parameters(text) {
            let invalid =
                |name: &str, expected: &str| ApiError::invalid(name, format!("{name}: expected {expected}."));
            match (&*name, &*value) {
                (_, "") => {}
                ("after", _) => query.after = Some(value.into_owned()),
                ("order", "asc") => query.is_ascending = true,
                ("order", "desc") => query.is_ascending = false,
                ("order", _) => return Err(invalid("order", "\"asc\" or \"desc\"")),
                ("limit", _) => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                    query.limit = limit.ok_or_else(|| invalid("limit", "a whole number from 1 to 100"))?;
                }
                _ => {}
            }
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn parameters_are_parsed_and_invalid_ones_named() {
        let query = ItemQuery::parse("limit=100&order=asc&after=msg%5F1&include[]=x").unwrap();
        assert_eq!(query, ItemQuery { after: Some("msg_1".into()), is_ascending: true, limit: 100 });
        assert_eq!(ItemQuery::parse("limit=&order=").unwrap().limit, DEFAULT_LIMIT);
        for (text, name) in
            [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("order=up", "order")]
        {
            assert_eq!(ItemQuery::parse(text).unwrap_err().param.as_deref(), Some(name), "{text}");
        }
    }

    #[test]
    fn a_page_is_a_list_object() {
        let page = ItemPage { items: vec![br#"{"id":"a"}"#, br#"{"id":"b\""}"#], has_more: true };
        let items: Vec<Vec<u8>> = page.items.iter().map(|item| item.to_vec()).collect();
        let list: serde_json::Value = serde_json::from_slice(&list_object(&page, &items)).unwrap();
        assert_eq!((&list["first_id"], &list["last_id"]), (&"a".into(), &"b\"".into()));
        assert_eq!((list["data"].as_array().unwrap().len(), &list["has_more"]), (2, &true.into()));
        let empty = ItemPage { items: Vec::new(), has_more: false };
        let empty: serde_json::Value = serde_json::from_slice(&list_object(&empty, &[])).unwrap();
        assert!(empty["last_id"].is_null() && empty["data"].as_array().unwrap().is_empty());
    }
}
