//! Reference of the public API, from its OpenAPI document: operations, parameters, schemas and errors.

use super::schema::{referenced_schema_name, schema_tables, type_cell};
use super::{percent_encode, text, word};
use crate::block::{Block, Cell, Table};
use crate::text::Text;
use serde_json::Value;

/// Operation of the document.
struct Operation<'d> {
    method: &'d str,
    path: &'d str,
    object: &'d Value,
}

impl Operation<'_> {
    fn id(&self) -> String {
        text(self.object, "operationId")
    }

    fn label(&self) -> String {
        format!("{} {}", self.method.to_ascii_uppercase(), self.path)
    }
}

fn operations(document: &Value) -> impl Iterator<Item = Operation<'_>> {
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let methods = item.as_object().into_iter().flatten();
        methods.map(move |(method, object)| Operation { method, path, object })
    })
}

fn table(title: Text, headings: Vec<&'static str>, rows: Vec<Vec<Cell>>) -> Table {
    Table { title, headings, rows, empty_text: "No members are listed.", next: None, is_screen_only: false }
}

/// List of the operations, by their tags, and of the schemas.
#[must_use]
pub fn api_reference_blocks(document: &Value, root: &str) -> Vec<Block> {
    let description = document.pointer("/info/description").and_then(Value::as_str).unwrap_or_default();
    let mut blocks = vec![
        Block::Prose(Text::Word(description.to_owned())),
        Block::Prose("The API serves this document as JSON at /openapi.json, in OpenAPI 3.1.".into()),
    ];
    let mut tags: Vec<&str> = Vec::new();
    for tag in operations(document).filter_map(|one| one.object.pointer("/tags/0")?.as_str()) {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    for tag in tags {
        let of_tag = operations(document)
            .filter(|one| one.object.pointer("/tags/0").and_then(Value::as_str) == Some(tag));
        let row = |one: Operation<'_>| {
            let path = format!("{root}api/{}", percent_encode(&one.id()));
            vec![
                Cell::link(one.path.to_owned(), path),
                Cell::text(one.method.to_ascii_uppercase()),
                Cell::text(word(one.object, "summary")),
            ]
        };
        let rows = of_tag.map(row).collect();
        blocks.push(Block::Table(table(
            Text::Data(tag.to_owned()),
            vec!["Path", "Method", "Description"],
            rows,
        )));
    }
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object).into_iter().flatten();
    let links = schemas
        .map(|(name, _)| (format!("{root}api/schemas/{}", percent_encode(name)), Text::Data(name.clone())));
    blocks.extend([Block::Heading("Schemas".into()), Block::Links(links.collect())]);
    blocks
}

/// Title and blocks of an operation; `None` if the document has no operation with this id.
#[must_use]
pub fn operation_blocks(document: &Value, id: &str, root: &str) -> Option<(Text, Vec<Block>)> {
    let operation = operations(document).find(|one| one.id() == id)?;
    let object = operation.object;
    let is_open =
        object.get("security").is_some_and(|security| security.as_array().is_some_and(Vec::is_empty));
    let access =
        if is_open { "This operation needs no API key." } else { "This operation needs an API key." };
    let mut blocks = vec![
        Block::Prose(Text::with_values("{0}. {1}", [word(object, "summary"), access.into()])),
        Block::Links(vec![(format!("{root}api"), "All operations".into())]),
    ];
    if let Some(parameters) = object.get("parameters").and_then(Value::as_array) {
        blocks.push(Block::Table(parameter_table(parameters, root)));
    }
    if let Some(contents) = object.pointer("/requestBody/content").and_then(Value::as_object) {
        for (kind, content) in contents {
            blocks.extend(body_blocks(document, kind, content, root));
        }
    }
    blocks.extend(response_blocks(document, object, root));
    Some((Text::Data(operation.label()), blocks))
}

/// Blocks of a schema; `None` if the document has no schema with this name.
#[must_use]
pub fn schema_blocks(document: &Value, name: &str, root: &str) -> Option<Vec<Block>> {
    let schema = document.pointer("/components/schemas")?.get(name)?;
    let mut blocks = vec![Block::Links(vec![(format!("{root}api"), "All operations".into())])];
    blocks.extend(description_block(schema));
    blocks.extend(schema_tables(name, schema, root).into_iter().map(Block::Table));
    blocks.extend(example_blocks(schema));
    Some(blocks)
}

fn description_block(schema: &Value) -> Option<Block> {
    let description = schema.get("description").and_then(Value::as_str)?;
    Some(Block::Prose(Text::Word(description.to_owned())))
}

fn example_blocks(schema: &Value) -> Vec<Block> {
    let Some(example) = schema.get("example") else { return Vec::new() };
    let json = serde_json::to_string_pretty(example).unwrap_or_default();
    vec![Block::Heading("Example".into()), Block::Code(json)]
}

fn parameter_table(parameters: &[Value], root: &str) -> Table {
    let row = |parameter: &Value| {
        let schema = parameter.get("schema").cloned().unwrap_or_default();
        let is_required = parameter.get("required") == Some(&Value::Bool(true));
        let description = match (parameter.get("description"), schema.get("default")) {
            (Some(Value::String(text)), _) => Text::Word(text.clone()),
            (_, Some(default)) => Text::with_values("default {0}", [Text::Data(default.to_string())]),
            _ => Text::default(),
        };
        vec![
            Cell::text(text(parameter, "name")),
            Cell::text(Text::Word(text(parameter, "in"))),
            type_cell(&schema, root),
            if is_required { Cell::text("required") } else { Cell::default() },
            Cell::text(description),
        ]
    };
    let headings = vec!["Parameter", "Part of the request", "Type", "Required", "Description"];
    table("Parameters".into(), headings, parameters.iter().map(row).collect())
}

/// Members of a request body, and its example.
fn body_blocks(document: &Value, kind: &str, content: &Value, root: &str) -> Vec<Block> {
    let empty = Value::Null;
    let schema = content.get("schema").unwrap_or(&empty);
    let named =
        referenced_schema_name(schema).and_then(|name| document.pointer("/components/schemas")?.get(name));
    let resolved = named.unwrap_or(schema);
    let title = Text::with_values("Request body, {0}", [Text::Data(kind.to_owned())]);
    let mut blocks = vec![Block::Heading(title)];
    let name = referenced_schema_name(schema).unwrap_or(kind);
    blocks.extend(description_block(resolved));
    blocks.extend(schema_tables(name, resolved, root).into_iter().map(Block::Table));
    blocks.extend(example_blocks(resolved));
    blocks
}

/// Tables of the successful responses and of the errors.
fn response_blocks(document: &Value, operation: &Value, root: &str) -> Vec<Block> {
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    let responses = operation.get("responses").and_then(Value::as_object).into_iter().flatten();
    for (status, response) in responses {
        let response = response
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|path| document.pointer(path.strip_prefix('#')?))
            .unwrap_or(response);
        let description = Cell::text(word(response, "description"));
        let contents = response.get("content").and_then(Value::as_object);
        if status.starts_with(['4', '5']) {
            let schema = contents.and_then(|contents| contents.values().next()?.get("schema"));
            let kind = schema.map_or_else(Cell::default, |schema| type_cell(schema, root));
            errors.push(vec![Cell::text(status.clone()), description, kind]);
            continue;
        }
        if contents.is_none_or(serde_json::Map::is_empty) {
            answers.push(vec![
                Cell::text(status.clone()),
                description.clone(),
                Cell::default(),
                Cell::default(),
            ]);
        }
        for (kind, content) in contents.into_iter().flatten() {
            let schema = content.get("schema").map_or_else(Cell::default, |schema| type_cell(schema, root));
            answers.push(vec![
                Cell::text(status.clone()),
                description.clone(),
                Cell::text(kind.clone()),
                schema,
            ]);
        }
    }
    let answered =
        table("Responses".into(), vec!["Status", "Description", "Content type", "Schema"], answers);
    let refused = table("Errors".into(), vec!["Status", "Codes", "Schema"], errors);
    vec![Block::Table(answered), Block::Table(refused)]
}
