//! Constraint on the output that an engine enforces: a schema, a pattern, a choice or a grammar.
//!
//! vLLM names these members `guided_…`, and newer versions accept them in `structured_outputs`; a JSON schema is
//! equivalent to `response_format` of type `json_schema`. An offer that lists one of the names is sent that name,
//! whichever the client used.

use crate::parameters;
use crate::pieces::Pieces;
use crate::scan;
use penstock_contract::{Abilities, Ask, Refusal};
use penstock_wire::json;
use std::borrow::Cow;

/// Member of `structured_outputs` with its older name.
struct Word {
    key: &'static str,
    older: &'static str,
}

const WORDS: [Word; 4] = [
    Word { key: "json", older: "guided_json" },
    Word { key: "regex", older: "guided_regex" },
    Word { key: "choice", older: "guided_choice" },
    Word { key: "grammar", older: "guided_grammar" },
];
/// Members of `structured_outputs` that are options and no constraints.
const DETAILS: [&str; 5] = [
    "disable_fallback",
    "disable_any_whitespace",
    "disable_additional_properties",
    "whitespace_pattern",
    "backend",
];
const NEWER: &str = "structured_outputs";

/// Returns true if an offer accepts a JSON schema for its output, under any of its names.
#[must_use]
pub fn takes_json_schema(abilities: &Abilities) -> bool {
    ["response_format", "structured_outputs", "guided_json", "json_schema"]
        .iter()
        .any(|name| abilities.accepts(name))
}

/// Returns true if a member is a constraint that [`write`] translates.
pub(crate) fn is_form(name: &str) -> bool {
    name == NEWER || WORDS.iter().any(|word| word.older == name)
}

/// Constraints of a request under the names that an offer accepts.
#[derive(Default)]
struct Said<'a> {
    /// Members of the request body, with unchanged values.
    members: Vec<(&'static str, &'a [u8])>,
    /// Members of `structured_outputs`.
    newer: Vec<(&'static str, &'a [u8])>,
    /// JSON schema for `response_format`.
    schema: Option<Cow<'a, [u8]>>,
    /// True if `response_format` must request any JSON object.
    object: bool,
}

/// Writes the constraints of a chat request for a chat provider, each after a comma.
///
/// # Errors
/// Returns `Unsupported` for a constraint that the offer does not accept, and `InvalidRequest` for an invalid schema.
pub(crate) fn write(ask: &Ask, abilities: &Abilities, out: &mut Pieces<'_>) -> Result<(), Refusal> {
    let Some(said) = read(ask, abilities)? else { return Ok(()) };
    for (name, value) in &said.members {
        out.put(",\"");
        out.put(name);
        out.put("\":");
        out.raw(value);
    }
    for (at, (key, value)) in said.newer.iter().enumerate() {
        out.put(if at == 0 { r#","structured_outputs":{""# } else { ",\"" });
        out.put(key);
        out.put("\":");
        out.raw(value);
    }
    if !said.newer.is_empty() {
        out.byte(b'}');
    }
    if let Some(schema) = &said.schema {
        out.put(r#","response_format":{"type":"json_schema","json_schema":{"name":"output","schema":"#);
        out.raw(schema);
        out.put("}}");
    } else if said.object {
        out.put(r#","response_format":{"type":"json_object"}"#);
    }
    Ok(())
}

/// Returns the JSON schema of a chat request, for a provider that accepts no other constraint.
///
/// # Errors
/// Returns `Unsupported` for any other constraint.
pub(crate) fn schema(ask: &Ask) -> Result<Option<Cow<'_, [u8]>>, Refusal> {
    let only = Abilities { parameters: vec!["response_format".into()], ..Abilities::default() };
    let Some(said) = read(ask, &only)? else { return Ok(None) };
    Ok(said.schema.or_else(|| said.object.then_some(Cow::Borrowed(ANY_OBJECT))))
}

/// JSON schema of any object.
pub(crate) const ANY_OBJECT: &[u8] = br#"{"type":"object"}"#;

fn read<'a>(ask: &'a Ask, abilities: &Abilities) -> Result<Option<Said<'a>>, Refusal> {
    let mut said: Option<Said<'a>> = None;
    for word in &WORDS {
        let Some(value) = asked(ask, word.older) else { continue };
        let said = said.get_or_insert_default();
        if abilities.accepts(word.older) {
            said.members.push((word.older, value));
        } else if abilities.accepts(NEWER) {
            said.newer.push((word.key, value));
        } else {
            said.as_format(ask, abilities, word, value, word.older)?;
        }
    }
    let Some(newer) = asked(ask, NEWER) else { return Ok(said) };
    let said_all = said.get_or_insert_default();
    if abilities.accepts(NEWER) && said_all.newer.is_empty() {
        said_all.members.push((NEWER, newer));
    } else {
        said_all.newer_in_other_words(ask, abilities, newer)?;
    }
    Ok(said)
}

/// Returns the value of a member, if it has an effect.
fn asked<'a>(ask: &'a Ask, name: &str) -> Option<&'a [u8]> {
    let value = ask.value(name)?;
    parameters::parameter(name)?.asks(value).then_some(value)
}

impl<'a> Said<'a> {
    /// Sets a constraint as `response_format`, if it is a schema and the offer accepts that.
    fn as_format(
        &mut self,
        ask: &Ask,
        abilities: &Abilities,
        word: &Word,
        value: &'a [u8],
        path: &str,
    ) -> Result<(), Refusal> {
        let free = self.schema.is_none() && !has_format(ask);
        if word.key != "json" || !free || !abilities.accepts("response_format") {
            return Err(parameters::refused(path));
        }
        self.schema = Some(object(value, path)?);
        Ok(())
    }

    /// Translates the members of `structured_outputs` if the offer does not accept it, or if older members exist too.
    fn newer_in_other_words(
        &mut self,
        ask: &Ask,
        abilities: &Abilities,
        newer: &'a [u8],
    ) -> Result<(), Refusal> {
        for (key, value) in scan::members(newer) {
            if matches!(value, b"null" | b"false") || DETAILS.contains(&&*key) {
                continue;
            }
            let plain =
                key.len() <= 40 && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let path = if plain { format!("{NEWER}.{key}") } else { NEWER.to_owned() };
            let word = WORDS.iter().find(|word| word.key == key);
            match word {
                Some(word) if abilities.accepts(NEWER) => self.newer.push((word.key, value)),
                Some(word) if abilities.accepts(word.older) => self.members.push((word.older, value)),
                Some(word) => self.as_format(ask, abilities, word, value, &path)?,
                None if key == "json_object" && !has_format(ask) && abilities.accepts("response_format") => {
                    self.object = true;
                }
                None => return Err(parameters::refused(&path)),
            }
        }
        Ok(())
    }
}

/// Returns true if the request has a `response_format` other than text.
fn has_format(ask: &Ask) -> bool {
    let kind = ask.value("response_format").and_then(|format| scan::member(format, "type"));
    kind.is_some_and(|kind| !json::is_string(kind, "text"))
}

/// Returns a JSON schema, which engines also accept as a string.
fn object<'a>(value: &'a [u8], path: &str) -> Result<Cow<'a, [u8]>, Refusal> {
    let none =
        || Refusal::invalid(path, format!("`{path}` must be a JSON schema: an object, or a string of one."));
    if scan::is_object(value) {
        return Ok(Cow::Borrowed(value));
    }
    let text = scan::string(value).ok_or_else(none)?.into_owned();
    let mut members = json::members(text.as_bytes());
    members.by_ref().for_each(drop);
    if !members.is_whole() {
        return Err(none());
    }
    Ok(Cow::Owned(text.into_bytes()))
}
