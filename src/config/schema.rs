//! JSON Schema of the configuration, generated from the raw types.

use super::raw::ConfigFile;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Schema of the configuration, generated once.
pub static SCHEMA: LazyLock<Value> = LazyLock::new(generate_schema);

/// Generates the schema with every part inlined: no references, and no `null`, which TOML does not have.
fn generate_schema() -> Value {
    let mut schema = SchemaSettings::draft2020_12()
        .with(|s| s.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<ConfigFile>();
    RecursiveTransform(without_null).transform(&mut schema);
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".into(), "Penstock configuration".into());
    }
    schema.to_value()
}

/// Formats the schema as `penstock schema` prints it.
pub fn schema_json() -> String {
    let mut text = serde_json::to_string_pretty(&*SCHEMA).unwrap_or_default();
    text.push('\n');
    text
}

fn without_null(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            object.insert("type".into(), one);
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("enum") {
        choices.retain(|choice| !choice.is_null());
    }
    let Some(Value::Array(branches)) = object.get_mut("anyOf") else { return };
    branches.retain(|branch| branch.get("type").is_none_or(|name| name != "null"));
    if let [Value::Object(one)] = branches.as_slice() {
        let one = one.clone();
        object.remove("anyOf");
        merge_missing(object, one);
    }
}

/// Merges the schema of a type into the schema of a key that has this type. The description and default of the key take
/// precedence.
fn merge_missing(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        if !into.contains_key(&name) {
            into.insert(name, value);
        }
    }
}
