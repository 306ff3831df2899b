//! Tests that `conf/penstock.toml` shows the defaults, and has every key.

use super::super::raw::ConfigFile;
use super::super::schema::SCHEMA;
use super::super::schema_json;
use super::load;
use serde_json::Value;
use std::collections::BTreeSet;

const REFERENCE: &str = include_str!("../../../conf/penstock.toml");

/// Returns the text of `conf/penstock.toml` with its commented-out examples enabled.
fn uncommented() -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with([' ', '#']) => rest.to_owned(),
        _ => line.to_owned(),
    };
    REFERENCE.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn keys_of_schema(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    if let Some(items) = schema.get("items") {
        keys_of_schema(items, path, found);
    }
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = format!("{path}.{name}");
        // The members of these keys are not collected, because they are the same everywhere: a secret's reference,
        // headers, a price, `https`.
        let leaf = inner.get("format").is_some() || ["headers", "price", "https"].contains(&name.as_str());
        found.insert(path.clone());
        if !leaf {
            keys_of_schema(inner, &path, found);
        }
    }
}

fn keys_of_toml(value: &toml::Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, inner) in table {
                let path = format!("{path}.{name}");
                found.insert(path.clone());
                keys_of_toml(inner, &path, found);
            }
        }
        toml::Value::Array(array) => array.iter().for_each(|inner| keys_of_toml(inner, path, found)),
        _ => {}
    }
}

#[test]
fn the_reference_is_the_defaults() {
    let written: ConfigFile = toml::from_str(REFERENCE).unwrap();
    assert_eq!(written, ConfigFile::default());
}

#[test]
fn the_reference_runs_and_says_that_the_catalogue_is_empty() {
    let loaded = load(REFERENCE).unwrap();
    assert!(loaded.warnings.iter().any(|warning| warning.reason.contains("catalogue is empty")));
}

#[test]
fn the_reference_has_every_key_of_the_schema() {
    let (mut known, mut written) = (BTreeSet::new(), BTreeSet::new());
    keys_of_schema(&SCHEMA, "", &mut known);
    keys_of_toml(&toml::from_str::<toml::Value>(&uncommented()).unwrap(), "", &mut written);
    let missing: Vec<&String> = known.difference(&written).collect();
    assert!(missing.is_empty(), "conf/penstock.toml lacks {missing:?}");
}

#[test]
fn the_examples_of_the_reference_show_the_defaults_of_their_blocks() {
    let written: Value = toml::from_str::<toml::Value>(&uncommented()).unwrap().try_into().unwrap();
    for block in ["models", "providers", "simulated"] {
        compare(&SCHEMA["properties"][block]["items"], &written[block][0], block);
    }
    let offers = &SCHEMA["properties"]["providers"]["items"]["properties"]["offers"];
    compare(&offers["items"], &written["providers"][0]["offers"][0], "providers.offers");
}

/// Asserts that the file shows the default of every key whose default is a plain value.
fn compare(schema: &Value, written: &Value, path: &str) {
    for (name, inner) in schema["properties"].as_object().unwrap() {
        let path = format!("{path}.{name}");
        let value = &written[name];
        if ["models.tokenizer", "providers.offers"].contains(&path.as_str()) || name == "price_changes" {
            continue;
        }
        match inner.get("default") {
            Some(Value::Object(_)) | None
                if inner.get("properties").is_some()
                    && value.is_object()
                    && inner.get("format").is_none()
                    && name != "price" =>
            {
                compare(inner, value, &path);
            }
            Some(default) if !default.is_object() => assert_eq!(value, default, "{path}"),
            _ => {}
        }
    }
}

#[test]
fn the_schema_in_the_repository_is_the_one_that_is_generated() {
    let stored = include_str!("../../../conf/penstock.schema.json");
    assert!(stored == schema_json(), "run `penstock schema > conf/penstock.schema.json`");
}

#[test]
fn every_key_of_the_schema_has_a_sentence() {
    fn walk(schema: &Value, path: &str) {
        for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let path = format!("{path}.{name}");
            let sentence = inner["description"].as_str().unwrap_or_default();
            assert!(sentence.ends_with('.') || sentence.ends_with(':'), "{path}: {sentence:?}");
            walk(inner, &path);
        }
        if let Some(items) = schema.get("items") {
            walk(items, path);
        }
    }
    walk(&SCHEMA, "");
}
