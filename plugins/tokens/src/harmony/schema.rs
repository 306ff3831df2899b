//! Functions as TypeScript-like types: the tools section of a developer message.
//!
//! Guarantees: the same bytes as the output of `openai-harmony`, including its peculiarities.

use crate::conversation::FunctionTool;
use serde_json::Value;
use std::collections::HashSet;

/// Returns the text of the prompt section `functions`, which describes the tools as TypeScript types.
pub(super) fn render_functions_section(tools: &[FunctionTool]) -> String {
    let mut lines = vec!["## functions\n".to_owned(), "namespace functions {\n".to_owned()];
    for tool in tools {
        let description = tool.description.as_deref().unwrap_or_default();
        lines.extend(description.lines().map(|line| format!("// {line}")));
        lines.push(match &tool.parameters {
            Some(schema) => format!("type {} = (_: {}) => any;\n", tool.name, type_of(schema, "")),
            None => format!("type {} = () => any;\n", tool.name),
        });
    }
    lines.push("} // namespace functions".to_owned());
    lines.join("\n")
}

fn text<'s>(schema: &'s Value, name: &str) -> Option<&'s str> {
    schema.get(name)?.as_str()
}

fn list<'s>(schema: &'s Value, name: &str) -> Option<&'s Vec<Value>> {
    schema.get(name)?.as_array()
}

fn is_enum(schema: &Value) -> bool {
    list(schema, "enum").is_some_and(|values| !values.is_empty())
}

/// Returns the default value of a schema as JSON, for the comment of a variant of a union type.
fn json_default(schema: &Value) -> Option<String> {
    let default = schema.get("default")?;
    Some(match default.as_str() {
        Some(text) if !is_enum(schema) => format!("default: \"{text}\""),
        _ => format!("default: {default}"),
    })
}

/// Returns the default value of a schema for the comment of a property: as JSON, but an enumeration value without
/// quotes.
fn bare_default(schema: &Value) -> Option<String> {
    let default = schema.get("default")?;
    Some(match default.as_str() {
        Some(text) if !is_enum(schema) => format!("default: \"{text}\""),
        Some(text) => format!("default: {text}"),
        None => format!("default: {default}"),
    })
}

fn nullable(schema: &Value, indent: &str) -> String {
    let of = type_of(schema, indent);
    let null = schema.get("nullable").and_then(Value::as_bool).unwrap_or(false);
    if null && !of.contains("null") { format!("{of} | null") } else { of }
}

fn commented(comments: &[String]) -> String {
    if comments.is_empty() { String::new() } else { format!(" // {}", comments.join(" ")) }
}

fn type_of(schema: &Value, indent: &str) -> String {
    if let Some(variants) = list(schema, "oneOf") {
        return variants.iter().map(|variant| alternative(variant, indent)).collect();
    }
    if let Some(types) = list(schema, "type") {
        let names: Vec<_> = types.iter().filter_map(Value::as_str).map(number).collect();
        if !names.is_empty() {
            return names.join(" | ");
        }
    }
    match text(schema, "type") {
        Some("object") => object(schema, indent),
        Some("string") => strings(schema),
        Some("number" | "integer") => "number".to_owned(),
        Some("boolean") => "boolean".to_owned(),
        Some("array") => match schema.get("items") {
            Some(items) => format!("{}[]", type_of(items, indent)),
            None => "Array<any>".to_owned(),
        },
        _ => "any".to_owned(),
    }
}

fn number(name: &str) -> &str {
    if name == "integer" { "number" } else { name }
}

fn strings(schema: &Value) -> String {
    let values: Vec<_> = list(schema, "enum")
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|value| format!("\"{value}\""))
        .collect();
    if values.is_empty() { "string".to_owned() } else { values.join(" | ") }
}

fn alternative(variant: &Value, indent: &str) -> String {
    let of = nullable(variant, &format!("{indent}   "));
    let mut comments: Vec<String> = text(variant, "description").map(str::to_owned).into_iter().collect();
    comments.extend(json_default(variant));
    format!("\n{indent} | {of}{}", commented(&comments))
}

fn object(schema: &Value, indent: &str) -> String {
    let mut out = String::new();
    if let Some(description) = text(schema, "description") {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    out.push_str("{\n");
    let required: HashSet<_> =
        list(schema, "required").into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let mark = if required.contains(name.as_str()) { "" } else { "?" };
        comments_above(property, indent, &mut out);
        match list(property, "oneOf") {
            Some(variants) => alternatives(&format!("{name}{mark}"), property, variants, indent, &mut out),
            None => {
                let of = nullable(property, &format!("{indent}    "));
                out.push_str(&format!("{indent}{name}{mark}: {of},"));
                if property.get("oneOf").is_none() {
                    out.push_str(&commented(&bare_default(property).into_iter().collect::<Vec<_>>()));
                }
                out.push('\n');
            }
        }
    }
    out.push_str(&format!("{indent}}}"));
    out
}

fn comments_above(property: &Value, indent: &str, out: &mut String) {
    if let Some(title) = text(property, "title") {
        out.push_str(&format!("{indent}// {title}\n{indent}//\n"));
    }
    if let Some(description) = text(property, "description").filter(|_| property.get("oneOf").is_none()) {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    if let Some(examples) = list(property, "examples").filter(|examples| !examples.is_empty()) {
        out.push_str(&format!("{indent}// Examples:\n"));
        for example in examples.iter().filter_map(Value::as_str) {
            out.push_str(&format!("{indent}// - \"{example}\"\n"));
        }
    }
}

fn alternatives(name: &str, property: &Value, variants: &[Value], indent: &str, out: &mut String) {
    let description = text(property, "description");
    let repeated = variants.first().and_then(|first| text(first, "description")) == description;
    let above = description.filter(|_| !repeated);
    if let Some(description) = above {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    if let Some(default) = bare_default(property) {
        out.push_str(&format!("{indent}// {default}\n"));
    }
    out.push_str(&format!("{indent}{name}:\n"));
    for (at, variant) in variants.iter().enumerate() {
        let of = nullable(variant, &format!("{indent}   "));
        let own = text(variant, "description").filter(|own| Some(*own) != description);
        let own = own.filter(|_| at > 0 || above.is_none());
        let mut comments: Vec<String> = own.map(str::to_owned).into_iter().collect();
        comments.extend(bare_default(variant));
        out.push_str(&format!("{indent} | {of}{}\n", commented(&comments)));
    }
    out.push_str(&format!("{indent},\n"));
}
