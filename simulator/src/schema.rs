//! Minimal example values that satisfy a JSON Schema.

use serde_json::{Map, Value, json};

/// Maximum depth of the generated value. Deeper schemas get `null`, which ends recursive schemas.
const DEPTH: usize = 24;
/// Value of every string without constraints.
const WORD: &str = "simulated";

/// Returns a value that satisfies the schema: types, `enum`, `const`, required properties, limits of numbers, strings
/// and arrays, `format`s, `$ref` within the document, the first branch of `anyOf` and `oneOf`, all branches of `allOf`.
/// Patterns are ignored.
pub(super) fn example(schema: &Value) -> Value {
    SchemaWalker { root: schema }.value(schema, 0)
}

struct SchemaWalker<'a> {
    root: &'a Value,
}

impl SchemaWalker<'_> {
    fn value(&self, schema: &Value, depth: usize) -> Value {
        let Some(object) = schema.as_object().filter(|_| depth < DEPTH) else {
            return Value::Null;
        };
        if let Some(target) = object.get("$ref").and_then(Value::as_str) {
            return self.value(self.find(target), depth + 1);
        }
        if let Some(fixed) = object.get("const") {
            return fixed.clone();
        }
        if let Some(first) = object.get("enum").and_then(Value::as_array).and_then(|all| all.first()) {
            return first.clone();
        }
        for branches in ["anyOf", "oneOf"] {
            if let Some(first) = object.get(branches).and_then(Value::as_array).and_then(|all| all.first()) {
                return self.value(first, depth + 1);
            }
        }
        if let Some(all) = object.get("allOf").and_then(Value::as_array) {
            return self.value(&merge_schemas(object, all, |part| self.resolved(part)), depth + 1);
        }
        match kind(object) {
            "object" => self.object(object, depth),
            "array" => self.array(object, depth),
            "string" => string(object),
            "integer" => integer(object),
            "number" => number(object),
            "boolean" => json!(true),
            "null" => Value::Null,
            _ => json!(WORD),
        }
    }

    fn object(&self, schema: &Map<String, Value>, depth: usize) -> Value {
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut made = Map::new();
        for name in required.iter().filter_map(Value::as_str) {
            let part = schema.get("properties").and_then(|all| all.get(name)).unwrap_or(&Value::Bool(true));
            let value = if part.is_boolean() { json!(WORD) } else { self.value(part, depth + 1) };
            made.insert(name.to_owned(), value);
        }
        Value::Object(made)
    }

    fn array(&self, schema: &Map<String, Value>, depth: usize) -> Value {
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(1).min(64);
        let items = schema.get("items").unwrap_or(&Value::Null);
        let one = if items.is_object() { self.value(items, depth + 1) } else { json!(WORD) };
        Value::Array((0..least).map(|_| one.clone()).collect())
    }

    fn resolved<'s>(&'s self, part: &'s Value) -> &'s Value {
        part.get("$ref").and_then(Value::as_str).map_or(part, |target| self.find(target))
    }

    fn find(&self, target: &str) -> &Value {
        target.strip_prefix('#').and_then(|path| self.root.pointer(path)).unwrap_or(&Value::Null)
    }
}

/// Merges schemas: the properties and the required names of all.
fn merge_schemas<'s>(
    own: &Map<String, Value>,
    all: &'s [Value],
    resolve: impl Fn(&'s Value) -> &'s Value,
) -> Value {
    let mut sum = own.clone();
    sum.remove("allOf");
    for part in all {
        for (name, value) in resolve(part).as_object().into_iter().flatten() {
            match (sum.get_mut(name), value) {
                (Some(Value::Object(into)), Value::Object(from)) => into.extend(from.clone()),
                (Some(Value::Array(into)), Value::Array(from)) => into.extend(from.iter().cloned()),
                _ => drop(sum.insert(name.clone(), value.clone())),
            }
        }
    }
    Value::Object(sum)
}

fn kind(schema: &Map<String, Value>) -> &str {
    match schema.get("type") {
        Some(Value::String(name)) => name,
        Some(Value::Array(names)) => names.first().and_then(Value::as_str).unwrap_or("string"),
        _ if schema.contains_key("properties") || schema.contains_key("required") => "object",
        _ if schema.contains_key("items") => "array",
        _ => "string",
    }
}

fn string(schema: &Map<String, Value>) -> Value {
    let fixed = match schema.get("format").and_then(Value::as_str) {
        Some("date") => "2000-01-01",
        Some("time") => "00:00:00Z",
        Some("date-time") => "2000-01-01T00:00:00Z",
        Some("duration") => "PT0S",
        Some("email") => "simulated@example.invalid",
        Some("hostname") => "example.invalid",
        Some("ipv4") => "192.0.2.1",
        Some("ipv6") => "2001:db8::1",
        Some("uri" | "url") => "https://example.invalid/simulated",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        _ => WORD,
    };
    let bound =
        |name: &str| schema.get(name).and_then(Value::as_u64).and_then(|length| usize::try_from(length).ok());
    let least = bound("minLength").unwrap_or(0).min(4096);
    let most = bound("maxLength").unwrap_or(usize::MAX);
    let mut text: String = fixed.chars().take(most).collect();
    let missing = least.saturating_sub(text.chars().count());
    text.extend(WORD.chars().cycle().take(missing));
    json!(text)
}

fn integer(schema: &Map<String, Value>) -> Value {
    let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
    let least = bound("minimum").or(bound("exclusiveMinimum").map(|least| least.saturating_add(1)));
    let most = bound("maximum").or(bound("exclusiveMaximum").map(|most| most.saturating_sub(1)));
    let base = least.unwrap_or_else(|| most.map_or(1, |most| most.min(1)));
    match bound("multipleOf").filter(|step| *step > 0) {
        Some(step) => json!(base.saturating_add(step - 1).div_euclid(step).saturating_mul(step)),
        None => json!(base),
    }
}

fn number(schema: &Map<String, Value>) -> Value {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let least = bound("minimum").or(bound("exclusiveMinimum").map(|least| least + 0.5));
    let most = bound("maximum").or(bound("exclusiveMaximum").map(|most| most - 0.5));
    match (least, most) {
        (Some(least), Some(most)) => json!(f64::midpoint(least, most)),
        (Some(only), None) | (None, Some(only)) => json!(only),
        (None, None) => json!(0.5),
    }
}
