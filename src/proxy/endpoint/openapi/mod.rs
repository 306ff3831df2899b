//! OpenAPI document of the public listener, built from the endpoint table, the error table, and the schemas. `GET
//! /openapi.json` returns it; `docs/openapi.json` is the same text.

mod operations;

use super::{ENDPOINTS, Endpoint, MessagesDialectHint, error_dialect};
pub use operations::{
    EVENT_STREAM_CONTENT, EndpointWorkKind, FILE_CONTENT_TYPES, FORM_CONTENT_TYPE, JSON_CONTENT_TYPE,
    Operation,
};
use operations::{error_codes, query_parameter_object};
use penstock_core::ErrorCode;
use penstock_routing::FLAVORS;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// Path at which the OpenAPI document is served.
pub const OPENAPI_PATH: &str = "/openapi.json";
/// Schemas of requests and responses, by name; `FLAVORS` stands for the list of the flavors.
const SCHEMAS: &str = include_str!("schemas.json");

/// Builds the OpenAPI 3.1 document.
#[must_use]
pub fn build_document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    let mut errors = ErrorResponses::default();
    for endpoint in ENDPOINTS {
        let row = endpoint.openapi_operation();
        let path = endpoint.path().replace('*', "{id}");
        let item = paths.entry(path.clone()).or_insert_with(|| json!({}));
        if let Some(item) = item.as_object_mut() {
            let method = endpoint.method().as_str().to_ascii_lowercase();
            item.insert(method, operation(*endpoint, &row, &path, &mut errors));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "Open-weight models at providers in the European Union, in the chat-completions, the \
                messages and the responses dialect. The key is sent as `Authorization: Bearer` or as `x-api-key`. Members of a request \
                that are not listed are ignored where the answer does not depend on them. Every error has a stable \
                `code`.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ "bearer": [] }, { "api_key": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "api_key": { "type": "apiKey", "in": "header", "name": "x-api-key" },
            },
            "headers": { "RequestId": {
                "description": "The ID of the request, also in the body of an error and in the operator's log.",
                "schema": { "type": "string" },
            } },
            "responses": Map::from_iter(errors.0),
            "schemas": schemas(),
        },
    })
}

/// Returns the text of the document, as it is served and as it is stored in `docs/`.
#[must_use]
pub fn document_text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| format!("{}\n", serde_json::to_string_pretty(cached_document()).unwrap_or_default()))
}

/// Returns the document of this version, built once.
#[must_use]
pub fn cached_document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(build_document)
}

/// Returns the schemas of requests and responses by name: those that several endpoints share, and those that a single
/// endpoint uses.
fn schemas() -> Map<String, Value> {
    let mut texts = vec![SCHEMAS.to_owned()];
    for schemas in ENDPOINTS.iter().map(|endpoint| endpoint.openapi_operation().schemas) {
        // Two paths of one endpoint have the same schemas.
        let text = format!("{{{schemas}}}");
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let parse = |text: &String| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
    let mut schemas: Map<String, Value> = texts.iter().flat_map(parse).collect();
    if let Some(Value::String(description)) =
        schemas.get_mut("ModelName").and_then(|name| name.get_mut("description"))
    {
        let flavors: Vec<String> = FLAVORS.iter().map(|flavor| format!("`:{}`", flavor.name())).collect();
        *description = description.replace("FLAVORS", &flavors.join(", "));
    }
    schemas
}

fn schema_reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn operation(endpoint: &dyn Endpoint, row: &Operation, path: &str, errors: &mut ErrorResponses) -> Value {
    let mut operation = Map::new();
    // An endpoint with two paths needs two different operation IDs.
    let name = path.trim_matches('/').replace(['/', '{', '}', '.'], "_");
    let method = endpoint.method().as_str().to_ascii_lowercase();
    operation.insert("operationId".to_owned(), format!("{method}_{name}").trim_end_matches('_').into());
    operation.insert("summary".to_owned(), row.summary.into());
    operation.insert("tags".to_owned(), json!([row.tag]));
    if endpoint.is_public() {
        operation.insert("security".to_owned(), json!([]));
    }
    let parameters = parameters(row, path);
    if !parameters.is_empty() {
        operation.insert("parameters".to_owned(), parameters.into());
    }
    if let Some((kind, schema)) = row.body {
        let content = Map::from_iter([(kind.to_owned(), json!({ "schema": schema_reference(schema) }))]);
        operation.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
    }
    operation.insert("responses".to_owned(), responses(endpoint, row, path, errors).into());
    operation.into()
}

fn parameters(row: &Operation, path: &str) -> Vec<Value> {
    let id = || json!({ "name": "id", "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } });
    let mut parameters: Vec<Value> = path.contains("{id}").then(id).into_iter().collect();
    parameters.extend(row.query.iter().map(|written| query_parameter_object(written)));
    let header = |name: &&str| json!({ "name": name, "in": "header", "schema": { "type": "string" } });
    parameters.extend(row.request_headers.iter().map(header));
    parameters
}

fn responses(
    endpoint: &dyn Endpoint,
    row: &Operation,
    path: &str,
    errors: &mut ErrorResponses,
) -> Map<String, Value> {
    let request_id = json!({ "x-request-id": { "$ref": "#/components/headers/RequestId" } });
    let mut responses = Map::new();
    for (status, contents) in row.answers {
        let contents = contents
            .iter()
            .map(|(kind, schema)| ((*kind).to_owned(), json!({ "schema": schema_reference(schema) })));
        let content: Map<String, Value> = contents.collect();
        let description = if *status == 304 { "Not modified" } else { "Success" };
        let answer = json!({ "description": description, "headers": request_id, "content": content });
        responses.insert(status.to_string(), answer);
    }
    let schema = error_schema(path);
    let mut codes = error_codes(row, endpoint.is_public(), path.contains("{id}"));
    codes.reverse();
    while let Some(code) = codes.pop() {
        let status = code.spec().status;
        let mut descriptions = vec![describe_code(code)];
        while let Some(next) = codes.pop_if(|next| next.spec().status == status) {
            descriptions.push(self::describe_code(next));
        }
        let answer = json!({ "description": descriptions.join(" "), "headers": request_id,
            "content": { "application/json": { "schema": schema } } });
        responses.insert(status.to_string(), errors.reference(status, answer));
    }
    responses
}

/// Error responses of all endpoints, each once, by name.
#[derive(Default)]
struct ErrorResponses(Vec<(String, Value)>);

impl ErrorResponses {
    /// Returns a reference to a response, and adds the response if it is new.
    fn reference(&mut self, status: u16, answer: Value) -> Value {
        let known = self.0.iter().find(|(_, known)| *known == answer).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| {
            let start = format!("Error{status}");
            let same = self.0.iter().filter(|(name, _)| name.starts_with(&start)).count();
            let name = if same == 0 { start } else { format!("{start}_{}", same + 1) };
            self.0.push((name.clone(), answer));
            name
        });
        json!({ "$ref": format!("#/components/responses/{name}") })
    }
}

/// Returns the description of an error code in a response.
fn describe_code(code: ErrorCode) -> String {
    let row = code.spec();
    format!("`{}` ({}): {}", row.code, row.chat_type, row.message)
}

/// Returns the schema of the body of error responses for a path.
fn error_schema(path: &str) -> Value {
    let [plain, versioned] = [MessagesDialectHint::Absent, MessagesDialectHint::Messages]
        .map(|headers| error_dialect(path, headers).spec().http.error_schema);
    if plain == versioned {
        return schema_reference(plain);
    }
    json!({ "anyOf": [schema_reference(plain), schema_reference(versioned)] })
}

#[cfg(test)]
mod tests;
