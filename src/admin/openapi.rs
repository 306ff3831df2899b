//! OpenAPI document of the admin listener. It is generated from the routes and from the same lists of members that
//! parse the requests, so that it always matches them.

use super::routes::{self, AdminRoute};
use super::schema::json_member_schema;
use super::users::{INVITATION_MEMBERS, USER_MEMBERS, user_schema};
use super::{batches, files, input};
use penstock_routing::FLAVORS;
use penstock_storage::files::FilePurpose;
use serde_json::{Map, Value, json};

/// Returns the OpenAPI 3.1 document of the admin API.
#[must_use]
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in routes::all_routes() {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(item) = item.as_object_mut() {
            item.insert(route.method.as_str().to_ascii_lowercase(), operation(route));
        }
    }
    paths.insert("/admin/openapi.json".to_owned(), public_path("This document", "application/json"));
    paths.insert(
        "/status".to_owned(),
        public_path("Version, configuration, ledger and providers", "application/json"),
    );
    paths.insert("/metrics".to_owned(), public_path("Metrics for Prometheus", "text/plain"));
    paths.insert("/healthz".to_owned(), public_path("200 while the process runs", "text/plain"));
    paths.insert(
        "/readyz".to_owned(),
        public_path("200 while requests are accepted, otherwise 503 with the reason", "text/plain"),
    );
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock administration",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "Accounts, keys, limits and configuration of a running gateway, at `listen.admin`. \
                The bearer token is in the file `admin.token` of the storage folder. Amounts are credits, as \
                exact text; times are Unix seconds. A request is carried out completely or not at all, and every change is in \
                the audit log, under the name that the header `x-penstock-actor` gives.",
        },
        "servers": [{ "url": "http://127.0.0.1:9090" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas(),
        },
    })
}

/// Returns the text of the file `docs/admin.openapi.json`.
#[must_use]
pub fn document_text() -> String {
    let text = serde_json::to_string_pretty(&document()).unwrap_or_default();
    format!("{text}\n")
}

/// Returns the path item of a path that needs no token.
fn public_path(summary: &str, kind: &str) -> Value {
    let content = Map::from_iter([(kind.to_owned(), json!({}))]);
    json!({ "get": { "summary": summary, "security": [], "responses": { "200": {
        "description": summary, "content": content } } } })
}

fn operation(route: &AdminRoute) -> Value {
    let (status, answer) = (route.answer.0.to_string(), route.answer.1());
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        parameters
            .push(json!({ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } }));
    }
    for name in route.query {
        parameters.push(json!({ "name": name, "in": "query", "schema": parameter_schema(name) }));
    }
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "responses": {
            (status): { "description": "Done", "content": { (route.media_type): { "schema": answer } } },
            "default": { "description": "Error; nothing was done, unless the message says that the outcome is unknown", "content": { "application/json": {
                "schema": schema_ref("Error") } } },
        },
    });
    if let Some(members) = operation.as_object_mut() {
        if !parameters.is_empty() {
            members.insert("parameters".to_owned(), parameters.into());
        }
        if let Some(body) = route.body {
            let schema = body_schema(body.members, body.required_members);
            let body =
                json!({ "required": body.required, "content": { "application/json": { "schema": schema } } });
            members.insert("requestBody".to_owned(), body);
        }
    }
    operation
}

fn parameter_schema(name: &str) -> Value {
    match name {
        "limit" => json!({ "type": "integer", "minimum": 1, "maximum": super::request::MAX_PAGE_ROWS,
            "default": super::request::MAX_PAGE_ROWS, "description": "Maximum number of rows on the page." }),
        "after" => json!({ "type": "string", "description": "Value of `next` on the previous page." }),
        "account" => json!({ "type": "string", "description": "Only this account, or what belongs to it." }),
        "state" => json!({ "enum": batches::STATES, "description": "Only batches with this status." }),
        "order" => json!({ "enum": ["asc", "desc"], "default": "asc", "description": "Order by creation." }),
        "purpose" => {
            json!({ "enum": FilePurpose::ALL.map(FilePurpose::name), "description": "Only files with this purpose." })
        }
        "month" => {
            json!({ "type": "string", "description": "UTC month such as 2026-11; by default the current one." })
        }
        "day" => json!({ "type": "string", "description": "UTC day such as 2026-11-22; by default today." }),
        "from" | "to" => json!({ "type": "string", "format": "date",
            "description": "UTC day, included. By default the range ends today and has 30 days, at most 366; a statement begins with the month of its last day and may have any length." }),
        "group_by" => json!({ "type": "string", "default": "day",
            "description": "Up to three of day, week, month, hour, model, key, provider, location and outcome, with commas." }),
        "key" => json!({ "type": "string", "description": "Only this key, by its public id." }),
        "invoice" => json!({ "type": "string", "description": "Number of an issued invoice." }),
        "invoice_from" => {
            json!({ "type": "string", "format": "date", "description": "First day of the invoice, necessary only if an earlier version gave its number to two invoices of the account." })
        }
        "number" => json!({ "type": "string", "description": "Number of an issued credit note." }),
        "flavor" => json!({ "enum": FLAVORS.iter().map(|flavor| flavor.name()).collect::<Vec<_>>(),
            "description": "Only this flavor; by default all of them." }),
        "needs" => {
            json!({ "type": "string", "description": "Capabilities that the request needs, with commas." })
        }
        "accounts" => {
            json!({ "enum": ["true", "false"], "default": "false", "description": "True to add rows by account." })
        }
        "by" => {
            json!({ "enum": ["model", "provider"], "default": "model", "description": "Groups of the rows." })
        }
        "entry" => json!({ "type": "integer", "description": "Number of a charge or a grant." }),
        "credits" | "kwh" => {
            json!({ "type": "string", "description": "Amount after the correction, in credits or in kilowatt-hours; exactly one of the two." })
        }
        "target" => {
            json!({ "type": "string", "description": "Only changes of this account, key, user, batch, file, invoice or credit note." })
        }
        _ => json!({}),
    }
}

/// Returns the schema of a complete list of rows.
pub(super) fn list_schema(item: Value) -> Value {
    json!({ "type": "object", "properties": { "data": { "type": "array", "items": item } } })
}

/// Returns the schema of a page of rows.
pub(super) fn page_schema(item: Value) -> Value {
    json!({ "type": "object", "properties": {
        "data": { "type": "array", "items": item },
        "has_more": { "type": "boolean" },
        "next": { "type": ["string", "integer", "null"], "description": "Value of `after` for the next page." },
    } })
}

/// Returns a reference to a schema of the document's components.
pub(super) fn schema_ref(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Returns the schema of a request body: members that are not listed are refused.
fn body_schema(members: &[&str], required: &[&str]) -> Value {
    let properties: Map<String, Value> =
        members.iter().map(|name| ((*name).to_owned(), json_member_schema(name))).collect();
    let mut object = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if let Some(members) = object.as_object_mut().filter(|_| !required.is_empty()) {
        members.insert("required".to_owned(), required.into());
    }
    object
}

/// Returns the schema of a response with these members; none is required, and further ones are allowed.
pub(super) fn response_schema(members: &[&str]) -> Value {
    let properties: Map<String, Value> =
        members.iter().map(|name| ((*name).to_owned(), json_member_schema(name))).collect();
    json!({ "type": "object", "properties": properties })
}

/// Members of an account in responses, including those that the gateway adds.
pub(super) const ACCOUNT_MEMBERS: [&str; 8] =
    ["id", "name", "created", "state", "limits", "version", "now", "warnings"];
/// Members of a key in responses, including those that the gateway adds.
pub(super) const KEY_MEMBERS: [&str; 16] = [
    "id",
    "name",
    "account",
    "scopes",
    "models",
    "limits",
    "store_responses",
    "created",
    "last_used",
    "expires",
    "rotated",
    "previous_good_until",
    "revoked",
    "version",
    "now",
    "warnings",
];
/// Members of the object `now` in responses: the requests in flight, remaining limits and spending of a key or account.
pub(super) const NOW_MEMBERS: [&str; 6] =
    ["requests_at_work", "requests_left", "tokens_left", "tokens_owed", "spent_today", "spent_this_month"];

fn schemas() -> Value {
    let with_key: Vec<&str> = KEY_MEMBERS.iter().copied().chain(["key"]).collect();
    let mut limits = body_schema(&input::LIMIT_MEMBERS, &[]);
    if let Some(members) = limits.as_object_mut() {
        members.insert(
            "description".to_owned(),
            "A limit that is `null`, or absent in a new key or account, is unlimited.".into(),
        );
    }
    json!({
        "Account": response_schema(&ACCOUNT_MEMBERS),
        "Key": response_schema(&KEY_MEMBERS),
        "NewKey": response_schema(&with_key),
        "Balance": response_schema(&["account", "credits", "energy_kwh"]),
        "Granted": response_schema(&["account", "credits", "energy_kwh", "id", "entry"]),
        "Batch": response_schema(&batches::BATCH_MEMBERS),
        "File": response_schema(&files::FILE_MEMBERS),
        "User": user_schema(&USER_MEMBERS),
        "InvitedUser": user_schema(&INVITATION_MEMBERS),
        "Limits": limits,
        "Now": response_schema(&NOW_MEMBERS),
        "Error": { "type": "object", "properties": { "error": { "type": "object", "properties": {
            "message": { "type": "string" },
            "type": { "type": "string" },
            "param": { "type": ["string", "null"], "description": "Name of the invalid field." },
            "code": { "type": "string", "description": "Stable error code." },
            "details": { "type": "object" },
        } } } },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::super::keys;
    use super::*;
    use crate::auth::account_json;
    use penstock_storage::accounts::{AccountRecord, AccountState};
    use penstock_storage::keys::{KeyDigest, KeyLimits, KeyRecord};

    #[test]
    fn the_document_in_the_repository_is_the_generated_one() {
        let stored = include_str!("../../docs/admin.openapi.json");
        assert!(stored == document_text(), "run `penstock openapi > docs/admin.openapi.json`");
    }

    #[test]
    fn every_member_is_explained() {
        fn walk(value: &Value, path: &str) {
            if let Some(properties) = value.get("properties").and_then(Value::as_object) {
                for (name, schema) in properties {
                    assert!(!schema.is_null(), "{path}.{name}");
                }
            }
            for (name, inner) in value.as_object().into_iter().flatten() {
                walk(inner, &format!("{path}.{name}"));
            }
        }
        walk(&document(), "");
    }

    #[test]
    fn answers_match_the_document() {
        let account = AccountRecord {
            id: "a".to_owned(),
            name: String::new(),
            created: 1,
            state: AccountState::Active,
            limits: KeyLimits::default(),
        };
        let key = KeyRecord::new("0123456789abcdef", KeyDigest([0; 32]), "a", 1);
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&super::super::accounts::account_json(&account)), ACCOUNT_MEMBERS[..6]);
        assert_eq!(names(&keys::key_json(&key)), KEY_MEMBERS[..14]);
        assert_eq!(names(&account_json::limits_to_json(&key.limits)), input::LIMIT_MEMBERS);
    }

    #[test]
    fn every_route_is_there_with_its_parameters() {
        let document = document();
        let mut names = std::collections::BTreeSet::new();
        for route in routes::all_routes() {
            let method = route.method.as_str().to_ascii_lowercase();
            let operation = &document["paths"][route.path][method];
            assert_eq!(operation["summary"], route.summary);
            let named = operation["parameters"].as_array().map_or(0, Vec::len);
            let expected = route.query.len() + usize::from(route.path.contains("{id}"));
            assert_eq!(named, expected, "{}", route.path);
            assert!(!route.answer.1().is_null(), "{} says nothing of its answer", route.name);
            assert!(names.insert(route.name), "{} is there twice", route.name);
            let body = route
                .body
                .iter()
                .flat_map(|body| body.required_members.iter().map(|name| (name, body.members)));
            body.for_each(|(name, members)| assert!(members.contains(name), "{}: {name}", route.name));
        }
    }
}
