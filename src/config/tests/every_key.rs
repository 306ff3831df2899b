//! A wrong value in any key of the schema is a mistake of that key.

use super::super::scalar_check::fixed_choices;
use super::super::schema::SCHEMA;
use super::{mistakes, with};
use serde_json::{Map, Value, json};

/// Step from the root of the document to a key.
#[derive(Clone)]
enum Step {
    /// Member of a table, with the schema of the table.
    Member(&'static Value, String),
    /// Element of an array.
    Element,
}

/// Calls `each` with the path and the schema of every value that the schema describes.
fn walk(schema: &'static Value, path: &[Step], each: &mut dyn FnMut(&[Step], &'static Value)) {
    each(path, schema);
    let mut descend = |step: Step, inner: &'static Value| walk(inner, &[path, &[step]].concat(), each);
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        descend(Step::Member(schema, name.clone()), inner);
    }
    if let Some(inner) = schema.get("additionalProperties").filter(|inner| inner.is_object()) {
        descend(Step::Member(schema, "x".to_owned()), inner);
    }
    if let Some(inner) = schema.get("items") {
        descend(Step::Element, inner);
    }
    for branch in schema.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
        walk(branch, path, each);
    }
}

/// Returns a value that the schema accepts.
fn valid_value(schema: &Value) -> Value {
    if let Some(value) = schema.get("default").or_else(|| schema.get("examples").and_then(|all| all.get(0))) {
        return value.clone();
    }
    if let Some(choice) = fixed_choices(schema).and_then(|choices| choices.first().copied()) {
        return json!(choice);
    }
    if let Some(branch) = schema.get("anyOf").and_then(|branches| branches.get(0)) {
        return valid_value(branch);
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => Value::Object(required_members(schema)),
        Some("array") => schema.get("items").map_or(json!([]), |items| json!([valid_value(items)])),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        _ => json!("x"),
    }
}

fn required_members(schema: &Value) -> Map<String, Value> {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let inner = |name: &str| schema.get("properties").and_then(|known| known.get(name));
    names
        .filter_map(Value::as_str)
        .filter_map(|name| Some((name.to_owned(), valid_value(inner(name)?))))
        .collect()
}

/// Returns a document that has `value` at a path, and the required members of every table on the way.
fn document(path: &[Step], value: Value) -> Value {
    path.iter().rev().fold(value, |value, step| match step {
        Step::Element => json!([value]),
        Step::Member(table, name) => {
            let mut members = required_members(table);
            members.insert(name.clone(), value);
            Value::Object(members)
        }
    })
}

fn to_toml(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(name, value)| format!("{name:?} = {}", to_toml(value))).collect();
            format!("{{ {} }}", members.join(", "))
        }
        Value::Array(elements) => {
            format!("[{}]", elements.iter().map(to_toml).collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// Returns the text of a document, with one line for each key of the root.
fn to_text(document: &Value) -> String {
    let members = document.as_object().into_iter().flatten();
    members.map(|(name, value)| format!("{name:?} = {}\n", to_toml(value))).collect()
}

#[test]
fn no_wrong_value_hides_the_other_mistakes() {
    let wrong = [
        json!("no such choice"),
        json!(""),
        json!(-1),
        json!(3.5),
        json!(true),
        json!([]),
        json!(["no such choice"]),
        json!({}),
        json!({ "x": 1 }),
    ];
    let mut keys = 0;
    walk(&SCHEMA, &[], &mut |path, _| {
        keys += 1;
        for value in &wrong {
            let text = to_text(&document(path, value.clone()));
            for found in mistakes(&text) {
                assert!(!found.reason.contains("configuration cannot be read"), "{text}{found}");
                assert!(!found.reason.contains("This is not TOML"), "{text}{found}");
            }
        }
    });
    assert!(keys > 300, "{keys} keys");
}

#[test]
fn a_wrong_choice_is_a_mistake_that_names_the_choices() {
    let mut keys = 0;
    walk(&SCHEMA, &[], &mut |path, schema| {
        let Some(choices) = fixed_choices(schema) else { return };
        keys += 1;
        let text = to_text(&document(path, json!("no such choice")));
        let found: Vec<_> =
            mistakes(&text).into_iter().filter(|one| one.reason.contains("one of the choices")).collect();
        let [found] = &found[..] else { panic!("{text}{found:?}") };
        assert!(
            found.line.is_some() && found.value.as_deref() == Some("\"no such choice\""),
            "{text}{found}"
        );
        assert!(choices.iter().all(|choice| found.remedy.contains(&format!("{choice:?}"))), "{text}{found}");
        let last = path.iter().rev().find_map(|step| match step {
            Step::Member(_, name) => Some(name.as_str()),
            Step::Element => None,
        });
        assert!(last.is_some_and(|last| found.key.contains(last)), "{text}{found}");
    });
    assert!(keys > 15, "{keys} keys");
}

#[test]
fn a_wrong_choice_does_not_hide_the_other_mistakes() {
    let text = with("[storage]\nengine = \"sqlite\"\n[files.store]\nstyle = \"vhost\"", "", "", "")
        .replace("\"FR\"", "\"US\"");
    let found = mistakes(&text);
    let of = |key: &str| found.iter().find(|found| found.key == key).unwrap_or_else(|| panic!("{found:?}"));
    assert_eq!(
        of("storage.engine").to_string(),
        "penstock.toml:3: storage.engine = \"sqlite\"\n    It is not one of the choices.\n    \
         Write one of \"embedded\", \"postgres\"."
    );
    assert_eq!(of("files.store.style").remedy, "Write one of \"path\", \"virtual\".");
    let line = text.lines().position(|line| line.contains("\"US\"")).map(|index| index + 1);
    assert_eq!(of("providers.p1.country").line, line);
}
