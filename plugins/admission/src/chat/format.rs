//! Validation of `response_format`: text, any JSON, or JSON of a schema.

use super::Findings;
use crate::body::Top;
use crate::json::Value;
use crate::path::Path;
use crate::read;
use penstock_contract::Refusal;

pub(super) fn response_format(top: &Top<'_>, found: &mut Findings) -> Result<(), Refusal> {
    let path = top.path("response_format");
    let Some(format) = top.get("response_format") else { return Ok(()) };
    let [kind, schema] = read::object(format, &path, ["type", "json_schema"])?;
    let words = &["text", "json_object", "json_schema"];
    let kind_path = path.key("type");
    let kind = read::required(kind, &kind_path, read::Alternatives(words))?;
    match read::one_of(kind, &kind_path, words)? {
        "json_object" => found.needs.json_object = true,
        "json_schema" => {
            found.needs.json_schema = true;
            let path = path.key("json_schema");
            json_schema(read::required(schema, &path, "an object")?, &path, found)?;
        }
        _ => {}
    }
    Ok(())
}

fn json_schema<'d>(value: Value<'d>, at: &Path<'_>, found: &mut Findings) -> Result<(), Refusal> {
    let [name, schema, strict, description] =
        read::object(value, at, ["name", "schema", "strict", "description"])?;
    read::name(name, &at.key("name"))?;
    let schema_path = at.key("schema");
    read::any_object(read::required(schema, &schema_path, "a JSON schema")?, &schema_path)?;
    read::flag(strict, &at.key("strict"))?;
    description.map(|text| read::string(text, &at.key("description"))).transpose()?;
    found.edits.keep_members(value, |_, member| !member.is_null());
    Ok(())
}
