//! Test that the document describes every endpoint and no other.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use bytes::Bytes;
use penstock_request_validation::{MessagesPurpose, RequestLimits, ResponsesPurpose};
use std::collections::BTreeSet;

#[test]
fn the_committed_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    if std::env::var_os("PENSTOCK_BLESS").is_some() {
        std::fs::write(path, document_text()).unwrap();
    }
    let current = std::fs::read_to_string(path).unwrap_or_default() == document_text();
    assert!(current, "run `penstock openapi --public > docs/openapi.json`");
}

#[test]
fn every_endpoint_is_described_once() {
    let document = build_document();
    let mut names = BTreeSet::new();
    for endpoint in ENDPOINTS {
        let row = endpoint.openapi_operation();
        let schemas = serde_json::from_str::<Map<String, Value>>(&format!("{{{}}}", row.schemas));
        assert!(schemas.is_ok(), "{}: {schemas:?}", endpoint.name());
        let path = endpoint.path().replace('*', "{id}");
        let method = endpoint.method();
        let operation = &document["paths"][&path][method.as_str().to_ascii_lowercase()];
        assert_eq!(operation["summary"], row.summary, "{path}");
        assert!(names.insert(operation["operationId"].as_str().unwrap().to_owned()), "{path}");
        assert_eq!(operation.get("security").is_some(), endpoint.is_public(), "{path}");
        assert_eq!(operation["responses"].get("401").is_none(), endpoint.is_public(), "{path}");
    }
    let described = document["paths"].as_object().unwrap().values();
    assert_eq!(described.map(|item| item.as_object().unwrap().len()).sum::<usize>(), ENDPOINTS.len());
}

#[test]
fn a_batch_may_name_the_endpoints_that_take_lines() {
    let document = build_document();
    let named = &document["components"]["schemas"]["BatchRequest"]["properties"]["endpoint"]["enum"];
    assert_eq!(*named, json!(penstock_batch::jsonl::BATCH_PATHS));
}

#[test]
fn every_reference_has_its_schema_and_every_schema_its_use() {
    fn walk(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    found.insert(reference.clone());
                }
                members.values().for_each(|inner| walk(inner, found));
            }
            Value::Array(items) => items.iter().for_each(|inner| walk(inner, found)),
            _ => {}
        }
    }
    let document = build_document();
    let mut found = BTreeSet::new();
    walk(&document, &mut found);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for reference in &found {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
    }
    for name in schemas.keys() {
        assert!(found.contains(&format!("#/components/schemas/{name}")), "{name} is not used");
    }
}

#[test]
fn every_code_of_the_table_is_described() {
    let all = document_text();
    // `Misdirected` is a code of the admin listener only.
    for code in ErrorCode::ALL.into_iter().filter(|code| *code != ErrorCode::Misdirected) {
        assert!(all.contains(code.spec().code), "{code:?}");
    }
}

/// Returns true if validation accepts the example request of a schema after one member is set to `value`.
fn admitted(schema: &str, name: &str, value: &Value) -> bool {
    let mut body = build_document()["components"]["schemas"][schema]["example"].clone();
    body[name] = value.clone();
    let body = Bytes::from(body.to_string());
    let limits = RequestLimits::default();
    match schema {
        "ChatRequest" => penstock_request_validation::validate_chat_request(body, &limits),
        "MessagesRequest" => {
            penstock_request_validation::validate_messages_request(body, &limits, MessagesPurpose::Generate)
        }
        "CountTokensRequest" => {
            penstock_request_validation::validate_messages_request(body, &limits, MessagesPurpose::Count)
        }
        "ResponsesRequest" => {
            penstock_request_validation::validate_responses_request(body, &limits, ResponsesPurpose::Generate)
        }
        "InputTokensRequest" => {
            let purpose = ResponsesPurpose::Count(Some("m"));
            penstock_request_validation::validate_responses_request(body, &limits, purpose)
        }
        "EmbeddingsRequest" => penstock_request_validation::validate_embeddings_request(body, &limits),
        "RerankRequest" => penstock_request_validation::validate_rerank_request(body, &limits),
        _ => penstock_request_validation::validate_image_generation(body, &limits),
    }
    .is_ok()
}

/// Schemas of JSON requests to a model.
const ASKS: [&str; 8] = [
    "ChatRequest",
    "MessagesRequest",
    "CountTokensRequest",
    "ResponsesRequest",
    "InputTokensRequest",
    "EmbeddingsRequest",
    "RerankRequest",
    "ImagesRequest",
];

#[test]
fn bounds_and_words_are_those_of_admission() {
    let document = build_document();
    let mut bounds = 0;
    for schema in ASKS {
        let properties = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        for (name, property) in properties {
            for (bound, step) in [("minimum", -1.0), ("maximum", 1.0)] {
                let Some(bound) = property[bound].as_f64() else { continue };
                bounds += 1;
                let number = |number: f64| match number.fract() == 0.0 {
                    true => json!(number as i64),
                    false => json!(number),
                };
                assert!(admitted(schema, name, &number(bound)), "{schema}.{name} at {bound}");
                assert!(!admitted(schema, name, &number(bound + step)), "{schema}.{name} beyond {bound}");
            }
            for word in property["enum"].as_array().into_iter().flatten() {
                assert!(admitted(schema, name, word), "{schema}.{name}: {word}");
            }
            if property.get("enum").is_some() {
                assert!(!admitted(schema, name, &json!("no such word")), "{schema}.{name}");
            }
            let may_be_null = property["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
            assert!(!may_be_null || admitted(schema, name, &Value::Null), "{schema}.{name}: null");
        }
        for name in document["components"]["schemas"][schema]["required"].as_array().unwrap() {
            assert!(!admitted(schema, name.as_str().unwrap(), &Value::Null), "{schema}.{name} is required");
        }
    }
    assert!(bounds > 20, "{bounds}");
}
