//! Tables of JSON schemas: the members of an object with their types, limits and descriptions.

use crate::block::{Cell, Row, Table};
use crate::text::Text;
use serde_json::Value;

/// Depth up to which the members of inline objects have rows of their own.
const MAX_DEPTH: usize = 4;
/// Start of the reference to a schema of the document.
const SCHEMA_PREFIX: &str = "#/components/schemas/";
/// Constraints of a schema, and its default and format, each with its text.
const CONSTRAINTS: [(&str, &str); 8] = [
    ("minimum", "at least {0}"),
    ("maximum", "at most {0}"),
    ("minLength", "at least {0} characters"),
    ("maxLength", "at most {0} characters"),
    ("minItems", "at least {0} items"),
    ("maxItems", "at most {0} items"),
    ("default", "default {0}"),
    ("format", "format {0}"),
];

/// Texts of constraints with a limit, and their singular forms for a limit of 1.
const SINGULAR: [(&str, &str); 4] = [
    ("at least {0} characters", "at least one character"),
    ("at most {0} characters", "at most one character"),
    ("at least {0} items", "at least one item"),
    ("at most {0} items", "at most one item"),
];

/// Returns the name of the schema that the `$ref` of a schema, or of its `items`, refers to; `None` without such a
/// reference.
#[must_use]
pub(super) fn referenced_schema_name(schema: &Value) -> Option<&str> {
    let name = |schema: &'_ Value| -> Option<usize> {
        schema.get("$ref")?.as_str()?.starts_with(SCHEMA_PREFIX).then_some(SCHEMA_PREFIX.len())
    };
    let of = |schema: &'_ Value| name(schema).is_some();
    let found = if of(schema) { Some(schema) } else { schema.get("items").filter(|items| of(items)) };
    found?.get("$ref")?.as_str()?.strip_prefix(SCHEMA_PREFIX)
}

/// Returns the type of a schema as text, such as `array<TextPart>` or `string | null`.
#[must_use]
pub(super) fn type_name(schema: &Value) -> String {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return name.strip_prefix(SCHEMA_PREFIX).unwrap_or(name).to_owned();
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    if let Some(variants) = schema.get("anyOf").and_then(Value::as_array) {
        let mut names: Vec<String> = Vec::new();
        for name in variants.iter().map(type_name) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        return names.join(" | ");
    }
    let one = |kind: &str| match (kind, schema.get("items")) {
        ("array", Some(items)) => format!("array<{}>", type_name(items)),
        _ => kind.to_owned(),
    };
    match schema.get("type") {
        Some(Value::String(kind)) => one(kind),
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" | ")
        }
        _ => String::new(),
    }
}

/// Returns the description of a schema, with its constraints in parentheses.
fn constraints(schema: &Value) -> Text {
    let limits = CONSTRAINTS.iter().filter_map(|(name, text)| {
        let value = match schema.get(name)? {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let singular = SINGULAR.iter().find(|(plural, _)| plural == text && value == "1");
        Some(
            singular
                .map_or_else(|| Text::with_values(text, [Text::Data(value)]), |(_, one)| Text::from(*one)),
        )
    });
    let join = |one, other| Text::with_values("{0}, {1}", [one, other]);
    let limits = limits.reduce(join);
    let description = schema.get("description").and_then(Value::as_str);
    let description = description.map(|text| Text::Word(text.to_owned()));
    match (description, limits) {
        (Some(text), Some(limits)) => Text::with_values("{0} ({1})", [text, limits]),
        (Some(text), None) => text,
        (None, limits) => limits.unwrap_or_default(),
    }
}

/// Returns a cell with the type of a schema, which links to the page of the schema that it refers to.
#[must_use]
pub(super) fn type_cell(schema: &Value, root: &str) -> Cell {
    match referenced_schema_name(schema) {
        Some(name) => {
            Cell::link(type_name(schema), format!("{root}api/schemas/{}", super::percent_encode(name)))
        }
        None => Cell::text(type_name(schema)),
    }
}

/// Tables of the members of a schema: one table, or one for each variant.
#[must_use]
pub(super) fn schema_tables(title: &str, schema: &Value, root: &str) -> Vec<Table> {
    let variants = schema.get("anyOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_object = |schema: &Value| schema.get("properties").is_some();
    if !variants.iter().any(is_object) {
        return vec![member_table(Text::Data(title.to_owned()), schema, root)];
    }
    let table = |(number, variant): (usize, &Value)| {
        let title = Text::with_values(
            "{0}, variant {1}",
            [Text::Data(title.to_owned()), Text::Exact((number + 1).to_string(), "")],
        );
        member_table(title, variant, root)
    };
    variants.iter().enumerate().map(table).collect()
}

fn member_table(title: Text, schema: &Value, root: &str) -> Table {
    let mut rows = Vec::new();
    if schema.get("properties").is_some() {
        add_members(&mut rows, schema, "", root, 0);
    } else {
        rows.push(vec![
            Cell::text("(value)".to_owned()),
            type_cell(schema, root),
            Cell::default(),
            Cell::text(constraints(schema)),
        ]);
    }
    Table {
        title,
        headings: vec!["Member", "Type", "Required", "Description"],
        rows,
        empty_text: "No members are listed.",
        next: None,
        is_screen_only: false,
    }
}

/// Adds a row for each member, and for the members of inline objects.
fn add_members(rows: &mut Vec<Row>, schema: &Value, path: &str, root: &str, depth: usize) {
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let members = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, member) in members {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let is_required = required.iter().any(|known| known.as_str() == Some(name));
        rows.push(vec![
            Cell::text(path.clone()),
            type_cell(member, root),
            if is_required { Cell::text("required") } else { Cell::default() },
            Cell::text(constraints(member)),
        ]);
        if depth + 1 < MAX_DEPTH {
            let items = member.get("items").map(|items| (items, format!("{path}[]")));
            let variants = member.get("anyOf").and_then(Value::as_array).into_iter().flatten();
            let inline = variants.map(|variant| (variant, path.clone()));
            for (inner, path) in [(member, path.clone())].into_iter().chain(items).chain(inline) {
                add_members(rows, inner, &path, root, depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use crate::language::Language;
    use serde_json::json;

    #[test]
    fn types_are_named_as_in_the_document() {
        for (schema, expected) in [
            (json!({ "$ref": "#/components/schemas/File" }), "File"),
            (json!({ "type": ["array", "null"], "items": { "type": "string" } }), "array<string> | null"),
            (json!({ "enum": ["a", null] }), "\"a\" | null"),
            (
                json!({ "anyOf": [{ "type": "null" }, { "type": "object" }, { "type": "object" }] }),
                "null | object",
            ),
            (json!({ "const": "batch" }), "\"batch\""),
            (json!({}), ""),
        ] {
            assert_eq!(type_name(&schema), expected);
        }
    }

    #[test]
    fn a_limit_of_one_is_in_the_singular() {
        let french = |schema: &Value| constraints(schema).render(Language::French).into_owned();
        assert_eq!(
            french(&json!({ "minLength": 1, "maxItems": 3 })),
            "au moins un caractère, au plus 3 éléments"
        );
        assert_eq!(french(&json!({ "minItems": 1 })), "au moins un élément");
    }

    #[test]
    fn members_of_inline_objects_have_rows() {
        let schema = json!({ "type": "object", "required": ["a"], "properties": {
            "a": { "type": "object", "properties": { "b": { "type": "integer", "minimum": 1, "maximum": 9, "description": "Count." } } },
            "c": { "type": "array", "items": { "$ref": "#/components/schemas/File" } },
            "d": { "anyOf": [{ "type": "null" }, { "type": "object", "properties": { "e": { "type": "string" } } }] },
        } });
        let table = &schema_tables("T", &schema, "/console/")[0];
        let shown: Vec<String> =
            table.rows.iter().map(|row| row[0].text.render(Language::English).into_owned()).collect();
        assert_eq!(shown, ["a", "a.b", "c", "d", "d.e"]);
        assert_eq!(table.rows[1][3].text.render(Language::German), "Count. (mindestens 1, höchstens 9)");
        assert_eq!(table.rows[2][1].href.as_deref(), Some("/console/api/schemas/File"));
    }
}
